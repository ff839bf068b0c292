//! Who cannot prove itself gets nowhere, and costs nothing.

use std::{io::Write as _, net::TcpStream, time::Duration};

use queen_wire::mesh::Message;

use crate::{
    SECRET, assert_unbothered,
    cluster::{Seat, free_port, start},
    common::{Broker, allow_open_files},
    eventually, members,
    peer::{Peer, dialer},
    proxy::Proxy,
    stats, until_failures, until_fault, until_stats,
};

/// A broker that expects a peer which never answers.
fn broker(settings: &[(&str, &str)]) -> (Broker, u16) {
    let port = free_port();
    let settings = [&[("QUEEN_SYNC_SECRET", SECRET)], settings].concat();
    (start(&Seat { id: "queen-1", port, peers: &[free_port()] }, &settings), port)
}

#[test]
fn connections_that_are_reset_at_once_make_no_peer_wait() {
    let (mut broker, port) = broker(&[]);
    for _ in 0..200 {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the broker listens");
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a reset instead of an end");
    }
    let _peer = Peer::proved(port, SECRET, "queen-9", 9);
    assert!(!broker.log().contains("could not be accepted"), "{}", broker.log());
    assert_unbothered(&mut broker);
}

#[test]
fn garbage_is_the_end_of_a_connection() {
    let (mut broker, port) = broker(&[]);
    let mut peer = Peer::connect(port);
    peer.bytes(b"GET / HTTP/1.1\r\nHost: queen\r\n\r\n");
    peer.assert_closed();
    until_fault(&broker, "too_large");
    let mut peer = Peer::connect(port);
    peer.bytes(&[0, 0, 0, 0]);
    peer.assert_closed();
    until_fault(&broker, "empty");
    let mut peer = Peer::connect(port);
    peer.frame(&(4, b"{\"server_id\":".to_vec()));
    peer.assert_closed();
    until_failures(&broker, "malformed", 1);
    assert_unbothered(&mut broker);
}

#[test]
fn a_length_of_four_gigabytes_takes_no_memory() {
    let (mut broker, port) = broker(&[]);
    let before = broker.resident_bytes();
    for _ in 0..20 {
        let mut peer = Peer::connect(port);
        peer.bytes(&[0xff; 64]);
        peer.assert_closed();
        // One that has proved itself may say more, and not that much.
        let mut peer = Peer::proved(port, SECRET, "by-hand", 7);
        peer.bytes(&[0xff; 64]);
        peer.assert_closed();
    }
    until_stats(&broker, "the faults", |stats| stats["faults_by_reason"]["too_large"] == 40);
    assert!(broker.resident_bytes() < before + (16 << 20));
    assert_unbothered(&mut broker);
}

#[test]
fn frames_before_hello_and_hello_twice_are_the_end_of_a_connection() {
    let (mut broker, port) = broker(&[("QUEEN_MESH_LEGACY_HELLO", "true")]);
    let mut peer = Peer::connect(port);
    peer.say(&Message::Maintenance(true));
    peer.assert_closed();
    until_failures(&broker, "unexpected", 1);
    let mut peer = Peer::connect(port);
    let (_, hello) = dialer(SECRET, "by-hand", 7);
    peer.frame(&hello);
    peer.frame(&hello);
    peer.assert_closed();
    until_failures(&broker, "unexpected", 2);
    assert_eq!(stats(&broker)["messages_received"], 0);
    assert_unbothered(&mut broker);
}

#[test]
fn another_secret_opens_nothing_at_either_end() {
    let ports = [free_port(), free_port()];
    let one = start(&Seat { id: "one", port: ports[0], peers: &[ports[1]] }, &[("QUEEN_SYNC_SECRET", SECRET)]);
    let other = start(&Seat { id: "other", port: ports[1], peers: &[ports[0]] }, &[("QUEEN_SYNC_SECRET", "another")]);
    for (broker, id) in [(&one, "one"), (&other, "other")] {
        until_failures(broker, "mac", 2);
        let stats = stats(broker);
        assert_eq!((stats["servers_alive"].as_u64(), stats["messages_received"].as_u64()), (Some(0), Some(0)));
        assert_eq!(members(broker), [id]);
    }
    // The old form, which an older broker would speak, is not taken once there is a secret.
    let mut peer = Peer::open(ports[0], "by-hand");
    peer.say(&Message::Maintenance(true));
    peer.assert_closed();
    until_failures(&one, "legacy", 1);
}

/// Two brokers with a proxy in the way from the first to the second.
fn through_a_proxy(settings: &[(&str, &str)]) -> (Broker, Broker, Proxy, u16) {
    let ports = [free_port(), free_port()];
    let proxy = Proxy::to(ports[1]);
    let settings = [&[("QUEEN_SYNC_SECRET", SECRET)], settings].concat();
    let first = start(&Seat { id: "one", port: ports[0], peers: &[proxy.port] }, &settings);
    let second = start(&Seat { id: "two", port: ports[1], peers: &[ports[0]] }, &settings);
    (first, second, proxy, ports[1])
}

/// The frames of a connection, each with its length.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut found, mut rest) = (Vec::new(), bytes);
    while let Some((length, _)) = rest.split_first_chunk::<4>() {
        let length = 4 + u32::from_be_bytes(*length) as usize;
        let Some((frame, behind)) = rest.split_at_checked(length) else { break };
        found.push(frame);
        rest = behind;
    }
    found
}

#[test]
fn what_was_captured_cannot_be_replayed() {
    let (_first, mut second, proxy, port) = through_a_proxy(&[("QUEEN_SYNC_HEARTBEAT_MS", "50")]);
    eventually("both members", || (members(&second) == ["one", "two"]).then_some(()));
    let captured =
        eventually("HELLO, PROOF and frames", || proxy.sent().into_iter().find(|bytes| frames(bytes).len() >= 4));
    let [hello, proof, frame, ..] = frames(&captured)[..] else { unreachable!("counted") };
    // HELLO and PROOF of another connection, whose challenge was another.
    let mut peer = Peer::connect(port);
    peer.bytes(hello);
    let (tag, _) = peer.read().expect("a challenge of its own");
    assert_eq!(tag, 6);
    peer.bytes(proof);
    peer.bytes(frame);
    peer.assert_closed();
    until_failures(&second, "mac", 1);
    // PROOF alone proves nothing, and a frame without either means nothing.
    for bytes in [proof, frame] {
        let mut peer = Peer::connect(port);
        peer.bytes(bytes);
        peer.assert_closed();
    }
    until_failures(&second, "unexpected", 2);
    // A frame of another connection, on one that is proved.
    let mut peer = Peer::proved(port, SECRET, "by-hand", 7);
    peer.bytes(frame);
    peer.assert_closed();
    until_fault(&second, "mac");
    // A frame of the same connection, again.
    let mut peer = Peer::proved(port, SECRET, "by-hand", 8);
    let (tag, payload) = Message::Heartbeat.render();
    let heartbeat = peer.framed(tag, &payload);
    peer.bytes(&heartbeat);
    peer.bytes(&heartbeat);
    peer.assert_closed();
    until_stats(&second, "the replay", |stats| stats["faults_by_reason"]["mac"] == 2);
    assert_unbothered(&mut second);
}

#[test]
fn an_address_that_was_swapped_on_the_way_is_noticed() {
    let ports = [free_port(), free_port()];
    let proxy = Proxy::to(ports[1]);
    proxy.change(|mut bytes| {
        let (from, to) = (b"http://127.0.0.1:", b"http://127.6.6.6:");
        if let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
        bytes
    });
    let secret = [("QUEEN_SYNC_SECRET", SECRET)];
    let first = start(&Seat { id: "one", port: ports[0], peers: &[proxy.port] }, &secret);
    let second = start(&Seat { id: "two", port: ports[1], peers: &[ports[0]] }, &secret);
    // The listener proves itself over what it was sent, which is not what the dialer has sent.
    until_failures(&first, "mac", 2);
    assert!(proxy.sent().iter().any(|sent| String::from_utf8_lossy(sent).contains("127.6.6.6")));
    assert_eq!(members(&second), ["two"]);
    let status = second.connect().get("/status");
    assert!(!status.text().contains("127.6.6.6"));
}

#[test]
fn who_trickles_a_handshake_or_says_nothing_is_cut_off() {
    let (mut broker, port) = broker(&[]);
    let silent = Peer::connect(port);
    let mut trickle = TcpStream::connect(("127.0.0.1", port)).expect("the broker listens");
    let (_, hello) = dialer(SECRET, "by-hand", 7);
    let mut peer = Peer::connect(port);
    let bytes = peer.framed(hello.0, &hello.1);
    drop(peer);
    // Slower than the five seconds that it has.
    let trickled = bytes.iter().position(|&byte| {
        std::thread::sleep(Duration::from_millis(50));
        trickle.write_all(&[byte]).is_err()
    });
    assert!(trickled.is_some(), "it was cut off before its HELLO was whole");
    silent.assert_closed();
    until_failures(&broker, "timeout", 2);
    assert_unbothered(&mut broker);
}

#[test]
fn ten_thousand_half_open_handshakes_leave_room_for_a_peer() {
    const CONNECTIONS: usize = 10_000;
    let allowed = allow_open_files(CONNECTIONS as u64 + 1_000);
    let connections = CONNECTIONS.min(allowed as usize - 500);
    let (mut broker, port) = broker(&[]);
    let before = broker.open_files();
    let held: Vec<_> = (0..connections).map(|_| Peer::connect(port)).collect();
    until_failures(&broker, "too_many", (connections - 64) as u64);
    assert!(broker.open_files() <= before + 64 + 16, "{} files", broker.open_files());
    assert_unbothered(&mut broker);
    // They are cut off in five seconds, and then there is room.
    until_failures(&broker, "timeout", 64);
    let mut peer = Peer::proved(port, SECRET, "by-hand", 7);
    peer.say(&Message::Heartbeat);
    until_stats(&broker, "the peer", |stats| stats["servers_alive"] == 1);
    drop(held);
}

#[test]
fn an_older_broker_is_taken_where_that_is_allowed_and_is_no_member() {
    let (broker, port) = broker(&[("QUEEN_MESH_LEGACY_HELLO", "true")]);
    let secret = queen_wire::mesh::Secret::new(SECRET).expect("a secret");
    let hello = queen_wire::mesh::Dialer::old_form(Some(&secret), "older", &[3; 16]);
    let mut peer = Peer::connect(port);
    peer.frame(&hello);
    peer.say(&Message::Heartbeat);
    until_stats(&broker, "the peer", |stats| stats["servers_alive"] == 1 && stats["messages_received"] == 1);
    assert_eq!(members(&broker), ["queen-1"]);
    assert!(broker.log().contains("can be captured and replayed"));
    let other = queen_wire::mesh::Secret::new("another").expect("a secret");
    let mut peer = Peer::connect(port);
    peer.frame(&queen_wire::mesh::Dialer::old_form(Some(&other), "older", &[3; 16]));
    peer.assert_closed();
    until_failures(&broker, "mac", 1);
}
