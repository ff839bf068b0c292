//! HTTP that is ambiguous, endless or no HTTP at all: refused, and the connection closed.

use crate::{PUSH, Scene};

#[test]
fn a_content_length_of_a_gigabyte_is_refused_before_its_body() {
    let scene = Scene::set();
    let head = format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\ncontent-length: 1000000000\r\n\r\n");
    scene.refuses(&head, (413, "payload_too_large"));
    scene.refuses(head + "{\"queue\":", (413, "payload_too_large"));
    scene.ends_unharmed();
}

#[test]
fn a_chunked_body_beyond_the_limit_is_refused_while_it_comes() {
    let scene = Scene::set_with(&[("QUEEN_MAX_BODY_BYTES", "100000")]);
    let mut bytes = format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\ntransfer-encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..11 {
        bytes.extend_from_slice(format!("2710\r\n{}\r\n", " ".repeat(10_000)).as_bytes());
    }
    scene.refuses(bytes, (413, "payload_too_large"));
    scene.ends_unharmed();
}

#[test]
fn ambiguous_lengths_are_refused() {
    let scene = Scene::set();
    for lines in [
        "content-length: 2\r\ncontent-length: 3",
        "content-length: 2\r\ncontent-length: 2",
        "content-length: 2, 2",
        "content-length: 2\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 2",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "content-length: +2",
        "content-length: -2",
        "content-length: 0x2",
        "content-length: 99999999999999999999999",
        "content-length:\r\n 2",
        "content-length : 2",
    ] {
        let bytes = format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\n{lines}\r\n\r\n{{}}");
        let mut hostile = scene.connect();
        hostile.send(bytes);
        let response = hostile.response();
        assert!(matches!(response.status, 400 | 413), "{lines:?}: {response:?}");
        response.code();
        assert!(hostile.is_closed_by_peer(), "{lines:?} closes the connection");
    }
    scene.ends_unharmed();
}

#[test]
fn a_bare_line_feed_is_refused_in_chunks_and_in_heads() {
    let scene = Scene::set();
    let chunked = format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\ntransfer-encoding: chunked\r\n\r\n");
    for body in
        ["2\n{}\r\n0\r\n\r\n", "2\r\n{}\n0\r\n\r\n", "2;x=\n\r\n{}\r\n0\r\n\r\n", "\n2\r\n{}\r\n0\r\n\r\n", "zz\r\n"]
    {
        scene.refuses(format!("{chunked}{body}"), (400, "bad_request"));
    }
    scene.refuses("GET /health HTTP/1.1\nhost: b\n\n", (400, "bad_request"));
    scene.refuses("GET /health HTTP/1.1\r\nhost: b\n\r\n", (400, "bad_request"));
    scene.ends_unharmed();
}

#[test]
fn a_chunk_size_that_overflows_is_refused() {
    let scene = Scene::set();
    let head = format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\ntransfer-encoding: chunked\r\n\r\n");
    for size in ["ffffffffffffffff", "fffffffffffffffff", "10000000000000000", "7fffffffffffffff"] {
        let mut hostile = scene.connect();
        hostile.send(format!("{head}{size}\r\n{{}}"));
        let response = hostile.response();
        assert!(matches!(response.status, 400 | 413), "{size}: {response:?}");
        response.code();
        assert!(hostile.is_closed_by_peer());
    }
    scene.ends_unharmed();
}

#[test]
fn a_header_that_never_ends_is_refused_at_the_limit_of_a_head() {
    let scene = Scene::set();
    scene.refuses(format!("GET /health HTTP/1.1\r\nhost: b\r\nx: {}", "y".repeat(200_000)), (431, "head_too_large"));
    scene.refuses(format!("GET /{}", "y".repeat(200_000)), (431, "head_too_large"));
    let many = "x: y\r\n".repeat(2_000);
    scene.refuses(format!("GET /health HTTP/1.1\r\nhost: b\r\n{many}\r\n"), (431, "head_too_large"));
    scene.ends_unharmed();
}

#[test]
fn what_is_no_http_is_refused() {
    let scene = Scene::set();
    scene.refuses("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\r\n\r\n", (400, "bad_request"));
    scene.refuses("hello\r\n\r\n", (400, "bad_request"));
    scene.refuses("GET /health HTTP/1.1\r\n\r\n", (400, "bad_request"));
    scene.refuses("GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", (400, "bad_request"));
    scene.refuses("GET /health HTTP/1.1\r\nhost: b\r\nx y: z\r\n\r\n", (400, "bad_request"));
    scene.refuses("GET /health HTTP/1.1\r\nhost: b\r\nx: y\r\n folded\r\n\r\n", (400, "bad_request"));
    scene.ends_unharmed();
}

#[test]
fn a_version_that_is_not_spoken_is_refused_with_505() {
    let scene = Scene::set();
    scene.refuses("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (505, "http_version"));
    scene.refuses("GET /health HTTP/1.2\r\nhost: b\r\n\r\n", (505, "http_version"));
    scene.ends_unharmed();
}
