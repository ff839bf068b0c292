//! What is done to an ephemeral queue as a whole is done on every node: declared, reset, deleted, listed.

use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, database},
    common::{Broker, payloads, unique},
    eventually,
    forwarding::{ROOMS, held, three},
    members,
};

/// Settings of a cluster on one database, and of one without.
fn stores() -> [(Option<String>, &'static str); 2] {
    [(Some(database()), "PostgreSQL"), (None, "no database")]
}

fn settings(url: &Option<String>) -> Vec<(&str, &str)> {
    url.iter().map(|url| ("DATABASE_URL", &**url)).collect()
}

/// The bound that a node goes by, if the queue is declared there.
fn declared_length(broker: &Broker, queue: &str) -> Option<u64> {
    broker
        .row(queue)
        .filter(|row| row["tier"] == "declared")
        .map(|row| row["options"]["maxLength"].as_u64().expect("it"))
}

fn delete(broker: &Broker, queue: &str) -> Value {
    broker.connect().request_with("DELETE", &format!("/api/v1/ephemeral/queue/{queue}"), &[], b"").json()
}

fn until_three(cluster: &Cluster) {
    for broker in &cluster.brokers {
        eventually("all members", || (members(broker) == ["queen-1", "queen-2", "queen-3"]).then_some(()));
    }
    crate::forwarding::until_linked(&cluster.brokers);
}

#[test]
fn a_declaration_and_its_deletion_hold_on_every_node_when_they_are_answered() {
    for (url, store) in stores() {
        let cluster = three(&settings(&url));
        // Queues of every shard, through every node.
        for number in 0..9_usize {
            let queue = unique("declared");
            cluster.brokers[number % 3].connect().configure(&queue, &json!({ "maxLength": 7 }));
            for broker in &cluster.brokers {
                assert_eq!(declared_length(broker, &queue), Some(7), "{store}");
            }
            cluster.brokers[(number + 1) % 3].connect().configure(&queue, &json!({ "maxLength": 8 }));
            for broker in &cluster.brokers {
                assert_eq!(declared_length(broker, &queue), Some(8), "{store}: the newest");
            }
            for room in ROOMS {
                cluster.brokers[0].connect().push_to(&queue, room, json!(room));
            }
            let implicit = unique("implicit");
            cluster.brokers[0].connect().push(&implicit, json!(1));
            let answer = delete(&cluster.brokers[number % 3], &implicit);
            assert_eq!(answer, json!({ "queue": implicit, "deleted": true, "declared": false }), "{store}");
            assert!(cluster.brokers.iter().all(|broker| broker.row(&implicit).is_none()), "{store}");
            let answer = delete(&cluster.brokers[(number + 2) % 3], &queue);
            assert_eq!(answer, json!({ "queue": queue, "deleted": true, "declared": true }), "{store}");
            for broker in &cluster.brokers {
                assert!(broker.row(&queue).is_none(), "{store}");
            }
        }
    }
}

#[test]
fn a_node_that_joins_later_learns_what_was_declared_and_what_was_deleted() {
    for (url, store) in stores() {
        let mut cluster = three(&settings(&url));
        let [stays, changes, goes, comes] = ["stays", "changes", "goes", "comes"].map(unique);
        for queue in [&stays, &changes, &goes] {
            cluster.brokers[2].connect().configure(queue, &json!({ "maxLength": 7 }));
        }
        assert!(cluster.brokers[2].sigterm().success());
        eventually("its going", || (members(&cluster.brokers[0]) == ["queen-1", "queen-2"]).then_some(()));
        let mut client = cluster.brokers[0].connect();
        client.configure(&changes, &json!({ "maxLength": 8 }));
        client.configure(&comes, &json!({ "maxLength": 9 }));
        assert_eq!(delete(&cluster.brokers[1], &goes)["declared"], true);
        // Those who remember the deletion start again too, before the one that does not know of it comes back.
        for index in [0, 1] {
            assert!(cluster.brokers[index].sigterm().success());
            cluster.brokers[index].start_again();
        }
        cluster.brokers[2].start_again();
        let of_it = |queue: &str| declared_length(&cluster.brokers[2], queue);
        eventually("what was declared meanwhile", || (of_it(&comes) == Some(9)).then_some(()));
        eventually("what was changed meanwhile", || (of_it(&changes) == Some(8)).then_some(()));
        eventually("what was deleted meanwhile", || of_it(&goes).is_none().then_some(()));
        assert_eq!(of_it(&stays), Some(7), "{store}");
        until_three(&cluster);
        let goes_everywhere = || cluster.brokers.iter().all(|broker| declared_length(broker, &goes).is_none());
        eventually("the deletion", || goes_everywhere().then_some(()));
        for broker in &cluster.brokers {
            assert_eq!(declared_length(broker, &goes), None, "{store}: nobody brings it back");
            assert_eq!(declared_length(broker, &stays), Some(7), "{store}");
        }
    }
}

#[test]
fn a_declaration_says_who_has_not_heard_of_it_and_is_told_when_the_node_is_back() {
    let mut cluster = three(&[("QUEEN_EPHEMERAL_MEMBER_TTL_MS", "60000")]);
    let queue = unique("half-told");
    cluster.brokers[2].kill9();
    let mut client = cluster.brokers[0].connect();
    // Until the member is forgotten it is one, and cannot be reached.
    let body = json!({ "queue": queue, "options": { "maxLength": 7 } });
    let answer = client.post("/api/v1/ephemeral/configure", body.to_string());
    assert_eq!(answer.status, 201, "{}", answer.text());
    let failed = &answer.json()["failed"];
    assert_eq!((&failed[0]["node"], &failed[0]["code"]), (&json!("queen-3"), &json!("ephemeral_forward_failed")));
    assert_eq!(declared_length(&cluster.brokers[1], &queue), Some(7));
    // A reset is not done later: it is refused, and says where it was done.
    let answer = client.post("/api/v1/ephemeral/reset", json!({ "queue": queue }).to_string());
    assert_eq!(answer.failure(), (503, "ephemeral_forward_failed".to_owned()));
    assert!(answer.text().contains("queen-3"), "{}", answer.text());
    cluster.brokers[2].start_again();
    eventually("the declaration", || declared_length(&cluster.brokers[2], &queue));
}

#[test]
fn a_reset_drops_what_every_node_holds_and_counts_it() {
    let cluster = three(&[]);
    for number in 0..6_usize {
        let queue = unique("reset");
        for room in ROOMS {
            cluster.brokers[0].connect().push_to(&queue, room, json!(room));
        }
        let answer = cluster.brokers[number % 3]
            .connect()
            .post("/api/v1/ephemeral/reset", json!({ "queue": queue }).to_string());
        assert_eq!(answer.json(), json!({ "queue": queue, "dropped": ROOMS.len() }));
        for broker in &cluster.brokers {
            assert_eq!(held(broker, &queue), [""; 0]);
        }
    }
}

#[test]
fn a_listing_is_the_answering_nodes_share_and_names_it_and_the_clusters_is_the_sum() {
    let cluster = three(&[]);
    let queue = unique("listed");
    for room in ROOMS {
        cluster.brokers[0].connect().push_to(&queue, room, json!(room));
    }
    let popped = cluster.brokers[0].connect().pop(&format!("queue={queue}&partition=room-1&group=g"));
    assert_eq!(payloads(&popped), [json!("room-1")]);
    let (mut own, mut groups) = (0, 0);
    for (index, broker) in cluster.brokers.iter().enumerate() {
        let node = format!("queen-{}", index + 1);
        let listing = broker.connect().get("/api/v1/ephemeral/queues").json();
        assert_eq!(listing["node"], *node);
        if let Some(row) = broker.row(&queue) {
            let depth = broker.connect().depth(&queue);
            assert_eq!((&depth["node"], &depth["pending"]), (&json!(node), &row["depth"]));
            own += depth["pending"].as_u64().expect("a count");
            groups += depth["groups"][0]["pending"].as_u64().unwrap_or_default();
        }
    }
    assert_eq!(own, ROOMS.len() as u64, "each message is on one node");
    let mut sums = Vec::new();
    for broker in &cluster.brokers {
        let mut depth = broker.connect().get(&format!("/api/v1/ephemeral/queues/{queue}/depth?cluster=true")).json();
        assert_eq!(depth["pending"], ROOMS.len(), "{depth}");
        let partitions: Vec<_> =
            depth["partitions"].as_array().expect("partitions").iter().map(|row| &row["partition"]).collect();
        assert_eq!(partitions, ROOMS);
        assert_eq!(depth["groups"], json!([{ "group": "g", "pending": groups, "skipped": 0 }]));
        assert_eq!(depth["failed"], json!([]));
        let mut nodes: Vec<_> = depth["nodes"]
            .as_array_mut()
            .expect("nodes")
            .iter()
            .map(|node| node.as_str().expect("a name").to_owned())
            .collect();
        nodes.sort();
        assert_eq!(nodes, ["queen-1", "queen-2", "queen-3"]);
        let listing = broker.connect().get("/api/v1/ephemeral/queues?cluster=true").json();
        let rows = listing["queues"].as_array().expect("queues");
        let row = rows.iter().find(|row| row["queue"] == *queue).expect("its row");
        assert_eq!((&row["depth"], &row["partitions"]), (&json!(ROOMS.len()), &json!(ROOMS.len())));
        sums.push((listing["queues"].clone(), listing["count"].clone(), listing["cellBytes"].clone()));
    }
    assert!(sums.iter().all(|sum| *sum == sums[0]), "the same from every node: {sums:?}");
    for broker in &cluster.brokers {
        let missing = broker.connect().get("/api/v1/ephemeral/queues/nobody-has-it/depth?cluster=true");
        assert_eq!(missing.failure(), (404, "ephemeral_queue_not_found".to_owned()));
    }
}

#[test]
fn the_clusters_listing_comes_in_pages() {
    let cluster = three(&[]);
    let prefix = unique("paged");
    let names: Vec<_> = (0..10).map(|number| format!("{prefix}-{number}")).collect();
    for name in &names {
        cluster.brokers[0].connect().push(name, json!(1));
    }
    let (mut found, mut after, mut client) = (Vec::new(), String::new(), cluster.brokers[2].connect());
    loop {
        let page = client.get(&format!("/api/v1/ephemeral/queues?cluster=true&limit=3&after={after}")).json();
        let queues: Vec<_> = page["queues"]
            .as_array()
            .expect("queues")
            .iter()
            .map(|row| row["queue"].as_str().expect("a name").to_owned())
            .collect();
        after = queues.last().expect("never an empty page before the end").clone();
        found.extend(queues);
        if page["more"] == false {
            break;
        }
    }
    found.retain(|name| name.starts_with(&prefix));
    assert_eq!(found, names);
    for (query, what) in [("cluster=perhaps", "true or false"), ("cluster=true&limit=1001", "1000")] {
        let refused = client.get(&format!("/api/v1/ephemeral/queues?{query}"));
        assert_eq!(refused.failure(), (400, "ephemeral_bad_request".to_owned()));
        assert!(refused.text().contains(what), "{}", refused.text());
    }
}

#[test]
fn a_sum_says_whose_share_is_missing() {
    let mut cluster = three(&[("QUEEN_EPHEMERAL_MEMBER_TTL_MS", "60000")]);
    let queue = unique("partly");
    for room in ROOMS {
        cluster.brokers[0].connect().push_to(&queue, room, json!(room));
    }
    let gone = held(&cluster.brokers[2], &queue).len();
    cluster.brokers[2].kill9();
    for broker in &cluster.brokers[..2] {
        let depth = broker.connect().get(&format!("/api/v1/ephemeral/queues/{queue}/depth?cluster=true")).json();
        assert_eq!(depth["pending"], ROOMS.len() - gone, "{depth}");
        assert_eq!(depth["failed"][0]["node"], "queen-3");
        let listing = broker.connect().get("/api/v1/ephemeral/queues?cluster=true").json();
        assert_eq!(listing["failed"][0]["code"], "ephemeral_forward_failed", "{listing}");
        // What nobody who answered has may be with the one that did not.
        let unknown = broker.connect().get("/api/v1/ephemeral/queues/nobody-has-it/depth?cluster=true");
        assert_eq!(unknown.failure(), (503, "ephemeral_forward_failed".to_owned()));
    }
}
