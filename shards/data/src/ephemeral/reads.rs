//! The two reads: the listing of queues and the depth of one. Gauges, kept in memory; they touch no store.

use std::{borrow::Cow, collections::BTreeMap, rc::Rc};

use queen_ephemeral::{Policy, QueueRow};
use queen_fabric::{ShardId, rt};
use queen_wire::{
    peer::{DepthShare, QueueLimits, QueueShare},
    response::{append_json_string, append_u64},
    target::Query,
};

use super::{Call, Handled};
use crate::{
    connection::{Operation, Out},
    error::{ApiError, Code},
    protocol::{Answer, Ask, DepthAsk, Piece, QueueKey, ScanAsk},
    reply::{Reply, promise},
    shard::Shard,
};

/// Which part of the listing was asked for.
pub(crate) struct Selection {
    /// At most so many.
    pub(crate) limit: usize,
    /// Names up to and including this one are left out.
    pub(crate) after: Option<String>,
}

impl Shard {
    pub(crate) fn queues(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let selection = Selection::parse(call.request.query)?;
        if is_over_all(call.request.query)? {
            return self.queues_of_all(call, selection);
        }
        let (promise, promised) = promise();
        let (shard, tenant) = (Rc::clone(self), call.tenant);
        rt::spawn_local(async move {
            let mut listing = Listing::new(selection);
            let reply = match shard.collect(tenant, &mut listing).await {
                Ok(()) => listing.render(shard.node_id()),
                Err(error) => error.into(),
            };
            promise.keep(reply);
        })
        .detach();
        Ok(call.later(Operation::Promised(promised)))
    }

    /// Reads every shard's queues, piece by piece, so that no other request waits for the listing.
    pub(crate) async fn collect(
        &self,
        tenant: queen_ephemeral::TenantId,
        listing: &mut Listing,
    ) -> Result<(), ApiError> {
        for id in 0..self.peers.shards() as ShardId {
            let mut from = Some(0);
            while let Some(slot) = from {
                let ask = ScanAsk { tenant, from: slot };
                let piece = if id == self.id() {
                    rt::yield_now().await;
                    self.scan_here(&ask)
                } else {
                    match self.ask(id, Ask::Scan(Box::new(ask)))?.await.answer {
                        Answer::Piece(piece) => *piece,
                        other => unreachable!("asked for a piece of the listing, got {other:?}"),
                    }
                };
                from = piece.next;
                listing.add(piece);
            }
        }
        Ok(())
    }

    pub(crate) fn depth(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let key = QueueKey { tenant: call.tenant, queue: call.queue()? };
        let group = Query::new(call.request.query).once("group")?.map(Cow::into_owned);
        let ask = DepthAsk { key, group };
        if is_over_all(call.request.query)? {
            return self.depth_of_all(call, ask);
        }
        let owner = self.owner(ask.key.tenant, &ask.key.queue);
        if owner != self.id() {
            return Ok(call.later(Operation::Asked(self.ask(owner, Ask::Depth(Box::new(ask)))?)));
        }
        out.reply(&call.frame, &self.depth_reply(&ask));
        Ok(Handled::Done)
    }

    /// The depth of a queue of this shard.
    pub(crate) fn depth_reply(&self, ask: &DepthAsk) -> Reply {
        match self.depth_share(ask) {
            Some(share) => Reply::json(200, render_depth(ask, &share, self.node_id())),
            None => {
                let message = format!("No ephemeral queue {} on this node", ask.key.queue);
                ApiError::new(Code::EphemeralQueueNotFound, message).into()
            }
        }
    }

    /// What this shard holds of a queue.
    pub(crate) fn depth_share(&self, ask: &DepthAsk) -> Option<DepthShare> {
        let key = &ask.key;
        let depth = self.engine.borrow().depth(key.tenant, &key.queue, ask.group.as_deref())?;
        let partitions = depth.partitions.into_iter().map(|row| (row.partition, row.pending, row.bytes));
        let groups = depth.groups.into_iter().map(|row| (row.group, row.pending, row.skipped));
        Some(DepthShare {
            is_declared: depth.declared,
            pending: depth.pending,
            partitions_pending: depth.partitions_pending,
            bytes: depth.bytes,
            partitions: partitions.collect(),
            groups: groups.collect(),
        })
    }
}

/// The depth read's body; `node` is whose share it is, on a node of several.
pub(crate) fn render_depth(ask: &DepthAsk, depth: &DepthShare, node: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + 64 * depth.partitions.len());
    out.extend_from_slice(b"{\"queue\":");
    append_json_string(&mut out, &ask.key.queue);
    out.extend_from_slice(b",\"group\":");
    match ask.group.as_deref() {
        Some(group) => append_json_string(&mut out, group),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"tier\":");
    append_json_string(&mut out, tier(depth.is_declared));
    field(&mut out, "pending", depth.pending);
    field(&mut out, "partitionsPending", depth.partitions_pending);
    field(&mut out, "bytes", depth.bytes);
    out.extend_from_slice(b",\"partitions\":[");
    for (index, (partition, pending, bytes)) in depth.partitions.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"partition\":" } else { b",{\"partition\":" });
        append_json_string(&mut out, partition);
        field(&mut out, "pending", *pending);
        field(&mut out, "bytes", *bytes);
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"groups\":[");
    for (index, (group, pending, skipped)) in depth.groups.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"group\":" } else { b",{\"group\":" });
        append_json_string(&mut out, group);
        field(&mut out, "pending", *pending);
        field(&mut out, "skipped", *skipped);
        out.push(b'}');
    }
    out.push(b']');
    append_node(&mut out, node);
    out.push(b'}');
    out
}

/// Appends `,"node":name`, where this is one of several.
fn append_node(out: &mut Vec<u8>, node: Option<&str>) {
    if let Some(node) = node {
        out.extend_from_slice(b",\"node\":");
        append_json_string(out, node);
    }
}

/// Whether `cluster=true` was asked for: the sums over all nodes.
fn is_over_all(query: Option<&str>) -> Result<bool, ApiError> {
    match Query::new(query).once("cluster")?.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(text) => {
            let message = format!("cluster is {text:?}; it takes true or false");
            Err(ApiError::new(Code::EphemeralBadRequest, message))
        }
    }
}

impl Selection {
    fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let query = Query::new(query);
        let limit = query.once("limit")?;
        let limit = match limit.as_deref() {
            None => usize::MAX,
            Some(text) => text.parse().ok().filter(|&limit| limit > 0).ok_or_else(|| {
                let message = format!("limit is {text:?}; it takes a whole number from 1 on");
                ApiError::new(Code::EphemeralBadRequest, message)
            })?,
        };
        Ok(Self { limit, after: query.once("after")?.map(Cow::into_owned) })
    }
}

/// The listing under construction: the first `limit` names behind `after`, in order.
pub(crate) struct Listing {
    selection: Selection,
    /// By name.
    pub(crate) rows: BTreeMap<String, QueueShare>,
    /// Payload bytes of all queues.
    pub(crate) bytes: u64,
    /// There are more names behind the last.
    pub(crate) is_more: bool,
}

impl Listing {
    pub(crate) fn new(selection: Selection) -> Self {
        Self { selection, rows: BTreeMap::new(), bytes: 0, is_more: false }
    }

    fn add(&mut self, piece: Piece) {
        for row in piece.rows {
            self.bytes += row.bytes;
            if self.selection.after.as_ref().is_some_and(|after| row.queue <= *after) {
                continue;
            }
            self.rows.insert(row.queue.clone(), row);
            if self.rows.len() > self.selection.limit {
                self.rows.pop_last();
                self.is_more = true;
            }
        }
    }

    fn render(&self, node: Option<&str>) -> Reply {
        let mut out = Vec::with_capacity(64 + self.rows.len() * 384);
        out.extend_from_slice(b"{\"queues\":[");
        for (index, row) in self.rows.values().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            render_row(row, &mut out);
        }
        out.push(b']');
        field(&mut out, "count", self.rows.len() as u64);
        field(&mut out, "cellBytes", self.bytes);
        append_node(&mut out, node);
        out.push(b'}');
        Reply::json(200, out)
    }
}

/// What this node holds of a queue.
pub(crate) fn share_of(row: &QueueRow<'_>) -> QueueShare {
    let limits = &row.limits;
    let (window_ms, window_count) = limits.window.map_or((0, 0), |window| (window.ms, window.count));
    QueueShare {
        queue: row.queue.to_owned(),
        is_declared: row.declared,
        depth: row.depth,
        bytes: row.bytes,
        partitions: row.partitions,
        groups: row.groups,
        drops: [row.drops.bounds, row.drops.ttl, row.drops.retry],
        limits: QueueLimits {
            max_bytes: limits.max_bytes,
            max_length: limits.max_length,
            drops_oldest: limits.policy == Policy::DropOldest,
            ttl_ms: limits.ttl_ms,
            lease_ms: limits.lease_ms,
            retry_limit: limits.retry_limit,
            window_ms,
            window_count,
        },
    }
}

/// Appends one row of the listing.
pub(crate) fn render_row(row: &QueueShare, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"queue\":");
    append_json_string(out, &row.queue);
    out.extend_from_slice(b",\"tier\":");
    append_json_string(out, tier(row.is_declared));
    field(out, "depth", row.depth);
    field(out, "bytes", row.bytes);
    field(out, "partitions", row.partitions);
    field(out, "groups", row.groups);
    let [bounds, ttl, retry] = row.drops;
    out.extend_from_slice(b",\"drops\":{\"bounds\":");
    append_u64(out, bounds);
    field(out, "ttl", ttl);
    field(out, "retry", retry);
    let limits = &row.limits;
    out.extend_from_slice(b"},\"options\":{\"maxBytes\":");
    append_u64(out, limits.max_bytes);
    field(out, "maxLength", limits.max_length);
    out.extend_from_slice(if limits.drops_oldest {
        b",\"policy\":\"dropOldest\"".as_slice()
    } else {
        b",\"policy\":\"reject\""
    });
    field(out, "ttlSeconds", limits.ttl_ms.unwrap_or(0) / 1000);
    field(out, "leaseSeconds", limits.lease_ms / 1000);
    field(out, "retryLimit", limits.retry_limit.into());
    out.extend_from_slice(b",\"windowBuffer\":{\"ms\":");
    append_u64(out, limits.window_ms);
    field(out, "count", limits.window_count.into());
    out.extend_from_slice(b"}}}");
}

fn tier(declared: bool) -> &'static str {
    if declared { "declared" } else { "implicit" }
}

/// Appends `,"name":value`.
pub(crate) fn field(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    append_u64(out, value);
}
