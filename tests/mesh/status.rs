//! How the mesh stands, as operators read it, and what they are told at boot.

use serde_json::json;

use crate::{
    SECRET,
    cluster::{Cluster, Seat, free_port, start},
    common::Broker,
    members, stats, until_stats,
};

#[test]
fn a_broker_without_peers_binds_nothing_and_says_so() {
    let broker = Broker::start(&[]);
    for path in ["/internal/api/shared-state/stats", "/internal/api/inter-instance/stats"] {
        let expected = json!({
            "enabled": false, "reason": "no_peers", "maintenance_mode": false, "pop_maintenance_mode": false,
        });
        assert_eq!(broker.connect().get(path).json(), expected);
    }
    assert_eq!(broker.counter("queen_mesh_members"), 1);
    assert!(!broker.log().contains("mesh: "), "{}", broker.log());
    assert_eq!(members(&broker).len(), 1);
}

#[test]
fn brokers_list_each_other_with_what_they_have_said() {
    let cluster = Cluster::start(3, &[]);
    for broker in &cluster.brokers {
        // A heartbeat a second.
        let stats = until_stats(broker, "heartbeats", |stats| {
            let servers = stats["servers"].as_array().expect("servers");
            servers.iter().all(|server| server["messages_received"].as_u64() >= Some(2))
        });
        assert_eq!((&stats["enabled"], &stats["transport"]), (&json!(true), &json!("tcp-mesh")));
        assert_eq!((&stats["peer_count"], &stats["servers_alive"]), (&json!(2), &json!(2)));
        assert_eq!((&stats["servers_dead"], &stats["eph_members"]), (&json!(0), &json!(3)));
        assert_eq!((&stats["handshake_failures"], &stats["messages_dropped"]), (&json!(0), &json!(0)));
        for peer in stats["peers"].as_array().expect("peers") {
            assert_eq!((&peer["connected"], &peer["resolved_ip"]), (&json!(true), &json!("127.0.0.1")));
            assert!(peer["server_id"].as_str().expect("its id").starts_with("queen-"));
        }
    }
}

#[test]
fn who_stops_leaves_and_who_dies_is_missed_and_both_come_back() {
    let mut cluster = Cluster::start(3, &[("QUEEN_SYNC_HEARTBEAT_MS", "50"), ("QUEEN_EPHEMERAL_MEMBER_TTL_MS", "500")]);
    let left = |brokers: &[Broker], ids: &[&str]| {
        for broker in brokers {
            crate::eventually("the members", || (members(broker) == ids).then_some(()));
        }
    };
    let stopped = cluster.brokers[2].sigterm();
    assert!(stopped.success(), "{stopped}");
    left(&cluster.brokers[..2], &["queen-1", "queen-2"]);
    cluster.brokers[2].start_again();
    left(&cluster.brokers, &["queen-1", "queen-2", "queen-3"]);
    cluster.brokers[2].kill9();
    left(&cluster.brokers[..2], &["queen-1", "queen-2"]);
    cluster.brokers[2].start_again();
    left(&cluster.brokers, &["queen-1", "queen-2", "queen-3"]);
    let received = "queen_mesh_frames_received_total{server_id=\"queen-3\",type=\"leaving\"}";
    assert_eq!(cluster.brokers[0].counter(received), 1, "it has said so");
}

#[test]
fn two_brokers_with_one_id_are_told_so_and_the_second_is_no_member() {
    let ports = [free_port(), free_port(), free_port()];
    let secret = [("QUEEN_SYNC_SECRET", SECRET)];
    let others = |index: usize| ports.iter().copied().filter(|&port| port != ports[index]).collect::<Vec<_>>();
    let one = start(&Seat { id: "one", port: ports[0], peers: &others(0) }, &secret);
    let first = start(&Seat { id: "twice", port: ports[1], peers: &others(1) }, &secret);
    crate::eventually("two members", || (members(&one) == ["one", "twice"]).then_some(()));
    let second = start(&Seat { id: "twice", port: ports[2], peers: &others(2) }, &secret);
    for broker in [&one, &first, &second] {
        crate::eventually("the complaint", || broker.log().contains("QUEEN_SERVER_ID").then_some(()));
    }
    until_stats(&one, "a refusal", |stats| stats["handshake_failures_by_reason"]["same_id"].as_u64() >= Some(1));
    assert_eq!(members(&one), ["one", "twice"]);
    let epoch = |broker: &Broker| broker.connect().get("/status").json()["bootEpoch"].clone();
    let status = one.connect().get("/status").json();
    assert_eq!(status["mesh"]["members"][1]["epoch"], epoch(&first), "the first one is the member");
}

#[test]
fn two_brokers_with_one_id_and_no_secret_are_told_so_and_so_is_the_third() {
    let ports = [free_port(), free_port(), free_port()];
    let others = |index: usize| ports.iter().copied().filter(|&port| port != ports[index]).collect::<Vec<_>>();
    let brokers: [Broker; 3] = std::array::from_fn(|index| {
        let id = if index == 0 { "one" } else { "twice" };
        start(&Seat { id, port: ports[index], peers: &others(index) }, &[])
    });
    for broker in &brokers {
        crate::eventually("the complaint", || broker.log().contains("QUEEN_SERVER_ID").then_some(()));
    }
    crate::until_failures(&brokers[0], "same_id", 1);
}

#[test]
fn a_broker_among_its_own_peers_is_no_trouble_without_a_secret_either() {
    let port = free_port();
    let broker = start(&Seat { id: "me", port, peers: &[port] }, &[]);
    crate::until_failures(&broker, "same_id", 1);
    assert!(!broker.log().contains("ERROR"), "{}", broker.log());
}

#[test]
fn a_broker_among_its_own_peers_is_no_trouble() {
    let port = free_port();
    let broker = start(&Seat { id: "me", port, peers: &[port] }, &[("QUEEN_SYNC_SECRET", SECRET)]);
    crate::eventually("an end of starting", || {
        (broker.connect().get("/status").json()["mesh"]["starting"] == false).then_some(())
    });
    assert_eq!(members(&broker), ["me"]);
    assert!(!broker.log().contains("ERROR"), "{}", broker.log());
}

#[test]
fn without_a_secret_it_says_loudly_that_nobody_proves_anything() {
    let cluster = Cluster::start_apart(2, &[]);
    for broker in &cluster.brokers {
        until_stats(broker, "the peer", |stats| stats["servers_alive"] == 1 && stats["authenticated"] == false);
        assert!(broker.log().contains("WITHOUT QUEEN_SYNC_SECRET"), "{}", broker.log());
        assert_eq!(members(broker).len(), 1, "each serves its own alone");
    }
}

#[test]
fn the_secret_is_nowhere_to_be_read() {
    let cluster = Cluster::start(2, &[("LOG_LEVEL", "debug")]);
    for broker in &cluster.brokers {
        let mut client = broker.connect();
        let pages = ["/status", "/metrics", "/metrics/prometheus", "/internal/api/shared-state/stats"];
        assert!(pages.iter().all(|page| !client.get(page).text().contains(SECRET)));
        assert!(!broker.log().contains(SECRET));
    }
}

#[test]
fn a_mesh_port_that_is_taken_stops_the_boot_and_names_the_setting() {
    let holder = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = holder.local_addr().expect("its address").port().to_string();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_queen"))
        .env_clear()
        .envs([("PORT", "0"), ("QUEEN_BIND_ADDR", "127.0.0.1"), ("QUEEN_MESH_PEERS", "10.255.0.1")])
        .envs([("QUEEN_MESH_PORT", &*port), ("QUEEN_MESH_BIND_ADDR", "127.0.0.1")])
        .env("QUEEN_DATA_DIR", tempfile::tempdir().expect("a directory").path())
        .output()
        .expect("the broker starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("QUEEN_MESH_PORT") && said.contains(&port), "{said}");
}

#[test]
fn statistics_are_for_operators() {
    let broker = Broker::start(&[("JWT_ENABLED", "true"), ("JWT_SECRET", crate::common::SECRET)]);
    for path in ["/internal/api/shared-state/stats", "/api/v1/system/shared-state", "/api/v1/system/maintenance"] {
        assert_eq!(broker.connect().get(path).status, 401, "{path}");
    }
    assert!(!stats(&Broker::start(&[])).is_null());
}
