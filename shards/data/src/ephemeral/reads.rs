//! The two reads: the listing of queues and the depth of one. Gauges, kept in memory; they touch no store.

use std::{borrow::Cow, collections::BTreeMap, rc::Rc};

use queen_ephemeral::{Policy, QueueRow};
use queen_fabric::{ShardId, rt};
use queen_wire::{
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
struct Selection {
    limit: usize,
    /// Names up to and including this one are left out.
    after: Option<String>,
}

impl Shard {
    pub(crate) fn queues(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let selection = Selection::parse(call.request.query)?;
        let (promise, promised) = promise();
        let (shard, tenant) = (Rc::clone(self), call.tenant);
        rt::spawn_local(async move {
            let mut listing = Listing::new(selection);
            let reply = match shard.collect(tenant, &mut listing).await {
                Ok(()) => listing.render(),
                Err(error) => error.into(),
            };
            promise.keep(reply);
        })
        .detach();
        Ok(call.later(Operation::Promised(promised)))
    }

    /// Reads every shard's queues, piece by piece, so that no other request waits for the listing.
    async fn collect(&self, tenant: queen_ephemeral::TenantId, listing: &mut Listing) -> Result<(), ApiError> {
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
        let owner = self.owner(ask.key.tenant, &ask.key.queue);
        if owner != self.id() {
            return Ok(call.later(Operation::Asked(self.ask(owner, Ask::Depth(Box::new(ask)))?)));
        }
        out.reply(&call.frame, &self.depth_reply(&ask));
        Ok(Handled::Done)
    }

    /// The depth of a queue of this shard.
    pub(crate) fn depth_reply(&self, ask: &DepthAsk) -> Reply {
        let key = &ask.key;
        let Some(depth) = self.engine.borrow().depth(key.tenant, &key.queue, ask.group.as_deref()) else {
            let message = format!("No ephemeral queue {} on this node", key.queue);
            return ApiError::new(Code::EphemeralQueueNotFound, message).into();
        };
        let mut out = Vec::with_capacity(256 + 64 * depth.partitions.len());
        out.extend_from_slice(b"{\"queue\":");
        append_json_string(&mut out, &key.queue);
        out.extend_from_slice(b",\"group\":");
        match ask.group.as_deref() {
            Some(group) => append_json_string(&mut out, group),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"tier\":");
        append_json_string(&mut out, tier(depth.declared));
        field(&mut out, "pending", depth.pending);
        field(&mut out, "partitionsPending", depth.partitions_pending);
        field(&mut out, "bytes", depth.bytes);
        out.extend_from_slice(b",\"partitions\":[");
        for (index, row) in depth.partitions.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"{\"partition\":" } else { b",{\"partition\":" });
            append_json_string(&mut out, &row.partition);
            field(&mut out, "pending", row.pending);
            field(&mut out, "bytes", row.bytes);
            out.push(b'}');
        }
        out.extend_from_slice(b"],\"groups\":[");
        for (index, row) in depth.groups.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"{\"group\":" } else { b",{\"group\":" });
            append_json_string(&mut out, &row.group);
            field(&mut out, "pending", row.pending);
            field(&mut out, "skipped", row.skipped);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        Reply::json(200, out)
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
struct Listing {
    selection: Selection,
    rows: BTreeMap<String, Vec<u8>>,
    bytes: u64,
}

impl Listing {
    fn new(selection: Selection) -> Self {
        Self { selection, rows: BTreeMap::new(), bytes: 0 }
    }

    fn add(&mut self, piece: Piece) {
        for (queue, payload_bytes, row) in piece.rows {
            self.bytes += payload_bytes;
            if self.selection.after.as_ref().is_some_and(|after| queue <= *after) {
                continue;
            }
            self.rows.insert(queue, row);
            if self.rows.len() > self.selection.limit {
                self.rows.pop_last();
            }
        }
    }

    fn render(&self) -> Reply {
        let mut out = Vec::with_capacity(64 + self.rows.values().map(|row| row.len() + 1).sum::<usize>());
        out.extend_from_slice(b"{\"queues\":[");
        for (index, row) in self.rows.values().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(row);
        }
        out.push(b']');
        field(&mut out, "count", self.rows.len() as u64);
        field(&mut out, "cellBytes", self.bytes);
        out.push(b'}');
        Reply::json(200, out)
    }
}

/// Appends one row of the listing.
pub(crate) fn render_row(row: &QueueRow<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"queue\":");
    append_json_string(out, row.queue);
    out.extend_from_slice(b",\"tier\":");
    append_json_string(out, tier(row.declared));
    field(out, "depth", row.depth);
    field(out, "bytes", row.bytes);
    field(out, "partitions", row.partitions);
    field(out, "groups", row.groups);
    out.extend_from_slice(b",\"drops\":{\"bounds\":");
    append_u64(out, row.drops.bounds);
    field(out, "ttl", row.drops.ttl);
    field(out, "retry", row.drops.retry);
    let options = &row.limits;
    out.extend_from_slice(b"},\"options\":{\"maxBytes\":");
    append_u64(out, options.max_bytes);
    field(out, "maxLength", options.max_length);
    out.extend_from_slice(match options.policy {
        Policy::Reject => b",\"policy\":\"reject\"".as_slice(),
        Policy::DropOldest => b",\"policy\":\"dropOldest\"".as_slice(),
    });
    field(out, "ttlSeconds", options.ttl_ms.unwrap_or(0) / 1000);
    field(out, "leaseSeconds", options.lease_ms / 1000);
    field(out, "retryLimit", u64::from(options.retry_limit));
    let (ms, count) = options.window.map_or((0, 0), |window| (window.ms, u64::from(window.count)));
    out.extend_from_slice(b",\"windowBuffer\":{\"ms\":");
    append_u64(out, ms);
    field(out, "count", count);
    out.extend_from_slice(b"}}}");
}

fn tier(declared: bool) -> &'static str {
    if declared { "declared" } else { "implicit" }
}

/// Appends `,"name":value`.
fn field(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    append_u64(out, value);
}
