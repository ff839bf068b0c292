//! JSON that is broken, too deep, or unusual and right.

use crate::{BAD_JSON, PUSH, Scene, push_body};

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
    let nested = |depth: usize| push_body(&format!(r#"[{{"payload":{}{}}}]"#, "[".repeat(depth), "]".repeat(depth)));
    assert_eq!(scene.connect().post(PUSH, nested(32)).status, 201);
    scene.rejects("POST", PUSH, nested(33), BAD_JSON);
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
