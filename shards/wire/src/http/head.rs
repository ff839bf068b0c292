//! A request head: where it ends, what its lines say, and how its body is framed.
//!
//! httparse does the parsing of a head that is whole. What it does not do stands here: it tolerates
//! a line that ends in LF alone, and it starts over at every call, so that a head that trickles in
//! would cost the square of its length. [`Scan`] keeps how far line ends were searched and when the
//! text was last shown to httparse.
//!
//! Every refusal is found in the order of the bytes: whatever stops a head (its end, a bare LF, the
//! size limit), httparse first judges the text before that place. So a head is refused for the same
//! reason however its bytes were cut into reads.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::{HttpError, Limits, Method};

/// Header slots on the stack; [`Limits::headers_max`] may ask for fewer, never for more.
pub(super) const HEADER_SLOTS: usize = 128;

/// A piece of the head, as offsets into the connection's unread bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    start: u32,
    end: u32,
}

impl Piece {
    /// The place of `part`, which is a slice of `whole`.
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = part.as_ptr().addr() - whole.as_ptr().addr();
        Self { start: offset(start), end: offset(start + part.len()) }
    }

    /// The bytes that this piece names.
    pub(super) fn bytes(self, whole: &[u8]) -> &[u8] {
        &whole[Range::from(self)]
    }

    /// The text that this piece names: a part of the target, which httparse found to be UTF-8.
    pub(super) fn text(self, whole: &[u8]) -> &str {
        std::str::from_utf8(self.bytes(whole)).expect("a target was checked when its head was read")
    }
}

impl From<Piece> for Range<usize> {
    fn from(piece: Piece) -> Self {
        piece.start as usize..piece.end as usize
    }
}

/// An offset inside a head. [`super::Decoder::decode`] asserts that the head limit fits.
fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("the head limit keeps offsets below 4 GiB")
}

/// How the length of the body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes follow the head. Zero when the head names no length.
    Length(usize),
    /// Chunks follow the head.
    Chunked,
}

/// A head that is whole and accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) http10: bool,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
    pub(super) framing: Framing,
    /// `None` for an absolute URL that has no path, which means `/`.
    pub(super) path: Option<Piece>,
    pub(super) query: Option<Piece>,
    pub(super) tenant: Option<Piece>,
    pub(super) authorization: Option<Piece>,
    pub(super) upgrade: Option<Piece>,
    /// The offset behind the head: where the body begins.
    pub(super) end: u32,
}

/// How far a head that is not whole yet has been looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    /// Bytes searched for line ends, from the start of the head.
    searched_bytes: u32,
    /// Where the line begins that the search stands in.
    line_start: u32,
    /// The length of the text when httparse last judged it.
    judged_bytes: u32,
}

/// Where the search for the end of a head came to rest.
enum Stop {
    /// The head's bytes are all here: this many.
    End(usize),
    BareLineFeed(usize),
    Limit(usize),
    /// The text ran out.
    Text,
}

impl Scan {
    /// True as long as no byte of the head has come.
    pub(super) fn is_untouched(self) -> bool {
        self.searched_bytes == 0
    }

    /// Looks for a whole head in `input[start..]`, where its first byte stands.
    pub(super) fn read(&mut self, input: &[u8], start: usize, limits: &Limits) -> Result<Option<Head>, HttpError> {
        let text = &input[start..];
        let window = &text[..text.len().min(limits.head_bytes_max)];
        if self.is_untouched() {
            // The common case: the head came in one read. Anything unusual takes the slow path,
            // which settles what exactly is wrong.
            let mut slots = [const { MaybeUninit::uninit() }; HEADER_SLOTS];
            let mut request = httparse::Request::new(&mut []);
            let slots = &mut slots[..limits.headers_max.min(HEADER_SLOTS)];
            if let Ok(httparse::Status::Complete(bytes)) = request.parse_with_uninit_headers(window, slots)
                && every_line_ends_in_crlf(window, bytes, request.headers)
            {
                return Head::new(input, start + bytes, &request).map(Some);
            }
        }
        match self.search(window, limits) {
            Stop::Text => {
                // Judging the text again each time that it has doubled costs at most twice its
                // length in all, and refuses early what cannot become a request.
                if window.len() >= 2 * self.judged_bytes as usize {
                    judge(window, limits)?;
                    self.judged_bytes = offset(window.len());
                }
                Ok(None)
            }
            Stop::BareLineFeed(at) => judge(&window[..at], limits).and(Err(HttpError::LineEnd)),
            Stop::Limit(at) => judge(&window[..at], limits).and(Err(HttpError::HeadTooLarge)),
            Stop::End(bytes) => {
                let mut slots = [const { MaybeUninit::uninit() }; HEADER_SLOTS];
                let mut request = httparse::Request::new(&mut []);
                let slots = &mut slots[..limits.headers_max.min(HEADER_SLOTS)];
                let head = &window[..bytes];
                match request.parse_with_uninit_headers(head, slots) {
                    Ok(httparse::Status::Complete(_)) => Head::new(input, start + bytes, &request).map(Some),
                    // The empty line came inside the request line or a header.
                    Ok(httparse::Status::Partial) => Err(HttpError::Header),
                    Err(error) => Err(refusal(error, head)),
                }
            }
        }
    }

    /// Goes on with the search for the empty line that ends the head.
    fn search(&mut self, window: &[u8], limits: &Limits) -> Stop {
        while let Some(distance) = memchr::memchr(b'\n', &window[self.searched_bytes as usize..]) {
            let line_feed = self.searched_bytes as usize + distance;
            let line = &window[self.line_start as usize..=line_feed];
            self.searched_bytes = offset(line_feed + 1);
            self.line_start = self.searched_bytes;
            match line {
                b"\r\n" => return Stop::End(line_feed + 1),
                [.., b'\r', b'\n'] => {}
                _ => return Stop::BareLineFeed(line_feed),
            }
        }
        self.searched_bytes = offset(window.len());
        if window.len() >= limits.head_bytes_max { Stop::Limit(window.len()) } else { Stop::Text }
    }
}

/// Refuses a beginning of a head that no continuation can make valid.
fn judge(beginning: &[u8], limits: &Limits) -> Result<(), HttpError> {
    let mut slots = [const { MaybeUninit::uninit() }; HEADER_SLOTS];
    let slots = &mut slots[..limits.headers_max.min(HEADER_SLOTS)];
    httparse::Request::new(&mut [])
        .parse_with_uninit_headers(beginning, slots)
        .map(drop)
        .map_err(|error| refusal(error, beginning))
}

fn refusal(error: httparse::Error, head: &[u8]) -> HttpError {
    match error {
        httparse::Error::Version if names_another_version(head) => HttpError::Version,
        httparse::Error::TooManyHeaders => HttpError::TooManyHeaders,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => HttpError::Header,
        httparse::Error::NewLine => HttpError::LineEnd,
        _ => HttpError::RequestLine,
    }
}

/// True if the request line goes on with `HTTP/` and a digit where its version stands.
fn names_another_version(head: &[u8]) -> bool {
    head.splitn(3, |byte| *byte == b' ')
        .nth(2)
        .and_then(|version| version.strip_prefix(b"HTTP/"))
        .and_then(<[u8]>::first)
        .is_some_and(u8::is_ascii_digit)
}

/// httparse takes LF for a line end too. Each header's name begins behind the end of the line
/// before it, so the byte two places before it must be CR, as must be those of the empty line.
fn every_line_ends_in_crlf(text: &[u8], bytes: usize, headers: &[httparse::Header<'_>]) -> bool {
    headers.iter().all(|header| {
        let name = header.name.as_ptr().addr() - text.as_ptr().addr();
        text[name - 2] == b'\r'
    }) && text[..bytes].ends_with(b"\r\n\r\n")
}

impl Head {
    /// Reads what the lines mean. `end` is the offset in `input` behind the empty line.
    fn new(input: &[u8], end: usize, request: &httparse::Request<'_, '_>) -> Result<Self, HttpError> {
        let method = Method::from_token(request.method.unwrap_or_default());
        let http10 = request.version == Some(0);
        let (path, query) = split_target(request.path.unwrap_or_default())?;
        let fields = Fields::read(request.headers, http10)?;
        Ok(Self {
            method,
            http10,
            keep_alive: if http10 { fields.keep_alive && !fields.close } else { !fields.close },
            expects_continue: fields.expects_continue && !http10,
            framing: match fields.length {
                _ if fields.chunked => Framing::Chunked,
                length => Framing::Length(length.unwrap_or(0)),
            },
            path: path.map(|path| Piece::of(path.as_bytes(), input)),
            query: query.map(|query| Piece::of(query.as_bytes(), input)),
            tenant: fields.tenant.map(|tenant| Piece::of(tenant, input)),
            authorization: fields.authorization.map(|value| Piece::of(value, input)),
            upgrade: fields.upgrade.filter(|_| fields.upgrades).map(|value| Piece::of(value, input)),
            end: offset(end),
        })
    }
}

/// Path and query of a request target in origin, absolute or asterisk form. No path means `/`.
fn split_target(target: &str) -> Result<(Option<&str>, Option<&str>), HttpError> {
    if target.contains('#') {
        return Err(HttpError::Target);
    }
    let origin = if target.starts_with('/') || target == "*" {
        target
    } else {
        let (scheme, rest) = target.split_once("://").ok_or(HttpError::Target)?;
        let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        let authority_bytes = rest.find(['/', '?']).unwrap_or(rest.len());
        if !is_http || authority_bytes == 0 {
            return Err(HttpError::Target);
        }
        &rest[authority_bytes..]
    };
    let (path, query) = match origin.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (origin, None),
    };
    Ok(((!path.is_empty()).then_some(path), query))
}

/// The headers that the broker acts upon, each given at most once.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    length: Option<usize>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
    tenant: Option<&'a [u8]>,
    authorization: Option<&'a [u8]>,
    upgrade: Option<&'a [u8]>,
    /// `Connection` says that `Upgrade` is meant for this end.
    upgrades: bool,
}

impl<'a> Fields<'a> {
    fn read(headers: &[httparse::Header<'a>], http10: bool) -> Result<Self, HttpError> {
        let mut fields = Self::default();
        for header in headers {
            fields.take(header.name, header.value)?;
        }
        if fields.host.is_none() && !http10 {
            return Err(HttpError::HostMissing);
        }
        if fields.chunked && fields.length.is_some() {
            return Err(HttpError::LengthAndTransferEncoding);
        }
        if fields.chunked && http10 {
            return Err(HttpError::TransferEncodingInHttp10);
        }
        Ok(fields)
    }

    fn take(&mut self, name: &str, value: &'a [u8]) -> Result<(), HttpError> {
        // The length tells the names apart that matter, so most headers cost one comparison.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => once(&mut self.host, value, HttpError::HostRepeated),
            6 if name.eq_ignore_ascii_case("expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(HttpError::Expectation);
                }
                self.expects_continue = true;
                Ok(())
            }
            7 if name.eq_ignore_ascii_case("upgrade") => {
                self.upgrade = Some(value);
                Ok(())
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                for option in value.split(|byte| *byte == b',') {
                    let option = option.trim_ascii();
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    self.upgrades |= option.eq_ignore_ascii_case(b"upgrade");
                }
                Ok(())
            }
            13 if name.eq_ignore_ascii_case("authorization") => {
                once(&mut self.authorization, value, HttpError::AuthorizationRepeated)
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                once(&mut self.length, length(value)?, HttpError::ContentLengthRepeated)
            }
            14 if name.eq_ignore_ascii_case("x-queen-tenant") => {
                once(&mut self.tenant, value, HttpError::TenantRepeated)
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(HttpError::TransferEncoding);
                }
                self.chunked = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn once<T>(place: &mut Option<T>, value: T, repeated: HttpError) -> Result<(), HttpError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(repeated),
    }
}

/// A Content-Length: digits alone. One that overflows is a body that is too large, whatever it is.
fn length(value: &[u8]) -> Result<usize, HttpError> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(HttpError::ContentLength);
    }
    value
        .iter()
        .try_fold(0usize, |sum, digit| sum.checked_mul(10)?.checked_add(usize::from(digit - b'0')))
        .ok_or(HttpError::BodyTooLarge)
}

#[cfg(test)]
mod tests {
    use super::{HttpError, length, split_target};

    #[test]
    fn a_target_is_a_path_a_url_or_an_asterisk() {
        let cases = [
            ("/", (Some("/"), None)),
            ("/a/b?c=d?e", (Some("/a/b"), Some("c=d?e"))),
            ("/a?", (Some("/a"), Some(""))),
            ("*", (Some("*"), None)),
            ("http://host:6632/a?b", (Some("/a"), Some("b"))),
            ("HTTPS://host", (None, None)),
            ("http://host?b", (None, Some("b"))),
        ];
        for (target, expected) in cases {
            assert_eq!(split_target(target), Ok(expected), "{target}");
        }
        for target in ["", "a", "host:443", "ftp://host/a", "http://", "http:///a", "/a#b", "**"] {
            assert_eq!(split_target(target), Err(HttpError::Target), "{target}");
        }
    }

    #[test]
    fn a_length_is_digits_alone() {
        assert_eq!(length(b"0"), Ok(0));
        assert_eq!(length(b"00042"), Ok(42));
        for wrong in ["", "+1", "-1", "1 ", "1,1", "0x10", "1.0"] {
            assert_eq!(length(wrong.as_bytes()), Err(HttpError::ContentLength), "{wrong}");
        }
        assert_eq!(length(b"99999999999999999999999"), Err(HttpError::BodyTooLarge));
    }
}
