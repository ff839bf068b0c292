//! The HTTP decoder: what a connection's bytes mean does not depend on how they were cut.

use queen_wire::http::{Decoded, Decoder, HttpError, Limits, Request};

/// Small, so that inputs of a few hundred bytes reach every limit.
const LIMITS: Limits = Limits { head_bytes_max: 256, headers_max: 8, body_bytes_max: 128 };

/// Reads `data` as a connection in one read, byte by byte, and in two halves, and asserts that the
/// requests and the refusal are the same.
pub fn http(data: &[u8]) {
    // How soon an unfinished head is refused depends on the reads, so every head is finished.
    let bytes = [data, b"\r\n\r\n"].concat();
    let whole = read(&bytes, bytes.len());
    assert_eq!(read(&bytes, 1), whole, "byte by byte");
    assert_eq!(read(&bytes, bytes.len().div_ceil(2)), whole, "in two halves");
}

/// What came out of a connection: a text per request, and the refusal at the end, if any.
fn read(bytes: &[u8], step: usize) -> (Vec<String>, Option<HttpError>) {
    let mut decoder = Decoder::new();
    let mut requests = Vec::new();
    let mut start = 0;
    let mut end = step.min(bytes.len());
    loop {
        match decoder.decode(&bytes[start..end], &LIMITS) {
            Decoded::NeedMore { consumed } => {
                start += consumed;
                if end == bytes.len() {
                    return (requests, None);
                }
                end = (end + step).min(bytes.len());
            }
            Decoded::ExpectContinue => {}
            Decoded::Request { request, consumed } => {
                check(&request);
                requests.push(format!("{request:?}"));
                start += consumed;
            }
            Decoded::Failed(error) => return (requests, Some(error)),
        }
        assert!(start <= end, "no more is consumed than was read");
    }
}

fn check(request: &Request<'_>) {
    assert!(request.body.len() as u64 <= LIMITS.body_bytes_max, "a body beyond its limit");
    assert!(request.path.starts_with('/') || request.path == "*", "a path that is none: {:?}", request.path);
    assert!(!request.path.contains(['?', '#', ' ', '\r', '\n', '\0']), "{:?}", request.path);
    for value in [request.tenant, request.authorization].into_iter().flatten() {
        assert!(!value.contains(&b'\n') && value.trim_ascii() == value, "a value that is not trimmed: {value:?}");
    }
}
