//! A node step by step: what it takes from peers that do what they should not, and what it holds for those that are slow.

use std::net::{IpAddr, Ipv4Addr};

use queen_mesh::{
    Action, BACKOFF_MAX_MS, BACKOFF_MIN_MS, Config, Connection, HANDSHAKE_MS, IDS_MAX, INPUT_BYTES_MAX, Node, Peer,
    QUEUE_BYTES_MAX, QUEUE_FRAMES_MAX, UNPROVEN_MAX,
};
use queen_wire::mesh::{
    Dialer, Framing, Identity, Listener, ListenerStep, Message, Next, Place, QueueName, Seal, Secret, append_frame,
};

const LABEL: &str = "queen-mesh/1";

const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn identity(id: &str, epoch: u64) -> Identity {
    Identity { server_id: id.to_owned(), http_addr: format!("http://{id}:6632"), epoch }
}

/// A node `a` that dials `b`.
fn node(secret: Option<&str>, legacy: bool) -> Node {
    let config = Config {
        me: identity("a", 1),
        peers: vec![Peer { host: "b".to_owned(), port: 6633 }],
        secret: secret.and_then(Secret::new),
        legacy,
        heartbeat_ms: 1_000,
        dead_ms: 5_000,
        member_ttl_ms: 4_000,
    };
    let mut last = 0u8;
    let nonces = Box::new(move || {
        last = last.wrapping_add(1);
        [last; 16]
    });
    Node::new(config, nonces, 0)
}

fn actions(node: &mut Node) -> Vec<Action> {
    std::iter::from_fn(|| node.take_action()).collect()
}

fn closes(node: &mut Node, connection: Connection) -> bool {
    actions(node).contains(&Action::Close(connection))
}

fn frame((tag, payload): (u8, Vec<u8>), seal: Option<&mut Seal>) -> Vec<u8> {
    let mut out = Vec::new();
    append_frame(&mut out, tag, &payload, seal);
    out
}

fn frames(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut framing, mut found, mut start) = (Framing::unproven(), Vec::new(), 0);
    framing.trust(None);
    while let Ok(Next::Frame { tag, payload, consumed }) = framing.next(&bytes[start..]) {
        found.push((tag, payload.to_vec()));
        start += consumed;
    }
    found
}

/// Dials the node as a peer that knows the secret, and gives what its frames are sealed with.
fn prove(node: &mut Node, connection: Connection, id: &str, epoch: u64, now_ms: u64) -> Option<Seal> {
    let secret = Secret::new("s3cret").expect("a secret");
    let (dialer, hello) = Dialer::new(secret, LABEL, &identity(id, epoch), "a:6633", &[epoch as u8; 16]);
    node.accepted(connection, REMOTE, now_ms);
    node.received(connection, &frame(hello, None), now_ms);
    let challenge = frames(&node.take_output(connection, now_ms).expect("a challenge")).remove(0);
    let step = dialer.step(challenge.0, &challenge.1).expect("the node's proof");
    node.received(connection, &frame(step.send, None), now_ms);
    step.proven.seals.map(|seals| seals.forward)
}

#[test]
fn what_a_proved_peer_says_is_delivered_with_its_name() {
    let mut node = node(Some("s3cret"), false);
    let mut seal = prove(&mut node, 7, "b", 9, 10);
    let message = Message::ConfigSet(QueueName { queue: "q".to_owned(), tenant: None });
    node.received(7, &frame(message.render(), seal.as_mut()), 20);
    let delivered = actions(&mut node).into_iter().find_map(|action| match action {
        Action::Deliver(delivered) => Some(delivered),
        _ => None,
    });
    let delivered = delivered.expect("a message");
    assert_eq!((&*delivered.from, delivered.message), ("b", message));
}

#[test]
fn frames_that_are_not_the_peers_close_the_connection_and_are_counted() {
    let heartbeat = frame(Message::Heartbeat.render(), None);
    let unsealed = |node: &mut Node| {
        prove(node, 7, "b", 9, 10);
        heartbeat.clone()
    };
    let replayed = |node: &mut Node| {
        let mut seal = prove(node, 7, "b", 9, 10);
        let sealed = frame(Message::Heartbeat.render(), seal.as_mut());
        [sealed.clone(), sealed].concat()
    };
    let first = |bytes: Vec<u8>| {
        move |node: &mut Node| {
            node.accepted(7, REMOTE, 10);
            bytes.clone()
        }
    };
    type Case<'c> = (&'c str, &'c dyn Fn(&mut Node) -> Vec<u8>);
    let (early, garbage, huge) =
        (first(heartbeat.clone()), first(b"GET / HTTP/1.1\r\n".to_vec()), first(vec![0xff; 5]));
    let cases: [Case<'_>; 5] = [
        ("without a seal", &unsealed),
        ("a replay", &replayed),
        ("before HELLO", &early),
        ("garbage", &garbage),
        ("four gigabytes", &huge),
    ];
    for (what, bytes) in cases {
        let mut node = node(Some("s3cret"), true);
        let bytes = bytes(&mut node);
        node.received(7, &bytes, 20);
        assert!(closes(&mut node, 7), "{what}");
        let stats = node.stats();
        let counted = stats.faults.values().sum::<u64>() + stats.handshake_failures.values().sum::<u64>();
        assert_eq!(counted, 1, "{what}: {stats:?}");
    }
}

#[test]
fn a_peer_that_trickles_or_says_nothing_is_given_up() {
    let mut node = node(Some("s3cret"), false);
    node.accepted(7, REMOTE, 0);
    node.accepted(8, REMOTE, 0);
    node.received(8, &[0, 0], HANDSHAKE_MS - 1);
    node.advance(HANDSHAKE_MS - 1);
    assert!(!closes(&mut node, 7));
    node.advance(HANDSHAKE_MS);
    let closed = actions(&mut node);
    assert!(closed.contains(&Action::Close(7)) && closed.contains(&Action::Close(8)));
    assert_eq!(node.stats().handshake_failures["timeout"], 2);
}

#[test]
fn ten_thousand_handshakes_at_once_take_no_more_room_than_a_few() {
    let mut node = node(Some("s3cret"), false);
    for connection in 0..10_000 {
        node.accepted(connection, REMOTE, 0);
    }
    let closed = actions(&mut node).iter().filter(|action| matches!(action, Action::Close(_))).count();
    assert_eq!(closed, 10_000 - UNPROVEN_MAX);
    assert_eq!(node.stats().handshake_failures["too_many"], 10_000 - UNPROVEN_MAX as u64);
    node.advance(HANDSHAKE_MS);
    actions(&mut node);
    prove(&mut node, 10_000, "b", 9, HANDSHAKE_MS);
    assert!(!closes(&mut node, 10_000), "there is room again");
}

#[test]
fn a_second_node_with_the_same_id_is_refused_while_the_first_speaks() {
    let mut node = node(Some("s3cret"), false);
    prove(&mut node, 7, "b", 9, 0);
    actions(&mut node);
    prove(&mut node, 8, "b", 10, 500);
    let refused = actions(&mut node);
    assert!(refused.contains(&Action::TwiceThere("b".into())) && refused.contains(&Action::Close(8)), "{refused:?}");
    // The first is silent: it was the last incarnation of the second.
    prove(&mut node, 9, "b", 10, 60_000);
    let replaced = actions(&mut node);
    assert!(replaced.contains(&Action::Close(7)) && !replaced.contains(&Action::Close(9)), "{replaced:?}");
}

/// A wake for a push to many partitions.
fn wake(partitions: usize) -> Message {
    let place = |n: usize| Place { queue: "q".to_owned(), partition: Some(format!("partition-{n}")), tenant: None };
    Message::Available((0..partitions).map(place).collect())
}

#[test]
fn an_hour_of_pushes_to_a_peer_that_is_down_costs_nothing() {
    let mut node = node(Some("s3cret"), false);
    let (mut dials, mut sent) = (0, 0);
    for now_ms in (0..3_600_000).step_by(100) {
        node.advance(now_ms);
        for action in actions(&mut node) {
            if action == Action::Dial(0) {
                dials += 1;
                node.dial_failed(0, now_ms);
            }
        }
        for _ in 0..10 {
            node.send(wake(20));
            sent += 1;
        }
        let peer = &node.stats().peers[0];
        assert_eq!((peer.queued_frames, peer.queued_bytes, peer.dropped), (0, 0, sent));
    }
    // Every five seconds, give or take a quarter.
    assert!((550..=1_000).contains(&dials), "{dials} dials");
}

#[test]
fn an_hour_of_pushes_to_a_peer_that_does_not_read_costs_a_queue_and_no_more() {
    for partitions in [1, 2_000] {
        let mut node = node(None, true);
        actions(&mut node);
        node.dialled(0, 3, 0);
        let mut sent = 0;
        for now_ms in (0..3_600_000).step_by(10_000) {
            // Its socket takes nothing: nobody asks for what is to be sent.
            node.advance(now_ms);
            for _ in 0..10 {
                node.send(wake(partitions));
                sent += 1;
            }
            let peer = &node.stats().peers[0];
            assert!(peer.queued_frames <= QUEUE_FRAMES_MAX && peer.queued_bytes <= QUEUE_BYTES_MAX);
            assert_eq!(peer.queued_frames as u64 + peer.dropped, sent);
            assert!(actions(&mut node).is_empty(), "that is for the shell to end");
        }
        assert!(node.stats().peers[0].dropped > sent / 2);
        node.stalled(3, 3_600_000);
        assert!(closes(&mut node, 3));
        let stats = node.stats();
        assert_eq!((stats.peers[0].queued_frames, stats.peers[0].queued_bytes), (0, 0));
        assert_eq!((stats.peers[0].dropped, stats.faults["stalled"]), (sent, 1));
    }
}

#[test]
fn a_connection_is_closed_whose_listener_has_another_secret_or_none() {
    let mut other = queen_wire::mesh::Listener::new(Secret::new("another"), LABEL, "b", false, [9; 16]);
    let mut node = node(Some("s3cret"), false);
    actions(&mut node);
    node.dialled(0, 3, 0);
    let hello = frames(&node.take_output(3, 0).expect("HELLO")).remove(0);
    let Ok(queen_wire::mesh::ListenerStep::Send(challenge)) = other.step(hello.0, &hello.1) else {
        panic!("a challenge")
    };
    node.received(3, &frame(challenge, None), 10);
    assert!(closes(&mut node, 3));
    assert_eq!(node.stats().handshake_failures["mac"], 1);
    node.advance(10_000);
    assert!(actions(&mut node).contains(&Action::Dial(0)), "it may be put right");
    node.dialled(0, 4, 10_000);
    node.take_output(4, 10_000);
    node.received(4, &frame(Message::Heartbeat.render(), None), 10_010);
    assert!(closes(&mut node, 4));
    assert_eq!(node.stats().handshake_failures["unexpected"], 1);
}

#[test]
fn ids_are_limited_and_those_of_the_dead_make_room() {
    let mut node = node(Some("s3cret"), true);
    let secret = Secret::new("s3cret").expect("a secret");
    let mut hello = |connection: u64, now_ms| {
        node.accepted(connection, REMOTE, now_ms);
        let hello = Dialer::old_form(Some(&secret), &format!("id-{connection}"), &[1; 16]);
        node.received(connection, &frame(hello, None), now_ms);
        closes(&mut node, connection)
    };
    assert!((0..IDS_MAX as u64).all(|connection| !hello(connection, 0)));
    assert!(hello(1_000, 10), "it has no room");
    assert!(!hello(2_000, 6_000), "the dead make room");
    assert_eq!(node.stats().handshake_failures["too_many"], 1);
}

#[test]
fn the_connections_of_an_id_that_makes_room_end_with_it() {
    let mut node = node(Some("s3cret"), false);
    for connection in 0..IDS_MAX as u64 {
        prove(&mut node, connection, &format!("id-{connection}"), 9, 0);
    }
    actions(&mut node);
    prove(&mut node, 1_000, "one-more", 9, 6_000);
    let closed: Vec<_> = actions(&mut node).into_iter().filter(|action| matches!(action, Action::Close(_))).collect();
    assert_eq!(closed, [Action::Close(0)], "the oldest, and the newcomer stays");
}

#[test]
fn a_connection_that_says_nothing_whole_for_long_is_closed() {
    let mut node = node(Some("s3cret"), false);
    let mut seal = prove(&mut node, 7, "b", 9, 0);
    node.received(7, &frame(Message::Heartbeat.render(), seal.as_mut()), 10_000);
    // The beginning of a large frame, and some more of it now and then.
    node.received(7, &[0, 16, 0, 0, 2], 11_000);
    node.received(7, b"{\"items\":[", 24_000);
    node.advance(24_999);
    assert!(!closes(&mut node, 7));
    assert_eq!(node.next_ms(24_999), Some(25_000));
    node.advance(25_000);
    assert!(closes(&mut node, 7));
    assert_eq!(node.stats().faults["silent"], 1);
}

#[test]
fn frames_that_are_not_whole_have_so_much_room_together_and_no_more() {
    let mut node = node(Some("s3cret"), false);
    let mut part = ((16u32 << 20) - 8).to_be_bytes().to_vec();
    part.resize(8 << 20, b'x');
    let fits = (INPUT_BYTES_MAX / part.len()) as u64;
    for connection in 0..fits {
        prove(&mut node, connection, &format!("id-{connection}"), 9, 0);
        node.received(connection, &part, 0);
        assert!(!closes(&mut node, connection));
    }
    prove(&mut node, 100, "one-more", 9, 0);
    node.received(100, &part, 0);
    assert!(closes(&mut node, 100));
    assert_eq!(node.stats().faults["no_room"], 1);
    node.closed(0, 0);
    prove(&mut node, 101, "another", 9, 0);
    node.received(101, &part, 0);
    assert!(!closes(&mut node, 101), "there is room again");
}

/// Dials an open node in the old form.
fn greet(node: &mut Node, connection: Connection, id: &str, now_ms: u64) {
    node.accepted(connection, REMOTE, now_ms);
    node.received(connection, &frame(Dialer::old_form(None, id, &[77; 16]), None), now_ms);
}

#[test]
fn in_the_old_form_a_second_node_with_the_same_id_is_refused_when_the_first_still_speaks() {
    let mut node = node(None, true);
    let heartbeat = frame(Message::Heartbeat.render(), None);
    greet(&mut node, 7, "b", 0);
    greet(&mut node, 8, "b", 500);
    // This one may have been on its way.
    node.received(7, &heartbeat, 1_000);
    assert!(!closes(&mut node, 8));
    node.received(8, &heartbeat, 1_500);
    node.received(7, &heartbeat, 2_000);
    let refused = actions(&mut node);
    assert!(refused.contains(&Action::TwiceThere("b".into())) && refused.contains(&Action::Close(8)), "{refused:?}");
    assert!(!refused.contains(&Action::Close(7)), "{refused:?}");
    assert_eq!(node.stats().handshake_failures["same_id"], 1);
}

#[test]
fn in_the_old_form_a_connection_that_was_left_ends_when_another_has_come() {
    let mut node = node(None, true);
    let heartbeat = frame(Message::Heartbeat.render(), None);
    greet(&mut node, 7, "b", 0);
    greet(&mut node, 8, "b", 500);
    greet(&mut node, 9, "b", 700);
    assert!(closes(&mut node, 8), "one newcomer at a time");
    for now_ms in [1_500, 2_500, 3_499] {
        node.received(9, &heartbeat, now_ms);
        node.advance(now_ms);
        assert!(!closes(&mut node, 7));
    }
    node.advance(3_500);
    let ended = actions(&mut node);
    assert!(ended.contains(&Action::Close(7)) && !ended.contains(&Action::Close(9)), "{ended:?}");
    assert!(!node.stats().handshake_failures.contains_key("same_id"));
}

#[test]
fn a_node_that_dials_itself_knows_its_own_voice_in_either_form() {
    for secret in [None, Some("s3cret")] {
        let mut node = node(secret, true);
        actions(&mut node);
        node.dialled(0, 3, 0);
        node.accepted(4, REMOTE, 0);
        let hello = node.take_output(3, 0).expect("HELLO");
        node.received(4, &hello, 0);
        if let Some(challenge) = node.take_output(4, 0) {
            node.received(3, &challenge, 0);
        }
        let own = actions(&mut node).into_iter().find_map(|action| match action {
            Action::OwnId { is_self, .. } => Some(is_self),
            _ => None,
        });
        assert_eq!(own, Some(true));
        // Another node says the same id.
        node.accepted(5, REMOTE, 0);
        let secret = secret.and_then(Secret::new);
        node.received(5, &frame(Dialer::old_form(secret.as_ref(), "a", &[99; 16]), None), 0);
        assert!(actions(&mut node).contains(&Action::OwnId { peer: None, connection: 5, is_self: false }));
    }
}

#[test]
fn connections_that_end_before_they_say_who_they_are_are_counted() {
    let mut node = node(Some("s3cret"), false);
    node.accepted(7, REMOTE, 0);
    node.closed(7, 10);
    node.accepted_too_late();
    assert_eq!(node.stats().handshake_failures["closed"], 2);
}

#[test]
fn what_is_not_understood_is_passed_over_and_counted() {
    let mut node = node(Some("s3cret"), false);
    let mut seal = prove(&mut node, 7, "b", 9, 10);
    for (tag, payload) in [(1, "{}"), (5, "not JSON"), (77, "of a newer broker")] {
        node.received(7, &frame((tag, payload.as_bytes().to_vec()), seal.as_mut()), 20);
    }
    let message = Message::ConfigSet(QueueName { queue: "q".to_owned(), tenant: None });
    node.received(7, &frame(message.render(), seal.as_mut()), 20);
    let actions = actions(&mut node);
    assert!(actions.iter().any(|action| matches!(action, Action::Deliver(_))), "{actions:?}");
    assert_eq!(node.stats().faults["malformed"], 2);
}

#[test]
fn after_a_reconnect_the_switches_come_first_and_what_waited_is_dropped() {
    let mut node = node(None, true);
    actions(&mut node);
    node.set_switches((true, true), (false, true));
    for _ in 0..5 {
        node.send(Message::Leaving);
    }
    node.dialled(0, 3, 100);
    let sent: Vec<_> = frames(&node.take_output(3, 100).expect("HELLO and the switches"));
    let tags: Vec<_> = sent.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, [4, 40, 41]);
    assert_eq!(sent[1].1, br#"{"enabled":true}"#);
    assert_eq!(node.stats().peers[0].dropped, 5);
}

#[test]
fn a_full_queue_does_not_make_a_live_node_look_dead() {
    let mut node = node(None, true);
    actions(&mut node);
    node.dialled(0, 3, 0);
    node.take_output(3, 0);
    for _ in 0..2 * QUEUE_FRAMES_MAX {
        node.send(Message::Heartbeat);
    }
    let mut taken = 0;
    while let Some(bytes) = node.take_output(3, 10) {
        taken += frames(&bytes).len();
    }
    assert_eq!(taken, QUEUE_FRAMES_MAX);
    // Any frame is a sign of life: the next is due a whole interval later, and comes without being asked for.
    assert_eq!(node.take_output(3, 1_009), None);
    assert_eq!(frames(&node.take_output(3, 1_010).expect("a heartbeat")), [(3, Vec::new())]);
}

#[test]
fn an_older_peer_is_dialled_again_in_the_old_form_where_that_is_allowed() {
    for legacy in [true, false] {
        let mut node = node(Some("s3cret"), legacy);
        actions(&mut node);
        node.dialled(0, 3, 0);
        let hello = frames(&node.take_output(3, 0).expect("HELLO")).remove(0);
        assert!(String::from_utf8_lossy(&hello.1).contains("\"challenge\":true"));
        // It knows of no challenge, and closes.
        node.closed(3, 10);
        node.advance(10_000);
        assert!(actions(&mut node).contains(&Action::Dial(0)));
        node.dialled(0, 4, 10_000);
        let hello = frames(&node.take_output(4, 10_000).expect("HELLO")).remove(0);
        assert_eq!(String::from_utf8_lossy(&hello.1).contains("\"challenge\":true"), !legacy);
        assert!(legacy || !String::from_utf8_lossy(&hello.1).contains("mac"), "never a MAC that can be replayed");
    }
}

/// Dials the node's peer, and tells the form in which it says HELLO.
fn is_new_form(node: &mut Node, connection: Connection, now_ms: u64) -> bool {
    node.dialled(0, connection, now_ms);
    let hello = frames(&node.take_output(connection, now_ms).expect("HELLO")).remove(0);
    String::from_utf8_lossy(&hello.1).contains("\"challenge\":true")
}

#[test]
fn a_peer_that_has_proved_itself_once_is_never_taken_for_an_older_one() {
    let mut node = node(Some("s3cret"), true);
    actions(&mut node);
    node.dialled(0, 3, 0);
    let hello = frames(&node.take_output(3, 0).expect("HELLO")).remove(0);
    let mut listener = Listener::new(Secret::new("s3cret"), LABEL, "b", false, [5; 16]);
    let Ok(ListenerStep::Send(challenge)) = listener.step(hello.0, &hello.1) else { panic!("no challenge") };
    node.received(3, &frame(challenge, None), 0);
    assert!(node.is_connected(0));
    node.closed(3, 10);
    // It is kept busy, and closes before it answers.
    for connection in 4..8 {
        assert!(is_new_form(&mut node, connection, connection * 10_000));
        node.closed(connection, connection * 10_000 + 10);
    }
}

#[test]
fn an_old_forms_connection_that_lasted_sets_the_pause_back() {
    let mut node = node(None, true);
    let mut now_ms = 0;
    for connection in 0..10 {
        node.dialled(0, connection, now_ms);
        now_ms += 100;
        node.closed(connection, now_ms);
        now_ms += 10_000;
    }
    let pause_ms = |node: &Node, now_ms| node.next_ms(now_ms).expect("a dial") - now_ms;
    node.dialled(0, 10, now_ms);
    node.closed(10, now_ms + 100);
    assert!(pause_ms(&node, now_ms + 100) >= BACKOFF_MAX_MS * 3 / 4);
    node.dialled(0, 11, now_ms + 10_000);
    node.closed(11, now_ms + 20_000);
    assert!(pause_ms(&node, now_ms + 20_000) <= BACKOFF_MIN_MS * 5 / 4);
}
