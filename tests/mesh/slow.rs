//! A peer that takes a connection, proves itself, and reads nothing any more.

use std::{
    io::Write as _,
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use queen_wire::mesh::{Listener, ListenerStep, Secret, append_frame};
use serde_json::json;
use socket2::SockRef;

use crate::{
    SECRET, assert_unbothered,
    cluster::{Seat, database, free_port, start},
    common::unique,
    peer::{LABEL, read_frame},
    until_fault, until_stats,
};

/// Partitions of one push: a frame that tells of them has some hundred kilobytes.
const PARTITIONS: usize = 1_000;

/// Listens, proves itself to whoever dials, and keeps the connections without reading.
fn listen_and_read_nothing() -> (u16, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    SockRef::from(&listener).set_recv_buffer_size(4 << 10).expect("a small buffer");
    let port = listener.local_addr().expect("its address").port();
    let (keep, kept) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if prove(&mut stream).is_some() && keep.send(stream).is_err() {
                return;
            }
        }
    });
    (port, kept)
}

fn prove(stream: &mut TcpStream) -> Option<()> {
    let mut listener = Listener::new(Secret::new(SECRET), LABEL, "lazy", false, [5; 16]);
    let (tag, hello) = read_frame(stream).ok()?;
    let ListenerStep::Send((tag, challenge)) = listener.step(tag, &hello).ok()? else { return None };
    let mut out = Vec::new();
    append_frame(&mut out, tag, &challenge, None);
    stream.write_all(&out).ok()?;
    let (tag, proof) = read_frame(stream).ok()?;
    matches!(listener.step(tag, &proof), Ok(ListenerStep::Proven(_))).then_some(())
}

#[test]
fn what_a_peer_does_not_read_is_dropped_and_counted_and_its_connection_made_anew() {
    let (peer, kept) = listen_and_read_nothing();
    let settings = [
        ("DATABASE_URL", &*database()),
        ("QUEEN_SYNC_SECRET", SECRET),
        ("QUEEN_SYNC_HEARTBEAT_MS", "100"),
        ("QUEEN_SYNC_DEAD_THRESHOLD_MS", "3000"),
    ];
    let mut broker = start(&Seat { id: "queen-1", port: free_port(), peers: &[peer] }, &settings);
    until_stats(&broker, "the peer", |stats| stats["peers"][0]["connected"] == true);
    let (queue, before) = (unique("many"), broker.resident_bytes());
    let item = |n: usize| json!({ "queue": queue, "partition": format!("partition-{n:0>64}"), "payload": 1 });
    let push = json!({ "items": (0..PARTITIONS).map(item).collect::<Vec<_>>() }).to_string();
    let mut client = broker.connect();
    // Until the socket takes no more, and for a while after that.
    until_stats(&broker, "frames that are dropped, or a connection that is given up", |stats| {
        for _ in 0..10 {
            assert_eq!(client.post("/api/v1/push", &push).status, 201, "no push waits for it");
        }
        stats["messages_dropped"].as_u64() >= Some(1)
    });
    until_fault(&broker, "stalled");
    assert!(broker.resident_bytes() < before + (96 << 20), "{} more", broker.resident_bytes() - before);
    // Dialled again, as any other that was lost.
    assert!(kept.recv().is_ok() && kept.recv().is_ok());
    assert_unbothered(&mut broker);
}
