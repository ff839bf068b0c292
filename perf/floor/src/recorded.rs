//! Recorded answers: the end of a request is found, its head by the blank line and its body by the content length, and
//! answered with bytes that were recorded from the broker. No routes, no JSON, no queue, no limits, no time-outs.

use std::{future::poll_fn, io, path::Path};

use memchr::memmem;
use queen_fabric::rt::TcpStream;

/// Holds the largest request of the comparison, a push of 100 messages of 256 bytes, twice over.
const BUFFER_BYTES: usize = 64 * 1024;

/// A push with a body of at least this many bytes is one of the batch.
const BATCH_BODY_BYTES: usize = 4096;

/// Whole responses, head and body, as the broker gave them.
pub struct Answers {
    push: Vec<u8>,
    push_batch: Vec<u8>,
    pop: Vec<u8>,
}

impl Answers {
    /// Reads the files `push`, `push-batch` and `pop` of a directory.
    ///
    /// # Errors
    ///
    /// Of reading one of them.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let read = |name: &str| std::fs::read(dir.join(name));
        Ok(Self { push: read("push")?, push_batch: read("push-batch")?, pop: read("pop")? })
    }

    fn to(&self, request: &Request) -> &[u8] {
        match request.body_bytes {
            None => &self.pop,
            Some(BATCH_BODY_BYTES..) => &self.push_batch,
            Some(_) => &self.push,
        }
    }
}

/// A request that is wholly there.
struct Request {
    /// From the first byte of its head to the last of its body.
    bytes: usize,
    /// None without a content length.
    body_bytes: Option<usize>,
}

/// The request that `bytes` begins with, once it is wholly there.
fn request(bytes: &[u8]) -> Option<Request> {
    // The end of the name alone, so that `Content-Length` and `content-length` are one search.
    const LENGTH: &[u8] = b"ength: ";
    let head_bytes = memmem::find(bytes, b"\r\n\r\n")? + 4;
    let head = &bytes[..head_bytes];
    let length = memmem::find(head, LENGTH).map(|at| {
        let digits = head[at + LENGTH.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |length: usize, digit| length * 10 + usize::from(digit - b'0'))
    });
    let bytes_wanted = head_bytes + length.unwrap_or(0);
    (bytes.len() >= bytes_wanted).then_some(Request { bytes: bytes_wanted, body_bytes: length })
}

/// Answers one connection's requests, one after the other, until its client closes it.
///
/// # Errors
///
/// Of the socket.
pub async fn serve(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut filled = 0;
    loop {
        let read = poll_fn(|cx| stream.poll_read(cx, &mut buffer[filled..])).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        while let Some(request) = request(&buffer[..filled]) {
            let mut rest = answers.to(&request);
            while !rest.is_empty() {
                let written = poll_fn(|cx| stream.poll_write(cx, rest)).await?;
                rest = &rest[written..];
            }
            buffer.copy_within(request.bytes..filled, 0);
            filled -= request.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_its_body() {
        for name in ["Content-Length", "content-length"] {
            let bytes = format!("POST / HTTP/1.1\r\n{name}: 3\r\n\r\nabcGET");
            let found = request(bytes.as_bytes()).unwrap();
            assert_eq!((found.bytes, found.body_bytes), (bytes.len() - 3, Some(3)));
        }
    }

    #[test]
    fn a_request_without_a_length_ends_with_its_head() {
        let found = request(b"GET / HTTP/1.1\r\nHost: q\r\n\r\n").unwrap();
        assert_eq!((found.bytes, found.body_bytes), (27, None));
    }

    #[test]
    fn a_request_that_is_not_all_there_waits() {
        assert!(request(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n").is_none());
        assert!(request(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab").is_none());
    }
}
