//! Clients that are slow, silent, half gone or gone, and too many of them.

use std::time::Duration;

use serde_json::json;

use crate::common::{Connection, allow_open_files, eventually, payloads, request};
use crate::{PUSH, Scene, assert_fails, push_body};

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
        3;ext=1\r\n{\"q\r\n1E\r\nueue\":\"q\",\"messages\":[{\"payloa\r\nC\r\nd\":\"slow\"}]}\r\n0\r\ntrailer: x\r\n\r\n";
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
    allow_open_files(10_000);
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
