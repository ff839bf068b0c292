//! The bodies of acks: one ack, or `{"acknowledgments": [ack, …], "consumerGroup"?: …}`.
//!
//! What is absent or means nothing is for the log to refuse, ack by ack: only a body that is not of this form is
//! refused here.

use std::borrow::Cow;

use super::{ITEMS_MAX, free_text, text};
use crate::body::BodyError;
use crate::body::fields::{self, Member};
use crate::json::{JsonError, RawString, Scanner};
use crate::name;

/// The acks of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acks<'a> {
    /// The consumer group's name; `None` is queue mode.
    pub group: Option<Cow<'a, str>>,
    /// The acks, in order.
    pub acks: Vec<Ack<'a>>,
}

/// One ack, as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The message's transaction id.
    pub transaction_id: Option<Cow<'a, str>>,
    /// The partition's id.
    pub partition_id: Option<Cow<'a, str>>,
    /// The status word.
    pub status: Option<Cow<'a, str>>,
    /// The lease's id.
    pub lease_id: Option<Cow<'a, str>>,
    /// Why it failed.
    pub error: Option<Cow<'a, str>>,
}

/// Reads the body that is one ack.
///
/// # Errors
/// [`BodyError`] for a body that is no object, or a member that is no text. `depth_max` bounds the nesting of ignored
/// members.
pub fn parse_ack(body: &[u8], depth_max: u32) -> Result<Acks<'_>, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let mut group = Ok(None);
        let mut members = Members::default();
        fields::members(scanner, depth_max, |scanner, key| {
            if key.is("consumerGroup") {
                group = read_group(scanner, depth_max)?;
                return Ok(true);
            }
            members.read(scanner, key, depth_max)
        })?;
        Ok((|| Ok(Acks { group: group?, acks: vec![members.ack()?] }))())
    })
}

/// Reads the body that is a batch of acks. Without a list there is none to settle.
///
/// # Errors
/// As [`parse_ack`], and for more than [`ITEMS_MAX`] acks.
pub fn parse_ack_batch(body: &[u8], depth_max: u32) -> Result<Acks<'_>, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let (mut group, mut listed, mut acks) = (Ok(None), Ok(None), Vec::new());
        fields::members(scanner, depth_max, |scanner, key| {
            if key.is("consumerGroup") {
                group = read_group(scanner, depth_max)?;
            } else if key.is("acknowledgments") {
                acks.clear();
                listed = fields::list_of(scanner, "acknowledgments", depth_max, ITEMS_MAX, |scanner, index| {
                    let mut members = Members::default();
                    fields::members(scanner, depth_max, |scanner, key| members.read(scanner, key, depth_max))?;
                    let ack = members.ack().map_err(|fault| fault.of_part(format!("acknowledgments[{index}]").into()));
                    Ok(ack.map(|ack| acks.push(ack)))
                })?;
            } else {
                return Ok(false);
            }
            Ok(true)
        })?;
        Ok((|| {
            listed?;
            Ok(Acks { group: group?, acks })
        })())
    })
}

fn read_group<'a>(scanner: &mut Scanner<'a>, depth_max: u32) -> Result<Member<Cow<'a, str>>, JsonError> {
    text(scanner, "consumerGroup", depth_max, name::check_partition)
}

/// The members of an ack as far as they were read.
struct Members<'a> {
    transaction_id: Member<Cow<'a, str>>,
    partition_id: Member<Cow<'a, str>>,
    status: Member<Cow<'a, str>>,
    lease_id: Member<Cow<'a, str>>,
    error: Member<Cow<'a, str>>,
}

impl Default for Members<'_> {
    fn default() -> Self {
        Self { transaction_id: Ok(None), partition_id: Ok(None), status: Ok(None), lease_id: Ok(None), error: Ok(None) }
    }
}

impl<'a> Members<'a> {
    /// Reads a member, if it is one of an ack's.
    fn read(&mut self, scanner: &mut Scanner<'a>, key: RawString<'a>, depth_max: u32) -> Result<bool, JsonError> {
        if key.is("transactionId") {
            self.transaction_id = free_text(scanner, "transactionId", depth_max)?;
        } else if key.is("partitionId") {
            self.partition_id = free_text(scanner, "partitionId", depth_max)?;
        } else if key.is("status") {
            self.status = free_text(scanner, "status", depth_max)?;
        } else if key.is("leaseId") {
            self.lease_id = free_text(scanner, "leaseId", depth_max)?;
        } else if key.is("error") {
            self.error = free_text(scanner, "error", depth_max)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn ack(self) -> Result<Ack<'a>, BodyError> {
        Ok(Ack {
            transaction_id: self.transaction_id?,
            partition_id: self.partition_id?,
            status: self.status?,
            lease_id: self.lease_id?,
            error: self.error?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Ack, Acks, parse_ack, parse_ack_batch};

    fn ack(transaction_id: &str) -> Ack<'_> {
        Ack { transaction_id: Some(transaction_id.into()), ..Ack::default() }
    }

    #[test]
    fn an_ack_has_all_its_members() {
        let body = r#"{"error":"x\ud800","leaseId":"l","consumerGroup":"","status":"COMPLETED","partitionId":"p",
            "transactionId":"t","more":[1]}"#;
        let expected = Ack {
            transaction_id: Some("t".into()),
            partition_id: Some("p".into()),
            status: Some("COMPLETED".into()),
            lease_id: Some("l".into()),
            error: Some("x\u{fffd}".into()),
        };
        assert_eq!(parse_ack(body.as_bytes(), 8), Ok(Acks { group: Some("".into()), acks: vec![expected] }));
    }

    #[test]
    fn absent_and_null_members_are_none() {
        let none = Ok(Acks { group: None, acks: vec![Ack::default()] });
        assert_eq!(parse_ack(b"{}", 8), none);
        assert_eq!(parse_ack(br#"{"transactionId":null,"leaseId":null,"consumerGroup":null}"#, 8), none);
    }

    #[test]
    fn a_batch_has_one_group_for_all() {
        let body = br#"{"acknowledgments":[{"transactionId":"a","consumerGroup":7},{"transactionId":"b"}],
            "consumerGroup":"g"}"#;
        assert_eq!(parse_ack_batch(body, 8), Ok(Acks { group: Some("g".into()), acks: vec![ack("a"), ack("b")] }));
    }

    #[test]
    fn a_batch_without_a_list_is_empty() {
        for body in ["{}", r#"{"acks":[{}]}"#, r#"{"acknowledgments":null}"#, r#"{"acknowledgments":[]}"#] {
            assert_eq!(parse_ack_batch(body.as_bytes(), 8), Ok(Acks::default()), "{body}");
        }
    }

    #[test]
    fn a_body_of_another_form_is_refused() {
        for (body, expected) in [
            ("[]", "the body must be a JSON object"),
            (r#"{"transactionId":1}"#, "`transactionId` must be a string"),
            (r#"{"status":true}"#, "`status` must be a string"),
            (r#"{"consumerGroup":[]}"#, "`consumerGroup` must be a string"),
            (r#"{"consumerGroup":"\u0000"}"#, "`consumerGroup` holds a control character"),
        ] {
            assert_eq!(parse_ack(body.as_bytes(), 8).expect_err(body).to_string(), expected);
        }
        for (body, expected) in [
            (r#"{"acknowledgments":{}}"#, "`acknowledgments` must be an array"),
            (r#"{"acknowledgments":[5]}"#, "`acknowledgments[0]` must be an object"),
            (r#"{"acknowledgments":[{},{"leaseId":5}]}"#, "in `acknowledgments[1]`: `leaseId` must be a string"),
        ] {
            assert_eq!(parse_ack_batch(body.as_bytes(), 8).expect_err(body).to_string(), expected);
        }
    }

    #[test]
    fn a_batch_takes_20_000_acks_and_not_one_more() {
        let body = |count| format!(r#"{{"acknowledgments":[{}]}}"#, vec!["{}"; count].join(","));
        assert_eq!(parse_ack_batch(body(20_000).as_bytes(), 8).map(|acks| acks.acks.len()), Ok(20_000));
        assert_eq!(
            parse_ack_batch(body(20_001).as_bytes(), 8).expect_err("too many").to_string(),
            "`acknowledgments` has more than 20000 elements"
        );
    }
}
