//! HTTP/1.1 and 1.0 requests out of a connection's bytes.
//!
//! A [`Decoder`] per connection, driven by [`Decoder::decode`] with whatever has been read. It owns
//! a few dozen bytes of progress and, while a chunked body is being put together, that body; the
//! buffer of unread bytes is the caller's. Every request borrows from both.
//!
//! Strict where leniency would let two parties disagree on where a request ends: see
//! [`HttpError`] for all that is refused. A head is refused for the same reason however its bytes
//! were cut into reads; how long before its end may depend on them.

mod chunked;
mod error;
mod head;

use chunked::Chunks;
pub use error::HttpError;
use head::{Framing, Head, Scan};

/// What to write when [`Decoded::ExpectContinue`] comes.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Empty lines tolerated before a request: old clients send one behind a body.
pub const BLANK_LINES_MAX: u8 = 8;

/// What a request may measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The head with its empty line, in bytes; the trailers of a chunked body, and its chunk
    /// extensions, each have the same limit. Below 1 GiB.
    pub head_bytes_max: usize,
    /// Header lines. More than 128 count as 128.
    pub headers_max: usize,
    /// The body without its framing, in bytes.
    pub body_bytes_max: u64,
}

impl Default for Limits {
    /// 16 KiB, 100 headers, and the 64 MiB that `QUEEN_MAX_BODY_BYTES` has by default.
    fn default() -> Self {
        Self { head_bytes_max: 16 * 1024, headers_max: 100, body_bytes_max: 64 * 1024 * 1024 }
    }
}

/// A request's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// OPTIONS
    Options,
    /// PATCH
    Patch,
    /// Any other token.
    Other,
}

impl Method {
    fn from_token(token: &str) -> Self {
        match token {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }
}

/// A whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The target's path as it was sent, still percent-encoded; `*` for the asterisk form.
    pub path: &'a str,
    /// What follows the first `?` of the target, as it was sent.
    pub query: Option<&'a str>,
    /// False if the connection ends with the answer to this request.
    pub keep_alive: bool,
    /// True for HTTP/1.0, whose clients are told in so many words that a connection stays open.
    pub http10: bool,
    /// The value of `x-queen-tenant`.
    pub tenant: Option<&'a [u8]>,
    /// The value of `Authorization`.
    pub authorization: Option<&'a [u8]>,
    /// The value of `Upgrade`, where `Connection` names it.
    pub upgrade: Option<&'a [u8]>,
    /// The body, its framing taken off.
    pub body: &'a [u8],
}

/// What the bytes so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// The next request is not whole: read more. `consumed` bytes are done with all the same.
    NeedMore {
        /// How many bytes of the input are done with.
        consumed: usize,
    },
    /// The head is fine, no byte of the body has come, and the client waits for a word: write
    /// [`CONTINUE`] and go on. Comes at most once per request; nothing is consumed by it.
    ExpectContinue,
    /// A whole request.
    Request {
        /// The request, borrowing the input and the decoder.
        request: Request<'a>,
        /// How many bytes of the input it took; the next request begins behind them.
        consumed: usize,
    },
    /// The connection is answered and closed. Every further call says the same.
    Failed(HttpError),
}

/// What a connection is in the middle of, for whoever watches the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Between requests, no byte of the next one read.
    Idle,
    /// A head has begun.
    Head,
    /// A head is whole, its body is not.
    Body {
        /// Bytes behind the head so far, chunk framing included.
        received_bytes: u64,
    },
}

/// The progress of one connection.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    blank_lines: u8,
}

#[derive(Debug)]
enum State {
    Head(Scan),
    /// A head is whole; it and its body are still in the caller's buffer.
    Body {
        head: Head,
        told_to_continue: bool,
        received_bytes: u64,
    },
    /// The head and the chunks so far have been taken out of the caller's buffer. Once the chunks
    /// have ended, the request borrows from here, and the next call drops it.
    Chunked(Box<Assembly>),
    Failed(HttpError),
}

/// A request whose body comes in chunks.
#[derive(Debug)]
struct Assembly {
    head: Head,
    head_bytes: Vec<u8>,
    body: Vec<u8>,
    chunks: Chunks,
    received_bytes: u64,
}

/// The outcome of a call, before anything is borrowed for it.
enum Step {
    NeedMore {
        consumed: usize,
    },
    ExpectContinue,
    /// The request stands in the input.
    InPlace {
        head: Head,
        consumed: usize,
    },
    /// The request stands in [`State::Chunked`].
    Assembled {
        consumed: usize,
    },
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder for a fresh connection.
    pub fn new() -> Self {
        Self { state: State::Head(Scan::default()), blank_lines: 0 }
    }

    /// Looks for the next request. `input` holds all unread bytes of the connection, starting where
    /// the last `consumed` left off; bytes that were not consumed must be there again. The limits
    /// stay the same for the life of a connection.
    ///
    /// Calling again with the same bytes is harmless: it says [`Decoded::NeedMore`] again.
    pub fn decode<'a>(&'a mut self, input: &'a [u8], limits: &Limits) -> Decoded<'a> {
        debug_assert!(limits.head_bytes_max < 1 << 30, "offsets inside a head are 32 bits");
        match self.advance(input, limits) {
            Ok(Step::NeedMore { consumed }) => Decoded::NeedMore { consumed },
            Ok(Step::ExpectContinue) => Decoded::ExpectContinue,
            Ok(Step::InPlace { head, consumed }) => {
                let body = &input[head.end as usize..consumed];
                Decoded::Request { request: head.request(input, body), consumed }
            }
            Ok(Step::Assembled { consumed }) => {
                let State::Chunked(assembly) = &self.state else {
                    unreachable!("an assembled request is kept until the next call")
                };
                let request = assembly.head.request(&assembly.head_bytes, &assembly.body);
                Decoded::Request { request, consumed }
            }
            Err(error) => {
                self.state = State::Failed(error);
                Decoded::Failed(error)
            }
        }
    }

    /// Bytes of a chunked body that the decoder is putting together; the only memory that it holds.
    pub fn buffered_bytes(&self) -> usize {
        match &self.state {
            State::Chunked(assembly) => assembly.head_bytes.len() + assembly.body.len(),
            State::Head(_) | State::Body { .. } | State::Failed(_) => 0,
        }
    }

    /// What the connection is in the middle of, as of the last [`Decoder::decode`].
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Head(scan) if scan.is_untouched() => Phase::Idle,
            State::Chunked(assembly) if assembly.chunks.is_ended() => Phase::Idle,
            State::Head(_) | State::Failed(_) => Phase::Head,
            State::Body { received_bytes, .. } => Phase::Body { received_bytes: *received_bytes },
            State::Chunked(assembly) => Phase::Body { received_bytes: assembly.received_bytes },
        }
    }

    fn advance(&mut self, input: &[u8], limits: &Limits) -> Result<Step, HttpError> {
        match &self.state {
            State::Failed(error) => return Err(*error),
            State::Chunked(assembly) if assembly.chunks.is_ended() => {
                self.state = State::Head(Scan::default());
            }
            State::Head(_) | State::Body { .. } | State::Chunked(_) => {}
        }
        if let State::Head(_) = self.state {
            let start = self.skip_blank_lines(input)?;
            if matches!(&input[start..], b"" | b"\r") {
                return Ok(Step::NeedMore { consumed: start });
            }
            let State::Head(scan) = &mut self.state else {
                unreachable!("skipping blank lines leaves the state alone")
            };
            let head = match scan.read(input, start, limits)? {
                Some(head) => head,
                None => return Ok(Step::NeedMore { consumed: start }),
            };
            self.blank_lines = 0;
            if let Framing::Length(length) = head.framing {
                if length as u64 > limits.body_bytes_max {
                    return Err(HttpError::BodyTooLarge);
                }
                let consumed = head.end as usize + length;
                if input.len() >= consumed {
                    self.state = State::Head(Scan::default());
                    return Ok(Step::InPlace { head, consumed });
                }
            }
            self.state = State::Body { head, told_to_continue: false, received_bytes: 0 };
        }
        let mut consumed = 0;
        if let State::Body { head, told_to_continue, received_bytes } = &mut self.state {
            let head = *head;
            let received = input.len() - head.end as usize;
            if head.expects_continue && received == 0 && !*told_to_continue {
                *told_to_continue = true;
                return Ok(Step::ExpectContinue);
            }
            if let Framing::Length(length) = head.framing {
                if received < length {
                    *received_bytes = received as u64;
                    return Ok(Step::NeedMore { consumed: 0 });
                }
                self.state = State::Head(Scan::default());
                return Ok(Step::InPlace { head, consumed: head.end as usize + length });
            }
            consumed = head.end as usize;
            self.state = State::Chunked(Box::new(Assembly {
                head,
                head_bytes: input[..consumed].to_vec(),
                body: Vec::new(),
                chunks: Chunks::new(),
                received_bytes: 0,
            }));
        }
        self.assemble(input, consumed, limits)
    }

    /// Goes on with a chunked body, which stands in `input` from `consumed` on.
    fn assemble(&mut self, input: &[u8], consumed: usize, limits: &Limits) -> Result<Step, HttpError> {
        let State::Chunked(assembly) = &mut self.state else {
            unreachable!("a head without a length has chunks behind it")
        };
        let Assembly { body, chunks, received_bytes, .. } = &mut **assembly;
        let read = chunks.feed(&input[consumed..], body, limits)?;
        *received_bytes += read as u64;
        let consumed = consumed + read;
        if !chunks.is_ended() {
            return Ok(Step::NeedMore { consumed });
        }
        Ok(Step::Assembled { consumed })
    }

    /// The offset of the first byte that is not part of an empty line before the request.
    fn skip_blank_lines(&mut self, input: &[u8]) -> Result<usize, HttpError> {
        let mut start = 0;
        while input[start..].starts_with(b"\r\n") {
            start += 2;
            self.blank_lines += 1;
            if self.blank_lines > BLANK_LINES_MAX {
                return Err(HttpError::BlankLines);
            }
        }
        match &input[start..] {
            [b'\n', ..] | [b'\r', _, ..] => Err(HttpError::LineEnd),
            _ => Ok(start),
        }
    }
}

impl Head {
    /// The request that this head and `body` make; `whole` is what the head's offsets refer to.
    fn request<'a>(&self, whole: &'a [u8], body: &'a [u8]) -> Request<'a> {
        Request {
            method: self.method,
            path: self.path.map_or("/", |path| path.text(whole)),
            query: self.query.map(|query| query.text(whole)),
            keep_alive: self.keep_alive,
            http10: self.http10,
            tenant: self.tenant.map(|tenant| tenant.bytes(whole)),
            authorization: self.authorization.map(|value| value.bytes(whole)),
            upgrade: self.upgrade.map(|value| value.bytes(whole)),
            body,
        }
    }
}
