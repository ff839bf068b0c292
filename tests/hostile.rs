//! What a broker on an open port meets: broken framing, broken JSON, clients that dribble, vanish,
//! or take every file it may open. Each gets a clear error or is served right; the process lives,
//! and a bystander that waits on another connection feels nothing.

mod common;

use std::time::Duration;

use common::{Broker, Connection, PATIENCE, Response, eventually, payloads, request};
use serde_json::{Value, json};

const PUSH: &str = "/api/v1/ephemeral/push";
const BAD_JSON: (u16, &str) = (400, "bad_request");
const BAD_FIELD: (u16, &str) = (400, "ephemeral_bad_request");

/// A broker with a bystander: a client whose pop waits while the test does its worst.
struct Scene {
    broker: Broker,
    bystander: Connection,
}

impl Scene {
    fn set() -> Self {
        Self::set_with(&[])
    }

    fn set_with(settings: &[(&str, &str)]) -> Self {
        let broker = Broker::start(settings);
        let mut bystander = broker.connect();
        bystander.send_pop("queue=bystander&wait=true&timeout=300000&autoAck=true");
        eventually("the bystander's parking", || (broker.parked() == 1).then_some(()));
        Self { broker, bystander }
    }

    fn connect(&self) -> Connection {
        self.broker.connect()
    }

    /// Sends `bytes` on a connection of their own: the answer must be this error, and the last
    /// thing on that connection.
    #[track_caller]
    fn refuses(&self, bytes: impl AsRef<[u8]>, error: (u16, &str)) {
        let mut hostile = self.connect();
        // The broker may answer and close before it has read everything.
        let _ = hostile.try_send(bytes);
        assert_fails(&hostile.response(), error);
        assert!(hostile.is_closed_by_peer(), "the connection is closed after broken framing");
    }

    /// Sends a well-framed request: the answer must be this error, and the connection serves on.
    #[track_caller]
    fn rejects(&self, method: &str, target: &str, body: impl AsRef<[u8]>, error: (u16, &str)) {
        let mut client = self.connect();
        assert_fails(&client.request(method, target, body.as_ref()), error);
        assert_eq!(client.get("/health").status, 200, "the connection serves on");
    }

    /// The process lives, and the bystander is woken by a push as if nothing had been.
    #[track_caller]
    fn ends_unharmed(mut self) {
        self.broker.assert_alive();
        self.connect().push("bystander", json!("calm"));
        assert_eq!(payloads(&self.bystander.popped()), [json!("calm")]);
    }
}

#[track_caller]
fn assert_fails(response: &Response, (status, code): (u16, &str)) {
    assert_eq!(response.failure(), (status, code.to_owned()), "{}", response.text());
}

/// A push whose message list is `messages`, as it is.
fn push_body(messages: &str) -> String {
    format!(r#"{{"queue":"q","messages":{messages}}}"#)
}

// --- JSON ---------------------------------------------------------------------------------------

#[test]
fn truncated_json_is_refused_and_the_connection_serves_on() {
    let scene = Scene::set();
    let whole = push_body(r#"[{"payload":{"a":[1,"x\n"]}}]"#);
    for end in 0..whole.len() {
        scene.rejects("POST", PUSH, &whole[..end], BAD_JSON);
    }
    assert_eq!(scene.connect().post(PUSH, whole).status, 201);
    scene.ends_unharmed();
}

#[test]
fn text_after_the_json_is_refused() {
    let scene = Scene::set();
    scene.rejects("POST", PUSH, push_body("[]") + "x", BAD_JSON);
    scene.rejects("POST", PUSH, push_body("[]") + "{}", BAD_JSON);
    scene.ends_unharmed();
}

#[test]
fn json_nested_a_hundred_thousand_deep_is_refused_on_every_route_that_reads_it() {
    let scene = Scene::set();
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let deep_objects = r#"{"a":"#.repeat(100_000) + "1" + &"}".repeat(100_000);
    scene.rejects("POST", PUSH, push_body(&format!(r#"[{{"payload":{deep}}}]"#)), BAD_JSON);
    scene.rejects("POST", PUSH, push_body(&format!(r#"[{{"payload":{deep_objects}}}]"#)), BAD_JSON);
    for route in ["push", "ack", "configure", "reset"] {
        let target = format!("/api/v1/ephemeral/{route}");
        scene.rejects("POST", &target, &deep, BAD_JSON);
        scene.rejects("POST", &target, "[".repeat(100_000), BAD_JSON);
        scene.rejects("POST", &target, format!(r#"{{"queue":"q","x":{deep}}}"#), BAD_JSON);
    }
    scene.ends_unharmed();
}

#[test]
fn a_payload_at_the_depth_limit_is_served_and_one_deeper_is_not() {
    let scene = Scene::set_with(&[("QUEEN_JSON_DEPTH_MAX", "32")]);
    // The body's object, its list and the message's object are three levels of the 32.
    let nested = |depth: usize| push_body(&format!(r#"[{{"payload":{}{}}}]"#, "[".repeat(depth), "]".repeat(depth)));
    assert_eq!(scene.connect().post(PUSH, nested(29)).status, 201);
    scene.rejects("POST", PUSH, nested(30), BAD_JSON);
    scene.ends_unharmed();
}

#[test]
fn invalid_utf8_is_refused_in_bodies_and_in_names() {
    let scene = Scene::set();
    let invalid: [&[u8]; 4] = [b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"];
    for bytes in invalid {
        let around = |before: &str, after: &str| [before.as_bytes(), bytes, after.as_bytes()].concat();
        scene.rejects("POST", PUSH, around(r#"{"queue":"q","messages":[{"payload":""#, r#""}]}"#), BAD_JSON);
        scene.rejects("POST", PUSH, around(r#"{"queue":""#, r#"","messages":[]}"#), BAD_JSON);

        let escaped: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
        let mut client = scene.connect();
        for (method, target) in [
            ("GET", format!("/api/v1/ephemeral/pop?queue={escaped}")),
            ("GET", format!("/api/v1/ephemeral/pop?queue=q&group={escaped}")),
            ("DELETE", format!("/api/v1/ephemeral/queue/{escaped}")),
            ("GET", format!("/api/v1/ephemeral/queues/{escaped}/depth")),
        ] {
            let response = client.request(method, &target, b"");
            assert_eq!(response.status, 400, "{method} {target}: {}", response.text());
            response.code();
        }
        // Bytes beyond ASCII have no place in a request line at all.
        let raw = [b"GET /api/v1/ephemeral/pop?queue=", bytes, b" HTTP/1.1\r\nhost: b\r\n\r\n"].concat();
        scene.refuses(raw, (400, "bad_request"));
    }
    scene.ends_unharmed();
}

#[test]
fn payloads_with_nul_and_lone_surrogates_come_back_byte_for_byte() {
    let scene = Scene::set();
    let mut client = scene.connect();
    let spellings = [
        r#""\u0000""#,
        r#""a\u0000b\u0000""#,
        r#""\ud800""#,
        r#""\udfff\ud83d x""#,
        r#""\uD83D\uDE00 and 😀""#,
        r#"{"b" : 1,  "a":2, "b":3, "\ud800":null}"#,
        "1e999",
        "-0.0e-00",
        "123456789012345678901234567890.000",
        r#"[ ]"#,
        "null",
        r#""\/\b\f\t""#,
    ];
    for spelling in spellings {
        let pushed = client.post(PUSH, push_body(&format!(r#"[{{"payload": {spelling} , "x":1}}]"#)));
        assert_eq!(pushed.status, 201, "{spelling}: {}", pushed.text());
        let popped = client.get("/api/v1/ephemeral/pop?queue=q&autoAck=true");
        let expected = format!(r#""payload":{spelling}}}"#);
        assert!(popped.text().contains(&expected), "{spelling} in {}", popped.text());
    }
    scene.ends_unharmed();
}

// --- names and numbers --------------------------------------------------------------------------

#[test]
fn a_name_of_512_bytes_is_served_and_one_of_513_is_refused_everywhere() {
    let scene = Scene::set();
    let longest = "é".repeat(256);
    assert_eq!(longest.len(), 512);
    let too_long = format!("{longest}x");
    let escaped = |name: &str| name.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();

    let mut client = scene.connect();
    client.push_to(&longest, &longest, json!(1));
    let pop = format!("queue={0}&partition={0}&group={0}&autoAck=true", escaped(&longest));
    assert_eq!(client.pop(&pop).len(), 1);

    let message = json!([{ "payload": 1 }]);
    let bodies = [
        ("push", json!({ "queue": too_long, "messages": message })),
        ("push", json!({ "queue": "q", "partition": too_long, "messages": message })),
        ("ack", json!({ "queue": too_long, "acks": [] })),
        ("ack", json!({ "queue": "q", "group": too_long, "acks": [] })),
        ("configure", json!({ "queue": too_long, "options": {} })),
        ("reset", json!({ "queue": too_long })),
    ];
    for (route, body) in bodies {
        scene.rejects("POST", &format!("/api/v1/ephemeral/{route}"), body.to_string(), BAD_FIELD);
    }
    let too_long = escaped(&too_long);
    for query in
        [format!("queue={too_long}"), format!("queue=q&partition={too_long}"), format!("queue=q&group={too_long}")]
    {
        scene.rejects("GET", &format!("/api/v1/ephemeral/pop?{query}"), "", BAD_FIELD);
    }
    scene.rejects("DELETE", &format!("/api/v1/ephemeral/queue/{too_long}"), "", BAD_FIELD);
    scene.rejects("GET", &format!("/api/v1/ephemeral/queues/{too_long}/depth"), "", BAD_FIELD);
    scene.ends_unharmed();
}

#[test]
fn empty_names_and_control_characters_in_names_are_refused() {
    let scene = Scene::set();
    for name in ["", "a\u{0}b", "\n", "tab\t", "\u{7f}"] {
        let message = json!([{ "payload": 1 }]);
        let push = json!({ "queue": name, "messages": message });
        scene.rejects("POST", PUSH, push.to_string(), BAD_FIELD);
        let push = json!({ "queue": "q", "partition": name, "messages": message });
        scene.rejects("POST", PUSH, push.to_string(), BAD_FIELD);
        let escaped: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        scene.rejects("GET", &format!("/api/v1/ephemeral/pop?queue={escaped}"), "", BAD_FIELD);
        scene.rejects("GET", &format!("/api/v1/ephemeral/pop?queue=q&group={escaped}"), "", BAD_FIELD);
    }
    scene.rejects("GET", "/api/v1/ephemeral/pop", "", BAD_FIELD);
    scene.rejects("POST", PUSH, r#"{"queue":"\ud800","messages":[]}"#, BAD_FIELD);
    scene.ends_unharmed();
}

#[test]
fn numbers_out_of_range_in_a_pop_are_refused_by_the_name_of_the_parameter() {
    let scene = Scene::set();
    for (parameter, value) in [
        ("batch", "0"),
        ("batch", "-1"),
        ("batch", "abc"),
        ("batch", "1.5"),
        ("batch", ""),
        ("batch", "1&batch=2"),
        ("timeout", "-1"),
        ("timeout", "abc"),
        ("timeout", ""),
        ("timeout", "18446744073709551616"),
        ("wait", "yes"),
        ("autoAck", "1"),
    ] {
        let target = format!("/api/v1/ephemeral/pop?queue=q&{parameter}={value}");
        let response = scene.connect().get(&target);
        assert_fails(&response, BAD_FIELD);
        let error = response.json()["error"].as_str().expect("a sentence").to_owned();
        assert!(error.contains(parameter), "{parameter} in {error:?}");
    }
    // Above the ceilings is served at the ceilings; zero waiting is no waiting.
    let mut client = scene.connect();
    client.push("q", json!(1));
    assert_eq!(client.pop("queue=q&batch=10001&autoAck=true").len(), 1);
    assert!(client.pop("queue=q&wait=true&timeout=0&unknown=parameter").is_empty());
    scene.ends_unharmed();
}

#[test]
fn options_that_are_no_whole_number_in_range_are_refused_by_their_name() {
    let scene = Scene::set();
    for (option, value) in [
        ("maxLength", "1.5"),
        ("maxLength", "-1"),
        ("maxLength", "\"3\""),
        ("maxBytes", "1e2"),
        ("maxBytes", "18446744073709551616"),
        ("ttlSeconds", "true"),
        ("leaseSeconds", "[]"),
        ("retryLimit", "-0.5"),
        ("policy", "\"drop\""),
        ("windowBuffer", "5"),
        ("ttlSecond", "5"),
    ] {
        let body = format!(r#"{{"queue":"q","options":{{"{option}":{value}}}}}"#);
        let response = scene.connect().post("/api/v1/ephemeral/configure", body);
        assert_fails(&response, BAD_FIELD);
        let error = response.json()["error"].as_str().expect("a sentence").to_owned();
        assert!(error.contains(option), "{option} in {error:?}");
    }
    let unknown = json!({ "queue": "q", "options": { "ttlSecond": 5 } });
    let response = scene.connect().post("/api/v1/ephemeral/configure", unknown.to_string());
    for known in ["maxBytes", "maxLength", "policy", "ttlSeconds", "leaseSeconds", "retryLimit", "windowBuffer"] {
        assert!(response.text().contains(known), "{known} in {}", response.text());
    }
    assert!(scene.broker.row("q").is_none(), "nothing was declared");
    scene.ends_unharmed();
}

#[test]
fn ten_thousand_messages_are_a_push_and_one_more_is_none() {
    let scene = Scene::set();
    let messages = |count: usize| push_body(&format!("[{}]", vec![r#"{"payload":1}"#; count].join(",")));
    scene.rejects("POST", PUSH, messages(10_001), BAD_FIELD);
    let mut client = scene.connect();
    let pushed = client.post(PUSH, messages(10_000));
    assert_eq!((pushed.status, pushed.text()), (201, r#"{"pushed":10000}"#));
    assert_eq!(client.pop("queue=q&batch=10000&autoAck=true").len(), 10_000);
    scene.ends_unharmed();
}

#[test]
fn a_message_without_a_payload_refuses_the_whole_push() {
    let scene = Scene::set();
    for messages in [r#"[{"payload":1},{}]"#, "[1]", "[null]", "7", "null", r#"{"payload":1}"#] {
        scene.rejects("POST", PUSH, push_body(messages), BAD_FIELD);
    }
    scene.rejects("POST", PUSH, r#"{"queue":"q"}"#, BAD_FIELD);
    scene.rejects("POST", PUSH, r#"{"messages":[]}"#, BAD_FIELD);
    scene.rejects("POST", PUSH, r#"{"queue":7,"messages":[]}"#, BAD_FIELD);
    scene.rejects("POST", PUSH, "[]", BAD_FIELD);
    assert!(scene.connect().pop("queue=q").is_empty(), "all or nothing");
    scene.ends_unharmed();
}

// --- framing ------------------------------------------------------------------------------------

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

// --- slow, silent and vanishing clients -----------------------------------------------------------

/// Sends `bytes` one at a time, with a pause after each, until the broker answers.
fn dribble(hostile: &mut Connection, bytes: impl Iterator<Item = u8>, pause: Duration) {
    for byte in bytes {
        if hostile.try_send([byte]).is_err() {
            return;
        }
        if !hostile.is_silent_for(pause) {
            return;
        }
    }
    panic!("the broker took it all and said nothing");
}

#[test]
fn a_head_that_trickles_past_its_time_is_cut_off() {
    let scene = Scene::set_with(&[("QUEEN_HTTP_HEADER_TIMEOUT_MS", "500")]);
    let mut hostile = scene.connect();
    let head = b"GET /health HTTP/1.1\r\nhost: b\r\nx: ".iter().copied().chain(std::iter::repeat_n(b'y', 1_000));
    dribble(&mut hostile, head, Duration::from_millis(100));
    assert_fails(&hostile.response(), (408, "request_timeout"));
    assert!(hostile.is_closed_by_peer());
    scene.ends_unharmed();
}

#[test]
fn a_body_that_trickles_a_byte_a_second_is_cut_off() {
    let scene = Scene::set_with(&[("QUEEN_HTTP_HEADER_TIMEOUT_MS", "500"), ("QUEEN_HTTP_IDLE_TIMEOUT_MS", "2500")]);
    let mut hostile = scene.connect();
    hostile.send(format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\ncontent-length: 1000\r\n\r\n"));
    dribble(&mut hostile, std::iter::repeat_n(b' ', 50), Duration::from_secs(1));
    assert_fails(&hostile.response(), (408, "request_timeout"));
    assert!(hostile.is_closed_by_peer());
    scene.ends_unharmed();
}

#[test]
fn a_request_that_comes_byte_by_byte_in_time_is_served() {
    let scene = Scene::set();
    let mut client = scene.connect();
    for byte in request("POST", PUSH, &[], push_body(r#"[{"payload":"slow"}]"#).as_bytes()) {
        client.send([byte]);
    }
    assert_eq!(client.response().status, 201);
    let chunked = "POST /api/v1/ephemeral/push HTTP/1.1\r\nhost: b\r\ntransfer-encoding: chunked\r\n\r\n\
        3;ext=1\r\n{\"q\r\n1E\r\nueue\":\"q\",\"messages\":[{\"payloa\r\nB\r\nd\":\"slow\"}]}\r\n0\r\ntrailer: x\r\n\r\n";
    for byte in chunked.bytes() {
        client.send([byte]);
    }
    assert_eq!(client.response().status, 201);
    assert_eq!(client.pop("queue=q&batch=10&autoAck=true").len(), 2);
    scene.ends_unharmed();
}

#[test]
fn an_idle_connection_is_closed_after_its_time_and_a_waiting_pop_is_not_idle() {
    let scene = Scene::set_with(&[("QUEEN_HTTP_IDLE_TIMEOUT_MS", "500")]);
    let mut fresh = scene.connect();
    let mut used = scene.connect();
    assert_eq!(used.get("/health").status, 200);
    assert!(used.is_closed_by_peer(), "closed after its last answer");
    assert!(fresh.is_closed_by_peer(), "closed without a request");
    // The bystander has waited longer than both.
    scene.ends_unharmed();
}

#[test]
fn a_half_closed_client_still_gets_its_answers() {
    let scene = Scene::set();

    let mut pusher = scene.connect();
    pusher.send(request("POST", PUSH, &[], push_body(r#"[{"payload":1}]"#).as_bytes()));
    pusher.finish_sending();
    assert_eq!(pusher.response().status, 201);
    assert!(pusher.is_closed_by_peer());

    let mut waiting = scene.connect();
    waiting.send_pop("queue=empty&wait=true&timeout=300000");
    eventually("its parking", || (scene.broker.parked() == 2).then_some(()));
    waiting.finish_sending();
    assert!(waiting.popped().is_empty(), "an empty list at once");
    assert!(waiting.is_closed_by_peer());

    // All in one piece: the pop is read together with the end, so it does not wait.
    let mut both = scene.connect();
    let mut bytes = request("POST", PUSH, &[], push_body(r#"[{"payload":2}]"#).as_bytes());
    bytes.extend(request("GET", "/api/v1/ephemeral/pop?queue=empty&wait=true&timeout=300000", &[], b""));
    both.send(bytes);
    both.finish_sending();
    assert_eq!(both.response().status, 201);
    assert!(both.popped().is_empty());
    assert!(both.is_closed_by_peer());

    assert_eq!(payloads(&scene.connect().pop("queue=q&batch=10&autoAck=true")), [json!(1), json!(2)]);
    scene.ends_unharmed();
}

#[test]
fn a_client_that_vanishes_within_a_request_leaves_nothing() {
    let scene = Scene::set();
    let whole = request("POST", PUSH, &[], push_body(r#"[{"payload":1}]"#).as_bytes());
    for end in 1..whole.len() {
        let mut hostile = scene.connect();
        hostile.send(&whole[..end]);
        if end % 2 == 0 {
            hostile.reset();
        }
    }
    eventually("the end of their connections", || (scene.broker.connections() == 2).then_some(()));
    assert!(scene.connect().pop("queue=q").is_empty());
    scene.ends_unharmed();
}

#[test]
fn a_parked_client_that_sends_more_than_is_read_ahead_is_closed() {
    let scene = Scene::set();
    let mut hostile = scene.connect();
    hostile.send_pop("queue=flood&wait=true&timeout=300000");
    eventually("its parking", || (scene.broker.parked() == 2).then_some(()));
    let flood = request("GET", "/health", &[], b"").repeat(20_000);
    let _ = hostile.try_send(flood);
    eventually("the end of its place", || (scene.broker.parked() == 1).then_some(()));
    scene.connect().push("flood", json!("kept"));
    assert_eq!(payloads(&scene.connect().pop("queue=flood&autoAck=true")), [json!("kept")]);
    scene.ends_unharmed();
}

#[test]
fn thousands_of_idle_connections_disturb_nobody() {
    let scene = Scene::set();
    let idle: Vec<Connection> = (0..4_000).map(|_| scene.connect()).collect();
    eventually("their acceptance", || (scene.broker.connections() >= 4_001).then_some(()));
    let mut client = scene.connect();
    for index in 0..1_000 {
        client.push("q", json!(index));
        assert_eq!(payloads(&client.pop("queue=q&autoAck=true")), [json!(index)]);
    }
    drop(idle);
    drop(client);
    eventually("their end", || (scene.broker.connections() == 2).then_some(()));
    scene.ends_unharmed();
}

#[test]
fn without_a_free_file_the_broker_backs_off_and_serves_again_afterwards() {
    const WATCHED: Duration = Duration::from_secs(2);
    let scene = Scene::set();
    let mut early = scene.connect();
    assert_eq!(early.get("/health").status, 200);
    scene.broker.limit_open_files(scene.broker.open_files() as u64 + 16);

    let crowd: Vec<Connection> = (0..200).map(|_| scene.connect()).collect();
    let before = scene.broker.cpu_time();
    std::thread::sleep(WATCHED);
    let spent = scene.broker.cpu_time() - before;
    assert!(spent < WATCHED / 4, "accept spins: {spent:?} of processor time in {WATCHED:?}");

    early.push("q", json!("still served"));
    assert_eq!(early.pop("queue=q&autoAck=true").len(), 1);
    drop(crowd);
    eventually("service for new clients", || {
        Connection::try_open(scene.broker.address()).ok().and_then(|mut client| {
            client.try_send(request("GET", "/health", &[], b"")).ok()?;
            client.try_response().ok().filter(|response| response.status == 200)
        })
    });
    scene.ends_unharmed();
}

// --- the corners of HTTP that must be served right ------------------------------------------------

#[test]
fn an_unknown_path_is_404_no_such_route() {
    let scene = Scene::set();
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/api/v1/ephemeral"),
        ("GET", "/api/v1/ephemeral/pop/"),
        ("POST", "/api/v1/ephemeral/pushes"),
        ("GET", "/api/v1/ephemeral/queues/"),
        ("GET", "/api/v1/ephemeral/queues/q/depth/x"),
        ("DELETE", "/api/v1/ephemeral/queue/a/b"),
        ("GET", "/health/"),
        ("GET", "/..%2fhealth"),
    ] {
        scene.rejects(method, target, "", (404, "no_such_route"));
    }
    scene.ends_unharmed();
}

#[test]
fn a_wrong_method_is_405_with_allow_and_a_json_body() {
    let scene = Scene::set();
    for (method, target, allowed) in [
        ("GET", PUSH, "POST"),
        ("PUT", PUSH, "POST"),
        ("POST", "/api/v1/ephemeral/pop", "GET"),
        ("DELETE", "/api/v1/ephemeral/pop", "GET"),
        ("GET", "/api/v1/ephemeral/queue/q", "DELETE"),
        ("POST", "/api/v1/ephemeral/queues", "GET"),
        ("POST", "/api/v1/ephemeral/queues/q/depth", "GET"),
        ("POST", "/health", "GET"),
        ("BREW", "/status", "GET"),
    ] {
        let mut client = scene.connect();
        let response = client.request(method, target, b"");
        assert_eq!(response.status, 405, "{method} {target}: {}", response.text());
        let allow = response.header("allow").expect("Allow");
        assert!(allow.split(", ").any(|method| method == allowed), "{allowed} in {allow:?}");
        response.code();
        assert_eq!(client.get("/health").status, 200);
    }
    scene.ends_unharmed();
}

#[test]
fn a_client_that_expects_a_go_ahead_gets_it_once() {
    let scene = Scene::set();
    let mut client = scene.connect();
    let body = push_body(r#"[{"payload":1}]"#);
    let head =
        format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n", body.len());
    client.send(&head);
    assert_eq!(client.response_head().status, 100);
    client.send(&body);
    assert_eq!(client.response().status, 201);
    assert_eq!(client.get("/health").status, 200, "nothing else was sent");

    let too_large = head.replace(&format!("content-length: {}", body.len()), "content-length: 1000000000");
    scene.refuses(too_large, (413, "payload_too_large"));
    scene.ends_unharmed();
}

#[test]
fn an_expectation_that_is_not_known_is_417() {
    let scene = Scene::set();
    scene.refuses(
        format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\nexpect: 200-ok\r\ncontent-length: 2\r\n\r\n{{}}"),
        (417, "expectation_failed"),
    );
    scene.ends_unharmed();
}

#[test]
fn http_1_0_closes_unless_it_asks_to_be_kept() {
    let scene = Scene::set();
    let mut client = scene.connect();
    client.send("GET /health HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert!(client.is_closed_by_peer());

    let mut client = scene.connect();
    for _ in 0..2 {
        client.send("GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
        let response = client.response();
        assert_eq!(response.status, 200);
        assert_eq!(response.header("connection"), Some("keep-alive"));
    }
    scene.ends_unharmed();
}

#[test]
fn connection_close_is_honoured() {
    let scene = Scene::set();
    let mut client = scene.connect();
    client.send(request("GET", "/health", &[("connection", "close")], b""));
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    assert!(client.is_closed_by_peer());
    scene.ends_unharmed();
}

#[test]
fn head_is_answered_as_get_without_the_body() {
    let scene = Scene::set();
    let mut client = scene.connect();
    let got = client.get("/health");
    client.send(request("HEAD", "/health", &[], b""));
    let head = client.response_head();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), got.header("content-length"));
    assert_eq!(client.get("/health").status, 200, "no body was in the way");
    scene.ends_unharmed();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let scene = Scene::set();
    let mut client = scene.connect();
    let queues: Vec<String> = (0..50).map(|index| format!("pipelined-{index}")).collect();
    let mut bytes = Vec::new();
    for queue in &queues {
        let body = json!({ "queue": queue, "messages": [{ "payload": queue }] });
        bytes.extend(request("POST", PUSH, &[], body.to_string().as_bytes()));
        bytes.extend(request(
            "GET",
            &format!("/api/v1/ephemeral/pop?queue={queue}&autoAck=true&wait=true&timeout=60000"),
            &[],
            b"",
        ));
    }
    client.send(bytes);
    for queue in &queues {
        assert_eq!(client.response().status, 201);
        assert_eq!(payloads(&client.popped()), [json!(queue)]);
    }
    scene.ends_unharmed();
}

#[test]
fn a_request_behind_a_waiting_pop_waits_for_it() {
    let scene = Scene::set();
    let mut client = scene.connect();
    client.send_pop("queue=first&wait=true&timeout=300000&autoAck=true");
    client.send(request("POST", PUSH, &[], push_body(r#"[{"payload":1}]"#).as_bytes()));
    eventually("its parking", || (scene.broker.parked() == 2).then_some(()));
    scene.connect().push("first", json!("go"));
    assert_eq!(payloads(&client.popped()), [json!("go")]);
    assert_eq!(client.response().status, 201);
    scene.ends_unharmed();
}

#[test]
fn percent_encoded_names_are_the_names_of_the_bodies() {
    let scene = Scene::set();
    let mut client = scene.connect();
    for (name, in_query, in_path) in [
        ("a b/c:é", "a+b%2Fc%3a%C3%A9", "a%20b%2Fc:%c3%a9"),
        ("100%", "100%25", "100%25"),
        ("a+b", "a%2Bb", "a+b"),
        ("q?x=1&y#z", "q%3Fx%3D1%26y%23z", "q%3fx=1&y%23z"),
        ("😀", "%F0%9F%98%80", "%f0%9f%98%80"),
    ] {
        client.push_to(name, name, json!(name));
        let popped = client.pop(&format!("queue={in_query}&partition={in_query}&group={in_query}"));
        assert_eq!(payloads(&popped), [json!(name)], "{name}");
        assert_eq!(popped[0].partition, name);
        assert_eq!(client.depth(in_path)["queue"], name);
        assert_eq!(client.ack(name, Some(name), &[&popped[0].id], "completed"), ["acked"]);
        let deleted = client.request("DELETE", &format!("/api/v1/ephemeral/queue/{in_path}"), b"");
        assert_eq!(deleted.json(), json!({ "queue": name, "deleted": true, "declared": false }));
    }
    scene.ends_unharmed();
}

#[test]
fn a_payload_of_megabytes_goes_through_whole() {
    let scene = Scene::set();
    let payload = json!("x".repeat(8 << 20));
    let mut client = scene.connect();
    client.push("big", payload.clone());
    let popped: Vec<Value> = payloads(&client.pop("queue=big&autoAck=true"));
    assert!(popped == [payload], "the payload came back changed");
    scene.ends_unharmed();
}

#[test]
fn a_reader_that_does_not_read_blocks_only_itself() {
    let scene = Scene::set_with(&[("QUEEN_EPHEMERAL_QUEUE_MAX_BYTES", "67108864")]);
    let mut pusher = scene.connect();
    for _ in 0..4 {
        pusher.push("big", json!("x".repeat(8 << 20)));
    }
    let mut slow = scene.connect();
    slow.send_pop("queue=big&batch=4&autoAck=true");
    // More than any socket buffer holds is on its way to a client that does not read.
    eventually("the delivery", || (pusher.depth("big")["pending"] == 0).then_some(()));
    for index in 0..200 {
        pusher.push("q", json!(index));
        assert_eq!(pusher.pop("queue=q&autoAck=true").len(), 1);
    }
    assert_eq!(slow.popped().len(), 4, "it gets everything when it reads, within {PATIENCE:?}");
    scene.ends_unharmed();
}
