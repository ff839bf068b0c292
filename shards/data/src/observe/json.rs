//! `/status` and `/metrics`: the JSON reports.

use std::fmt::Write;

use queen_wire::response::append_json_string;

use queen_fabric::{members::Member, protocol::mesh::Report};

use super::{ENGINE, Observation, process};
use crate::node::{Node, RoleLine};

/// `/status`: who runs where, and what it holds.
pub(super) fn status(node: &Node, shards: &[Observation], mesh: &Report) -> Vec<u8> {
    let mut out = String::with_capacity(1024);
    let sum = |of: fn(&Observation) -> u64| shards.iter().map(of).sum::<u64>();
    let _ = write!(
        out,
        "{{\"status\":\"ok\",\"engine\":{},\"version\":{},\"bootEpoch\":\"{:016x}\",\"uptimeSeconds\":{},\
         \"connections\":{},\"parked\":{},\"openRequests\":{},\"ephemeral\":{{\"queues\":{},\"messages\":{},\"bytes\":{},\
         \"memoryBytes\":{},\"maxBytes\":{},\"enabled\":{}}},",
        quoted(ENGINE),
        quoted(node.version),
        node.boot_epoch,
        node.boot.elapsed().as_secs(),
        sum(|shard| shard.connections),
        sum(|shard| shard.engine.parked + shard.counters.durable_parked),
        sum(|shard| shard.engine.inboxes),
        sum(|shard| shard.engine.queues),
        sum(|shard| shard.engine.messages),
        sum(|shard| shard.engine.payload_bytes),
        sum(|shard| shard.engine.memory_bytes),
        node.config.ephemeral_max_bytes,
        shards.iter().all(|shard| shard.ephemeral_enabled),
    );
    append_mesh(&mut out, mesh);
    out.push_str(",\"shards\":[");
    for (index, role) in node.roles.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        append_role(&mut out, index, role, shards.get(index));
    }
    out.push_str("]}");
    out.into_bytes()
}

/// Who this node is among others.
fn append_mesh(out: &mut String, mesh: &Report) {
    let members = &mesh.members;
    let member = |member: &Member| {
        let (id, http_addr, epoch) = (quoted(&member.id), quoted(&member.http_addr), member.epoch);
        format!("{{\"id\":{id},\"httpAddr\":{http_addr},\"epoch\":\"{epoch:016x}\"}}")
    };
    let listed: Vec<_> = members.members.iter().map(member).collect();
    let _ = write!(
        out,
        "\"mesh\":{{\"serverId\":{},\"peers\":{},\"connected\":{},\"authenticated\":{},\"starting\":{},\
         \"membersVersion\":{},\"members\":[{}]}}",
        quoted(&members.me),
        mesh.peers.len(),
        mesh.peers.iter().filter(|peer| peer.is_connected).count(),
        mesh.has_secret,
        members.is_starting,
        members.version,
        listed.join(","),
    );
}

fn append_role(out: &mut String, index: usize, role: &RoleLine, shard: Option<&Observation>) {
    let cpu = role.cpu.map_or_else(|| "null".to_owned(), |cpu| cpu.to_string());
    let _ = write!(out, "{{\"role\":\"{}\",\"cpu\":{cpu},\"owns\":{}", role.role, quoted(&role.owns));
    if let Some(shard) = shard {
        let engine = &shard.engine;
        let _ = write!(
            out,
            ",\"shard\":{index},\"connections\":{},\"parked\":{},\"requests\":{},\"queues\":{},\"messages\":{},\
             \"bytes\":{},\"memoryBytes\":{},\"stalls\":{},\"sleeps\":{},\"foreignWakes\":{},\"creditsRefused\":{},\"membersVersion\":{}",
            shard.connections,
            engine.parked,
            shard.counters.requests,
            engine.queues,
            engine.messages,
            engine.payload_bytes,
            engine.memory_bytes,
            shard.counters.stalls,
            shard.lanes.sleeps,
            shard.lanes.wakes_sent,
            shard.lanes.peers.iter().map(|peer| peer.credits_refused).sum::<u64>(),
            shard.members_version,
        );
    }
    out.push('}');
}

/// `/metrics`: the short form that the published clients read.
pub(super) fn metrics(node: &Node, shards: &[Observation]) -> Vec<u8> {
    let uptime_s = node.boot.elapsed().as_secs_f64();
    let requests: u64 = shards.iter().map(|shard| shard.counters.requests).sum();
    let messages: u64 = shards
        .iter()
        .map(|shard| {
            let (engine, durable) = (&shard.engine, &shard.counters);
            engine.pushed + engine.popped + durable.durable_pushed + durable.durable_popped
        })
        .sum();
    // Those that wait for messages wait for no connection.
    let waiting: u64 =
        shards.iter().map(|shard| (shard.store.unanswered as u64).saturating_sub(shard.counters.durable_parked)).sum();
    let idle = u8::from(node.is_store_connected() && waiting == 0);
    let per_second = |total: u64| total as f64 / uptime_s.max(1.0);
    let rss = process::resident_bytes();
    let held: u64 = shards.iter().map(|shard| shard.engine.memory_bytes).sum();
    let (user_us, system_us) = process::cpu_us();
    format!(
        "{{\"uptime\":{uptime_s:.3},\"requests\":{{\"total\":{requests},\"rate\":{:.3}}},\
         \"messages\":{{\"total\":{messages},\"rate\":{:.3}}},\
         \"database\":{{\"poolSize\":1,\"idleConnections\":{idle},\"waitingRequests\":{waiting}}},\
         \"memory\":{{\"rss\":{rss},\"heapTotal\":{rss},\"heapUsed\":{held},\"external\":0,\"arrayBuffers\":0}},\
         \"cpu\":{{\"user\":{user_us},\"system\":{system_us}}}}}",
        per_second(requests),
        per_second(messages),
    )
    .into_bytes()
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    append_json_string(&mut out, text);
    String::from_utf8(out).expect("a JSON string of a string is text")
}
