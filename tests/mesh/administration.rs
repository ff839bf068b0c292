//! What an older broker does to its ephemeral queues is done to those of the same name here.

use queen_wire::mesh::{Administration, Message, QueueName};
use serde_json::json;

use crate::{
    cluster::{Seat, database, free_port, start},
    common::Broker,
    eventually,
    peer::Peer,
    until_stats,
};

/// The tenant of a broker without tenants.
const DEFAULT: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn say(peer: &mut Peer, what: Administration, queue: &str, tenant: Option<[u8; 16]>) {
    peer.say(&Message::EphemeralAdmin(what, QueueName { queue: queue.to_owned(), tenant }));
}

#[test]
fn a_reset_and_a_removal_are_obeyed_where_they_carry_a_tenant() {
    let port = free_port();
    let broker = start(&Seat { id: "told", port, peers: &[free_port()] }, &[]);
    let mut peer = Peer::open(port, "older");
    let mut client = broker.connect();
    // On both shards, whichever those are.
    for number in 0..8 {
        let queue = format!("administered-{number}");
        client.configure(&queue, &json!({ "maxLength": 7 }));
        client.push_all(&queue, &[json!(1), json!(2)]);
        say(&mut peer, Administration::Reset, &queue, None);
        say(&mut peer, Administration::Delete, &queue, None);
    }
    until_stats(&broker, "the frames", |stats| stats["messages_received"] == 16);
    let depth = |broker: &Broker, queue: &str| broker.row(queue).map(|row| row["depth"].clone());
    for number in 0..8 {
        let queue = format!("administered-{number}");
        assert_eq!(depth(&broker, &queue), Some(json!(2)), "a verb that destroys names whose");
        say(&mut peer, Administration::Reset, &queue, Some(DEFAULT));
        eventually("a reset", || (depth(&broker, &queue) == Some(json!(0))).then_some(()));
        say(&mut peer, Administration::Delete, &queue, Some(DEFAULT));
        eventually("a removal", || broker.row(&queue).is_none().then_some(()));
    }
    // Names that cannot be, and queues that are not there.
    for queue in ["", "_inbox.x", "nobody-has-it", &"x".repeat(5_000)] {
        say(&mut peer, Administration::Reset, queue, Some(DEFAULT));
        say(&mut peer, Administration::ConfigSet, queue, Some(DEFAULT));
    }
    // Two of them have a name that no queue has.
    until_stats(&broker, "the frames", |stats| stats["messages_received"] == 38);
    client.push("still-served", json!(1));
}

#[test]
fn a_declaration_that_another_has_made_is_read_again() {
    let (database, port) = (database(), free_port());
    let store = [("DATABASE_URL", &*database)];
    let told = start(&Seat { id: "told", port, peers: &[free_port()] }, &store);
    let other = Broker::start(&store);
    let mut peer = Peer::open(port, "older");
    other.connect().configure("declared", &json!({ "maxLength": 7 }));
    assert!(told.row("declared").is_none());
    say(&mut peer, Administration::ConfigSet, "declared", Some(DEFAULT));
    let row = eventually("the declaration", || told.row("declared"));
    assert_eq!(row["options"]["maxLength"], 7);
}
