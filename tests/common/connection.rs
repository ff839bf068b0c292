//! One plain TCP connection that speaks HTTP/1.1 in exactly the bytes a test gives it: for hostile
//! input, for pops that wait, and for the verbs. Answers are read by their content-length.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;
use socket2::SockRef;

use super::PATIENCE;

/// A keep-alive connection to the broker.
pub struct Connection {
    stream: Stream,
    /// Bytes that were read beyond the last answer.
    unread: Vec<u8>,
}

/// Plain bytes, whatever is under them.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.sock,
        }
    }

    fn bytes(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls,
        }
    }
}

trait ReadWrite: Read + Write {}

impl<S: Read + Write> ReadWrite for S {}

/// An answer, with its header names in lower case.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Name and value of each header, in order.
    pub headers: Vec<(String, String)>,
    /// The body, as long as `content-length` says.
    pub body: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).expect("the broker accepts connections")
    }

    /// Connects, or says why not.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: Stream::Plain(stream), unread: Vec::new() })
    }

    /// Connects in TLS, to what calls itself `localhost`.
    pub fn open_tls(address: SocketAddr, config: Arc<ClientConfig>) -> io::Result<Self> {
        let Stream::Plain(tcp) = Self::try_open(address)?.stream else { unreachable!("opened without TLS") };
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let stream = Stream::Tls(Box::new(StreamOwned::new(session, tcp)));
        Ok(Self { stream, unread: Vec::new() })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the broker reads");
    }

    /// Sends bytes as they are; the broker may have closed the connection.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.bytes().write_all(bytes.as_ref())
    }

    /// Reads the next answer.
    pub fn response(&mut self) -> Response {
        self.try_response().expect("an answer")
    }

    /// Reads the next answer, or the error (`UnexpectedEof` when the broker closed instead).
    pub fn try_response(&mut self) -> io::Result<Response> {
        let mut response = self.try_response_head()?;
        let length = match response.header("content-length") {
            Some(length) => length.parse().map_err(io::Error::other)?,
            None => 0,
        };
        while self.unread.len() < length {
            self.read_more()?;
        }
        response.body = self.unread.drain(..length).collect();
        Ok(response)
    }

    /// Reads the head of the next answer alone, as for HEAD, which has no body.
    pub fn response_head(&mut self) -> Response {
        self.try_response_head().expect("the head of an answer")
    }

    fn try_response_head(&mut self) -> io::Result<Response> {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end;
            }
            self.read_more()?;
        };
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).map_err(io::Error::other)?;
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().expect("split gives a first piece");
        let status = status_line
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.split(' ').next())
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| io::Error::other(format!("a status line, not {status_line:?}")))?;
        let headers = lines
            .map(|line| {
                let (name, value) = line.split_once(": ").expect("a header line");
                (name.to_ascii_lowercase(), value.to_owned())
            })
            .collect();
        Ok(Response { status, headers, body: Vec::new() })
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 64 * 1024];
        match self.stream.bytes().read(&mut buffer)? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("closed by the broker after {:?}", String::from_utf8_lossy(&self.unread)),
            )),
            read => {
                self.unread.extend_from_slice(&buffer[..read]);
                Ok(())
            }
        }
    }

    /// GET, and the answer.
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, b"")
    }

    /// POST, and the answer.
    pub fn post(&mut self, target: &str, body: impl AsRef<[u8]>) -> Response {
        self.request("POST", target, body.as_ref())
    }

    /// Any method with these headers, and the answer.
    pub fn request_with(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.send(super::request(method, target, headers, body));
        self.response()
    }

    /// Any method, and the answer.
    pub fn request(&mut self, method: &str, target: &str, body: &[u8]) -> Response {
        self.send(super::request(method, target, &[], body));
        self.response()
    }

    /// No more bytes from this side; answers are still read.
    pub fn finish_sending(&self) {
        self.stream.tcp().shutdown(Shutdown::Write).expect("half a close");
    }

    /// Closes with RST, as a client that is killed with unread data does.
    pub fn reset(self) {
        SockRef::from(self.stream.tcp()).set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
    }

    /// Whether the broker closed: true at end of file or reset, false when it sent something.
    pub fn is_closed_by_peer(&mut self) -> bool {
        match self.read_more() {
            Ok(()) => false,
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ),
        }
    }

    /// Whether nothing comes within `time`: the connection stays open and silent.
    pub fn is_silent_for(&mut self, time: Duration) -> bool {
        assert!(self.unread.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.unread));
        self.stream.tcp().set_read_timeout(Some(time)).expect("a read timeout");
        let read = self.read_more();
        self.stream.tcp().set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        matches!(read, Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }
}

impl Response {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("JSON ({error}) in {self:?}"))
    }

    /// The `code` of an error in the envelope that every failure has: `error` is a sentence, `code`
    /// a word.
    pub fn code(&self) -> String {
        assert!(self.status >= 400, "an error, not {} {}", self.status, self.text());
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let body = self.json();
        let sentence = body["error"].as_str().unwrap_or_default();
        assert!(!sentence.is_empty(), "a sentence under `error` in {body}");
        body["code"].as_str().unwrap_or_else(|| panic!("`code` in {body}")).to_owned()
    }

    /// Status and code of an error together, to compare with one expression.
    pub fn failure(&self) -> (u16, String) {
        (self.status, self.code())
    }
}
