//! The body of an exchange: `{"acks"?: {…}, "pushes"?: [{…}, …], "pop"?: {…}}`, each part as the call of that name
//! has it, the pop with its query parameters as members.

use std::borrow::Cow;
use std::ops::Range;

use super::ack::read_ack;
use super::fields::{self, Least, required};
use super::push::read_push;
use super::{AckBody, BodyError, PushBody, Span};
use crate::json::{JsonError, Scanner};
use crate::target::{PopQuery, batch_in_force, timeout_in_force};

/// What an exchange asks for. A part that the body does not have is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeBody<'a> {
    /// Messages to settle, first.
    pub acks: Option<AckBody>,
    /// Messages to push, next.
    pub pushes: Option<Vec<ExchangePush<'a>>>,
    /// Messages to take, last.
    pub pop: Option<PopQuery<'a>>,
}

/// One push of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangePush<'a> {
    /// Where its messages go.
    pub push: PushBody<'a>,
    /// Which of the exchange's spans are their payloads.
    pub spans: Range<usize>,
}

/// Reads the body of an exchange. `spans` is cleared and then holds the payloads of all pushes, in order.
///
/// # Errors
/// [`BodyError`], which names the part; `spans` then holds nothing of use. `depth_max` bounds the nesting of a payload
/// by itself, and of ignored members.
pub fn parse_exchange<'a>(
    body: &'a [u8],
    depth_max: u32,
    spans: &mut Vec<Span>,
) -> Result<ExchangeBody<'a>, BodyError> {
    spans.clear();
    fields::body(body, depth_max, |scanner| {
        let (mut acks, mut listed, mut pop) = (Ok(None), Ok(None), Ok(None));
        let mut pushes = Vec::new();
        fields::members(scanner, depth_max, |scanner, key| {
            if key.is("acks") {
                acks = fields::part(scanner, "acks", depth_max, |scanner| read_ack(scanner, depth_max))?;
            } else if key.is("pushes") {
                pushes.clear();
                spans.clear();
                listed = fields::list(scanner, "pushes", depth_max, |scanner, index| {
                    let before = spans.len();
                    let read = read_push(scanner, depth_max, spans)?;
                    Ok(read
                        .map(|push| pushes.push(ExchangePush { push, spans: before..spans.len() }))
                        .map_err(|fault| fault.of_part(format!("pushes[{index}]").into())))
                })?;
            } else if key.is("pop") {
                pop = fields::part(scanner, "pop", depth_max, |scanner| read_pop(scanner, depth_max))?;
            } else {
                return Ok(false);
            }
            Ok(true)
        })?;
        Ok((|| Ok(ExchangeBody { acks: acks?, pushes: listed?.map(|_| pushes), pop: pop? }))())
    })
}

fn read_pop<'a>(scanner: &mut Scanner<'a>, depth_max: u32) -> Result<Result<PopQuery<'a>, BodyError>, JsonError> {
    let (mut queue, mut partition, mut group) = (Ok(None), Ok(None), Ok(None));
    let (mut batch, mut wait, mut timeout_ms, mut auto_ack) = (Ok(None), Ok(None), Ok(None), Ok(None));
    fields::members(scanner, depth_max, |scanner, key| {
        if key.is("queue") {
            queue = fields::name(scanner, "queue", depth_max)?;
        } else if key.is("partition") {
            partition = fields::name(scanner, "partition", depth_max)?;
        } else if key.is("group") {
            group = fields::name(scanner, "group", depth_max)?;
        } else if key.is("batch") {
            batch = fields::integer(scanner, "batch", depth_max, Least::One)?;
        } else if key.is("wait") {
            wait = fields::boolean(scanner, "wait", depth_max)?;
        } else if key.is("timeout") {
            timeout_ms = fields::integer(scanner, "timeout", depth_max, Least::Zero)?;
        } else if key.is("autoAck") {
            auto_ack = fields::boolean(scanner, "autoAck", depth_max)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok((|| {
        let queue: Cow<'_, str> = required(queue, "queue", "a string")?;
        Ok(PopQuery {
            queue,
            partition: partition?,
            group: group?,
            batch: batch_in_force(batch?),
            wait: wait?.unwrap_or(false),
            timeout_ms: timeout_in_force(timeout_ms?),
            auto_ack: auto_ack?.unwrap_or(false),
        })
    })())
}

#[cfg(test)]
mod tests {
    use super::{ExchangeBody, PopQuery, parse_exchange};

    fn exchange(body: &str) -> Result<(ExchangeBody<'_>, Vec<&str>), String> {
        let mut spans = Vec::new();
        let read = parse_exchange(body.as_bytes(), 8, &mut spans).map_err(|error| error.to_string())?;
        Ok((read, spans.iter().map(|span| &body[std::ops::Range::from(*span)]).collect()))
    }

    #[test]
    fn the_parts_are_those_of_the_single_calls() {
        let (read, payloads) = exchange(
            r#"{"pop":{"queue":"jobs","group":"w","batch":5,"wait":true,"timeout":20,"autoAck":true,"partition":"p"},
                "pushes":[{"queue":"a","messages":[{"payload":1},{"payload": [2] }]},
                          {"messages":[{"payload":3}],"partition":"x","queue":"b"}],
                "acks":{"queue":"jobs","group":"w","acks":[{"id":"e:1"}]}}"#,
        )
        .expect("an exchange");
        assert_eq!(read.acks.map(|acks| (acks.queue, acks.acks.len())), Some(("jobs".into(), 1)));
        let pushes = read.pushes.expect("two");
        let pushes: Vec<_> = pushes.iter().map(|push| (&*push.push.queue, push.spans.clone())).collect();
        assert_eq!(pushes, [("a", 0..2), ("b", 2..3)]);
        assert_eq!(payloads, ["1", "[2]", "3"]);
        let pop = PopQuery {
            queue: "jobs".into(),
            partition: Some("p".into()),
            group: Some("w".into()),
            batch: 5,
            wait: true,
            timeout_ms: 20,
            auto_ack: true,
        };
        assert_eq!(read.pop, Some(pop));
    }

    #[test]
    fn every_part_may_be_absent_or_null() {
        for body in ["{}", r#"{"acks":null,"pushes":null,"pop":null}"#] {
            let (read, _) = exchange(body).expect("an exchange");
            assert_eq!(read, ExchangeBody { acks: None, pushes: None, pop: None });
        }
        assert_eq!(exchange(r#"{"pushes":[]}"#).expect("an exchange").0.pushes, Some(Vec::new()));
    }

    #[test]
    fn the_last_of_a_part_given_twice_counts() {
        let twice = r#"{"pushes":[{"queue":"a","messages":[{"payload":1}]}],
            "pushes":[{"queue":"b","messages":[{"payload":7}],"messages":[{"payload":8}]}]}"#;
        let (read, payloads) = exchange(twice).expect("an exchange");
        assert_eq!(read.pushes.map(|pushes| pushes[0].spans.clone()), Some(0..1));
        assert_eq!(payloads, ["8"]);
    }

    #[test]
    fn a_fault_names_its_part() {
        for (body, expected) in [
            (r#"{"acks":[]}"#, "`acks` must be an object"),
            (r#"{"acks":{"queue":"q"}}"#, "in `acks`: `acks` is missing: it must be an array of objects"),
            (r#"{"pushes":{}}"#, "`pushes` must be an array"),
            (
                r#"{"pushes":[{"queue":"q","messages":[]},{"messages":[]}]}"#,
                "in `pushes[1]`: `queue` is missing: it must be a string",
            ),
            (
                r#"{"pushes":[{"queue":"q","messages":[{}]}]}"#,
                "in `pushes[0]`: `messages[0].payload` is missing: it must be any JSON value",
            ),
            (
                r#"{"pop":{"queue":"q","batch":0}}"#,
                "in `pop`: `batch` must be an integer from 1 on, of at most 64 bits",
            ),
            (r#"{"pop":{"queue":"q","wait":1}}"#, "in `pop`: `wait` must be true or false"),
            (
                r#"{"pop":{"queue":"q","timeout":-1}}"#,
                "in `pop`: `timeout` must be a non-negative integer of at most 64 bits",
            ),
            (r#"{"pop":{}}"#, "in `pop`: `queue` is missing: it must be a string"),
            ("[]", "the body must be a JSON object"),
        ] {
            assert_eq!(exchange(body).expect_err(body), expected);
        }
    }
}
