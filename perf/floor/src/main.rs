//! The floor: the least that a server on this runtime can do with a request, to measure the broker against.
//!
//! It finds the end of a request, its head by the blank line and its body by the content length, and answers with
//! bytes that were recorded from the broker. No routes, no JSON, no queue, no limits, no time-outs: what the broker
//! costs above it is what the broker does. Never to be reached by anybody but `perf/compare-floor`.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use memchr::memmem;
use mimalloc::MiMalloc;
use queen_fabric::rt::{Executor, TcpListener, TcpStream, reserve_port, spawn_local};

// The broker's allocator, so that it is no difference.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Holds the largest request of the comparison, a push of 100 messages of 256 bytes, twice over.
const BUFFER_BYTES: usize = 64 * 1024;

/// A push with a body of at least this many bytes is one of the batch.
const BATCH_BODY_BYTES: usize = 4096;

/// Where to listen, on which core, and what to answer.
struct Arguments {
    port: u16,
    cpu: usize,
    answers: PathBuf,
}

/// Whole responses, head and body, as the broker gave them.
struct Answers {
    push: Vec<u8>,
    push_batch: Vec<u8>,
    pop: Vec<u8>,
}

impl Answers {
    fn read(dir: &Path) -> io::Result<Self> {
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
    let head_bytes = memmem::find(bytes, b"\r\n\r\n")? + 4;
    let head = &bytes[..head_bytes];
    let length = memmem::find(head, b"Content-Length: ").map(|at| {
        let digits = head[at + 16..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |length: usize, digit| length * 10 + usize::from(digit - b'0'))
    });
    let bytes_wanted = head_bytes + length.unwrap_or(0);
    (bytes.len() >= bytes_wanted).then_some(Request { bytes: bytes_wanted, body_bytes: length })
}

async fn serve(mut stream: TcpStream, answers: Rc<Answers>) -> io::Result<()> {
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

async fn listen(address: SocketAddr, answers: Answers) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    println!("listening on {address}");
    let answers = Rc::new(answers);
    loop {
        let stream = listener.accept().await?;
        let answers = Rc::clone(&answers);
        spawn_local(async move {
            // A client that goes away ends its connection and nothing else.
            let _ = serve(stream, answers).await;
        })
        .detach();
    }
}

fn arguments() -> Option<Arguments> {
    let (mut port, mut cpu, mut answers) = (None, None, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--port" => port = value.parse().ok(),
            "--cpu" => cpu = value.parse().ok(),
            "--answers" => answers = Some(PathBuf::from(value)),
            _ => return None,
        }
    }
    Some(Arguments { port: port?, cpu: cpu?, answers: answers? })
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let answers = Answers::read(&arguments.answers)?;
    let reserved = reserve_port(SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port)))?;
    let address = reserved.address();
    Executor::spawn("floor", Some(arguments.cpu), Duration::ZERO, move || listen(address, answers))?.join()??;
    Ok(())
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: floor --port PORT --cpu CPU --answers DIR (with the files push, push-batch and pop)");
        return ExitCode::from(2);
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_its_body() {
        let bytes = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET";
        let found = request(bytes).unwrap();
        assert_eq!((found.bytes, found.body_bytes), (bytes.len() - 3, Some(3)));
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
