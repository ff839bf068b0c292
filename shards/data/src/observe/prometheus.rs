//! `/metrics/prometheus`: the text exposition format, version 0.0.4.

use std::{
    fmt::{Display, Write},
    sync::atomic::Ordering,
};

use queen_fabric::protocol::mesh::{Counts, Report};

use super::{Observation, metrics::BUCKETS_US, process};
use crate::{error::Code, node::Node};

/// The page under construction.
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// A family of one sample without labels.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A family with a sample per shard.
    fn per_shard<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        shards: &[Observation],
        of: impl Fn(&Observation) -> V,
    ) {
        self.family(name, kind, help);
        for (id, shard) in shards.iter().enumerate() {
            self.sample(name, &[("shard", &id)], of(shard));
        }
    }
}

/// The whole page.
pub(super) fn render(node: &Node, shards: &[Observation], mesh: &Report) -> String {
    let mut page = Page { text: String::with_capacity(16 * 1024) };
    process_families(&mut page, node, shards);
    edge_families(&mut page, node, shards);
    durable_families(&mut page, node, shards);
    ephemeral_families(&mut page, node, shards);
    mesh_families(&mut page, mesh);
    shard_families(&mut page, shards);
    lane_families(&mut page, shards);
    request_durations(&mut page, shards);
    page.text
}

fn process_families(page: &mut Page, node: &Node, shards: &[Observation]) {
    let sum = |of: fn(&Observation) -> u64| shards.iter().map(of).sum::<u64>();
    let requests = |names: &[&str]| -> u64 {
        let routes = shards.iter().flat_map(|shard| &shard.routes);
        routes.filter(|times| names.contains(&times.route.name())).map(|times| times.count).sum()
    };
    page.single("queen_uptime_seconds", "gauge", "Seconds since the broker started.", node.boot.elapsed().as_secs());
    page.single(
        "queen_process_resident_memory_bytes",
        "gauge",
        "Bytes of the process in memory.",
        process::resident_bytes(),
    );
    let durable_pops: &[&str] = &["durable_pop", "durable_pop_wait"];
    let verbs = [
        ("push", vec!["push", "durable_push"], sum(|shard| shard.engine.pushed + shard.counters.durable_pushed)),
        (
            "pop",
            [&["pop", "pop_wait"], durable_pops].concat(),
            sum(|shard| shard.engine.popped + shard.counters.durable_popped),
        ),
        (
            "ack",
            vec!["ack", "durable_ack", "durable_ack_batch"],
            sum(|shard| shard.engine.acked + shard.counters.durable_acked),
        ),
    ];
    for (verb, names, messages) in &verbs {
        let name = format!("queen_process_{verb}_requests_total");
        page.single(&name, "counter", "Requests answered, ephemeral and durable.", requests(names));
        let name = format!("queen_process_{verb}_messages_total");
        page.single(&name, "counter", "Messages in those requests.", messages);
    }
    page.single(
        "queen_parked_long_polls",
        "gauge",
        "Pops and fetches that wait.",
        sum(|shard| shard.engine.parked + shard.counters.durable_parked),
    );
    let samples = sum(|shard| shard.counters.lag_samples).max(1);
    page.single(
        "queen_event_loop_lag_avg_milliseconds",
        "gauge",
        "How much later than asked for a timer fires, on average since the start.",
        format_args!("{:.3}", sum(|shard| shard.counters.lag_us) as f64 / samples as f64 / 1000.0),
    );
}

/// What was refused, and what that depends on.
fn edge_families(page: &mut Page, node: &Node, shards: &[Observation]) {
    let name = "queen_refused_requests_total";
    page.family(name, "counter", "Requests answered with an error, by the code in it.");
    for code in Code::all() {
        page.sample(
            name,
            &[("code", &code.word())],
            shards.iter().map(|shard| shard.refused[code as usize]).sum::<u64>(),
        );
    }
    if let Some(tls) = &node.tls {
        page.single(
            "queen_tls_certificate_end_timestamp_seconds",
            "gauge",
            "When the certificate of the HTTP port ends, in seconds since 1970.",
            tls.ends_s(),
        );
        page.single(
            "queen_tls_handshakes_failed_total",
            "counter",
            "TLS connections that ended before their handshake did.",
            shards.iter().map(|shard| shard.counters.failed_handshakes).sum::<u64>(),
        );
    }
    if let Some(keys) = node.auth.as_ref().and_then(|auth| auth.keys.as_ref()) {
        let held = keys.current().map_or(0, |keys| keys.len());
        page.single("queen_signing_keys", "gauge", "Keys of the issuer that tokens are verified with.", held);
        let name = "queen_signing_key_fetches_total";
        page.single(name, "counter", "Fetches of those keys that have ended, well or not.", keys.fetches_done());
    }
}

fn durable_families(page: &mut Page, node: &Node, shards: &[Observation]) {
    let sum = |of: fn(&Observation) -> u64| shards.iter().map(of).sum::<u64>();
    let name = "queen_durable_messages_total";
    page.family(name, "counter", "Durable messages by what was done with them over HTTP.");
    page.sample(name, &[("verb", &"pushed")], sum(|shard| shard.counters.durable_pushed));
    page.sample(name, &[("verb", &"popped")], sum(|shard| shard.counters.durable_popped));
    page.sample(name, &[("verb", &"acked")], sum(|shard| shard.counters.durable_acked));
    page.single(
        "queen_store_connected",
        "gauge",
        "Whether the store of the durable queues can be reached.",
        u8::from(node.is_store_connected()),
    );
    for (index, (name, help)) in [
        ("queen_maintenance_mode_enabled", "Whether durable pushes are refused."),
        ("queen_pop_maintenance_mode_enabled", "Whether durable pops get nothing."),
    ]
    .into_iter()
    .enumerate()
    {
        page.single(name, "gauge", help, u8::from(shards.iter().any(|shard| shard.maintenance[index])));
    }
    page.single(
        "queen_store_requests_in_flight",
        "gauge",
        "Requests that the store role has not answered, those that wait for messages included.",
        sum(|shard| shard.store.unanswered as u64),
    );
    page.single(
        "queen_store_credits_refused_total",
        "counter",
        "Requests refused because the lane to the store had no credit left.",
        sum(|shard| shard.store.peers.iter().map(|peer| peer.credits_refused).sum()),
    );
}

fn ephemeral_families(page: &mut Page, node: &Node, shards: &[Observation]) {
    let sum = |of: fn(&Observation) -> u64| shards.iter().map(of).sum::<u64>();
    let name = "queen_ephemeral_messages_total";
    page.family(name, "counter", "Ephemeral messages by what was done with them.");
    page.sample(name, &[("verb", &"pushed")], sum(|shard| shard.engine.pushed));
    page.sample(name, &[("verb", &"popped")], sum(|shard| shard.engine.popped));
    page.sample(name, &[("verb", &"acked")], sum(|shard| shard.engine.acked));
    let name = "queen_ephemeral_dropped_total";
    page.family(name, "counter", "Ephemeral messages that were dropped, by cause.");
    page.sample(name, &[("cause", &"bounds")], sum(|shard| shard.engine.dropped.bounds));
    page.sample(name, &[("cause", &"ttl")], sum(|shard| shard.engine.dropped.ttl));
    page.sample(name, &[("cause", &"retry")], sum(|shard| shard.engine.dropped.retry));
    page.single(
        "queen_ephemeral_late_replies_total",
        "counter",
        "Messages pushed to an inbox that was not there any more.",
        sum(|shard| shard.engine.late_replies),
    );
    page.single(
        "queen_ephemeral_open_requests",
        "gauge",
        "Requests that wait for their reply.",
        sum(|shard| shard.engine.inboxes),
    );
    page.single(
        "queen_ephemeral_forwarded_total",
        "counter",
        "Requests forwarded to another node.",
        sum(|shard| shard.counters.forwarded),
    );
    page.single(
        "queen_ephemeral_wipes_total",
        "counter",
        "Partitions whose contents were dropped, as their hand-over failed.",
        node.handed.wiped.load(Ordering::Relaxed),
    );
    page.single(
        "queen_ephemeral_bytes",
        "gauge",
        "Bytes held for ephemeral queues: payloads, and the records of messages, queues, groups and leases.",
        sum(|shard| shard.engine.memory_bytes),
    );
    page.single(
        "queen_ephemeral_enabled",
        "gauge",
        "Whether ephemeral queues are served: the kill switch.",
        u8::from(shards.iter().all(|shard| shard.ephemeral_enabled)),
    );
    page.single(
        "queen_ephemeral_max_bytes",
        "gauge",
        "Bytes that the node may hold for ephemeral queues.",
        node.config.ephemeral_max_bytes,
    );
    page.single("queen_ephemeral_queues", "gauge", "Ephemeral queues.", sum(|shard| shard.engine.queues));
}

/// What is counted of other brokers; next to nothing where there are none.
fn mesh_families(page: &mut Page, mesh: &Report) {
    page.single("queen_mesh_members", "gauge", "Brokers that own partitions.", mesh.members.members.len());
    if mesh.alone.is_some() {
        return;
    }
    let peers: Vec<_> = mesh.peers.iter().map(|peer| (label(&format!("{}:{}", peer.host, peer.port)), peer)).collect();
    let name = "queen_mesh_peer_connected";
    page.family(name, "gauge", "Whether frames can be sent to a configured peer now.");
    for (peer, of) in &peers {
        page.sample(name, &[("peer", peer)], u8::from(of.is_connected));
    }
    let name = "queen_mesh_frames_sent_total";
    page.family(name, "counter", "Frames sent, by configured peer and type.");
    for (peer, of) in &peers {
        for (kind, count) in &of.sent {
            page.sample(name, &[("peer", peer), ("type", kind)], count);
        }
    }
    let name = "queen_mesh_frames_dropped_total";
    page.family(name, "counter", "Frames dropped, by configured peer: its queue was full, or it was not connected.");
    for (peer, of) in &peers {
        page.sample(name, &[("peer", peer)], of.dropped);
    }
    page.single(
        "queen_mesh_unsaid_total",
        "counter",
        "Partitions that peers were not told of, because too many waited to be told of.",
        mesh.unsaid,
    );
    let name = "queen_mesh_server_alive";
    page.family(name, "gauge", "Whether a broker that was heard is heard still.");
    for heard in &mesh.heard {
        page.sample(name, &[("server_id", &heard.server_id)], u8::from(heard.is_alive));
    }
    let name = "queen_mesh_frames_received_total";
    page.family(name, "counter", "Frames received, by sender and type.");
    for heard in &mesh.heard {
        for (kind, count) in &heard.received {
            page.sample(name, &[("server_id", &heard.server_id), ("type", kind)], count);
        }
    }
    let mut by_reason = |name: &str, help: &str, counts: &Counts| {
        page.family(name, "counter", help);
        for (reason, count) in counts {
            page.sample(name, &[("reason", reason)], count);
        }
    };
    by_reason(
        "queen_mesh_handshake_failures_total",
        "Handshakes that failed, in either direction.",
        &mesh.handshake_failures,
    );
    by_reason(
        "queen_mesh_faults_total",
        "Frames that were none, not the peer's or not understood, and connections that took nothing.",
        &mesh.faults,
    );
}

/// A text as the value of a label: what would have to be escaped there is left out.
fn label(text: &str) -> String {
    text.chars().filter(|&char| !matches!(char, '"' | '\\' | '\n')).collect()
}

fn shard_families(page: &mut Page, shards: &[Observation]) {
    page.per_shard("queen_shard_requests_total", "counter", "Requests answered.", shards, |s| s.counters.requests);
    page.per_shard("queen_shard_connections", "gauge", "Open connections.", shards, |s| s.connections);
    page.per_shard("queen_shard_accepted_total", "counter", "Connections accepted.", shards, |s| s.counters.accepted);
    page.per_shard(
        "queen_shard_refused_connections_total",
        "counter",
        "Connections turned away because the node held as many as it may.",
        shards,
        |s| s.counters.refused,
    );
    page.per_shard(
        "queen_shard_accept_errors_total",
        "counter",
        "Accepts that failed, for want of descriptors or memory.",
        shards,
        |s| s.counters.accept_errors,
    );
    page.per_shard(
        "queen_shard_malformed_requests_total",
        "counter",
        "Connections ended because their bytes are no HTTP request.",
        shards,
        |s| s.counters.malformed,
    );
    page.per_shard("queen_shard_parked_pops", "gauge", "Pops parked in this engine.", shards, |s| s.engine.parked);
    page.per_shard(
        "queen_shard_waiting_connections",
        "gauge",
        "Connections whose pop waits, here or at another shard.",
        shards,
        |s| s.waiting,
    );
    page.per_shard("queen_shard_queues", "gauge", "Queues of this slice.", shards, |s| s.engine.queues);
    page.per_shard("queen_shard_messages", "gauge", "Messages of this slice.", shards, |s| s.engine.messages);
    page.per_shard(
        "queen_shard_executor_stalls_total",
        "counter",
        "Requests that held their shard for more than 5 ms.",
        shards,
        |s| s.counters.stalls,
    );
    page.per_shard("queen_shard_executor_longest_stall_seconds", "gauge", "The longest of them.", shards, |s| {
        s.counters.longest_turn_us as f64 / 1e6
    });
}

fn lane_families(page: &mut Page, shards: &[Observation]) {
    page.per_shard("queen_shard_sleeps_total", "counter", "Times that the pump went to sleep.", shards, |s| {
        s.lanes.sleeps
    });
    page.per_shard(
        "queen_shard_foreign_wakes_total",
        "counter",
        "Wakes sent to other shards: a system call each.",
        shards,
        |s| s.lanes.wakes_sent,
    );
    let mut per_lane = |name: &str, kind: &str, help: &str, of: fn(&queen_fabric::port::PeerCounters) -> u64| {
        page.family(name, kind, help);
        for (from, shard) in shards.iter().enumerate() {
            for (to, peer) in shard.lanes.peers.iter().enumerate().filter(|&(to, _)| to != from) {
                page.sample(name, &[("shard", &from), ("to", &to)], of(peer));
            }
        }
    };
    per_lane("queen_shard_lane_depth", "gauge", "Parcels on the lane.", |peer| peer.lane_depth as u64);
    per_lane("queen_shard_lane_backlog", "gauge", "Parcels that wait for room on the lane.", |peer| {
        peer.outbox_length as u64
    });
    per_lane("queen_shard_lane_full_total", "counter", "Times that the lane had no room.", |peer| peer.full_events);
    per_lane("queen_shard_credits_refused_total", "counter", "Requests refused for want of a credit.", |peer| {
        peer.credits_refused
    });
}

fn request_durations(page: &mut Page, shards: &[Observation]) {
    let name = "queen_shard_request_duration_seconds";
    page.family(name, "histogram", "From a request's last byte to its answer; pop_wait includes the wait.");
    for (id, shard) in shards.iter().enumerate() {
        for times in &shard.routes {
            let route = times.route.name();
            let bucket = format!("{name}_bucket");
            for (&bound_us, &count) in BUCKETS_US.iter().zip(&times.at_most) {
                let bound = bound_us as f64 / 1e6;
                page.sample(&bucket, &[("shard", &id), ("route", &route), ("le", &bound)], count);
            }
            page.sample(&bucket, &[("shard", &id), ("route", &route), ("le", &"+Inf")], times.count);
            let sum_s = times.sum_us as f64 / 1e6;
            page.sample(&format!("{name}_sum"), &[("shard", &id), ("route", &route)], sum_s);
            page.sample(&format!("{name}_count"), &[("shard", &id), ("route", &route)], times.count);
        }
    }
}
