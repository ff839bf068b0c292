//! The wire on one core: bytes to a request, a request to a push, text to a verdict.
//!
//! `cargo bench --bench wire`. The loads are those of the speed targets: one message of 256 bytes
//! in a request such as a client library sends, and a hundred of them in one call.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use queen_wire::body::{parse_ack, parse_push};
use queen_wire::http::{Decoded, Decoder, Limits};
use queen_wire::json::validate;
use queen_wire::response::{self, Head};
use queen_wire::target::PopQuery;

const PAYLOAD_BYTES: usize = 256;
const DEPTH_MAX: u32 = 128;

/// A JSON object of [`PAYLOAD_BYTES`] as applications send them: a few members, one long text.
fn payload() -> String {
    let head = r#"{"id":184467,"user":"ada","typing":true,"at":1764478051.25,"tags":["a","b"],"text":""#;
    let tail = "\"}";
    let text = "lorem ipsum ".chars().cycle().take(PAYLOAD_BYTES - head.len() - tail.len());
    format!("{head}{}{tail}", text.collect::<String>())
}

fn push_body(messages: usize) -> String {
    let messages = vec![format!(r#"{{"payload":{}}}"#, payload()); messages].join(",");
    format!(r#"{{"queue":"bench","partition":"p-7","messages":[{messages}]}}"#)
}

fn push_request(messages: usize) -> Vec<u8> {
    let body = push_body(messages);
    format!(
        "POST /api/v1/ephemeral/push HTTP/1.1\r\nHost: localhost:6632\r\nUser-Agent: queen-mq/2.7\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn decode(criterion: &mut Criterion) {
    let limits = Limits::default();
    let push = push_request(1);
    let pop = b"GET /api/v1/ephemeral/pop?queue=bench&partition=p-7&wait=true&timeout=5000 HTTP/1.1\r\n\
                Host: localhost:6632\r\nUser-Agent: queen-mq/2.7\r\nAccept: */*\r\n\r\n";
    let mut group = criterion.benchmark_group("decode");
    for (name, bytes) in [("push of 256 bytes", &push[..]), ("pop", &pop[..])] {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |bencher| {
            let mut decoder = Decoder::new();
            bencher.iter(|| match decoder.decode(black_box(bytes), &limits) {
                Decoded::Request { request, consumed } => (request.body.len(), consumed),
                other => panic!("{other:?}"),
            });
        });
    }
    group.bench_function("pop query", |bencher| {
        bencher.iter(|| {
            PopQuery::parse(black_box(Some("queue=bench&partition=p-7&wait=true&timeout=5000"))).expect("a query")
        });
    });
    group.finish();
}

fn push(criterion: &mut Criterion) {
    let limits = Limits::default();
    let mut group = criterion.benchmark_group("push");
    for messages in [1, 100] {
        let body = push_body(messages);
        group.throughput(Throughput::Elements(messages as u64));
        group.bench_function(format!("parse_push, {messages} x 256 bytes"), |bencher| {
            let mut spans = Vec::new();
            bencher.iter(|| {
                let push = parse_push(black_box(body.as_bytes()), DEPTH_MAX, &mut spans).expect("a push");
                push.queue.len() + spans.len()
            });
        });
        let request = push_request(messages);
        group.bench_function(format!("decode and parse_push, {messages} x 256 bytes"), |bencher| {
            let (mut decoder, mut spans) = (Decoder::new(), Vec::new());
            bencher.iter(|| match decoder.decode(black_box(&request), &limits) {
                Decoded::Request { request, .. } => {
                    let push = parse_push(request.body, DEPTH_MAX, &mut spans).expect("a push");
                    push.queue.len() + spans.len()
                }
                other => panic!("{other:?}"),
            });
        });
    }
    group.finish();
}

fn validator(criterion: &mut Criterion) {
    let escaped = format!("\"{}\"", r#"a\"b\\c\u00e9"#.repeat(20));
    let numbers = format!("[{}]", vec!["-12.5e3"; 40].join(","));
    let texts = [
        ("256-byte object", payload()),
        ("escapes", escaped),
        ("numbers", numbers),
        ("euro signs", format!("\"{}\"", "€".repeat(85))),
    ];
    let mut group = criterion.benchmark_group("validate");
    for (name, text) in &texts {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(*name, |bencher| bencher.iter(|| validate(black_box(text.as_bytes()), DEPTH_MAX).is_ok()));
    }
    group.finish();
}

fn acks(criterion: &mut Criterion) {
    let acks: Vec<_> = (0..100).map(|n| format!(r#"{{"id":"e:624f5af82b58223f:room-1:{n}"}}"#)).collect();
    let body = format!(r#"{{"queue":"bench","group":"workers","acks":[{}]}}"#, acks.join(","));
    let mut group = criterion.benchmark_group("ack");
    group.throughput(Throughput::Elements(100));
    group.bench_function("parse_ack, 100 ids", |bencher| {
        bencher.iter(|| parse_ack(black_box(body.as_bytes()), DEPTH_MAX).expect("an ack").acks.len());
    });
    group.finish();
}

fn answer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("response");
    group.bench_function("201 with 12 bytes", |bencher| {
        let mut out = Vec::with_capacity(1024);
        bencher.iter(|| {
            out.clear();
            response::write(&mut out, black_box(&Head::json(201)), b"{\"pushed\":1}");
            out.len()
        });
    });
    group.bench_function("a JSON string of 32 bytes", |bencher| {
        let mut out = Vec::with_capacity(1024);
        bencher.iter(|| {
            out.clear();
            response::append_json_string(&mut out, black_box("e:624f5af82b58223f:room-1:123456"));
            out.len()
        });
    });
    group.finish();
}

criterion_group!(benches, decode, push, validator, acks, answer);
criterion_main!(benches);
