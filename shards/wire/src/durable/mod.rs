//! The request bodies and queries of the durable routes.
//!
//! The rules of [`crate::body`] hold here too: members in any order, the last of a kind counts, unknown ones are
//! ignored, null is absent. What differs are names: a queue's has up to 255 characters, a partition's may be empty.

mod ack;
mod changed;
mod configure;
mod fetch;
mod lease;
mod pop;
mod push;

use std::borrow::Cow;

pub use ack::{Ack, Acks, parse_ack, parse_ack_batch};
pub use changed::{CHANGED_ENTRIES_MAX, CHANGED_ROWS_MAX, ChangedEntry, parse_changed};
pub use configure::{Configure, Given, Number, Switch, parse_configure};
pub use fetch::{FETCH_ENTRIES_MAX, Fetch, FetchEntry, parse_fetch};
pub use lease::{EXTEND_DEFAULT_S, parse_extend};
pub use pop::{PopQuery, Start};
pub use push::{Item, parse_push};

use crate::body::BodyError;
use crate::body::fields::{self, Member};
use crate::json::{JsonError, Scanner};
use crate::name::{self, NameError};

/// The most messages of a push and the most acks of a batch.
pub const ITEMS_MAX: usize = 20_000;

/// The longest time that any of the routes counts in seconds: 68 years.
pub const SECONDS_MAX: i64 = i32::MAX as i64;

/// Reads a member that is a text, which `check` judges.
fn text<'a>(
    scanner: &mut Scanner<'a>,
    field: &'static str,
    depth_max: u32,
    check: fn(&'static str, &str) -> Result<(), BodyError>,
) -> Result<Member<Cow<'a, str>>, JsonError> {
    Ok(fields::string(scanner, || field.into(), depth_max)?.and_then(|raw| {
        let Some(raw) = raw else { return Ok(None) };
        let lone = |_| BodyError::Name { field, fault: NameError::LoneSurrogate };
        let text = raw.decode().map_err(lone)?;
        check(field, &text)?;
        Ok(Some(text))
    }))
}

/// Reads a member that is a queue's name.
fn queue<'a>(scanner: &mut Scanner<'a>, depth_max: u32) -> Result<Member<Cow<'a, str>>, JsonError> {
    text(scanner, "queue", depth_max, name::check_queue)
}

/// Reads a member that is a text of any kind. Half of a surrogate pair becomes U+FFFD.
fn free_text<'a>(
    scanner: &mut Scanner<'a>,
    field: &'static str,
    depth_max: u32,
) -> Result<Member<Cow<'a, str>>, JsonError> {
    let raw = fields::string(scanner, || field.into(), depth_max)?;
    Ok(raw.map(|raw| raw.map(crate::json::RawString::decode_lossy)))
}
