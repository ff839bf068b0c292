//! TLS on the HTTP port: the pair of files, their reload, clients that stall, go, or speak something else.

mod common;

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Broker, Certificates, Connection, PATIENCE, eventually, payloads, request};
use rustix::process::Signal;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::json;

/// The certificate that a new connection is shown.
fn shown(broker: &mut Broker) -> Vec<u8> {
    let tcp = TcpStream::connect(broker.address()).expect("a connection");
    tcp.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(broker.certificates().client(), name).expect("a session");
    let mut stream = StreamOwned::new(session, tcp);
    stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    stream.conn.peer_certificates().expect("a certificate")[0].to_vec()
}

/// Starts the broker with these settings, which it must refuse: its exit code and what it says.
fn refused(settings: &[(&str, &str)]) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_queen"))
        .env_clear()
        .env("PORT", "0")
        .env("QUEEN_DATA_DIR", directory.path())
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the broker starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn requests_of_every_size_go_through() {
    let broker = Broker::start_tls(&[]);
    let mut client = broker.connect();
    let large = "x".repeat(3_000_000);
    for payload in ["", "small", &large] {
        client.push("q", json!(payload));
    }
    let popped = client.pop("queue=q&batch=10&autoAck=true");
    assert_eq!(payloads(&popped), [json!(""), json!("small"), json!(large)]);
    let pipelined: Vec<u8> = (0..500).flat_map(|_| request("GET", "/health", &[], b"")).collect();
    client.send(pipelined);
    for _ in 0..500 {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn every_push_is_answered_however_many_reads_it_takes() {
    for broker in [Broker::start_tls(&[]), Broker::start(&[])] {
        let mut client = broker.connect();
        for step in 0..60 {
            // Around what eight reads bring, of TLS and of plain bytes.
            for bytes in [100_000 + step * 1_000, 480_000 + step * 2_000] {
                client.push("q", json!("x".repeat(bytes)));
            }
            client.pop("queue=q&batch=10&autoAck=true");
        }
    }
}

#[test]
fn a_waiting_pop_is_woken_and_one_whose_client_goes_takes_nothing() {
    let broker = Broker::start_tls(&[]);
    let mut client = broker.connect();
    let mut waiting = broker.connect();
    waiting.send_pop("queue=q&wait=true&timeout=60000&autoAck=true");
    let (_, parked) = (client.get("/health"), eventually("its parking", || (broker.parked() == 1).then_some(1)));
    assert_eq!(parked, 1);
    client.push("q", json!("woken"));
    assert_eq!(payloads(&waiting.popped()), [json!("woken")]);

    waiting.send_pop("queue=q&wait=true&timeout=60000&autoAck=true");
    eventually("its parking", || (broker.parked() == 1).then_some(()));
    drop(waiting);
    eventually("its leaving", || (broker.parked() == 0).then_some(()));
    client.push("q", json!("stays"));
    assert_eq!(payloads(&client.pop("queue=q&autoAck=true")), [json!("stays")]);
}

#[test]
fn files_that_do_not_belong_together_stop_the_boot() {
    let (one, other) = (Certificates::new(), Certificates::new());
    let [(cert, own), (key, _)] = one.settings();
    let [_, (_, foreign)] = other.settings();
    let (code, said) = refused(&[(cert, &own), (key, &foreign)]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("QUEEN_TLS_CERT, QUEEN_TLS_KEY") && said.contains("cannot be used together"), "{said}");
    let (code, said) = refused(&[(cert, &own), (key, &own)]);
    assert!(code == Some(2) && said.contains("QUEEN_TLS_KEY") && said.contains("nothing of the kind"), "{said}");
    let (code, said) = refused(&[(cert, "/nowhere/at/all.pem"), (key, &foreign)]);
    assert!(
        code == Some(2) && said.contains("QUEEN_TLS_CERT") && said.contains("/nowhere/at/all.pem\" cannot be read"),
        "{said}"
    );
    let (code, said) = refused(&[(cert, &own)]);
    assert!(code == Some(2) && said.contains("QUEEN_TLS_KEY"), "{said}");
}

#[test]
fn a_reload_shows_new_connections_another_certificate_and_drops_no_old_one() {
    let mut broker = Broker::start_tls(&[]);
    let mut old = broker.connect();
    old.push("q", json!(1));
    let mut waiting = broker.connect();
    waiting.send_pop("queue=other&wait=true&timeout=60000&autoAck=true");
    eventually("its parking", || (broker.parked() == 1).then_some(()));
    let before = shown(&mut broker);
    assert_eq!(shown(&mut broker), before);

    broker.certificates().renew();
    broker.signal(Signal::HUP);
    eventually("the reload", || broker.log().contains("read again").then_some(()));
    assert_ne!(shown(&mut broker), before);
    assert_eq!(payloads(&old.pop("queue=q&autoAck=true")), [json!(1)]);
    old.push("other", json!(2));
    assert_eq!(payloads(&waiting.popped()), [json!(2)]);
}

#[test]
fn a_reload_that_fails_changes_nothing() {
    let mut broker = Broker::start_tls(&[]);
    let before = shown(&mut broker);
    broker.certificates().write_key("no key");
    broker.signal(Signal::HUP);
    eventually("the refusal", || broker.log().contains("the certificate stays what it was").then_some(()));
    assert_eq!(shown(&mut broker), before);
    broker.assert_alive();
}

#[test]
fn a_client_that_stalls_its_handshake_is_cut() {
    let mut broker = Broker::start_tls(&[("QUEEN_HTTP_HEADER_TIMEOUT_MS", "300")]);
    // Nothing; the beginning of a record; a record that never ends.
    for begun in [&b""[..], b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
        let mut stalled = Connection::open(broker.address());
        stalled.send(begun);
        // An alert may come before the end.
        eventually("the cut", || stalled.is_closed_by_peer().then_some(()));
    }
    broker.assert_alive();
    assert_eq!(broker.connections(), 1, "the one that asks");
    assert_eq!(broker.counter("queen_tls_handshakes_failed_total"), 3);
}

#[test]
fn a_connection_that_is_past_its_handshake_may_be_idle() {
    let broker = Broker::start_tls(&[("QUEEN_HTTP_HEADER_TIMEOUT_MS", "100")]);
    let mut client = broker.connect();
    assert_eq!(client.get("/health").status, 200);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(client.get("/health").status, 200);
}

#[test]
fn plain_http_is_told_what_the_port_speaks() {
    let mut broker = Broker::start_tls(&[]);
    for bytes in [request("GET", "/health", &[], b""), request("POST", "/api/v1/ephemeral/push", &[], b"{}")] {
        let mut plain = Connection::open(broker.address());
        plain.send(bytes);
        let answer = plain.response();
        assert_eq!(answer.failure(), (400, "tls_required".to_owned()));
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(plain.is_closed_by_peer());
    }
    for garbage in [&b"\x00\x01\x02garbage"[..], b"\x16\x03\x01\xff\xff", b"\x15\x03\x01\x00\x02\x02\x28"] {
        let mut odd = Connection::open(broker.address());
        odd.send(garbage);
        odd.finish_sending();
        eventually("the end", || odd.is_closed_by_peer().then_some(()));
    }
    broker.assert_alive();
}

#[test]
fn a_stop_answers_what_waits_and_ends_in_order() {
    let mut broker = Broker::start_tls(&[]);
    let mut waiting = broker.connect();
    waiting.send_pop("queue=q&wait=true&timeout=60000");
    eventually("its parking", || (broker.parked() == 1).then_some(()));
    assert!(broker.sigterm().success());
    assert!(waiting.popped().is_empty());
    assert!(waiting.is_closed_by_peer());
}

#[test]
fn a_stop_does_not_wait_for_handshakes() {
    let mut broker =
        Broker::start_tls(&[("QUEEN_SHUTDOWN_GRACE_MS", "600000"), ("QUEEN_HTTP_HEADER_TIMEOUT_MS", "600000")]);
    let mut silent = Connection::open(broker.address());
    eventually("its being there", || (broker.connections() == 2).then_some(()));
    assert!(broker.sigterm().success());
    // TLS's own word for the end comes first.
    eventually("the end", || silent.is_closed_by_peer().then_some(()));
}
