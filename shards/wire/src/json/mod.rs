//! JSON by RFC 8259, read where it stands: a full validator that touches no byte, and the spans
//! of values, which leave the broker exactly as they came in.
//!
//! [`validate`] serves whoever has a text to judge; [`crate::body`] drives the [`Scanner`] itself,
//! so that judging and cutting are one pass.

mod nesting;
mod scanner;

pub(crate) use scanner::{RawString, Scanner};

/// What is wrong with a text, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct JsonError {
    /// The offset in bytes at which no JSON can go on like this.
    pub offset: usize,
    /// What is wrong there.
    pub kind: JsonErrorKind,
}

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonErrorKind {
    /// The text ends inside a value, or before one.
    #[error("unexpected end")]
    UnexpectedEnd,
    /// Something that begins no value where one must stand.
    #[error("expected a value")]
    ExpectedValue,
    /// Something other than a string where an object's key must stand.
    #[error("expected a key")]
    ExpectedKey,
    /// Something other than a colon behind a key.
    #[error("expected a colon")]
    ExpectedColon,
    /// Something other than a comma or the closing bracket behind a value.
    #[error("expected a comma or a closing bracket")]
    ExpectedCommaOrEnd,
    /// A number that the grammar does not have, such as `01`, `1.` or `+1`.
    #[error("malformed number")]
    Number,
    /// A backslash with something behind it that is no escape.
    #[error("malformed escape")]
    Escape,
    /// A byte below 0x20 inside a string.
    #[error("control character in a string")]
    Control,
    /// Arrays and objects inside each other beyond the limit.
    #[error("nested deeper than QUEEN_JSON_DEPTH_MAX allows")]
    TooDeep,
    /// Something other than white space behind the value.
    #[error("unexpected text after the value")]
    Trailing,
    /// Bytes that are no UTF-8.
    #[error("invalid UTF-8")]
    Utf8,
    /// More than 4 GiB, which spans cannot name.
    #[error("text longer than 4 GiB")]
    TooLong,
}

/// Checks that `text` is one JSON value in UTF-8, with nothing but white space around it.
///
/// Arrays and objects may stand inside each other `depth_max` deep: `[[1]]` is 2 deep, a scalar 0.
/// Numbers of any size and halves of surrogate pairs as escapes are JSON text and pass, as the
/// grammar of RFC 8259 has them. Iterative: the depth costs a bit per level, never stack.
///
/// # Errors
/// The first offence in the text. Bytes that are no UTF-8 count before all others.
pub fn validate(text: &[u8], depth_max: u32) -> Result<(), JsonError> {
    let mut scanner = Scanner::new(text)?;
    scanner.value(depth_max)?;
    scanner.end()
}

#[cfg(test)]
mod tests {
    use super::{JsonErrorKind, validate};

    fn kind(text: &str) -> Option<JsonErrorKind> {
        validate(text.as_bytes(), 8).err().map(|error| error.kind)
    }

    #[test]
    fn every_kind_of_value_passes() {
        for text in [
            "null",
            " true\n",
            "\tfalse\r",
            "0",
            "-0",
            "12.50e+3",
            "1E9",
            "1e999",
            "-1e-999",
            r#""""#,
            r#""\"\\\/\b\f\n\r\tA""#,
            r#""\ud800""#,
            "\"\u{7f}é\u{10ffff}\"",
            "[]",
            "[ ]",
            "{}",
            "{ }",
            r#"{"a":1,"a":[true, {"b" : null}]}"#,
            "[[[[[[[[]]]]]]]]",
        ] {
            assert_eq!(validate(text.as_bytes(), 8), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_is_not_json_is_named_with_its_place() {
        use JsonErrorKind::*;
        for (text, offset, expected) in [
            ("", 0, UnexpectedEnd),
            ("  ", 2, UnexpectedEnd),
            ("[1", 2, UnexpectedEnd),
            ("{\"a\":", 5, UnexpectedEnd),
            ("\"abc", 4, UnexpectedEnd),
            ("\"\\u12", 5, UnexpectedEnd),
            ("tru", 3, UnexpectedEnd),
            ("nul,", 3, ExpectedValue),
            ("[,]", 1, ExpectedValue),
            ("[1,]", 3, ExpectedValue),
            ("'a'", 0, ExpectedValue),
            ("+1", 0, ExpectedValue),
            ("NaN", 0, ExpectedValue),
            ("{a:1}", 1, ExpectedKey),
            ("{\"a\":1,}", 7, ExpectedKey),
            ("{\"a\" 1}", 5, ExpectedColon),
            ("[1 2]", 3, ExpectedCommaOrEnd),
            ("[1}", 2, ExpectedCommaOrEnd),
            ("{\"a\":1]", 6, ExpectedCommaOrEnd),
            ("-", 1, UnexpectedEnd),
            ("-a", 1, Number),
            ("1.", 2, UnexpectedEnd),
            ("1.e", 2, Number),
            ("1e+x", 3, Number),
            ("01", 1, Number),
            ("\"\\x\"", 2, Escape),
            ("\"\\u12g4\"", 5, Escape),
            ("\"a\nb\"", 2, Control),
            ("\"\0\"", 1, Control),
            ("1 2", 2, Trailing),
            ("{}}", 2, Trailing),
            ("[[[[[[[[[", 8, TooDeep),
            ("\u{feff}1", 0, ExpectedValue),
            ("\u{a0}1", 0, ExpectedValue),
        ] {
            let error = validate(text.as_bytes(), 8).expect_err(text);
            assert_eq!((error.offset, error.kind), (offset, expected), "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_are_refused_wherever_they_stand() {
        for bytes in [&b"\"\xff\""[..], b"\"\xc3\"", b"\"\xed\xa0\x80\"", b"\"\xc0\x80\"", b"\xff", b"1\x80"] {
            assert_eq!(validate(bytes, 8).expect_err("not UTF-8").kind, JsonErrorKind::Utf8);
        }
    }

    #[test]
    fn the_depth_limit_counts_arrays_and_objects_alike() {
        assert_eq!(kind(r#"[{"a":[{"b":[{"c":[{}]}]}]}]"#), None);
        assert_eq!(kind(r#"[{"a":[{"b":[{"c":[{"d":[]}]}]}]}]"#), Some(JsonErrorKind::TooDeep));
        assert_eq!(validate(b"1", 0), Ok(()));
        assert_eq!(validate(b"[]", 0).expect_err("an array is 1 deep").kind, JsonErrorKind::TooDeep);
    }

    #[test]
    fn a_hundred_thousand_levels_cost_no_stack() {
        let depth = 100_000;
        let text = "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(validate(text.as_bytes(), 100_000), Ok(()));
        assert_eq!(validate(text.as_bytes(), 99_999).expect_err("too deep").offset, 99_999);
        assert_eq!(validate("[".repeat(depth).as_bytes(), 128).expect_err("too deep").offset, 128);
        // Past 64 levels the kinds of the outer brackets are still known.
        let mixed = "[{\"a\":".repeat(200) + "1" + &"}]".repeat(200);
        assert_eq!(validate(mixed.as_bytes(), 400), Ok(()));
        let crossed = "[{\"a\":".repeat(200) + "1" + &"}]".repeat(199) + "]}";
        assert_eq!(validate(crossed.as_bytes(), 400).expect_err("crossed").kind, JsonErrorKind::ExpectedCommaOrEnd);
    }
}
