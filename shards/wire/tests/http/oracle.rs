//! hyper as the oracle: the same bytes to both, the same verdict but where the table says why not.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use queen_wire::http::{HttpError, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connection::{Seen, read_in_pieces};
use crate::generator::{Random, request};

const CASES: u64 = 20_000;

/// What we refuse and hyper serves, on purpose.
const STRICTER: &[(HttpError, &str)] = &[
    (HttpError::LineEnd, "a bare LF ends a line for hyper; proxies disagree, which is how requests are smuggled"),
    (
        HttpError::HostMissing,
        "RFC 9112, 3.2: a server must refuse a 1.1 request without Host; hyper leaves it to its user",
    ),
    (HttpError::HostRepeated, "RFC 9112, 3.2, likewise"),
    (HttpError::ContentLengthRepeated, "equal lengths pass in hyper; two are one too many to agree on"),
    (HttpError::LengthAndTransferEncoding, "hyper lets the chunks win; RFC 9112, 6.1 allows refusing"),
    (HttpError::TransferEncoding, "hyper takes any list that ends in chunked and leaves the rest encoded"),
    (HttpError::Expectation, "hyper ignores what it does not know; RFC 9110, 10.1.1 has 417 for it"),
    (HttpError::Target, "hyper drops a fragment and takes the authority form, of which a broker has no use"),
    (HttpError::TenantRepeated, "two tenants are no tenant"),
    (HttpError::AuthorizationRepeated, "two credentials are none"),
    (HttpError::Chunk, "hyper takes white space, and control characters in an extension, behind a chunk size"),
    (HttpError::Trailer, "hyper reads the trailers only if somebody asks for them"),
    (HttpError::BlankLines, "hyper skips any number of empty lines"),
];

/// What a server made of a connection's first request.
#[derive(Debug, PartialEq)]
enum Verdict {
    Served {
        method: String,
        path: String,
        query: Option<String>,
        body: Vec<u8>,
    },
    Refused {
        status: u16,
    },
    /// The bytes end before a verdict.
    Incomplete,
}

async fn hyper_verdict(bytes: &[u8]) -> Verdict {
    let served = Arc::new(Mutex::new(None));
    let service = service_fn(|request: Request<Incoming>| {
        let served = Arc::clone(&served);
        async move {
            let (parts, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                served.lock().expect("one thread").get_or_insert(Verdict::Served {
                    method: parts.method.to_string(),
                    path: parts.uri.path().to_owned(),
                    query: parts.uri.query().map(Into::into),
                    body: body.to_bytes().to_vec(),
                });
            }
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
        }
    });
    let (client, server) = tokio::io::duplex(64 * 1024);
    let (mut read, mut write) = tokio::io::split(client);
    let mut answer = Vec::new();
    let serving = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service);
    let talking = async {
        write.write_all(bytes).await.expect("the pipe is larger than any case");
        write.shutdown().await.expect("the pipe is open");
        read.read_to_end(&mut answer).await.expect("the pipe is in memory");
    };
    // A malformed request is an error of the connection; its answer says so as well.
    let (_, ()) = tokio::join!(serving, talking);
    let verdict = served.lock().expect("one thread").take();
    verdict.unwrap_or_else(|| match answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()) {
        Some(digits) if !digits.starts_with('2') && !digits.starts_with('1') => {
            Verdict::Refused { status: digits.parse().expect("a status line") }
        }
        _ => Verdict::Incomplete,
    })
}

fn our_verdict(bytes: &[u8]) -> Result<Verdict, HttpError> {
    let method = |bytes: &[u8]| {
        let line = String::from_utf8_lossy(bytes.trim_ascii_start()).into_owned();
        line.split(' ').next().unwrap_or_default().to_owned()
    };
    match read_in_pieces(bytes, &[], &Limits::default()).into_iter().next() {
        None => Ok(Verdict::Incomplete),
        Some(Err(error)) => Err(error),
        Some(Ok(Seen { path, query, body, .. })) => Ok(Verdict::Served { method: method(bytes), path, query, body }),
    }
}

#[test]
fn hyper_comes_to_the_same_verdict_but_for_the_table() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (mut served, mut refused) = (0, 0);
    for seed in 0..CASES {
        let bytes = request(&mut Random::new(seed));
        let theirs = runtime.block_on(hyper_verdict(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        match our_verdict(&bytes) {
            Ok(ours) => {
                served += u64::from(ours != Verdict::Incomplete);
                assert_eq!(ours, theirs, "seed {seed}: {text:?}");
            }
            Err(error) => {
                refused += 1;
                let agreed = match theirs {
                    // The class of the status: of the version alone we say that it is the server's to lack.
                    Verdict::Refused { status } => status / 100 == error.status() / 100 || error == HttpError::Version,
                    // We refuse a beginning that nothing can make valid; hyper waits for the rest.
                    Verdict::Incomplete => true,
                    Verdict::Served { .. } => STRICTER.iter().any(|(listed, _)| *listed == error),
                };
                assert!(agreed, "seed {seed}: we say {error:?}, hyper says {theirs:?}: {text:?}");
            }
        }
    }
    // A generator that makes only one kind of case would show nothing.
    assert!(served > CASES / 4 && refused > CASES / 10, "{served} served, {refused} refused of {CASES}");
}
