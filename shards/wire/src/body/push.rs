//! The body of a push: `{"queue": …, "partition"?: …, "messages": [{"payload": …}, …]}`.

use std::borrow::Cow;
use std::ops::Range;

use super::BodyError;
use super::fields::{self, required};
use crate::json::{JsonError, Scanner};

/// The partition of a push that names none.
pub(super) const DEFAULT_PARTITION: &str = "Default";

/// The place of a payload in its body: `body[start..end]` is the JSON text exactly as it was sent,
/// without the white space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The offset of its first byte.
    pub start: u32,
    /// The offset behind its last byte.
    pub end: u32,
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        let offset = |at| u32::try_from(at).expect("the scanner refuses texts longer than 4 GiB");
        Self { start: offset(range.start), end: offset(range.end) }
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start as usize..span.end as usize
    }
}

/// Where the messages of a push go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushBody<'a> {
    /// The queue's name.
    pub queue: Cow<'a, str>,
    /// The partition's name: `Default` if the body names none.
    pub partition: Cow<'a, str>,
}

/// Reads the body of a push. `spans` is cleared and then holds a span per message, in order.
///
/// A payload may be nested `depth_max` deep by itself; the three levels around it do not count.
///
/// # Errors
/// [`BodyError`]; `spans` then holds nothing of use.
pub fn parse_push<'a>(body: &'a [u8], depth_max: u32, spans: &mut Vec<Span>) -> Result<PushBody<'a>, BodyError> {
    spans.clear();
    fields::body(body, depth_max, |scanner| read_push(scanner, depth_max, spans))
}

/// Reads the object that a push is. Its payloads' spans go behind those that are there.
pub(super) fn read_push<'a>(
    scanner: &mut Scanner<'a>,
    depth_max: u32,
    spans: &mut Vec<Span>,
) -> Result<Result<PushBody<'a>, BodyError>, JsonError> {
    let (mut queue, mut partition, mut messages) = (Ok(None), Ok(None), Ok(None));
    let before = spans.len();
    fields::members(scanner, depth_max, |scanner, key| {
        if key.is("queue") {
            queue = fields::name(scanner, "queue", depth_max)?;
        } else if key.is("partition") {
            partition = fields::name(scanner, "partition", depth_max)?;
        } else if key.is("messages") {
            spans.truncate(before);
            messages = fields::list(scanner, "messages", depth_max, |scanner, index| {
                message(scanner, index, depth_max, spans)
            })?;
        } else {
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok((|| {
        let queue = required(queue, "queue", "a string")?;
        let partition = partition?.unwrap_or(Cow::Borrowed(DEFAULT_PARTITION));
        required(messages, "messages", "an array of objects")?;
        Ok(PushBody { queue, partition })
    })())
}

fn message(
    scanner: &mut Scanner<'_>,
    index: usize,
    depth_max: u32,
    spans: &mut Vec<Span>,
) -> Result<Result<(), BodyError>, JsonError> {
    let mut payload = None;
    scanner.members(|scanner, key| {
        let span = scanner.value(depth_max)?;
        if key.is("payload") {
            payload = Some(span);
        }
        Ok(())
    })?;
    Ok(match payload {
        Some(span) => {
            spans.push(span.into());
            Ok(())
        }
        None => {
            Err(BodyError::Missing { field: format!("messages[{index}].payload").into(), expected: "any JSON value" })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{BodyError, parse_push};
    use crate::json::JsonErrorKind;

    type Push = (String, String, Vec<String>);

    fn push(body: &str) -> Result<Push, BodyError> {
        let mut spans = Vec::new();
        let push = parse_push(body.as_bytes(), 8, &mut spans)?;
        let payloads = spans.iter().map(|span| body[std::ops::Range::from(*span)].to_owned());
        Ok((push.queue.into(), push.partition.into(), payloads.collect()))
    }

    fn pushed(queue: &str, partition: &str, payloads: &[&str]) -> Result<Push, BodyError> {
        let payloads = payloads.iter().map(|payload| payload.to_string()).collect();
        Ok((queue.into(), partition.into(), payloads))
    }

    fn message(body: &str) -> String {
        push(body).expect_err(body).to_string()
    }

    #[test]
    fn payloads_are_cut_byte_for_byte() {
        let payload = "{\"b\" : 1e999,\t\"a\":[ \"\\ud800\", \"\\u0041\", 1.0, 1.00 ]\n}";
        let body = format!(
            r#"{{"queue":"q","messages":[{{"payload": {payload} }} , {{"payload":null}},{{"payload":"é\"" }}]}}"#
        );
        assert_eq!(push(&body), pushed("q", "Default", &[payload, "null", r#""é\"""#]));
    }

    #[test]
    fn members_come_in_any_order_and_the_last_of_a_kind_counts() {
        let body = r#"{"messages":[{"payload":1},5],"x":{"queue":"no"},"partition":"p","queue":3,
            "messages":[{"payload":2,"y":[],"payload":3}],"queue":"\u0071"}"#;
        assert_eq!(push(body), pushed("q", "p", &["3"]));
    }

    #[test]
    fn a_null_partition_is_the_default_one() {
        let body = r#"{"queue":"q","partition":null,"messages":[]}"#;
        assert_eq!(push(body), pushed("q", "Default", &[]));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let queue = "\"queue\":\"q\"";
        for (body, expected) in [
            (r#"{"messages":[]}"#.into(), "`queue` is missing: it must be a string"),
            (format!("{{{queue}}}"), "`messages` is missing: it must be an array of objects"),
            (format!("{{{queue},\"messages\":null}}"), "`messages` is missing: it must be an array of objects"),
            (format!("{{{queue},\"messages\":{{}}}}"), "`messages` must be an array"),
            (format!("{{{queue},\"messages\":[1]}}"), "`messages[0]` must be an object"),
            (
                format!("{{{queue},\"messages\":[{{\"payload\":1}},{{\"p\":1}},2]}}"),
                "`messages[1].payload` is missing: it must be any JSON value",
            ),
            (format!("{{{queue},\"partition\":1,\"messages\":[]}}"), "`partition` must be a string"),
            (format!("{{{queue},\"partition\":\"a\\nb\",\"messages\":[]}}"), "`partition` holds a control character"),
            ("[1]".into(), "the body must be a JSON object"),
        ] {
            assert_eq!(message(&body), expected, "{body}");
        }
        let long = format!(r#"{{"queue":"{}","messages":[]}}"#, "q".repeat(513));
        assert_eq!(message(&long), "`queue` is longer than 512 bytes");
    }

    #[test]
    fn a_fault_of_json_counts_before_one_of_the_body() {
        let error = push(r#"{"queue":1,"messages":[}"#).expect_err("no JSON");
        assert_eq!(error.code(), "bad_request");
        assert_eq!(error.to_string(), "the body is not valid JSON: expected a value at byte 23");
    }

    #[test]
    fn a_push_takes_10_000_messages_and_not_one_more() {
        let body = |count| {
            let messages = vec![r#"{"payload":1}"#; count].join(",");
            format!(r#"{{"queue":"q","messages":[{messages}]}}"#)
        };
        assert_eq!(push(&body(10_000)).map(|(_, _, payloads)| payloads.len()), Ok(10_000));
        assert_eq!(message(&body(10_001)), "`messages` has more than 10000 elements");
    }

    #[test]
    fn the_depth_limit_is_that_of_the_payload_itself() {
        let body = |depth| {
            let payload = "[".repeat(depth) + &"]".repeat(depth);
            format!(r#"{{"queue":"q","messages":[{{"payload":{payload}}}]}}"#)
        };
        assert!(push(&body(8)).is_ok());
        match push(&body(9)) {
            Err(BodyError::Json(error)) => assert_eq!(error.kind, JsonErrorKind::TooDeep),
            other => panic!("{other:?}"),
        }
        assert!(push(&body(100_000)).is_err());
    }
}
