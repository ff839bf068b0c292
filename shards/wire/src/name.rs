//! What a name of a queue, partition or consumer group may be, on the ephemeral routes and on the
//! durable ones. The same for bodies, queries and path segments; the data shard calls it for the
//! segments of a route.

use crate::body::BodyError;

/// The longest name, in bytes of UTF-8, as the ephemeral routes state it.
pub const NAME_BYTES_MAX: usize = 512;

/// The longest name of a durable queue, in characters.
pub const QUEUE_CHARS_MAX: usize = 255;

/// The longest name of a durable partition or consumer group, in bytes of UTF-8.
pub const PARTITION_BYTES_MAX: usize = 2048;

/// The longest transaction id, in bytes of UTF-8.
pub const TRANSACTION_ID_BYTES_MAX: usize = 65_535;

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No byte at all.
    #[error("is empty")]
    Empty,
    /// More than [`NAME_BYTES_MAX`] bytes.
    #[error("is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// More than [`QUEUE_CHARS_MAX`] characters.
    #[error("is longer than {QUEUE_CHARS_MAX} characters")]
    LongQueue,
    /// More than [`PARTITION_BYTES_MAX`] bytes.
    #[error("is longer than {PARTITION_BYTES_MAX} bytes")]
    LongPartition,
    /// More than [`TRANSACTION_ID_BYTES_MAX`] bytes.
    #[error("is longer than {TRANSACTION_ID_BYTES_MAX} bytes")]
    LongTransactionId,
    /// A control character: U+0000 to U+001F; on the ephemeral routes U+007F too.
    #[error("holds a control character")]
    Control,
    /// Half of a surrogate pair, written as an escape: no UTF-8 text has it.
    #[error("holds half of a surrogate pair")]
    LoneSurrogate,
}

/// Checks a name that came in as `field`.
///
/// # Errors
/// [`BodyError::Name`], naming the field, for a name that is empty, longer than
/// [`NAME_BYTES_MAX`] bytes, or holds a control character.
pub fn check(field: &'static str, name: &str) -> Result<(), BodyError> {
    let fault = if name.is_empty() {
        NameError::Empty
    } else if name.len() > NAME_BYTES_MAX {
        NameError::TooLong
    } else if name.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        NameError::Control
    } else {
        return Ok(());
    };
    Err(BodyError::Name { field, fault })
}

/// Checks the name of a durable queue: 1 to [`QUEUE_CHARS_MAX`] characters.
///
/// # Errors
/// [`BodyError::Name`], naming the field, as in the other checks.
pub fn check_queue(field: &'static str, name: &str) -> Result<(), BodyError> {
    let fault = if name.is_empty() {
        NameError::Empty
    } else if name.len() > QUEUE_CHARS_MAX && name.chars().count() > QUEUE_CHARS_MAX {
        NameError::LongQueue
    } else {
        return no_control(field, name);
    };
    Err(BodyError::Name { field, fault })
}

/// Checks the name of a durable partition or group: any text up to [`PARTITION_BYTES_MAX`] bytes,
/// the empty one too.
///
/// # Errors
/// [`BodyError::Name`]
pub fn check_partition(field: &'static str, name: &str) -> Result<(), BodyError> {
    if name.len() > PARTITION_BYTES_MAX {
        return Err(BodyError::Name { field, fault: NameError::LongPartition });
    }
    no_control(field, name)
}

/// Checks the transaction id of a push: any text up to [`TRANSACTION_ID_BYTES_MAX`] bytes, the
/// empty one too.
///
/// # Errors
/// [`BodyError::Name`]
pub fn check_transaction_id(field: &'static str, id: &str) -> Result<(), BodyError> {
    if id.len() > TRANSACTION_ID_BYTES_MAX {
        return Err(BodyError::Name { field, fault: NameError::LongTransactionId });
    }
    no_control(field, id)
}

/// Checks that a text has no character below U+0020.
fn no_control(field: &'static str, text: &str) -> Result<(), BodyError> {
    if text.bytes().any(|byte| byte < 0x20) {
        return Err(BodyError::Name { field, fault: NameError::Control });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{NAME_BYTES_MAX, NameError, check, check_partition, check_queue, check_transaction_id};
    use crate::body::BodyError;

    fn fault(name: &str) -> Option<NameError> {
        match check("queue", name) {
            Ok(()) => None,
            Err(BodyError::Name { field: "queue", fault }) => Some(fault),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_has_1_to_512_bytes() {
        assert_eq!(fault(""), Some(NameError::Empty));
        assert_eq!(fault("q"), None);
        assert_eq!(fault(&"q".repeat(NAME_BYTES_MAX)), None);
        assert_eq!(fault(&"q".repeat(NAME_BYTES_MAX + 1)), Some(NameError::TooLong));
        // Bytes count, not characters: 171 euro signs are 513 bytes.
        assert_eq!(fault(&"€".repeat(171)), Some(NameError::TooLong));
    }

    #[test]
    fn a_name_holds_no_control_character() {
        for control in ["a\0", "\u{1f}b", "\n", "c\u{7f}"] {
            assert_eq!(fault(control), Some(NameError::Control), "{control:?}");
        }
        // U+0085 is a control character of Unicode, not one of the rule's.
        assert_eq!(fault("\u{85} ~:/.é"), None);
    }

    #[test]
    fn a_durable_queue_has_1_to_255_characters_of_any_size() {
        for name in ["q", "a b/c:é", &"€".repeat(255), "\u{7f}"] {
            assert_eq!(check_queue("queue", name), Ok(()), "{name}");
        }
        for (name, fault) in
            [("", NameError::Empty), (&"€".repeat(256), NameError::LongQueue), ("a\0", NameError::Control)]
        {
            assert_eq!(check_queue("queue", name), Err(BodyError::Name { field: "queue", fault }), "{name}");
        }
    }

    #[test]
    fn a_durable_partition_and_a_transaction_id_may_be_empty() {
        assert_eq!(check_partition("partition", ""), Ok(()));
        assert_eq!(check_partition("partition", &"p".repeat(2048)), Ok(()));
        let fault = |fault| Err(BodyError::Name { field: "partition", fault });
        assert_eq!(check_partition("partition", &"p".repeat(2049)), fault(NameError::LongPartition));
        assert_eq!(check_partition("partition", "\n"), fault(NameError::Control));
        assert_eq!(check_transaction_id("transactionId", ""), Ok(()));
        assert_eq!(check_transaction_id("transactionId", &"t".repeat(65_535)), Ok(()));
        let error = check_transaction_id("transactionId", &"t".repeat(65_536)).expect_err("too long");
        assert_eq!(error.to_string(), "`transactionId` is longer than 65535 bytes");
    }
}
