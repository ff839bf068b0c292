//! Answers, appended to a connection's output: heads that are mostly made at compile time, and the
//! few pieces of JSON that are written by hand.

use crate::scan::plain_prefix_bytes;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `application/json`
    Json,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl ContentType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code, three digits.
    pub status: u16,
    /// False says `connection: close`.
    pub keep_alive: bool,
    /// What the body is.
    pub content_type: ContentType,
    /// `retry-after`, in seconds.
    pub retry_after_s: Option<u32>,
    /// `allow`: the methods of the route, as the header has them.
    pub allow: Option<&'static str>,
    /// Says `www-authenticate: Bearer`.
    pub wants_token: bool,
    /// Says `cache-control: no-cache`.
    pub no_cache: bool,
    /// The answer to HEAD: the body's length without the body.
    pub body_omitted: bool,
    /// The client speaks HTTP/1.0, and is told in so many words that the connection stays open.
    pub http10: bool,
}

impl Head {
    /// The head of an answer in JSON on a connection that stays open.
    pub const fn json(status: u16) -> Self {
        Self {
            status,
            keep_alive: true,
            content_type: ContentType::Json,
            retry_after_s: None,
            allow: None,
            wants_token: false,
            no_cache: false,
            body_omitted: false,
            http10: false,
        }
    }
}

const OK_JSON: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
const CREATED_JSON: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: ";

/// The status of an answer without a body: its head names neither a type nor a length.
const NO_CONTENT: u16 = 204;

/// Appends an answer.
pub fn write(out: &mut Vec<u8>, head: &Head, body: &[u8]) {
    write_head(out, head, body.len());
    if !head.body_omitted {
        out.extend_from_slice(body);
    }
}

/// Appends the head of an answer whose body, of `body_bytes`, the caller writes behind it (unless
/// the head says that it is omitted).
pub fn write_head(out: &mut Vec<u8>, head: &Head, body_bytes: usize) {
    let common = Head { body_omitted: head.body_omitted, ..Head::json(head.status) };
    match head.status {
        200 if *head == common => out.extend_from_slice(OK_JSON),
        201 if *head == common => out.extend_from_slice(CREATED_JSON),
        _ => write_fields(out, head),
    }
    if head.status == NO_CONTENT {
        debug_assert_eq!(body_bytes, 0, "204 has no body");
    } else {
        append_u64(out, body_bytes as u64);
    }
    out.extend_from_slice(b"\r\n\r\n");
}

/// Everything up to the value of the content length, if it has one.
fn write_fields(out: &mut Vec<u8>, head: &Head) {
    // Answers to HTTP/1.0 say 1.1 as well: it is the version that the broker speaks (RFC 9110,
    // section 2.5), and their framing holds for both.
    out.extend_from_slice(b"HTTP/1.1 ");
    append_u64(out, head.status.into());
    out.push(b' ');
    out.extend_from_slice(reason(head.status).as_bytes());
    if head.status != NO_CONTENT {
        field(out, "content-type", head.content_type.as_str());
    }
    if !head.keep_alive {
        field(out, "connection", "close");
    } else if head.http10 {
        field(out, "connection", "keep-alive");
    }
    if let Some(seconds) = head.retry_after_s {
        field(out, "retry-after", "");
        append_u64(out, seconds.into());
    }
    if let Some(methods) = head.allow {
        field(out, "allow", methods);
    }
    if head.wants_token {
        field(out, "www-authenticate", "Bearer");
    }
    if head.no_cache {
        field(out, "cache-control", "no-cache");
    }
    if head.status != NO_CONTENT {
        field(out, "content-length", "");
    }
}

/// Ends the line before and begins a header's.
fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    for piece in ["\r\n", name, ": ", value] {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// The phrase for people; empty, as RFC 9112 allows, for a status that the broker does not use.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

/// Appends a number in decimal.
pub fn append_u64(out: &mut Vec<u8>, n: u64) {
    /// The digits of `u64::MAX`.
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let mut first = DIGITS_MAX;
    let mut rest = n;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Appends a text as a JSON string: quoted, with the escapes that JSON requires and no others.
pub fn append_json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_prefix_bytes(rest));
        out.extend_from_slice(plain);
        let [byte, behind @ ..] = special else { break };
        append_escape(out, *byte);
        rest = behind;
    }
    out.push(b'"');
}

fn append_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 0xf)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Appends bytes as a JSON string in base64, padded (RFC 4648, section 4).
pub fn append_base64_string(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.push(b'"');
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let at = (bits >> (18 - 6 * digit) & 0x3f) as usize;
            out.push(if digit <= group.len() { DIGITS[at] } else { b'=' });
        }
    }
    out.push(b'"');
}

/// Appends the body of every failure: `{"error":…,"code":…}`.
pub fn append_error(out: &mut Vec<u8>, error: &str, code: &str) {
    out.extend_from_slice(b"{\"error\":");
    append_json_string(out, error);
    out.extend_from_slice(b",\"code\":");
    append_json_string(out, code);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::{ContentType, Head, append_base64_string, append_error, append_json_string, append_u64, write};

    fn written(head: Head, body: &str) -> String {
        let mut out = Vec::new();
        write(&mut out, &head, body.as_bytes());
        String::from_utf8(out).expect("heads are ASCII")
    }

    #[test]
    fn the_common_answer_has_type_and_length() {
        assert_eq!(
            written(Head::json(201), "{\"pushed\":1}"),
            "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"pushed\":1}"
        );
    }

    #[test]
    fn the_short_way_and_the_long_way_say_the_same() {
        for status in [200, 201] {
            let short = written(Head::json(status), "{}");
            let mut long = Vec::new();
            super::write_fields(&mut long, &Head::json(status));
            assert_eq!(short.as_bytes(), [&long[..], b"2\r\n\r\n{}"].concat());
        }
    }

    #[test]
    fn every_field_that_is_asked_for_is_there() {
        let head = Head {
            keep_alive: false,
            content_type: ContentType::Prometheus,
            retry_after_s: Some(3),
            allow: Some("GET, HEAD"),
            wants_token: true,
            no_cache: true,
            ..Head::json(405)
        };
        assert_eq!(
            written(head, "x"),
            "HTTP/1.1 405 Method Not Allowed\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n\
             connection: close\r\nretry-after: 3\r\nallow: GET, HEAD\r\nwww-authenticate: Bearer\r\ncache-control: no-cache\r\n\
             content-length: 1\r\n\r\nx"
        );
    }

    #[test]
    fn the_answer_to_head_has_the_length_and_no_body() {
        let head = Head { body_omitted: true, ..Head::json(200) };
        assert!(written(head, "12345").ends_with("content-length: 5\r\n\r\n"));
    }

    #[test]
    fn an_answer_without_content_says_nothing_of_it() {
        assert_eq!(written(Head::json(204), ""), "HTTP/1.1 204 No Content\r\n\r\n");
        let head = Head { keep_alive: false, ..Head::json(204) };
        assert_eq!(written(head, ""), "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
    }

    #[test]
    fn base64_is_padded() {
        // The vectors of RFC 4648, section 10, and two bytes with the last two digits.
        for (bytes, expected) in [
            (&b""[..], "\"\""),
            (b"f", "\"Zg==\""),
            (b"fo", "\"Zm8=\""),
            (b"foo", "\"Zm9v\""),
            (b"foob", "\"Zm9vYg==\""),
            (b"fooba", "\"Zm9vYmE=\""),
            (b"foobar", "\"Zm9vYmFy\""),
            (b"\xfb\xff", "\"+/8=\""),
        ] {
            let mut out = Vec::new();
            append_base64_string(&mut out, bytes);
            assert_eq!(String::from_utf8(out).expect("ASCII"), expected);
        }
    }

    #[test]
    fn a_client_of_http_1_0_is_told_that_the_connection_stays() {
        let head = Head { http10: true, ..Head::json(200) };
        assert!(written(head, "").contains("\r\nconnection: keep-alive\r\n"));
        assert!(written(Head { keep_alive: false, ..head }, "").contains("\r\nconnection: close\r\n"));
    }

    #[test]
    fn numbers_are_decimal() {
        for n in [0, 9, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            append_u64(&mut out, n);
            assert_eq!(out, n.to_string().as_bytes());
        }
    }

    #[test]
    fn a_json_string_reads_back_as_what_was_written() {
        let all: String = (0..0x300).filter_map(char::from_u32).collect();
        for text in ["", "plain", "\"", "a\\", "é\u{1f600}", &all] {
            let mut out = Vec::new();
            append_json_string(&mut out, text);
            assert_eq!(serde_json::from_slice::<String>(&out).expect("JSON"), text);
        }
        let mut out = Vec::new();
        append_json_string(&mut out, "\u{1}\u{1f}\n\u{7f}");
        assert_eq!(out, "\"\\u0001\\u001f\\n\u{7f}\"".as_bytes());
    }

    #[test]
    fn a_failure_has_a_sentence_and_a_word() {
        let mut out = Vec::new();
        append_error(&mut out, "no \"such\" route", "no_such_route");
        assert_eq!(out, br#"{"error":"no \"such\" route","code":"no_such_route"}"#);
    }
}
