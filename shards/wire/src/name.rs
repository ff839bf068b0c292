//! What a name of a queue, partition or consumer group may be. One rule for bodies, queries and
//! path segments; the data shard calls it for the segment of a route.

use crate::body::BodyError;

/// The longest name, in bytes of UTF-8, as the ephemeral routes state it.
pub const NAME_BYTES_MAX: usize = 512;

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No byte at all.
    #[error("is empty")]
    Empty,
    /// More than [`NAME_BYTES_MAX`] bytes.
    #[error("is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// A control character: U+0000 to U+001F, or U+007F.
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

#[cfg(test)]
mod tests {
    use super::{NAME_BYTES_MAX, NameError, check};
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
}
