//! The bodies of what operators switch and grant.

use super::BodyError;
use super::fields::{self, Least, required};

/// The members of a grant, for the message to whoever names another.
const GRANT_MEMBERS: &str = "enabled, maxBytes, maxQueues, maxMsgsPerSec";

/// What a tenant is granted; what is `None` was not given, or given as null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantBody {
    /// `enabled`: whether the tenant may use ephemeral queues; true when it is not given.
    pub enabled: bool,
    /// `maxBytes`: payload bytes at a time.
    pub max_bytes: Option<u64>,
    /// `maxQueues`: queues at a time.
    pub max_queues: Option<u64>,
    /// `maxMsgsPerSec`: messages pushed in a second.
    pub max_msgs_per_sec: Option<u64>,
}

/// Reads `{"enabled": true | false}`, the body of a switch.
///
/// # Errors
/// [`BodyError`]. `depth_max` bounds the nesting of ignored members.
pub fn parse_switch(body: &[u8], depth_max: u32) -> Result<bool, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let mut enabled = Ok(None);
        fields::members(scanner, depth_max, |scanner, key| {
            if key.is("enabled") {
                enabled = fields::boolean(scanner, "enabled", depth_max)?;
                return Ok(true);
            }
            Ok(false)
        })?;
        Ok(required(enabled, "enabled", "true or false"))
    })
}

/// Reads a grant. Its members are a closed list: a misspelled limit would be none. The names of the columns that keep
/// them (`max_bytes` and so on) are taken too.
///
/// # Errors
/// [`BodyError`]. `depth_max` bounds the nesting of ignored members.
pub fn parse_grant(body: &[u8], depth_max: u32) -> Result<GrantBody, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let (mut enabled, mut max_bytes, mut max_queues, mut max_msgs_per_sec) =
            (Ok(None), Ok(None), Ok(None), Ok(None));
        let mut unknown = Ok(());
        scanner.members(|scanner, key| {
            let mut read = |field| fields::integer(scanner, field, depth_max, Least::One);
            if key.is("enabled") {
                enabled = fields::boolean(scanner, "enabled", depth_max)?;
            } else if key.is("maxBytes") || key.is("max_bytes") {
                max_bytes = read("maxBytes")?;
            } else if key.is("maxQueues") || key.is("max_queues") {
                max_queues = read("maxQueues")?;
            } else if key.is("maxMsgsPerSec") || key.is("max_msgs_per_sec") {
                max_msgs_per_sec = read("maxMsgsPerSec")?;
            } else {
                unknown = Err(BodyError::UnknownOption { name: key.as_sent().to_owned(), known: GRANT_MEMBERS });
                scanner.value(depth_max)?;
            }
            Ok(())
        })?;
        Ok(unknown.and_then(|()| {
            Ok(GrantBody {
                enabled: enabled?.unwrap_or(true),
                max_bytes: max_bytes?,
                max_queues: max_queues?,
                max_msgs_per_sec: max_msgs_per_sec?,
            })
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> String {
        parse_grant(body.as_bytes(), 8).expect_err(body).to_string()
    }

    #[test]
    fn a_switch_takes_a_boolean_and_nothing_else() {
        assert_eq!(parse_switch(br#"{"enabled":false,"why":[1]}"#, 8), Ok(false));
        assert_eq!(parse_switch(br#"{"enabled":true}"#, 8), Ok(true));
        for body in [r"{}", r#"{"enabled":null}"#, r#"{"enabled":"off"}"#, r#"{"enabled":0}"#, "[]", ""] {
            assert!(parse_switch(body.as_bytes(), 8).is_err(), "{body}");
        }
    }

    #[test]
    fn a_grant_without_members_is_without_limits() {
        let free = GrantBody { enabled: true, max_bytes: None, max_queues: None, max_msgs_per_sec: None };
        assert_eq!(parse_grant(b"{}", 8), Ok(free));
        assert_eq!(parse_grant(br#"{"enabled":false,"maxBytes":null}"#, 8), Ok(GrantBody { enabled: false, ..free }));
    }

    #[test]
    fn limits_are_read_under_either_name() {
        let expected = GrantBody { enabled: true, max_bytes: Some(1), max_queues: Some(2), max_msgs_per_sec: Some(3) };
        assert_eq!(parse_grant(br#"{"maxBytes":1,"maxQueues":2,"maxMsgsPerSec":3}"#, 8), Ok(expected));
        assert_eq!(parse_grant(br#"{"max_bytes":1,"max_queues":2,"max_msgs_per_sec":3}"#, 8), Ok(expected));
    }

    #[test]
    fn a_wrong_grant_names_the_member() {
        assert_eq!(said(r#"{"maxBytes":0}"#), "`maxBytes` must be an integer from 1 on, of at most 64 bits");
        assert_eq!(said(r#"{"maxQueues":1.5}"#), "`maxQueues` must be an integer from 1 on, of at most 64 bits");
        assert_eq!(
            said(r#"{"maxByte":1}"#),
            "unknown option `maxByte`: the options are enabled, maxBytes, maxQueues, maxMsgsPerSec"
        );
        assert_eq!(said("7"), "the body must be a JSON object");
    }
}
