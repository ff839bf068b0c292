//! What stands in a JSON answer of a Queen broker, found without parsing it.
//!
//! Every name and every payload in an answer is one that we made, of letters and digits: a key can't stand anywhere else,
//! and no string has an escape.

use memchr::{memchr, memmem};

use super::parse_number;

/// What a failure is called: its code if it has one, else by its status.
pub(super) fn code_of<'a>(status: u16, body: &'a [u8], code: &memmem::Finder<'_>) -> &'a str {
    let code = string_behind(code, body).and_then(|code| std::str::from_utf8(code).ok());
    code.unwrap_or_else(|| status_word(status))
}

/// The value that `text` begins with, and what is behind it: a string with its quotes, which is all that we ever push,
/// or, when something went wrong with it, whatever stands before the next comma or brace.
pub(super) fn value(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = match quoted(text) {
        Some(inner) => inner.len() + 2,
        None => text.iter().position(|byte| matches!(byte, b',' | b'}')).unwrap_or(text.len()),
    };
    text.split_at(end)
}

/// The inside of the string that `text` begins with.
pub(super) fn quoted(text: &[u8]) -> Option<&[u8]> {
    let inner = text.trim_ascii_start().strip_prefix(b"\"")?;
    memchr(b'"', inner).map(|end| &inner[..end])
}

/// The inside of the string that stands behind the first find.
pub(super) fn string_behind<'a>(finder: &memmem::Finder<'_>, text: &'a [u8]) -> Option<&'a [u8]> {
    let at = finder.find(text)?;
    quoted(&text[at + finder.needle().len()..])
}

/// The number that stands behind the first find.
pub(super) fn number_behind(finder: &memmem::Finder<'_>, text: &[u8]) -> Option<u64> {
    let at = finder.find(text)?;
    let text = text[at + finder.needle().len()..].trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    parse_number(&text[..digits])
}

fn status_word(status: u16) -> &'static str {
    match status {
        404 => "http_404",
        405 => "http_405",
        429 => "http_429",
        400..500 => "http_4xx",
        502 => "http_502",
        503 => "http_503",
        504 => "http_504",
        500..600 => "http_5xx",
        _ => "http_status",
    }
}
