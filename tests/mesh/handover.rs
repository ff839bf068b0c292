//! What a node holds goes to the next owners when it stops, and comes back when it does.

use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    common::{Broker, Connection, payloads, unique},
    eventually,
    forwarding::{ROOMS, held, three},
    members,
};

/// Messages of each room.
const MESSAGES: u64 = 50;

fn until_members(brokers: &[&Broker], ids: &[&str]) {
    for broker in brokers {
        eventually("the members", || (members(broker) == ids).then_some(()));
    }
}

/// Everything that a room holds, taken through one node, in its order.
pub fn drain(client: &mut Connection, queue: &str, room: &str) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let popped = client.pop(&format!("queue={queue}&partition={room}&batch=1000&autoAck=true"));
        if popped.is_empty() {
            return all;
        }
        all.extend(payloads(&popped));
    }
}

/// Fills a queue's rooms, some of which are the last node's.
fn filled(cluster: &Cluster) -> String {
    let mut client = cluster.brokers[0].connect();
    loop {
        let queue = unique("moves");
        for room in ROOMS {
            for n in 0..MESSAGES {
                client.push_to(&queue, room, json!(n));
            }
        }
        if !held(&cluster.brokers[2], &queue).is_empty() {
            return queue;
        }
    }
}

#[test]
fn a_node_that_stops_hands_over_what_it_holds_and_gets_its_share_when_it_is_back() {
    let mut cluster = three(&[]);
    let queue = filled(&cluster);
    let moves = held(&cluster.brokers[2], &queue);
    // A lease of one that moves comes back as a redelivery, and an ack of it is too late.
    let room = &moves[0];
    let leased = cluster.brokers[0].connect().pop(&format!("queue={queue}&partition={room}&group=g"));
    let exit = cluster.brokers[2].sigterm();
    assert!(exit.success(), "{exit}");
    let log = cluster.brokers[2].log();
    let said = log.lines().find(|line| line.contains("rings handed over")).expect("a line about it").to_owned();
    assert!(said.contains("lost=0"), "{said}");
    until_members(&[&cluster.brokers[0], &cluster.brokers[1]], &["queen-1", "queen-2"]);
    let mut client = cluster.brokers[1].connect();
    let again = client.pop(&format!("queue={queue}&partition={room}&group=g"));
    assert_eq!((again[0].attempts, &again[0].payload), (2, &json!(0)));
    assert_eq!(client.ack(&queue, Some("g"), &[&leased[0].id], "completed"), ["stale"]);
    let held_by_two: usize = cluster.brokers[..2].iter().map(|broker| held(broker, &queue).len()).sum();
    assert_eq!(held_by_two, ROOMS.len());
    cluster.brokers[2].start_again();
    let all: Vec<_> = cluster.brokers.iter().collect();
    until_members(&all, &["queen-1", "queen-2", "queen-3"]);
    eventually("its share", || (held(&cluster.brokers[2], &queue) == moves).then_some(()));
    let expected: Vec<_> = (0..MESSAGES).map(|n| json!(n)).collect();
    for (number, room) in ROOMS.into_iter().enumerate() {
        assert_eq!(
            drain(&mut cluster.brokers[number % 3].connect(), &queue, room),
            expected,
            "{room}, whole and in order"
        );
    }
}

#[test]
fn a_pop_that_waits_is_asked_again_where_its_partition_goes() {
    let mut cluster = three(&[]);
    let queue = unique("follows");
    for with_partition in [true, false] {
        let pop = |room: &str| {
            let partition = if with_partition { format!("&partition={room}") } else { String::new() };
            format!("queue={queue}-{room}{partition}&wait=true&timeout=60000&autoAck=true")
        };
        // Through the two nodes that stay.
        let mut waiting: Vec<_> = (0..ROOMS.len()).map(|number| cluster.brokers[number % 2].connect()).collect();
        for (client, room) in waiting.iter_mut().zip(ROOMS) {
            client.send_pop(&pop(room));
        }
        let parked = |cluster: &Cluster, of: &[usize]| of.iter().map(|&at| cluster.brokers[at].parked()).sum::<u64>();
        eventually("pops that wait", || (parked(&cluster, &[0, 1, 2]) == ROOMS.len() as u64).then_some(()));
        assert!(cluster.brokers[2].sigterm().success());
        eventually("pops that wait elsewhere", || (parked(&cluster, &[0, 1]) == ROOMS.len() as u64).then_some(()));
        cluster.brokers[2].start_again();
        let all: Vec<_> = cluster.brokers.iter().collect();
        until_members(&all, &["queen-1", "queen-2", "queen-3"]);
        crate::forwarding::until_linked(&cluster.brokers);
        let mut client = cluster.brokers[2].connect();
        for room in ROOMS {
            let partition = if with_partition { room } else { "Default" };
            client.push_to(&format!("{queue}-{room}"), partition, json!(room));
        }
        for (client, room) in waiting.iter_mut().zip(ROOMS) {
            assert_eq!(payloads(&client.popped()), [json!(room)]);
        }
    }
}
