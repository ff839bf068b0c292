//! The rules, one statement each.

use queen_wire::http::{CONTINUE, Decoded, Decoder, HttpError, Limits, Method, Phase};

use crate::connection::{Outcome, Seen, read, read_in_pieces};

/// The one request or refusal in `text`.
fn one(text: &str) -> Outcome {
    let mut outcomes = read(text.as_bytes());
    assert_eq!(outcomes.len(), 1, "{text:?} gives {outcomes:?}");
    outcomes.remove(0)
}

fn request(text: &str) -> Seen {
    one(text).unwrap_or_else(|error| panic!("{text:?} is refused: {error}"))
}

fn refusal(text: &str) -> HttpError {
    one(text).expect_err(text)
}

/// A GET with these header lines beside a Host.
fn with(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nhost: h\r\n{lines}\r\n")
}

#[test]
fn a_request_is_read_with_all_that_it_says() {
    let text = "POST /a%20b?c=d HTTP/1.1\r\nHOST: h\r\nX-Queen-Tenant: t \r\nauthorization:  Bearer x\r\n\
                Content-Length: 4\r\n\r\nbody";
    assert_eq!(
        request(text),
        Seen {
            method: Method::Post,
            path: "/a%20b".into(),
            query: Some("c=d".into()),
            keep_alive: true,
            http10: false,
            tenant: Some(b"t".into()),
            authorization: Some(b"Bearer x".into()),
            upgrade: None,
            body: b"body".into(),
        }
    );
}

#[test]
fn an_upgrade_counts_where_it_is_meant_for_this_end() {
    for (lines, expected) in [
        ("Connection: Upgrade\r\nUpgrade: queen-peer/1\r\n", Some("queen-peer/1")),
        ("upgrade: queen-peer/1\r\nconnection: keep-alive, upgrade\r\n", Some("queen-peer/1")),
        ("Upgrade: queen-peer/1\r\n", None),
        ("Connection: Upgrade\r\n", None),
    ] {
        let seen = request(&with(lines));
        assert_eq!(seen.upgrade.as_deref(), expected.map(str::as_bytes), "{lines}");
        assert!(seen.keep_alive);
    }
}

#[test]
fn every_method_is_told_apart() {
    for (token, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PATCH", Method::Patch),
        ("TRACE", Method::Other),
        ("get", Method::Other),
    ] {
        assert_eq!(request(&format!("{token} / HTTP/1.1\r\nhost:\r\n\r\n")).method, method);
    }
}

#[test]
fn requests_may_follow_each_other_at_once() {
    let text = "POST /1 HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nab\
                POST /2 HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\ncde\r\n0\r\n\r\n\
                GET /3 HTTP/1.1\r\nhost: h\r\n\r\n\r\n\r\nGET /4 HTTP/1.1\r\nhost: h\r\n\r\n";
    let seen: Vec<_> = read(text.as_bytes()).into_iter().map(|outcome| outcome.expect("all are fine")).collect();
    let paths: Vec<_> = seen.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/1", "/2", "/3", "/4"]);
    let bodies: Vec<_> = seen.iter().map(|request| request.body.as_slice()).collect();
    assert_eq!(bodies, [&b"ab"[..], b"cde", b"", b""]);
}

#[test]
fn a_connection_stays_open_as_its_version_and_header_say() {
    for (version, lines, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "connection: close\r\n", false),
        ("1.1", "connection: Upgrade , CLOSE\r\n", false),
        ("1.1", "connection: keep-alive\r\nconnection: close\r\n", false),
        ("1.1", "connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "connection: Keep-Alive\r\n", true),
        ("1.0", "connection: keep-alive, close\r\n", false),
    ] {
        let seen = request(&format!("GET / HTTP/{version}\r\nhost: h\r\n{lines}\r\n"));
        assert_eq!(seen.keep_alive, keep_alive, "{version} {lines:?}");
        assert_eq!(seen.http10, version == "1.0");
    }
}

#[test]
fn a_host_is_given_once_unless_the_version_is_1_0() {
    assert_eq!(refusal("GET / HTTP/1.1\r\n\r\n"), HttpError::HostMissing);
    assert_eq!(refusal(&with("Host: h\r\n")), HttpError::HostRepeated);
    assert!(request("GET / HTTP/1.0\r\n\r\n").http10);
}

#[test]
fn ambiguous_lengths_are_refused() {
    for (lines, error) in [
        ("content-length: 1\r\ncontent-length: 1\r\n", HttpError::ContentLengthRepeated),
        ("content-length: 1\r\ncontent-length: 2\r\n", HttpError::ContentLengthRepeated),
        ("content-length: 1, 1\r\n", HttpError::ContentLength),
        ("content-length: +1\r\n", HttpError::ContentLength),
        ("content-length: -1\r\n", HttpError::ContentLength),
        ("content-length:\r\n", HttpError::ContentLength),
        ("content-length: 1\r\ntransfer-encoding: chunked\r\n", HttpError::LengthAndTransferEncoding),
        ("transfer-encoding: chunked\r\ncontent-length: 1\r\n", HttpError::LengthAndTransferEncoding),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", HttpError::TransferEncoding),
        ("transfer-encoding: gzip, chunked\r\n", HttpError::TransferEncoding),
        ("transfer-encoding: chunked, chunked\r\n", HttpError::TransferEncoding),
        ("transfer-encoding: identity\r\n", HttpError::TransferEncoding),
        ("transfer-encoding:\r\n", HttpError::TransferEncoding),
    ] {
        assert_eq!(refusal(&with(lines)), error, "{lines:?}");
    }
    assert_eq!(
        refusal("POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        HttpError::TransferEncodingInHttp10
    );
}

#[test]
fn a_line_ends_with_cr_lf_and_nothing_else() {
    for text in [
        "\nGET / HTTP/1.1\r\nhost: h\r\n\r\n",
        "\rGET / HTTP/1.1\r\nhost: h\r\n\r\n",
        "GET / HTTP/1.1\nhost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\na: b\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\n\n",
        "GET / HTTP/1.1 \r\nhost: h\r\n\r\n",
        "GET / HTTP/1.1\rhost: h\r\n\r\n",
    ] {
        assert_eq!(refusal(text), HttpError::LineEnd, "{text:?}");
    }
}

#[test]
fn malformed_heads_are_refused() {
    for (text, error) in [
        ("GET /\r\n\r\n", HttpError::RequestLine),
        ("GET  / HTTP/1.1\r\nhost: h\r\n\r\n", HttpError::RequestLine),
        ("G@T / HTTP/1.1\r\nhost: h\r\n\r\n", HttpError::RequestLine),
        (" GET / HTTP/1.1\r\nhost: h\r\n\r\n", HttpError::RequestLine),
        ("GET /\0 HTTP/1.1\r\nhost: h\r\n\r\n", HttpError::RequestLine),
        ("GET / http/1.1\r\nhost: h\r\n\r\n", HttpError::RequestLine),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}", HttpError::RequestLine),
        ("GET /#a HTTP/1.1\r\nhost: h\r\n\r\n", HttpError::Target),
        ("CONNECT h:443 HTTP/1.1\r\nhost: h\r\n\r\n", HttpError::Target),
        ("GET / HTTP/1.1\r\nhost : h\r\n\r\n", HttpError::Header),
        ("GET / HTTP/1.1\r\nhost\r\n\r\n", HttpError::Header),
        ("GET / HTTP/1.1\r\n: h\r\n\r\n", HttpError::Header),
        ("GET / HTTP/1.1\r\nhost: h\r\n folded\r\n\r\n", HttpError::Header),
        ("GET / HTTP/1.1\r\n host: h\r\n\r\n", HttpError::Header),
        ("GET / HTTP/1.1\r\nhost: h\0\r\n\r\n", HttpError::Header),
        ("GET / HTTP/2.0\r\nhost: h\r\n\r\n", HttpError::Version),
        ("GET / HTTP/1.2\r\nhost: h\r\n\r\n", HttpError::Version),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HttpError::Version),
    ] {
        assert_eq!(refusal(text), error, "{text:?}");
    }
}

#[test]
fn a_head_that_cannot_become_valid_is_refused_before_it_is_whole() {
    for (text, error) in [
        ("GET / HTTP/2", HttpError::Version),
        ("GET / HTTP/1.1\r\nho st", HttpError::Header),
        ("GET / HTTP/1.1\r\nhost: h\n", HttpError::LineEnd),
        ("\u{16}", HttpError::RequestLine),
    ] {
        assert_eq!(refusal(text), error, "{text:?}");
    }
}

#[test]
fn an_absolute_target_gives_its_path_and_an_asterisk_stands_for_itself() {
    let seen = request("GET http://other:1/a?b HTTP/1.1\r\nhost: h\r\n\r\n");
    assert_eq!((seen.path.as_str(), seen.query.as_deref()), ("/a", Some("b")));
    assert_eq!(request("GET http://other HTTP/1.1\r\nhost: h\r\n\r\n").path, "/");
    assert_eq!(request("OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n").path, "*");
}

#[test]
fn a_tenant_or_authorization_given_twice_is_refused() {
    assert_eq!(refusal(&with("x-queen-tenant: a\r\nx-queen-tenant: a\r\n")), HttpError::TenantRepeated);
    assert_eq!(refusal(&with("authorization: a\r\nAuthorization: b\r\n")), HttpError::AuthorizationRepeated);
}

#[test]
fn a_client_that_expects_continue_is_told_once() {
    for (framing, body) in
        [("content-length: 2", "ab".to_owned()), ("transfer-encoding: chunked", "2\r\nab\r\n0\r\n\r\n".into())]
    {
        let head = with(&format!("expect: 100-Continue\r\n{framing}\r\n"));
        let limits = Limits::default();
        let mut decoder = Decoder::new();
        assert_eq!(decoder.decode(head.as_bytes(), &limits), Decoded::ExpectContinue);
        let Decoded::NeedMore { consumed } = decoder.decode(head.as_bytes(), &limits) else {
            panic!("the body has not come")
        };
        let rest = [&head.as_bytes()[consumed..], body.as_bytes()].concat();
        match decoder.decode(&rest, &limits) {
            Decoded::Request { request, .. } => assert_eq!(request.body, b"ab"),
            other => panic!("{other:?}"),
        }
    }
    assert!(CONTINUE.starts_with(b"HTTP/1.1 100 ") && CONTINUE.ends_with(b"\r\n\r\n"));
}

#[test]
fn nobody_is_told_to_continue_who_has_gone_on_or_has_nothing_to_send() {
    for text in [
        with("expect: 100-continue\r\ncontent-length: 2\r\n") + "a",
        "POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n".into(),
    ] {
        let mut decoder = Decoder::new();
        assert_eq!(decoder.decode(text.as_bytes(), &Limits::default()), Decoded::NeedMore { consumed: 0 });
    }
    assert_eq!(request(&with("expect: 100-continue\r\n")).body, b"");
    assert_eq!(refusal(&with("expect: 200-ok\r\n")), HttpError::Expectation);
}

#[test]
fn empty_lines_before_a_request_are_few() {
    assert!(one(&format!("{}{}", "\r\n".repeat(8), with(""))).is_ok());
    assert_eq!(refusal(&"\r\n".repeat(9)), HttpError::BlankLines);
    let mut decoder = Decoder::new();
    for _ in 0..8 {
        assert_eq!(decoder.decode(b"\r\n", &Limits::default()), Decoded::NeedMore { consumed: 2 });
        assert_eq!(decoder.phase(), Phase::Idle);
    }
    assert_eq!(decoder.decode(b"\r\n", &Limits::default()), Decoded::Failed(HttpError::BlankLines));
}

#[test]
fn a_head_beyond_its_limits_is_refused() {
    let limits = Limits { head_bytes_max: 100, headers_max: 3, body_bytes_max: 10 };
    let head_of = |bytes: usize| {
        let filled = with("a: \r\n").len();
        with(&format!("a: {}\r\n", "x".repeat(bytes - filled)))
    };
    assert!(read_in_pieces(head_of(100).as_bytes(), &[], &limits)[0].is_ok());
    assert_eq!(read_in_pieces(head_of(101).as_bytes(), &[], &limits), [Err(HttpError::HeadTooLarge)]);
    // A head that never ends is refused at the limit, not when memory runs out.
    let endless = format!("GET /{}", "a".repeat(95));
    assert_eq!(read_in_pieces(endless.as_bytes(), &[], &limits), [Err(HttpError::HeadTooLarge)]);
    assert!(read_in_pieces(with("a:\r\nb:\r\n").as_bytes(), &[], &limits)[0].is_ok());
    let four = with("a:\r\nb:\r\nc:\r\n");
    assert_eq!(read_in_pieces(four.as_bytes(), &[], &limits), [Err(HttpError::TooManyHeaders)]);
}

#[test]
fn a_hundred_headers_are_taken_and_not_one_more() {
    let lines = |count| "a: b\r\n".repeat(count);
    assert!(one(&with(&lines(99))).is_ok());
    assert_eq!(refusal(&with(&lines(100))), HttpError::TooManyHeaders);
}

#[test]
fn a_body_beyond_its_limit_is_refused_before_it_is_read() {
    for length in ["67108865", "1073741824", "99999999999999999999999999"] {
        let error = refusal(&with(&format!("content-length: {length}\r\n")));
        assert_eq!((error, error.status()), (HttpError::BodyTooLarge, 413));
    }
    assert_eq!(refusal(&(with("transfer-encoding: chunked\r\n") + "4000001")), HttpError::BodyTooLarge);
    let limits = Limits { body_bytes_max: 4, ..Limits::default() };
    let chunks = with("transfer-encoding: chunked\r\n") + "3\r\nabc\r\n2";
    assert_eq!(read_in_pieces(chunks.as_bytes(), &[], &limits), [Err(HttpError::BodyTooLarge)]);
}

#[test]
fn the_phase_says_what_the_connection_is_in_the_middle_of() {
    let limits = Limits::default();
    let mut decoder = Decoder::new();
    assert_eq!(decoder.phase(), Phase::Idle);
    let head = with("content-length: 3\r\n");
    decoder.decode(&head.as_bytes()[..5], &limits);
    assert_eq!(decoder.phase(), Phase::Head);
    decoder.decode(head.as_bytes(), &limits);
    assert_eq!(decoder.phase(), Phase::Body { received_bytes: 0 });
    let mut text = head + "ab";
    decoder.decode(text.as_bytes(), &limits);
    assert_eq!(decoder.phase(), Phase::Body { received_bytes: 2 });
    text.push('c');
    assert!(matches!(decoder.decode(text.as_bytes(), &limits), Decoded::Request { .. }));
    assert_eq!(decoder.phase(), Phase::Idle);

    let chunked = with("transfer-encoding: chunked\r\n") + "2\r\na";
    let taken = Decoded::NeedMore { consumed: chunked.len() };
    assert_eq!(decoder.decode(chunked.as_bytes(), &limits), taken);
    assert_eq!(decoder.phase(), Phase::Body { received_bytes: 4 });
    assert!(matches!(decoder.decode(b"b\r\n0\r\n\r\n", &limits), Decoded::Request { .. }));
    assert_eq!(decoder.phase(), Phase::Idle);
}

#[test]
fn an_idle_decoder_is_small() {
    assert!(size_of::<Decoder>() <= 128, "{} bytes", size_of::<Decoder>());
}

#[test]
fn every_refusal_has_a_status_a_word_and_a_sentence() {
    for (error, status, code) in [
        (HttpError::Header, 400, "bad_request"),
        (HttpError::Timeout, 408, "request_timeout"),
        (HttpError::BodyTooLarge, 413, "payload_too_large"),
        (HttpError::Expectation, 417, "expectation_failed"),
        (HttpError::HeadTooLarge, 431, "head_too_large"),
        (HttpError::TooManyHeaders, 431, "head_too_large"),
        (HttpError::Version, 505, "http_version"),
    ] {
        assert_eq!((error.status(), error.code()), (status, code));
        assert!(error.to_string().len() > 20);
    }
}
