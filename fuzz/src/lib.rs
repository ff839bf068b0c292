//! Bodies of the fuzz targets: each takes any bytes and panics if what they show is wrong.
//!
//! The binaries under `fuzz_targets/` hand them to libFuzzer, `tests/bounded.rs` to a seeded
//! mutator, so that every `cargo test` runs them for a few seconds.

mod durable;
mod exchange;
mod http;
mod json;
mod mesh;
mod message_id;
mod peer;
mod push;
mod token;

pub use durable::{durable_bodies, durable_push_body, durable_query};
pub use exchange::exchange_body;
pub use http::http;
pub use json::json;
pub use mesh::mesh;
pub use message_id::message_id;
pub use peer::peer;
pub use push::push_body;
pub use token::token;
