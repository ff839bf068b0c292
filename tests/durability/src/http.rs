//! A connection that asks one thing after the other, and tells what was answered from what was not.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Longer than any wait that is asked for: what takes longer has no answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// An answer that came whole.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// A connection, opened again after each failure.
pub struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    input: Vec<u8>,
}

impl Connection {
    /// A connection to `address`, opened by the first request.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: None, input: Vec::new() }
    }

    /// Sends a request and waits for its whole answer. After an error nobody knows whether it was carried out.
    pub fn request(&mut self, method: &str, path: &str, body: Option<&str>) -> io::Result<Answer> {
        let answer = self.exchange(method, path, body);
        if answer.is_err() {
            self.stream = None;
        }
        answer
    }

    fn exchange(&mut self, method: &str, path: &str, body: Option<&str>) -> io::Result<Answer> {
        let address = self.address;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            closed => {
                let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_MAX))?;
                stream.set_write_timeout(Some(ANSWER_MAX))?;
                closed.insert(stream)
            }
        };
        let content = body.map_or(String::new(), |body| {
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        });
        let end = if body.is_none() { "\r\n" } else { "" };
        // In one write, so that a kill finds it either there or not.
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{content}{end}");
        stream.write_all(request.as_bytes())?;
        self.input.clear();
        let mut piece = [0; 16 * 1024];
        loop {
            let bytes = stream.read(&mut piece)?;
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.input.extend_from_slice(&piece[..bytes]);
            if let Some(answer) = parse(&self.input)? {
                return Ok(answer);
            }
        }
    }
}

/// The answer that `input` is, once it is whole.
fn parse(input: &[u8]) -> io::Result<Option<Answer>> {
    let garbled = || io::Error::from(io::ErrorKind::InvalidData);
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let head_bytes = match head.parse(input).map_err(|_| garbled())? {
        httparse::Status::Complete(bytes) => bytes,
        httparse::Status::Partial => return Ok(None),
    };
    let status = head.code.ok_or_else(garbled)?;
    let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = match length {
        Some(header) => str::from_utf8(header.value).ok().and_then(|text| text.trim().parse().ok()),
        None => (status == 204).then_some(0),
    };
    let length: usize = length.ok_or_else(garbled)?;
    Ok(input.get(head_bytes..head_bytes + length).map(|body| Answer { status, body: body.to_vec() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_cut_is_none() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]";
        for bytes in 0..whole.len() {
            assert!(parse(&whole[..bytes]).unwrap().is_none(), "{bytes}");
        }
        assert_eq!(parse(whole).unwrap().unwrap().body, b"[]");
        assert_eq!(parse(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap().status, 204);
    }
}
