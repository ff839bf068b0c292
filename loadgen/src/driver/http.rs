//! Responses of HTTP/1.1, cut out of a buffer.
//!
//! Reads what servers send that keep connections open: heads in any letter case, bodies by length or in chunks. A body
//! that ends with the connection is not read: nobody who pipelines can use it.

use super::{Garbled, parse_number};

/// The status that has no body and says nothing of its length.
const NO_CONTENT: u16 = 204;

const HEADERS_MAX: usize = 32;

/// A head larger than this is no answer to us.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Cuts responses out of a connection's input.
#[derive(Debug, Default)]
pub(super) struct Responses {
    /// A body that came in chunks, put together.
    joined: Vec<u8>,
}

/// A response that is wholly there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response<'a> {
    /// The status code.
    pub(super) status: u16,
    /// The body.
    pub(super) body: &'a [u8],
    /// How many bytes of the input it took.
    pub(super) bytes: usize,
}

enum Framing {
    Length(usize),
    Chunked,
}

impl Responses {
    /// The response that `input` begins with, once it is wholly there.
    pub(super) fn cut<'a>(&'a mut self, input: &'a [u8]) -> Result<Option<Response<'a>>, Garbled> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let head_bytes = match head.parse(input) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) if input.len() <= HEAD_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) | Err(_) => return Err(Garbled),
        };
        let status = head.code.ok_or(Garbled)?;
        let rest = &input[head_bytes..];
        if status == NO_CONTENT {
            return Ok(Some(Response { status, body: &[], bytes: head_bytes }));
        }
        match framing(head.headers)? {
            Framing::Length(length) => {
                Ok(rest.get(..length).map(|body| Response { status, body, bytes: head_bytes + length }))
            }
            Framing::Chunked => {
                self.joined.clear();
                let Some(bytes) = join_chunks(rest, &mut self.joined)? else { return Ok(None) };
                Ok(Some(Response { status, body: &self.joined, bytes: head_bytes + bytes }))
            }
        }
    }
}

fn framing(headers: &[httparse::Header<'_>]) -> Result<Framing, Garbled> {
    let mut length = None;
    for header in headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            let bytes = parse_number(header.value.trim_ascii()).ok_or(Garbled)?;
            length = Some(usize::try_from(bytes).map_err(|_| Garbled)?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return match header.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                true => Ok(Framing::Chunked),
                false => Err(Garbled),
            };
        }
    }
    length.map(Framing::Length).ok_or(Garbled)
}

/// Appends the chunks that `input` begins with to `body`, and returns how many bytes they took with their trailer, or
/// `None` while the last one is not there.
fn join_chunks(input: &[u8], body: &mut Vec<u8>) -> Result<Option<usize>, Garbled> {
    let mut at = 0;
    loop {
        let (bytes, size) = match httparse::parse_chunk_size(&input[at..]).map_err(|_| Garbled)? {
            httparse::Status::Complete(found) => found,
            httparse::Status::Partial => return Ok(None),
        };
        at += bytes;
        if size == 0 {
            return skip_trailer(input, at);
        }
        let size = usize::try_from(size).map_err(|_| Garbled)?;
        let Some(end) = at.checked_add(size).filter(|end| end + 2 <= input.len()) else { return Ok(None) };
        if &input[end..end + 2] != b"\r\n" {
            return Err(Garbled);
        }
        body.extend_from_slice(&input[at..end]);
        at = end + 2;
    }
}

/// Where the lines end that follow the last chunk, the last of which is empty.
fn skip_trailer(input: &[u8], mut at: usize) -> Result<Option<usize>, Garbled> {
    loop {
        let Some(length) = memchr::memchr(b'\n', &input[at..]) else { return Ok(None) };
        let line = &input[at..at + length];
        at += length + 1;
        match line {
            b"\r" => return Ok(Some(at)),
            [.., b'\r'] => {}
            _ => return Err(Garbled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_at_every_byte(input: &[u8]) -> (u16, Vec<u8>) {
        let mut responses = Responses::default();
        for bytes in 0..input.len() {
            assert_eq!(responses.cut(&input[..bytes]), Ok(None), "after {bytes} bytes");
        }
        let mut longer = input.to_vec();
        longer.extend_from_slice(b"HTTP/1.1 404 x\r\n");
        let response = responses.cut(&longer).unwrap().unwrap();
        assert_eq!(response.bytes, input.len());
        (response.status, response.body.to_vec())
    }

    #[test]
    fn a_body_ends_by_its_length_whatever_the_letter_case() {
        for name in ["Content-Length", "content-length", "CONTENT-LENGTH"] {
            let input = format!("HTTP/1.1 201 Created\r\n{name}: 5\r\nx: y\r\n\r\nhello");
            assert_eq!(cut_at_every_byte(input.as_bytes()), (201, b"hello".to_vec()));
        }
    }

    #[test]
    fn no_content_ends_with_its_head() {
        assert_eq!(cut_at_every_byte(b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n"), (204, Vec::new()));
    }

    #[test]
    fn chunks_are_put_together_and_a_trailer_skipped() {
        let input =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhell\r\n1;x=y\r\no\r\n0\r\nt: u\r\n\r\n";
        assert_eq!(cut_at_every_byte(input), (200, b"hello".to_vec()));
    }

    #[test]
    fn what_is_no_http_is_garbled() {
        for input in [
            &b"INFO {\"server_id\":\"x\"}\r\n"[..],
            b"-ERR unknown command\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        ] {
            assert_eq!(Responses::default().cut(input), Err(Garbled), "{}", String::from_utf8_lossy(input));
        }
    }
}
