//! The body of a push, with serde_json as the oracle for what is taken and for every span.

use std::ops::Range;

use queen_wire::body::{BodyError, parse_push};
use queen_wire::name;
use serde::Deserialize;
use serde_json::value::RawValue;

/// As `QUEEN_JSON_DEPTH_MAX` by default.
pub(crate) const DEPTH_MAX: u32 = 128;

#[derive(Deserialize)]
pub(crate) struct Push<'a> {
    pub(crate) queue: String,
    partition: Option<String>,
    #[serde(borrow)]
    pub(crate) messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow)]
    pub(crate) payload: &'a RawValue,
}

/// Asserts of a body that is taken that every span is a whole JSON value without space around it,
/// and that serde_json reads the same; of one that is refused, that serde_json refuses it too or
/// that a rule which serde_json does not have says so.
pub fn push_body(data: &[u8]) {
    let mut spans = Vec::new();
    let ours = parse_push(data, DEPTH_MAX, &mut spans);
    let theirs = serde_json::from_slice::<Push<'_>>(data);
    match (ours, theirs) {
        (Ok(push), theirs) => {
            let payloads: Vec<_> = spans.iter().map(|span| &data[Range::from(*span)]).collect();
            for payload in &payloads {
                assert!(queen_wire::json::validate(payload, DEPTH_MAX).is_ok());
                assert_eq!(payload.trim_ascii(), *payload);
            }
            // serde_json refuses a member given twice, among others; where it reads, it agrees.
            if let Ok(theirs) = theirs {
                assert_eq!(push.queue, theirs.queue);
                assert_eq!(push.partition, theirs.partition.as_deref().unwrap_or("Default"));
                let expected: Vec<_> = theirs.messages.iter().map(|message| message.payload.get().as_bytes()).collect();
                assert_eq!(payloads, expected);
            }
        }
        (Err(error), Ok(theirs)) => {
            let own_rule = match error {
                BodyError::Name { .. } => {
                    let names = std::iter::once(&theirs.queue).chain(&theirs.partition);
                    names.into_iter().any(|text| name::check("queue", text).is_err())
                }
                // The derived reader takes arrays for structs.
                BodyError::NotAnObject | BodyError::Wrong { .. } => data.contains(&b'['),
                BodyError::TooMany { .. } => theirs.messages.len() > queen_wire::body::ITEMS_MAX,
                BodyError::Json(fault) => matches!(
                    fault.kind,
                    queen_wire::json::JsonErrorKind::TooDeep | queen_wire::json::JsonErrorKind::Utf8
                ),
                _ => false,
            };
            assert!(own_rule, "{error}: {:?}", String::from_utf8_lossy(data));
        }
        (Err(_), Err(_)) => {}
    }
}
