//! The body of a request: `{"queue": …, "partition"?: …, "payload": …, "timeout"?: …, "replyTo"?: …}`.

use std::borrow::Cow;

use super::BodyError;
use super::fields::{self, Least, required};
use super::push::{DEFAULT_PARTITION, Span};
use crate::target::timeout_in_force;

/// One message, and how long its reply is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestBody<'a> {
    /// The queue's name.
    pub queue: Cow<'a, str>,
    /// The partition's name: `Default` if the body names none.
    pub partition: Cow<'a, str>,
    /// The place of the payload in the body.
    pub payload: Span,
    /// How long to wait, in milliseconds: 1 to [`TIMEOUT_MAX_MS`](crate::target::TIMEOUT_MAX_MS).
    pub timeout_ms: u64,
    /// The name of the inbox that the requester chose. Whether it is an inbox's is not known here.
    pub reply_to: Option<Cow<'a, str>>,
}

/// Reads the body of a request.
///
/// # Errors
/// [`BodyError`]. `depth_max` bounds the nesting of the payload by itself.
pub fn parse_request(body: &[u8], depth_max: u32) -> Result<RequestBody<'_>, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let (mut queue, mut partition, mut payload) = (Ok(None), Ok(None), None);
        let (mut timeout_ms, mut reply_to) = (Ok(None), Ok(None));
        fields::members(scanner, depth_max, |scanner, key| {
            if key.is("queue") {
                queue = fields::name(scanner, "queue", depth_max)?;
            } else if key.is("partition") {
                partition = fields::name(scanner, "partition", depth_max)?;
            } else if key.is("payload") {
                payload = Some(scanner.value(depth_max)?);
            } else if key.is("timeout") {
                timeout_ms = fields::integer(scanner, "timeout", depth_max, Least::One)?;
            } else if key.is("replyTo") {
                reply_to = fields::name(scanner, "replyTo", depth_max)?;
            } else {
                return Ok(false);
            }
            Ok(true)
        })?;
        Ok((|| {
            let queue = required(queue, "queue", "a string")?;
            let partition = partition?.unwrap_or(Cow::Borrowed(DEFAULT_PARTITION));
            let payload = required(Ok(payload), "payload", "any JSON value")?.into();
            let (timeout_ms, reply_to) = (timeout_in_force(timeout_ms?), reply_to?);
            Ok(RequestBody { queue, partition, payload, timeout_ms, reply_to })
        })())
    })
}

#[cfg(test)]
mod tests {
    use super::parse_request;

    #[test]
    fn a_request_has_a_queue_a_payload_and_defaults() {
        let body = r#"{"payload": {"n" : 1e999} ,"queue":"rpc"}"#;
        let request = parse_request(body.as_bytes(), 8).expect("a request");
        assert_eq!((&*request.queue, &*request.partition), ("rpc", "Default"));
        assert_eq!(&body[std::ops::Range::from(request.payload)], "{\"n\" : 1e999}");
        assert_eq!((request.timeout_ms, request.reply_to), (30_000, None));
    }

    #[test]
    fn a_request_reads_every_member() {
        let body = r#"{"replyTo":"_inbox.me","timeout":400000,"payload":null,"partition":"p","queue":"q","x":[]}"#;
        let request = parse_request(body.as_bytes(), 8).expect("a request");
        assert_eq!(&*request.partition, "p");
        assert_eq!(&body[std::ops::Range::from(request.payload)], "null");
        assert_eq!((request.timeout_ms, request.reply_to.as_deref()), (300_000, Some("_inbox.me")));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let timeout = "`timeout` must be an integer from 1 on, of at most 64 bits";
        for (body, expected) in [
            (r#"{"payload":1}"#, "`queue` is missing: it must be a string"),
            (r#"{"queue":"q"}"#, "`payload` is missing: it must be any JSON value"),
            (r#"{"queue":"q","payload":1,"timeout":0}"#, timeout),
            (r#"{"queue":"q","payload":1,"timeout":-5}"#, timeout),
            (r#"{"queue":"q","payload":1,"timeout":1.5}"#, timeout),
            (r#"{"queue":"q","payload":1,"timeout":"1"}"#, timeout),
            (r#"{"queue":"q","payload":1,"replyTo":7}"#, "`replyTo` must be a string"),
            (r#"{"queue":"q","payload":1,"replyTo":""}"#, "`replyTo` is empty"),
            ("7", "the body must be a JSON object"),
        ] {
            assert_eq!(parse_request(body.as_bytes(), 8).expect_err(body).to_string(), expected);
        }
    }
}
