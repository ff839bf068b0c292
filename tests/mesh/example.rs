//! The README's example: six rooms on three nodes, as its curl lines have it.

use std::process::Command;

use serde_json::{Value, json};

use crate::{
    cluster::database,
    common::Broker,
    forwarding::{ROOMS, three},
};

/// What curl prints.
fn curl(arguments: &[&str]) -> Value {
    let output = Command::new("curl").args(["-sS", "-m", "60"]).args(arguments).output().expect("curl runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn rooms(broker: &Broker) -> Vec<String> {
    let depth = curl(&[&format!("{}/api/v1/ephemeral/queues/presence/depth", broker.url())]);
    let rows = depth["partitions"].as_array().into_iter().flatten();
    let mut rooms: Vec<_> = rows.map(|row| row["partition"].as_str().expect("a name").to_owned()).collect();
    rooms.sort();
    rooms
}

#[test]
fn six_rooms_are_on_the_nodes_that_the_readme_shows_and_every_node_leads_to_them() {
    for database in [None, Some(database())] {
        let settings: Vec<_> = database.iter().map(|url| ("DATABASE_URL", &**url)).collect();
        let cluster = three(&settings);
        let [first, second, third] = [0, 1, 2].map(|index| &cluster.brokers[index]);
        let push = format!("{}/api/v1/ephemeral/push", first.url());
        for room in ROOMS {
            let body =
                json!({ "queue": "presence", "partition": room, "messages": [{ "payload": { "user": "ada" } }] });
            assert_eq!(curl(&["-X", "POST", &push, "-d", &body.to_string()]), json!({ "pushed": 1 }));
        }
        // Who owns what follows from the names alone: the README shows these three lines.
        assert_eq!(rooms(first), ["room-2", "room-3"]);
        assert_eq!(rooms(second), ["room-1", "room-6"]);
        assert_eq!(rooms(third), ["room-4", "room-5"]);
        let sum = curl(&[&format!("{}/api/v1/ephemeral/queues/presence/depth?cluster=true", second.url())]);
        assert_eq!((&sum["pending"], &sum["failed"]), (&json!(6), &json!([])));
        let pop = "api/v1/ephemeral/pop?queue=presence&partition=room-1&group=ui-1&wait=true&timeout=5000";
        let popped = curl(&[&format!("{}/{pop}", third.url())]);
        assert_eq!(popped["messages"][0]["payload"], json!({ "user": "ada" }));
        let id = popped["messages"][0]["id"].as_str().expect("an id");
        let body = json!({ "queue": "presence", "group": "ui-1", "acks": [{ "id": id }] });
        let acked = curl(&["-X", "POST", &format!("{}/api/v1/ephemeral/ack", first.url()), "-d", &body.to_string()]);
        assert_eq!(acked, json!({ "results": [{ "id": id, "outcome": "acked" }] }));
    }
}
