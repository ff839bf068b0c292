//! Request and reply, 64 pairs at once for half a minute over both shards, on plain keep-alive
//! connections. Every pop waits up to 20 seconds and none may come back empty: a wake-up that is
//! lost once in a million round trips shows here.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Broker, Connection, unique};
use serde_json::json;

const PAIRS: u64 = 64;
const RUN: Duration = Duration::from_secs(30);
const POP_TIMEOUT: Duration = Duration::from_secs(20);

/// How a pair's responder takes its requests.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// From one queue that all of these share, in a group, acknowledged after the reply.
    SharedAndAcked,
    /// From a queue of its own, acknowledged at delivery.
    OwnAndAutoAcked,
}

/// What one requester saw.
#[derive(Default)]
struct Seen {
    round_trips: u64,
    longest: Duration,
}

#[test]
fn no_round_trip_sits_until_a_timeout() {
    let broker = Broker::start(&[]);
    let replies = AtomicU64::new(0);
    let shared = unique("requests");
    let deadline = Instant::now() + RUN;

    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let mut requesters = Vec::new();
        for pair in 0..PAIRS {
            let (style, requests) = if pair % 2 == 0 {
                (Style::SharedAndAcked, shared.clone())
            } else {
                (Style::OwnAndAutoAcked, unique("requests"))
            };
            let served_queue = requests.clone();
            let replies = &replies;
            let broker = &broker;
            scope.spawn(move || respond(broker.connect(), &served_queue, style, replies));
            requesters.push(scope.spawn(move || {
                let seen = keep_asking(broker.connect(), &requests, pair, deadline);
                // One responder of this queue may go; with a shared queue any of them.
                broker.connect().push(&requests, json!({ "stop": true }));
                seen
            }));
        }
        requesters.into_iter().map(|requester| requester.join().expect("a requester")).collect()
    });

    let round_trips: u64 = seen.iter().map(|seen| seen.round_trips).sum();
    let longest = seen.iter().map(|seen| seen.longest).max().expect("pairs");
    println!(
        "{round_trips} round trips of {PAIRS} pairs in {RUN:?} ({:.0} a second), the longest {longest:?}",
        round_trips as f64 / RUN.as_secs_f64(),
    );
    assert_eq!(replies.load(Ordering::Relaxed), round_trips, "a reply for every request");
    assert!(seen.iter().all(|seen| seen.round_trips > 0), "every pair made round trips");
    assert!(longest < POP_TIMEOUT / 2, "a round trip sat for {longest:?}");

    assert_eq!(broker.parked(), 0, "nobody waits any more");
    let status = broker.connect().get("/status").json();
    let shards = status["shards"].as_array().expect("shards");
    for shard in shards.iter().filter(|shard| shard["role"] == "data") {
        assert!(shard["requests"].as_u64() > Some(PAIRS), "every data shard took part: {shard}");
    }
}

/// Asks one question after another until `deadline`, each with an inbox of its own.
fn keep_asking(mut connection: Connection, requests: &str, pair: u64, deadline: Instant) -> Seen {
    let mut seen = Seen::default();
    while Instant::now() < deadline {
        let number = pair << 32 | seen.round_trips;
        let inbox = format!("inbox-{pair}-{}", seen.round_trips);
        let asked = Instant::now();
        connection.push(requests, json!({ "n": number, "replyTo": inbox }));
        let reply =
            connection.pop(&format!("queue={inbox}&wait=true&timeout={}&autoAck=true", POP_TIMEOUT.as_millis()));
        let took = asked.elapsed();
        assert_eq!(reply.len(), 1, "pair {pair}: no reply to {number} after {took:?}");
        assert_eq!(reply[0].payload, json!({ "plusOne": number + 1 }));
        seen.round_trips += 1;
        seen.longest = seen.longest.max(took);
    }
    seen
}

/// Answers requests until it is told to stop.
fn respond(mut connection: Connection, requests: &str, style: Style, replies: &AtomicU64) {
    let how = match style {
        Style::SharedAndAcked => "group=workers",
        Style::OwnAndAutoAcked => "autoAck=true",
    };
    let pop = format!("queue={requests}&{how}&wait=true&timeout={}", POP_TIMEOUT.as_millis());
    loop {
        let taken = connection.pop(&pop);
        assert_eq!(taken.len(), 1, "a responder of {requests} waited in vain");
        let request = &taken[0];
        assert_eq!(request.attempts, 1, "a request came a second time");
        let stop = request.payload["stop"] == true;
        if !stop {
            let number = request.payload["n"].as_u64().expect("a number");
            let inbox = request.payload["replyTo"].as_str().expect("an inbox");
            connection.push(inbox, json!({ "plusOne": number + 1 }));
            replies.fetch_add(1, Ordering::Relaxed);
        }
        if style == Style::SharedAndAcked {
            let outcomes = connection.ack(requests, Some("workers"), &[&request.id], "completed");
            assert_eq!(outcomes, ["acked"]);
        }
        if stop {
            return;
        }
    }
}
