//! Bounded runs of the fuzz bodies: seeds, mutated by a generator with a fixed seed.

const CASES: u64 = 100_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A seed with up to six changes: bytes, words of the format, pieces of itself and of other seeds.
fn mutated(random: &mut Random, seeds: &[&[u8]], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].to_vec();
    for _ in 0..random.below(7) {
        let at = random.below(bytes.len() + 1);
        let behind = at + random.below(bytes.len() - at + 1).min(16);
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] = random.next() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.drain(at..behind)),
            3 => {
                let piece = bytes[at..behind].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let other = seeds[random.below(seeds.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            _ => {
                let word = words[random.below(words.len())];
                bytes.splice(at..at, word.iter().copied());
            }
        }
    }
    bytes
}

fn run(body: fn(&[u8]), seeds: &[&[u8]], words: &[&[u8]]) {
    for seed in seeds {
        body(seed);
    }
    for seed in 0..CASES {
        let bytes = mutated(&mut Random(seed), seeds, words);
        let outcome = std::panic::catch_unwind(|| body(&bytes));
        assert!(outcome.is_ok(), "seed {seed}: {:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn the_http_decoder_means_the_same_however_its_bytes_are_cut() {
    run(
        queen_fuzz::http,
        &[
            b"GET /a?b HTTP/1.1\r\nhost: h\r\nx-queen-tenant: t\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nabcdGET / HTTP/1.0\r\n\r\n",
            b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3;x\r\nabc\r\n0A\r\n0123456789\r\n0\r\na: b\r\n\r\n",
            b"\r\n\r\nDELETE http://h/p HTTP/1.1\r\nhost: h\r\nconnection: close\r\nauthorization: x\r\n\r\n",
        ],
        &[b"\r\n", b"\n", b"\r", b"HTTP/1.1", b"HTTP/2", b"content-length: 1\r\n", b"host: h\r\n", b": ", b" ", b"\t", b"\0",
          b"transfer-encoding: chunked\r\n", b"ffffffffffffffff", b"0\r\n\r\n", b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"],
    );
}

/// Pieces of JSON that sit on the edges of its grammar.
const JSON_WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\\udc00",
    b"\\u0041",
    b"null",
    b"true",
    b"-",
    b"0",
    b"01",
    b"1.",
    b".5",
    b"1e999",
    b"E+",
    b" ",
    b"\n",
    b"\x0b",
    b"\0",
    b"\xff",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"[[[[[[[[",
    b"]]]]]]]]",
    b"\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
];

#[test]
fn the_json_validator_takes_exactly_what_serde_json_takes() {
    run(
        queen_fuzz::json,
        &[
            br#"{"a":[1,-2.5e+10,true,false,null,"x\"\\\/\b\f\n\r\t\u0041"],"b":{"c":{}}}"#,
            b" [ 0 , [ ] , { } , \"\xc3\xa9\xf0\x9f\x98\x80\" ] \n",
            br#""plain text that is longer than a block of thirty-two bytes, for the scan""#,
            b"-0.0e-0",
        ],
        JSON_WORDS,
    );
}

#[test]
fn a_push_that_is_taken_has_the_spans_that_serde_json_sees() {
    let words = [
        JSON_WORDS,
        &[
            &b"\"queue\":\"r\","[..],
            b"\"partition\":null,",
            b"\"messages\":[],",
            b"{\"payload\":1},",
            b"\"payload\":2,",
            b"\"x\":3,",
        ],
    ]
    .concat();
    run(
        queen_fuzz::push_body,
        &[
            br#"{"queue":"presence","partition":"room-7","messages":[{"payload":{"user":"ada","typing":true}}]}"#,
            br#" { "messages" : [ { "payload" : 1e999 } , { "x" : [ ] , "payload" : "\ud800" } ] , "queue" : "\u0071" } "#,
            br#"{"queue":"q","partition":null,"messages":[]}"#,
        ],
        &words,
    );
}

#[test]
fn an_exchange_that_is_taken_is_the_one_that_serde_json_sees() {
    let words = [
        JSON_WORDS,
        &[
            &b"\"pushes\":["[..],
            b"\"pop\":{\"queue\":\"q\"},",
            b"\"acks\":null,",
            b"{\"queue\":\"r\",\"messages\":[{\"payload\":1}]},",
            b"\"messages\":[],",
            b"\"batch\":7,",
            b"\"wait\":true,",
            b"\"timeout\":1,",
            b"\"payload\":2,",
        ],
    ]
    .concat();
    run(
        queen_fuzz::exchange_body,
        &[
            br#"{"acks":{"queue":"q","acks":[{"id":"e:1"}]},"pushes":[{"queue":"a","messages":[{"payload":1}]},{"queue":"b","messages":[]}],"pop":{"queue":"q","wait":true}}"#,
            br#"{"queue":"rpc","payload":{"n":1e999},"timeout":5000,"replyTo":"_inbox.x"}"#,
            br#"{"pushes":null,"pop":{"queue":"q","batch":10001,"wait":false,"autoAck":true}}"#,
        ],
        &words,
    );
}

#[test]
fn an_id_is_written_as_it_was_read() {
    run(
        queen_fuzz::message_id,
        &[
            b"e:624f5af82b58223f:room-1:0",
            b"e:0000000000000001:a:b.c:18446744073709551615.4294967295",
            b"e:ffffffffffffffff::1.2",
            b"_inbox.1a22af92e9b69b56.3.70.1000000",
        ],
        &[b":", b".", b"e:", b"0", b"1", b"+", b"-", b"F", b"18446744073709551616", b"4294967296", b"\xc3\xa9", b"\0"],
    );
}

#[test]
fn a_durable_push_that_is_taken_is_the_one_that_serde_json_sees() {
    let words = [
        JSON_WORDS,
        &[
            &b"\"queue\":\"r\","[..],
            b"\"partition\":null,",
            b"\"partition\":\"\",",
            b"\"transactionId\":\"t\",",
            b"{\"queue\":\"q\",\"payload\":1},",
            b"\"payload\":2,",
            b"\"items\":[],",
        ],
    ]
    .concat();
    run(
        queen_fuzz::durable_push_body,
        &[
            br#"{"items":[{"queue":"orders","payload":{"n":1.50},"partition":"p","transactionId":"t-1"}]}"#,
            br#" { "items" : [ { "payload" : 1e999 , "queue" : "\u0071" } , { "queue":"a b/c:\u00e9","payload":null } ] } "#,
            br#"{"x":[],"items":[]}"#,
        ],
        &words,
    );
}

#[test]
fn the_other_durable_bodies_mean_what_serde_json_sees() {
    let words = [
        JSON_WORDS,
        &[
            &b"\"queue\":\"q\","[..],
            b"\"transactionId\":\"t\",",
            b"\"acknowledgments\":[{}],",
            b"\"consumerGroup\":\"g\",",
            b"\"options\":{},",
            b"\"leaseTime\":\"7\",",
            b"\"seconds\":5,",
            b"\"entries\":[],",
            b"\"offset\":1,",
            b"\"since\":\"2026-11-30\",",
            b"\"limit\":0,",
            b"18446744073709551615",
        ],
    ]
    .concat();
    run(
        queen_fuzz::durable_bodies,
        &[
            br#"{"transactionId":"t","partitionId":"p","status":"failed","leaseId":"l","consumerGroup":"g","error":"e"}"#,
            br#"{"acknowledgments":[{"transactionId":"a"},{"status":null,"error":"\ud83d\ude00"}],"consumerGroup":"g"}"#,
            br#"{"seconds":120}"#,
            br#"{"queue":"q","namespace":"n","options":{"leaseTime":5,"ttl":"12","deadLetterQueue":false,"task":null}}"#,
            br#"{"queue":"q","mode":"replace","leaseTime":60,"minPopWaitTime":-5}"#,
            br#"{"entries":[{"queue":"q","partition":7,"offset":0,"maxBytes":1}],"maxWaitMs":100,"minBytes":1}"#,
            br#"{"entries":[{"queue":"q","since":"2026-11-30T02:47:04.278123Z","after":"c","limit":10}]}"#,
        ],
        &words,
    );
}

#[test]
fn a_durable_query_that_is_taken_is_in_its_ranges_and_times_are_written_as_read() {
    run(
        queen_fuzz::durable_query,
        &[
            b"batch=5&partitions=-1&wait=true&timeout=2000&consumerGroup=g+1&subscriptionMode=all&leaseSeconds=7",
            b"subscriptionFrom=2026-11-30T02%3A47%3A04Z&conflation=true&autopilot=true&namespace=n&task=t",
            b"2026-11-30T02:47:04.278123+02:00",
            b"0000-01-01",
            b"9999-12-31 23:59:60",
        ],
        &[
            b"&",
            b"=",
            b"%",
            b"+",
            b"-",
            b"true",
            b"autoAck=true",
            b"0",
            b"9",
            b"18446744073709551616",
            b"T",
            b":",
            b".",
            b"Z",
            b"-23:59",
            b"\xff",
        ],
    );
}

#[test]
fn a_token_is_taken_only_if_the_library_takes_it_and_its_time_is_now() {
    let words = [
        JSON_WORDS,
        &[
            &b"\"exp\":1764478021,"[..],
            b"\"nbf\":1764478081.5,",
            b"\"aud\":[\"a\",1],",
            b"\"roles\":[\"admin\"],",
            b"\"tenant_id\":\"00000000-0000-0000-0000-000000000001\",",
            b"\"alg\":\"RS256\",",
            b"\"use\":\"enc\",",
            b"\"kid\":null,",
            b"\"crv\":\"P-384\",",
            b".",
            b"=",
            b"eyJhbGciOiJSUzI1NiJ9.",
        ],
    ]
    .concat();
    run(
        queen_fuzz::token,
        &[
            b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEiLCJyb2xlIjoiYWRtaW4iLCJleHAiOjE3NjQ0NzkwMDB9.Fdo5npzKRU9JD9qRSwYixGmfO-UbEDQ0edWwmOy2k1k",
            b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.e30.01YQBGmsV2FkkVOArSEqJYP6-KE-kckZQrpleypgsUs",
            b"eyJhbGciOiJub25lIn0.eyJyb2xlIjoiYWRtaW4ifQ.",
            br#"{"sub":"ada","roles":["read-only"],"exp":1764479000.5,"nbf":1764478000,"iss":"i","aud":["a"],"tenant_id":"x"}"#,
            br#"{"keys":[{"kty":"EC","crv":"P-256","x":"knTZYqFuU82qyDAR0HDt42JwjlZA615iJXBsDWbgrEk","y":"BRF076nXTyb-4wSdcQkmGpUDce_OQ5LFWL5jS54Hbs4","kid":"a","use":"sig","alg":"ES256"},{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#,
        ],
        &words,
    );
}

#[test]
fn what_comes_on_a_mesh_connection_means_the_same_however_it_is_cut_and_proves_nothing() {
    let framed = |frames: &[(u8, &str)]| {
        let mut out = Vec::new();
        frames.iter().for_each(|(tag, payload)| {
            queen_wire::mesh::append_frame(&mut out, *tag, payload.as_bytes(), None);
        });
        out
    };
    let hello = r#"{"server_id":"queen-1","nonce":"01","challenge":true,"placement":"queen-tpc/1","http_addr":"http://0.0.0.0:1","eph_epoch":"7"}"#;
    let tenant = r#""tenant":"6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab""#;
    let place = format!(r#"{{"queue":"q","partition":"p",{tenant}}}"#);
    let batch = format!(r#"{{"items":[{place},{{"queue":"r","group":"g"}}]}}"#);
    let seeds = [
        framed(&[(4, hello), (7, r#"{"mac":"00ff"}"#), (3, ""), (40, r#"{"enabled":true}"#)]),
        framed(&[(4, r#"{"server_id":"older","nonce":"aa","mac":"bb"}"#), (1, &place), (2, &batch), (5, &batch)]),
        framed(&[(10, &place), (11, &place), (20, r#"{"op":"reset","queue":"q"}"#), (8, "{}"), (99, "\u{1}")]),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    run(
        queen_fuzz::mesh,
        &seeds,
        &[
            b"\0\0\0\x01",
            b"\0\0\0\0",
            b"\0\0\x10\0",
            b"\xff\xff\xff\xff",
            b"\0\0\0\x11",
            b"{",
            b"}",
            b"\"",
            b"null",
            b"true",
            b",",
        ],
    );
}

#[test]
fn what_comes_on_a_peer_link_is_over_once_and_proves_nothing() {
    use queen_wire::{
        mesh::append_frame,
        peer::{
            Ack, AckStatus, Answer, Ask, Declaration, DeclarationState, Frame, Pop, Push, QueueKey, Refusal, Request,
        },
    };
    let text = str::to_owned;
    let framed = |frames: &[Frame]| {
        let mut out = Vec::new();
        for frame in frames {
            let (tag, payload) = frame.render().expect("a frame");
            append_frame(&mut out, tag, &payload, None);
        }
        out
    };
    let ask = |id, ask: Ask| {
        let waits = ask.waits();
        Frame::Request { id, waits, request: Request { tenant: [7; 16], access: 3, ask } }
    };
    let answer = |id, answer| Frame::Answer { id, answer };
    let pop = |wait_ms| {
        let (queue, partition, group) = (text("q"), Some(text("p")), None);
        Ask::Pop(Pop { queue, partition, group, batch: 9, auto_ack: false, wait_ms })
    };
    let (bytes, ends) = (b"{}[1]".to_vec(), vec![2, 5]);
    let push = Ask::Push(Push { queue: text("q"), partition: text("p"), bytes, ends, reply_to: None });
    let acks = vec![(text("e:1:p:7"), AckStatus::Retry)];
    let key = QueueKey { tenant: [9; 16], queue: text("q") };
    let state = DeclarationState::Declared(text("{}"));
    let declaration = Declaration { key: key.clone(), updated_at_ms: 5, origin: text("n"), state };
    let refusal = Refusal { code: text("queue_full"), message: text("full"), retry_after_s: Some(1) };
    let popped = |has_claim| Answer::Popped { body: b"[1]".to_vec(), has_claim };
    let seeds = [
        framed(&[ask(0, pop(9)), ask(1, push), ask(2, pop(9)), Frame::Cancel { id: 0 }, Frame::Settled { id: 2 }]),
        framed(&[ask(2, pop(0)), Frame::GiveBack { id: 2 }, ask(2, Ask::Declarations { after: Some(key) })]),
        framed(&[
            ask(1, Ask::Ack(Ack { queue: text("q"), group: Some(text("g")), acks })),
            ask(4, Ask::Declare(declaration.clone())),
            ask(7, Ask::Depth { queue: text("q"), group: None }),
        ]),
        framed(&[
            Frame::Credit { requests: 3 },
            answer(0, popped(true)),
            answer(0, Answer::Empty),
            answer(1, popped(false)),
            answer(2, popped(true)),
            answer(3, Answer::Refused(refusal)),
        ]),
        framed(&[
            Frame::Credit { requests: 9 },
            answer(1, Answer::Moved { owner: text("n") }),
            answer(0, Answer::Declarations { declarations: vec![declaration], more: true }),
            answer(2, Answer::Reply { status: 200, body: b"{}".to_vec() }),
        ]),
        b"\0\0\0\x05\x46\0\0\0\x01\0\0\0\x02\x41\x0c\0\0\0\x05\x42\0\0\0\0".to_vec(),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    run(
        queen_fuzz::peer,
        &seeds,
        &[
            b"\0\0\0\x05",
            b"\0\0\0\x06\x41",
            b"\0\0\0\x05\x42\0\0\0\0",
            b"\0\0\0\x05\x43\0\0\0\x02",
            b"\0\0\0\x05\x45\xff\xff\xff\xff",
            b"\0\0\0\0",
            b"\xff\xff\xff\xff",
            b"\x01",
            b"\xff",
            b"\x40",
            b"\x46",
        ],
    );
}
