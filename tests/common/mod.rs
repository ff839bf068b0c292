//! What the end-to-end tests share: the broker as a child process, a connection of plain sockets
//! that sends exactly the bytes a test names, and the ephemeral verbs over it.
//!
//! Every test binary compiles this module for itself and uses its own part of it.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of the harness")]

mod broker;
mod certificates;
mod connection;
mod tokens;
mod verbs;
mod wait;

pub use broker::{Broker, cpus};
pub use certificates::Certificates;
pub use connection::{Connection, Response};
pub use tokens::{Issuer, SECRET, in_s, signing_key, token};
pub use verbs::{Message, outcomes, payloads, request};
pub use wait::{eventually, unique};

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long a test waits for something that must happen: far beyond what an idle machine needs, so
/// that only a thing that never happens fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Lets this process open `count` files, or as many as its hard limit allows, and says how many.
pub fn allow_open_files(count: u64) -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let allowed = maximum.map_or(count, |most| most.min(count));
    setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum })
        .expect("a soft limit can be raised to the hard one");
    allowed
}
