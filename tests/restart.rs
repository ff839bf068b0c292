//! What a stop and a crash leave behind: a declared queue comes back configured and empty, nothing
//! else comes back, and what the old incarnation handed out is stale. A stop answers everybody.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Broker, Connection, eventually, payloads, request};
use rustix::process::Signal;
use serde_json::json;

/// A grace that no test waits out: what ends within it ended by itself.
const LONG_GRACE: (&str, &str) = ("QUEEN_SHUTDOWN_GRACE_MS", "3600000");

#[test]
fn after_a_kill_during_load_declared_queues_are_back_and_everything_else_is_empty() {
    let mut broker = Broker::start(&[]);
    let mut client = broker.connect();
    let options = json!({ "maxLength": 7, "policy": "dropOldest", "ttlSeconds": 60, "leaseSeconds": 9, "retryLimit": 2,
        "windowBuffer": { "ms": 5, "count": 2 } });
    client.configure("declared", &options);
    client.configure("withdrawn", &json!({ "maxLength": 3 }));
    assert_eq!(client.request("DELETE", "/api/v1/ephemeral/queue/withdrawn", b"").json()["declared"], true);
    client.push_all("declared", &[json!(1), json!(2)]);
    client.push("implicit", json!(1));
    let old = client.pop("queue=declared&group=g").remove(0);
    let row_before = broker.row("declared").expect("the declared queue");

    kill_under_load(&mut broker);
    broker.start_again();

    let mut client = broker.connect();
    let listing = broker.listing();
    assert_eq!(listing.len(), 1, "only what was declared: {listing:?}");
    let row = &listing[0];
    assert_eq!((&row["queue"], &row["tier"]), (&json!("declared"), &json!("declared")));
    assert_eq!(row["options"], row_before["options"], "configured as before");
    assert_eq!((&row["depth"], &row["bytes"]), (&json!(0), &json!(0)));
    assert!(client.pop("queue=declared").is_empty());
    assert!(client.pop("queue=implicit").is_empty());

    // What an old id names is gone, whatever its number means now.
    client.push("declared", json!("new"));
    let new = client.pop("queue=declared&group=g").remove(0);
    assert_eq!(client.ack("declared", Some("g"), &[&old.id], "completed"), ["stale"]);
    assert_eq!(client.ack("declared", Some("g"), &[&new.id], "completed"), ["acked"]);

    // The bound is in force, not just shown.
    client.push_all("declared", &(0..10).map(|n| json!(n)).collect::<Vec<_>>());
    assert_eq!(client.depth("declared")["pending"], 7);
}

/// Kills the broker while eight clients push, pop and wait.
fn kill_under_load(broker: &mut Broker) {
    let served = AtomicU64::new(0);
    let address = broker.address();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let served = &served;
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                let queue = format!("load-{client}");
                let push = json!({ "queue": queue, "messages": [{ "payload": client }] }).to_string();
                loop {
                    let push = request("POST", "/api/v1/ephemeral/push", &[], push.as_bytes());
                    let pop = request("GET", &format!("/api/v1/ephemeral/pop?queue={queue}&wait=true"), &[], b"");
                    for bytes in [push, pop] {
                        if connection.try_send(bytes).is_err() || connection.try_response().is_err() {
                            return;
                        }
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        eventually("load", || (served.load(Ordering::Relaxed) > 5_000).then_some(()));
        broker.kill9();
    });
}

#[test]
fn a_declaration_that_was_answered_survives_a_kill_right_after_it() {
    let mut broker = Broker::start(&[]);
    for round in 0..5 {
        let mut client = broker.connect();
        client.configure("q", &json!({ "maxLength": 100 + round }));
        broker.kill9();
        broker.start_again();
        let row = broker.row("q").expect("the declared queue");
        assert_eq!(row["options"]["maxLength"], 100 + round);
    }
    let mut client = broker.connect();
    client.request("DELETE", "/api/v1/ephemeral/queue/q", b"");
    broker.kill9();
    broker.start_again();
    assert!(broker.row("q").is_none(), "deleted for good");
}

#[test]
fn a_stop_answers_parked_pops_with_an_empty_list_and_exits_0() {
    let mut broker = Broker::start(&[LONG_GRACE]);
    let mut waiting: Vec<Connection> = (0..200)
        .map(|index| {
            let mut connection = broker.connect();
            connection.send_pop(&format!("queue=stop-{index}&wait=true&timeout=300000"));
            connection
        })
        .collect();
    eventually("the parking of every pop", || (broker.parked() == 200).then_some(()));
    let status = broker.sigterm();
    assert_eq!(status.code(), Some(0), "{status}");
    for connection in &mut waiting {
        assert!(connection.popped().is_empty());
        assert!(connection.is_closed_by_peer());
    }
}

#[test]
fn a_stop_with_idle_connections_does_not_wait_for_them() {
    let mut broker = Broker::start(&[LONG_GRACE]);
    let mut idle: Vec<Connection> = (0..50).map(|_| broker.connect()).collect();
    assert_eq!(idle[0].get("/health").status, 200);
    let status = broker.sigterm();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(idle.iter_mut().all(Connection::is_closed_by_peer));
}

#[test]
fn what_is_in_flight_at_a_stop_is_finished() {
    let mut broker = Broker::start(&[LONG_GRACE]);
    let body = json!({ "queue": "q", "messages": [{ "payload": 1 }] }).to_string();
    let bytes = request("POST", "/api/v1/ephemeral/push", &[], body.as_bytes());
    let mut client = broker.connect();
    assert_eq!(client.get("/health").status, 200);
    client.send(&bytes[..bytes.len() - 5]);
    // Another connection of the same moment shows that the broker knows of the stop.
    let mut witness = broker.connect();
    witness.send_pop("queue=witness&wait=true&timeout=300000");
    eventually("its parking", || (broker.parked() == 1).then_some(()));
    broker.signal(Signal::TERM);
    assert!(witness.popped().is_empty());

    client.send(&bytes[bytes.len() - 5..]);
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (201, Some("close")));
    let status = broker.wait();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn a_stop_ends_a_client_that_never_pauses() {
    let mut broker = Broker::start(&[LONG_GRACE]);
    let address = broker.address();
    let served = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Connection::open(address);
                let push = json!({ "queue": "busy", "messages": [{ "payload": 1 }] }).to_string();
                let push = request("POST", "/api/v1/ephemeral/push", &[], push.as_bytes());
                while client.try_send(&push).is_ok() {
                    // What is answered at all is answered whole.
                    match client.try_response() {
                        Ok(response) => {
                            assert!(matches!(response.status, 201 | 429), "{response:?}");
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => return,
                    }
                }
            });
        }
        eventually("load", || (served.load(Ordering::Relaxed) > 1_000).then_some(()));
        let status = broker.sigterm();
        assert_eq!(status.code(), Some(0), "{status}");
    });
}

#[test]
fn the_grace_ends_a_stop_that_a_client_holds_up() {
    let mut broker = Broker::start(&[("QUEEN_SHUTDOWN_GRACE_MS", "300"), ("QUEEN_HTTP_HEADER_TIMEOUT_MS", "3600000")]);
    let mut client = broker.connect();
    client.send("POST /api/v1/ephemeral/push HTTP/1.1\r\nhost: b\r\ncontent-length: 100\r\n\r\n{");
    eventually("its connection", || (broker.connections() >= 2).then_some(()));
    let status = broker.sigterm();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn a_second_signal_ends_the_broker_at_once() {
    let mut broker = Broker::start(&[LONG_GRACE, ("QUEEN_HTTP_HEADER_TIMEOUT_MS", "3600000")]);
    let mut client = broker.connect();
    client.send("POST /api/v1/ephemeral/push HTTP/1.1\r\nhost: b\r\ncontent-length: 100\r\n\r\n{");
    let mut witness = broker.connect();
    witness.send_pop("queue=witness&wait=true&timeout=300000");
    eventually("its parking", || (broker.parked() == 1).then_some(()));
    broker.signal(Signal::TERM);
    assert!(witness.popped().is_empty(), "the first signal came");
    std::thread::sleep(Duration::from_millis(100));
    assert!(broker.exited().is_none(), "it waits for the request that is in flight");
    broker.signal(Signal::INT);
    let status = broker.wait();
    assert!(status.signal().is_none(), "it ends by itself: {status}");
    assert_eq!(status.code(), Some(1), "{status}");
}

#[test]
fn ctrl_c_stops_as_sigterm_does() {
    let mut broker = Broker::start(&[LONG_GRACE]);
    broker.connect().push("q", json!(1));
    broker.signal(Signal::INT);
    let status = broker.wait();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn a_stopped_broker_starts_again_with_its_declarations() {
    let mut broker = Broker::start(&[]);
    broker.connect().configure("kept", &json!({ "ttlSeconds": 30 }));
    broker.connect().push("kept", json!(1));
    assert_eq!(broker.sigterm().code(), Some(0));
    broker.start_again();
    assert_eq!(broker.row("kept").expect("the declared queue")["options"]["ttlSeconds"], 30);
    let mut client = broker.connect();
    client.push("kept", json!(2));
    assert_eq!(payloads(&client.pop("queue=kept&batch=10&autoAck=true")), [json!(2)]);
}
