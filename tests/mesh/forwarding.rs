//! Whichever node a client talks to, it is served as if there were one.

use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    common::{Broker, Connection, outcomes, payloads, unique},
    eventually, members,
};

pub const ROOMS: [&str; 6] = ["room-1", "room-2", "room-3", "room-4", "room-5", "room-6"];

/// The partitions of a queue that a node holds.
pub fn held(broker: &Broker, queue: &str) -> Vec<String> {
    let depth = broker.connect().get(&format!("/api/v1/ephemeral/queues/{queue}/depth"));
    if depth.status == 404 {
        return Vec::new();
    }
    let depth = depth.json();
    let partitions = depth["partitions"].as_array().expect("partitions").iter();
    let mut names: Vec<_> = partitions.map(|row| row["partition"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

/// Three nodes whose links are there, whichever shard of theirs is asked.
pub fn three(settings: &[(&str, &str)]) -> Cluster {
    let cluster = Cluster::start(3, settings);
    until_linked(&cluster.brokers);
    cluster
}

/// Waits until every node can ask every other, from each of its shards.
pub fn until_linked(brokers: &[Broker]) {
    for broker in brokers {
        for _ in 0..8 {
            let mut client = broker.connect();
            for room in ROOMS {
                let push = || {
                    let body = json!({ "queue": "warm-up", "partition": room, "messages": [{ "payload": 1 }] });
                    client.post("/api/v1/ephemeral/push", body.to_string()).status == 201
                };
                let mut push = push;
                eventually("links", || push().then_some(()));
            }
        }
    }
}

#[test]
fn a_partition_has_one_owner_and_every_node_leads_to_it() {
    let cluster = three(&[]);
    let mut first = cluster.brokers[0].connect();
    // The rooms of one queue in some hundreds are all one node's.
    let queue = eventually("a queue whose rooms are not all one node's", || {
        let queue = unique("presence");
        for room in ROOMS {
            first.push_to(&queue, room, json!(room));
        }
        let held: Vec<_> = cluster.brokers.iter().map(|broker| held(broker, &queue)).collect();
        let mut all: Vec<_> = held.iter().flatten().cloned().collect();
        all.sort();
        assert_eq!(all, ROOMS, "each on one node: {held:?}");
        (held.iter().filter(|rooms| !rooms.is_empty()).count() > 1).then_some(queue)
    });
    // From each node, in turn.
    for (number, room) in ROOMS.into_iter().enumerate() {
        let mut client = cluster.brokers[number % 3].connect();
        let popped = client.pop(&format!("queue={queue}&partition={room}&group=g"));
        assert_eq!(payloads(&popped), [json!(room)]);
        let mut other = cluster.brokers[(number + 1) % 3].connect();
        assert!(other.pop(&format!("queue={queue}&partition={room}&group=g")).is_empty(), "it is leased");
        assert_eq!(other.ack(&queue, Some("g"), &[&popped[0].id], "retry"), ["redelivered"]);
        let again = client.pop(&format!("queue={queue}&partition={room}&group=g&autoAck=true"));
        assert_eq!((again[0].attempts, &again[0].payload), (2, &json!(room)));
    }
    assert!(cluster.brokers[0].counter("queen_ephemeral_forwarded_total") > 0);
}

#[test]
fn a_pop_waits_at_the_owner_and_a_client_that_goes_takes_nothing_with_it() {
    let cluster = three(&[]);
    let queue = unique("waits");
    for room in ROOMS {
        for broker in &cluster.brokers {
            let mut waiting = broker.connect();
            waiting.send_pop(&format!("queue={queue}&partition={room}&wait=true&timeout=60000&autoAck=true"));
            let parked = || cluster.brokers.iter().map(Broker::parked).sum::<u64>();
            eventually("a pop that waits", || (parked() == 1).then_some(()));
            drop(waiting);
            eventually("its end", || (parked() == 0).then_some(()));
            let mut waiting = broker.connect();
            waiting.send_pop(&format!("queue={queue}&partition={room}&wait=true&timeout=60000&autoAck=true"));
            eventually("a pop that waits", || (parked() == 1).then_some(()));
            cluster.brokers[0].connect().push_to(&queue, room, json!(room));
            assert_eq!(payloads(&waiting.popped()), [json!(room)]);
        }
    }
}

#[test]
fn acks_of_one_call_go_to_the_owners_of_their_partitions_and_come_back_in_order() {
    let cluster = three(&[]);
    let queue = unique("acked");
    let mut client = cluster.brokers[1].connect();
    let mut ids = Vec::new();
    for room in ROOMS {
        client.push_to(&queue, room, json!(room));
        ids.push(client.pop(&format!("queue={queue}&partition={room}&group=g"))[0].id.clone());
    }
    let epoch = "e:00000000000000ff:";
    let acks: Vec<Value> = ids
        .iter()
        .map(|id| json!({ "id": id }))
        .chain([json!({ "id": "nonsense" }), json!({ "id": format!("{epoch}room-1:0") })])
        .collect();
    let body = json!({ "queue": queue, "group": "g", "acks": acks }).to_string();
    let answer = cluster.brokers[2].connect().post("/api/v1/ephemeral/ack", body);
    let old = format!("{epoch}room-1:0");
    let sent: Vec<_> = ids.iter().map(|id| &**id).chain(["nonsense", &old]).collect();
    let words = outcomes(&answer.json(), &sent);
    assert_eq!(words[..6], ["acked"; 6]);
    assert_eq!(words[6..], ["unknown", "stale"]);
}

#[test]
fn a_request_through_one_node_is_replied_to_through_another() {
    let cluster = three(&[]);
    for chosen in [false, true] {
        for number in 0..6 {
            let queue = unique("rpc");
            let inbox = format!("_inbox.{}", unique("chosen"));
            let mut worker = cluster.brokers[number % 3].connect();
            worker.send_pop(&format!("queue={queue}&group=workers&wait=true&timeout=60000&autoAck=true"));
            let mut requester = cluster.brokers[(number + 1) % 3].connect();
            let mut body = json!({ "queue": queue, "payload": { "n": 7 }, "timeout": 60_000 });
            if chosen {
                body["replyTo"] = json!(inbox);
            }
            requester.send(crate::common::request(
                "POST",
                "/api/v1/ephemeral/request",
                &[],
                body.to_string().as_bytes(),
            ));
            let job = worker.response().json();
            let reply_to = job["messages"][0]["replyTo"].as_str().expect("an inbox").to_owned();
            assert!(!chosen || reply_to == inbox);
            let mut replier = cluster.brokers[(number + 2) % 3].connect();
            replier.push(&reply_to, json!({ "squared": 49 }));
            assert_eq!(requester.response().json(), json!({ "reply": { "squared": 49 } }));
        }
    }
}

#[test]
fn the_parts_of_an_exchange_go_where_they_belong() {
    let cluster = three(&[]);
    let queue = unique("exchanged");
    for (number, room) in ROOMS.into_iter().enumerate() {
        let body = json!({
            "pushes": [{ "queue": queue, "partition": room, "messages": [{ "payload": room }] }],
            "pop": { "queue": queue, "partition": room, "autoAck": true, "wait": true, "timeout": 60_000 },
        });
        let answer = cluster.brokers[number % 3].connect().post("/api/v1/ephemeral/exchange", body.to_string()).json();
        assert_eq!(answer["pushes"], json!([{ "status": 201, "pushed": 1 }]), "{answer}");
        assert_eq!(answer["messages"][0]["payload"], room, "{answer}");
    }
}

#[test]
fn a_pop_without_a_partition_is_served_what_the_node_owns_or_else_where_the_queue_is_placed() {
    let cluster = three(&[]);
    let queue = unique("anywhere");
    // Placed by `Default`: found from every node.
    for broker in &cluster.brokers {
        broker.connect().push(&queue, json!("default"));
    }
    for broker in &cluster.brokers {
        let mut client = broker.connect();
        assert_eq!(payloads(&client.pop(&format!("queue={queue}&autoAck=true"))), [json!("default")]);
    }
    for broker in &cluster.brokers {
        let mut waiting = broker.connect();
        waiting.send_pop(&format!("queue={queue}&wait=true&timeout=60000&autoAck=true"));
        let parked = || cluster.brokers.iter().map(Broker::parked).sum::<u64>();
        eventually("a pop that waits", || (parked() == 1).then_some(()));
        cluster.brokers[0].connect().push(&queue, json!("later"));
        assert_eq!(payloads(&waiting.popped()), [json!("later")]);
    }
}

#[test]
fn tenants_keep_apart_on_their_way_to_another_node() {
    let settings = [("QUEEN_TENANCY_HEADER", "true"), ("QUEEN_EPHEMERAL_REQUIRE_GRANT", "false")];
    let cluster = three(&settings);
    let tenants = ["6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab", "7f2c1f0a-3a5e-4a8c-9d2e-0123456789ab"];
    let queue = unique("shared-name");
    let ask = |client: &mut Connection, tenant: &str, method: &str, target: &str, body: &str| {
        client.request_with(method, target, &[("x-queen-tenant", tenant)], body.as_bytes())
    };
    for room in ROOMS {
        for tenant in tenants {
            let body = json!({ "queue": queue, "partition": room, "messages": [{ "payload": tenant }] }).to_string();
            let mut client = cluster.brokers[0].connect();
            assert_eq!(ask(&mut client, tenant, "POST", "/api/v1/ephemeral/push", &body).status, 201);
        }
    }
    for room in ROOMS {
        for tenant in tenants {
            let target = format!("/api/v1/ephemeral/pop?queue={queue}&partition={room}&batch=10&autoAck=true");
            let popped = ask(&mut cluster.brokers[1].connect(), tenant, "GET", &target, "").json();
            let found: Vec<_> =
                popped["messages"].as_array().expect("messages").iter().map(|m| &m["payload"]).collect();
            assert_eq!(found, [&json!(tenant)]);
        }
    }
}

#[test]
fn an_owner_that_dies_is_missed_and_its_partitions_begin_again_elsewhere() {
    let settings = [("QUEEN_SYNC_HEARTBEAT_MS", "50"), ("QUEEN_EPHEMERAL_MEMBER_TTL_MS", "1000")];
    let mut cluster = three(&settings);
    let queue = unique("orphaned");
    let mut client = cluster.brokers[0].connect();
    for room in ROOMS {
        client.push_to(&queue, room, json!(room));
    }
    let lost = held(&cluster.brokers[2], &queue);
    cluster.brokers[2].kill9();
    // Never a hang: a refusal that says to try again, or served.
    for room in &lost {
        eventually("the new owner", || {
            let body = json!({ "queue": queue, "partition": room, "messages": [{ "payload": "new" }] });
            let answer = client.post("/api/v1/ephemeral/push", body.to_string());
            if answer.status == 201 {
                return Some(());
            }
            let (status, code) = answer.failure();
            assert_eq!(status, 503);
            assert!(["owner_moved", "ephemeral_forward_failed"].contains(&&*code), "{code}");
            None
        });
        let popped = client.pop(&format!("queue={queue}&partition={room}&batch=10&autoAck=true"));
        assert_eq!(payloads(&popped), [json!("new")], "what the dead one held is lost");
    }
    for room in ROOMS.iter().filter(|room| !lost.iter().any(|lost| lost == *room)) {
        let popped = client.pop(&format!("queue={queue}&partition={room}&batch=10&autoAck=true"));
        assert_eq!(payloads(&popped), [json!(room)], "nothing else is affected");
    }
    // It may own none of the rooms, and then nothing above waited until it was missed.
    for broker in &cluster.brokers[..2] {
        eventually("the members", || (members(broker) == ["queen-1", "queen-2"]).then_some(()));
    }
}

#[test]
fn a_stranger_gets_no_peer_link() {
    let cluster = three(&[]);
    let mut client = cluster.brokers[0].connect();
    client.send("GET /internal/peer HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: queen-peer/1\r\n\r\n");
    assert_eq!(client.response_head().status, 101);
    client.send(b"\0\0\0\x05\x10anything else");
    assert!(client.is_closed_by_peer());
    // Without the word for it, it is a path that does not exist.
    assert_eq!(cluster.brokers[0].connect().get("/internal/peer").status, 404);
    let alone = Broker::start(&[]);
    let mut client = alone.connect();
    client.send("GET /internal/peer HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: queen-peer/1\r\n\r\n");
    assert_eq!(client.response().status, 404, "a node that is alone has no peers");
}
