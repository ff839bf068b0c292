//! Listings and depths over all members: each node says what it holds, and the one that was asked adds it up.
//!
//! A member that does not answer is named under `failed`, with why; what it holds is not in the sums.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use queen_ephemeral::TenantId;
use queen_fabric::rt;
use queen_wire::{
    peer::{Answer, Ask, DepthShare, QUEUES_MAX, QueueShare},
    response::append_json_string,
};

use super::everybody::{Failed, append_failed, some_failed};
use crate::{
    connection::Operation,
    dispatch::{Call, Handled},
    ephemeral::reads::{Listing, Selection, field, render_depth, render_row},
    error::{ApiError, Code},
    protocol::{self, DepthAsk},
    reply::{Reply, promise},
    shard::Shard,
};

impl Shard {
    /// The listing over all members.
    pub(crate) fn queues_of_all(self: &Rc<Self>, call: &Call<'_>, selection: Selection) -> Result<Handled, ApiError> {
        if selection.limit > QUEUES_MAX && selection.limit < usize::MAX {
            let message = format!("limit is {}; over all nodes it is at most {QUEUES_MAX}", selection.limit);
            return Err(ApiError::new(Code::EphemeralBadRequest, message));
        }
        let selection = Selection { limit: selection.limit.min(QUEUES_MAX), ..selection };
        let (promise, promised) = promise();
        let (shard, tenant) = (Rc::clone(self), call.tenant);
        rt::spawn_local(async move {
            promise.keep(shard.add_up_queues(tenant, selection).await.unwrap_or_else(Reply::from));
        })
        .detach();
        Ok(call.later(Operation::Promised(promised)))
    }

    async fn add_up_queues(&self, tenant: TenantId, selection: Selection) -> Result<Reply, ApiError> {
        let limit = selection.limit;
        let ask = Ask::Queues { after: selection.after.clone(), limit: limit as u32 };
        let mine = self.list_here(tenant, selection).await?;
        let (mut bytes, mut is_more) = (mine.bytes, mine.is_more);
        let mut rows: BTreeMap<String, QueueShare> = BTreeMap::new();
        let mut add = |queues: Vec<QueueShare>| {
            for share in queues {
                match rows.get_mut(&share.queue) {
                    Some(sum) => add_queue(sum, &share),
                    None => drop(rows.insert(share.queue.clone(), share)),
                }
            }
        };
        add(mine.rows.into_values().collect());
        let (mut nodes, mut failed) = (vec![Arc::from(self.node_name())], Vec::new());
        for (node, answer) in self.ask_everybody(tenant, ask).await {
            match answer {
                Ok(Answer::Queues { bytes: there, queues, more }) => {
                    bytes += there;
                    is_more |= more;
                    add(queues);
                    nodes.push(node);
                }
                Ok(_) => failed.push(Failed::new(&node, ApiError::unsupported())),
                Err(error) => failed.push(Failed::new(&node, error)),
            }
        }
        is_more |= rows.len() > limit;
        let mut out = b"{\"queues\":[".to_vec();
        for (index, row) in rows.values().take(limit).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            render_row(row, &mut out);
        }
        out.push(b']');
        field(&mut out, "count", rows.len().min(limit) as u64);
        field(&mut out, "cellBytes", bytes);
        out.extend_from_slice(format!(",\"more\":{is_more}").as_bytes());
        append_nodes(&mut out, &nodes);
        append_failed(&mut out, &failed);
        out.push(b'}');
        Ok(Reply::json(200, out))
    }

    /// The first queues of this node's share, behind the name that was given.
    pub(super) async fn list_here(&self, tenant: TenantId, selection: Selection) -> Result<Listing, ApiError> {
        let mut listing = Listing::new(selection);
        self.collect(tenant, &mut listing).await?;
        Ok(listing)
    }

    /// The depth of a queue over all members.
    pub(crate) fn depth_of_all(self: &Rc<Self>, call: &Call<'_>, ask: DepthAsk) -> Result<Handled, ApiError> {
        let owner = self.owner(ask.key.tenant, &ask.key.queue);
        let asked = protocol::Ask::DepthShare(Box::new(DepthAsk { key: ask.key.clone(), group: ask.group.clone() }));
        let mine = self.ask(owner, asked)?;
        let (promise, promised) = promise();
        let shard = Rc::clone(self);
        rt::spawn_local(async move {
            let mine = match mine.await.answer {
                protocol::Answer::DepthShare(share) => *share,
                other => unreachable!("asked for a share of a depth, got {other:?}"),
            };
            promise.keep(shard.add_up_depth(&ask, mine).await.unwrap_or_else(Reply::from));
        })
        .detach();
        Ok(call.later(Operation::Promised(promised)))
    }

    async fn add_up_depth(&self, ask: &DepthAsk, mine: Option<DepthShare>) -> Result<Reply, ApiError> {
        let key = &ask.key;
        let everybody = Ask::Depth { queue: key.queue.clone(), group: ask.group.clone() };
        let (mut sum, mut nodes, mut failed) = (Sum::default(), Vec::new(), Vec::new());
        let mut add = |node: Arc<str>, share: Option<DepthShare>| {
            if let Some(share) = share {
                sum.add(share);
            }
            nodes.push(node);
        };
        add(Arc::from(self.node_name()), mine);
        for (node, answer) in self.ask_everybody(key.tenant, everybody).await {
            match answer {
                Ok(Answer::Depth(share)) => add(node, share),
                Ok(_) => failed.push(Failed::new(&node, ApiError::unsupported())),
                Err(error) => failed.push(Failed::new(&node, error)),
            }
        }
        let Some(share) = sum.share() else {
            return Err(if failed.is_empty() {
                let message = format!("No ephemeral queue {} on any node", key.queue);
                ApiError::new(Code::EphemeralQueueNotFound, message)
            } else {
                some_failed(&format!("Every node was asked for queue {}", key.queue), &failed)
            });
        };
        let mut out = render_depth(ask, &share, None);
        out.pop();
        append_nodes(&mut out, &nodes);
        append_failed(&mut out, &failed);
        out.push(b'}');
        Ok(Reply::json(200, out))
    }

    fn node_name(&self) -> String {
        self.mesh.members().as_ref().map_or_else(String::new, |members| members.me.to_string())
    }
}

/// Shares of one queue's depth, added up.
#[derive(Default)]
struct Sum {
    total: Option<DepthShare>,
    partitions: BTreeMap<String, (u64, u64)>,
    groups: BTreeMap<String, (u64, u64)>,
}

impl Sum {
    fn add(&mut self, share: DepthShare) {
        let DepthShare { is_declared, pending, partitions_pending, bytes, partitions, groups } = share;
        let total = self.total.get_or_insert(DepthShare {
            is_declared: false,
            pending: 0,
            partitions_pending: 0,
            bytes: 0,
            partitions: Vec::new(),
            groups: Vec::new(),
        });
        total.is_declared |= is_declared;
        total.pending += pending;
        total.partitions_pending += partitions_pending;
        total.bytes += bytes;
        for (rows, sums) in [(partitions, &mut self.partitions), (groups, &mut self.groups)] {
            for (name, first, second) in rows {
                let sum = sums.entry(name).or_default();
                *sum = (sum.0 + first, sum.1 + second);
            }
        }
    }

    fn share(self) -> Option<DepthShare> {
        let rows = |sums: BTreeMap<String, (u64, u64)>| {
            sums.into_iter().map(|(name, (first, second))| (name, first, second)).collect()
        };
        Some(DepthShare { partitions: rows(self.partitions), groups: rows(self.groups), ..self.total? })
    }
}

/// Adds what another node has of a queue. Groups are mostly the same on all nodes, so the most that one has is shown; the
/// options are a declared one's, where it is declared anywhere.
fn add_queue(sum: &mut QueueShare, share: &QueueShare) {
    if share.is_declared && !sum.is_declared {
        sum.is_declared = true;
        sum.limits = share.limits;
    }
    sum.depth += share.depth;
    sum.bytes += share.bytes;
    sum.partitions += share.partitions;
    sum.groups = sum.groups.max(share.groups);
    for (sum, drops) in sum.drops.iter_mut().zip(share.drops) {
        *sum += drops;
    }
}

/// Appends `,"nodes":[…]`: those whose shares are in the sums.
fn append_nodes(out: &mut Vec<u8>, nodes: &[Arc<str>]) {
    out.extend_from_slice(b",\"nodes\":[");
    for (index, node) in nodes.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        append_json_string(out, node);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(pending: u64, partitions: &[(&str, u64)], groups: &[(&str, u64)]) -> DepthShare {
        let rows = |rows: &[(&str, u64)]| rows.iter().map(|&(name, n)| (name.to_owned(), n, 10 * n)).collect();
        DepthShare {
            is_declared: pending > 1,
            pending,
            partitions_pending: partitions.len() as u64,
            bytes: 10 * pending,
            partitions: rows(partitions),
            groups: rows(groups),
        }
    }

    #[test]
    fn shares_of_a_depth_add_up_by_partition_and_by_group() {
        let mut sum = Sum::default();
        assert!(Sum::default().share().is_none(), "nobody has it");
        sum.add(share(1, &[("b", 1)], &[("g", 1)]));
        sum.add(share(5, &[("a", 3), ("b", 2)], &[("g", 4), ("h", 5)]));
        let expected = DepthShare {
            is_declared: true,
            partitions_pending: 3,
            ..share(6, &[("a", 3), ("b", 3)], &[("g", 5), ("h", 5)])
        };
        assert_eq!(sum.share(), Some(expected));
    }
}
