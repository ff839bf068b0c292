//! The body of an ack: `{"queue": …, "group"?: …, "acks": [{"id": …, "status"?: …}, …]}`.

use std::borrow::Cow;

use super::BodyError;
use super::fields::{self, required};
use crate::json::{JsonError, RawString, Scanner};

/// An ack call. Owned, for it may cross to the shard that has the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckBody {
    /// The queue's name.
    pub queue: String,
    /// The consumer group's name; `None` is the queue mode.
    pub group: Option<String>,
    /// The acks, in order.
    pub acks: Vec<Ack>,
}

/// One ack of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The id as it was sent; whether it is one of ours is not known here.
    pub id: String,
    /// The status word as it was sent.
    pub status: Option<String>,
}

/// Reads the body of an ack. An ack's `error` is ignored, as any other member is.
///
/// # Errors
/// [`BodyError`]. `depth_max` bounds the nesting of ignored members.
pub fn parse_ack(body: &[u8], depth_max: u32) -> Result<AckBody, BodyError> {
    fields::body(body, depth_max, |scanner| read_ack(scanner, depth_max))
}

/// Reads the object that an ack call is.
pub(super) fn read_ack(scanner: &mut Scanner<'_>, depth_max: u32) -> Result<Result<AckBody, BodyError>, JsonError> {
    let (mut queue, mut group, mut listed) = (Ok(None), Ok(None), Ok(None));
    let mut acks = Vec::new();
    fields::members(scanner, depth_max, |scanner, key| {
        if key.is("queue") {
            queue = fields::name(scanner, "queue", depth_max)?;
        } else if key.is("group") {
            group = fields::name(scanner, "group", depth_max)?;
        } else if key.is("acks") {
            acks.clear();
            listed = fields::list(scanner, "acks", depth_max, |scanner, index| {
                Ok(ack(scanner, index, depth_max)?.map(|ack| acks.push(ack)))
            })?;
        } else {
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok((|| {
        let queue = required(queue, "queue", "a string")?.into_owned();
        let group = group?.map(Cow::into_owned);
        required(listed, "acks", "an array of objects")?;
        Ok(AckBody { queue, group, acks })
    })())
}

fn ack(scanner: &mut Scanner<'_>, index: usize, depth_max: u32) -> Result<Result<Ack, BodyError>, JsonError> {
    let path = |member: &str| Cow::Owned(format!("acks[{index}].{member}"));
    let (mut id, mut status) = (Ok(None), Ok(None));
    scanner.members(|scanner, key| {
        if key.is("id") {
            id = fields::string(scanner, || path("id"), depth_max)?;
        } else if key.is("status") {
            status = fields::string(scanner, || path("status"), depth_max)?;
        } else {
            scanner.value(depth_max)?;
        }
        Ok(())
    })?;
    let text = |member, raw: RawString<'_>| {
        let lone = |_| BodyError::Wrong { field: path(member), expected: "text in UTF-8" };
        raw.decode().map(Cow::into_owned).map_err(lone)
    };
    Ok((|| {
        let id = id?.ok_or_else(|| BodyError::Missing { field: path("id"), expected: "a string" })?;
        let id = text("id", id)?;
        let status = status?.map(|status| text("status", status)).transpose()?;
        Ok(Ack { id, status })
    })())
}

#[cfg(test)]
mod tests {
    use super::{Ack, AckBody, parse_ack};

    fn ack(id: &str, status: Option<&str>) -> Ack {
        Ack { id: id.into(), status: status.map(Into::into) }
    }

    #[test]
    fn acks_are_read_in_order_with_their_words() {
        let body = r#"{"group":"g","acks":[{"id":"e:1:p:0"},{"status":"failed","error":"\ud800","id":"x"},
            {"id":"\u0079","status":null}],"queue":"q"}"#;
        assert_eq!(
            parse_ack(body.as_bytes(), 8),
            Ok(AckBody {
                queue: "q".into(),
                group: Some("g".into()),
                acks: vec![ack("e:1:p:0", None), ack("x", Some("failed")), ack("y", None)],
            })
        );
    }

    #[test]
    fn no_group_or_a_null_one_is_the_queue_mode() {
        for body in [r#"{"queue":"q","acks":[]}"#, r#"{"queue":"q","group":null,"acks":[]}"#] {
            assert_eq!(parse_ack(body.as_bytes(), 8).map(|ack| ack.group), Ok(None));
        }
    }

    #[test]
    fn the_last_list_of_acks_counts() {
        let body = r#"{"queue":"q","acks":[{"id":"a"},{}],"acks":[{"id":"b"}]}"#;
        assert_eq!(parse_ack(body.as_bytes(), 8).map(|body| body.acks), Ok(vec![ack("b", None)]));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (acks, expected) in [
            ("{}", "`acks` must be an array"),
            ("null", "`acks` is missing: it must be an array of objects"),
            (r#"["e:1:p:0"]"#, "`acks[0]` must be an object"),
            (r#"[{"id":"a"},{"status":"ok"}]"#, "`acks[1].id` is missing: it must be a string"),
            (r#"[{"id":1}]"#, "`acks[0].id` must be a string"),
            (r#"[{"id":"a","status":true}]"#, "`acks[0].status` must be a string"),
            (r#"[{"id":"\ud800"}]"#, "`acks[0].id` must be text in UTF-8"),
        ] {
            let body = format!(r#"{{"queue":"q","acks":{acks}}}"#);
            assert_eq!(parse_ack(body.as_bytes(), 8).expect_err(acks).to_string(), expected);
        }
    }

    #[test]
    fn an_ack_takes_10_000_ids_and_not_one_more() {
        let body = |count| {
            let acks = vec![r#"{"id":"a"}"#; count].join(",");
            format!(r#"{{"queue":"q","acks":[{acks}]}}"#)
        };
        assert_eq!(parse_ack(body(10_000).as_bytes(), 8).map(|body| body.acks.len()), Ok(10_000));
        assert_eq!(
            parse_ack(body(10_001).as_bytes(), 8).expect_err("too many").to_string(),
            "`acks` has more than 10000 elements"
        );
    }
}
