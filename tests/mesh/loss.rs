//! Bytes that are lost in one direction.

use serde_json::json;

use crate::{
    SECRET, assert_unbothered,
    cluster::{Seat, free_port, start},
    common::Broker,
    eventually, members,
    proxy::Proxy,
    until_stats,
};

fn is_alive(broker: &Broker, id: &str, alive: bool) {
    until_stats(broker, "liveness", |stats| {
        let servers = stats["servers"].as_array().expect("servers");
        servers.iter().any(|server| server["server_id"] == id && server["alive"] == alive)
    });
}

#[test]
fn who_is_heard_no_more_is_dead_and_no_member_and_is_both_again_when_bytes_arrive() {
    let ports = [free_port(), free_port()];
    let proxy = Proxy::to(ports[1]);
    let settings = [
        ("QUEEN_SYNC_SECRET", SECRET),
        ("QUEEN_SYNC_HEARTBEAT_MS", "50"),
        ("QUEEN_SYNC_DEAD_THRESHOLD_MS", "500"),
        ("QUEEN_EPHEMERAL_MEMBER_TTL_MS", "500"),
    ];
    let mut first = start(&Seat { id: "one", port: ports[0], peers: &[proxy.port] }, &settings);
    let mut second = start(&Seat { id: "two", port: ports[1], peers: &[ports[0]] }, &settings);
    let both = |broker: &Broker| eventually("both members", || (members(broker) == ["one", "two"]).then_some(()));
    both(&first);
    both(&second);
    proxy.lose(true);
    is_alive(&second, "one", false);
    eventually("one less", || (members(&second) == ["two"]).then_some(()));
    // The other direction is well: what is lost is what the first one says.
    is_alive(&first, "two", true);
    assert_eq!(members(&first), ["one", "two"]);
    let stats = crate::stats(&first);
    assert_eq!(stats["peers"][0]["connected"], true, "nothing tells it");
    assert_unbothered(&mut first);
    assert_unbothered(&mut second);
    proxy.lose(false);
    // What was lost is missed: the next frame's MAC counts it, and the connection is made anew.
    both(&second);
    is_alive(&second, "one", true);
    crate::until_fault(&second, "mac");
    assert_eq!(crate::stats(&second)["servers_dead"], json!(0));
}
