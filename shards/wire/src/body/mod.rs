//! The request bodies of the ephemeral routes, and of what operators switch and grant for them, read in one pass each.
//!
//! Rules that hold for all of them: members may come in any order; of a member given twice the last
//! counts; members that a body does not have are ignored, except among the options of `configure`
//! and in a grant, whose lists are closed; a member that may be absent may be `null`. A text that is no JSON is
//! [`BodyError::Json`] wherever in it the fault stands, even if a member before it is wrong too.
//!
//! simd-json is not used here: it refuses a lone surrogate or `1e999` even in a member that nobody
//! reads, and it unescapes in place, which destroys the spans of payloads.

mod ack;
mod configure;
mod control;
mod error;
mod exchange;
pub(crate) mod fields;
mod push;
mod request;

use std::borrow::Cow;

pub use ack::{Ack, AckBody, parse_ack};
pub use configure::{ConfigureBody, Options, Policy, WindowBuffer, parse_configure, parse_options};
pub use control::{GrantBody, parse_grant, parse_switch};
pub use error::BodyError;
pub use exchange::{ExchangeBody, ExchangePush, parse_exchange};
pub use push::{PushBody, Span, parse_push};
pub use request::{RequestBody, parse_request};

use fields::required;

/// The most messages of a push and the most acks of an ack.
pub const ITEMS_MAX: usize = 10_000;

/// Reads `{"queue": …}`, the body of `reset`, and returns the queue's name.
///
/// # Errors
/// [`BodyError`], as for the other bodies. `depth_max` bounds the nesting of ignored members.
pub fn parse_reset(body: &[u8], depth_max: u32) -> Result<String, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let mut queue = Ok(None);
        fields::members(scanner, depth_max, |scanner, key| {
            if key.is("queue") {
                queue = fields::name(scanner, "queue", depth_max)?;
                Ok(true)
            } else {
                Ok(false)
            }
        })?;
        Ok(required(queue, "queue", "a string").map(Cow::into_owned))
    })
}

#[cfg(test)]
mod tests {
    use super::{BodyError, parse_reset};
    use crate::name::NameError;

    #[test]
    fn a_reset_names_its_queue() {
        assert_eq!(parse_reset(br#" {"queue" : "a\u0062c" , "x":[1]} "#, 8), Ok("abc".into()));
        assert_eq!(parse_reset(br#"{"queue":1,"\u0071ueue":"q"}"#, 8), Ok("q".into()));
    }

    #[test]
    fn a_reset_without_a_proper_name_says_what_is_missing() {
        for (body, message, code) in [
            ("{}", "`queue` is missing: it must be a string", "ephemeral_bad_request"),
            (r#"{"queue":null}"#, "`queue` is missing: it must be a string", "ephemeral_bad_request"),
            (r#"{"queue":7}"#, "`queue` must be a string", "ephemeral_bad_request"),
            (r#"{"queue":""}"#, "`queue` is empty", "ephemeral_bad_request"),
            ("[]", "the body must be a JSON object", "ephemeral_bad_request"),
            ("", "the body is not valid JSON: unexpected end at byte 0", "bad_request"),
            (r#"{"queue":7"#, "the body is not valid JSON: unexpected end at byte 10", "bad_request"),
            ("{}x", "the body is not valid JSON: unexpected text after the value at byte 2", "bad_request"),
        ] {
            let error = parse_reset(body.as_bytes(), 8).expect_err(body);
            assert_eq!((error.to_string().as_str(), error.code()), (message, code), "{body}");
        }
    }

    #[test]
    fn half_of_a_surrogate_pair_is_no_name() {
        assert_eq!(
            parse_reset(br#"{"queue":"\ud800"}"#, 8),
            Err(BodyError::Name { field: "queue", fault: NameError::LoneSurrogate })
        );
    }
}
