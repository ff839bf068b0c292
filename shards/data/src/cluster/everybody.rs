//! What is asked of every other member at once: resets, declarations, and each node's share for a listing over all.

use std::{
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use queen_ephemeral::TenantId;
use queen_fabric::rt::{self, within};
use queen_wire::{
    peer::{Answer, Ask, Request},
    response::append_json_string,
};

use super::{convert, link::Lost};
use crate::{
    connection::Operation,
    dispatch::{Call, Handled},
    ephemeral::reset::dropped,
    error::{ApiError, Code},
    protocol::{self, QueueKey},
    reply::promise,
    shard::Shard,
};

/// How long all of them have to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A member that did not do what all were asked to.
pub(crate) struct Failed {
    /// Its id.
    node: Arc<str>,
    why: ApiError,
}

impl Failed {
    pub(super) fn new(node: &Arc<str>, why: ApiError) -> Self {
        Self { node: Arc::clone(node), why }
    }
}

impl Shard {
    /// This node's id, where it is one of several.
    pub(crate) fn node_id(&self) -> Option<&str> {
        self.node.cluster.as_ref().map(|cluster| &*cluster.me.server_id)
    }

    /// Asks every other member the same, and gives what each has answered, in the order of their ids.
    pub(super) async fn ask_everybody(&self, tenant: TenantId, ask: Ask) -> Vec<(Arc<str>, Result<Answer, ApiError>)> {
        let members = self.mesh.members().clone();
        let Some(members) = members else { return Vec::new() };
        let others: Vec<_> = members.members.iter().filter(|member| !members.is_me(member)).collect();
        let request = Request { tenant: tenant.0, access: 0, ask };
        let sent: Vec<_> =
            others.iter().map(|member| self.links.to(member).and_then(|link| link.ask(&request))).collect();
        let until = Instant::now() + PATIENCE;
        let mut answers = Vec::with_capacity(sent.len());
        for (member, sent) in others.into_iter().zip(sent) {
            let answer = match sent {
                Err(error) if error.code == Code::EphemeralForwardFailed => {
                    Err(ApiError::forward_failed("It cannot be reached"))
                }
                Err(error) => Err(error),
                Ok(mut sent) => {
                    let left = until.saturating_duration_since(Instant::now());
                    match within(left, poll_fn(|cx| sent.poll(cx))).await {
                        Some(Ok(Answer::Refused(refusal))) => Err(convert::refused(refusal)),
                        Some(Ok(answer)) => Ok(answer),
                        Some(Err(Lost)) => Err(ApiError::forward_failed("It went before it answered")),
                        None => {
                            let silent = format!("It has not answered within {} s", PATIENCE.as_secs());
                            Err(ApiError::forward_failed(&silent))
                        }
                    }
                }
            };
            answers.push((Arc::clone(&member.id), answer));
        }
        answers
    }
}

impl Shard {
    /// Resets a queue at every member: `{"queue","dropped"}` with the sum, or that some were not reached.
    pub(crate) fn reset_everywhere(self: &Rc<Self>, call: &Call<'_>, key: QueueKey) -> Result<Handled, ApiError> {
        let owner = self.owner(key.tenant, &key.queue);
        let mine = self.ask(owner, protocol::Ask::Drop(Box::new(key.clone())))?;
        let (promise, promised) = promise();
        let shard = Rc::clone(self);
        rt::spawn_local(async move {
            let mut messages = match mine.await.answer {
                protocol::Answer::Dropped { messages, .. } => messages,
                other => unreachable!("asked for a reset, got {other:?}"),
            };
            let mut failed = Vec::new();
            for (node, answer) in shard.ask_everybody(key.tenant, Ask::Reset { queue: key.queue.clone() }).await {
                match answer {
                    Ok(Answer::Dropped { messages: there, .. }) => messages += there,
                    Ok(_) => failed.push(Failed::new(&node, ApiError::unsupported())),
                    Err(error) => failed.push(Failed::new(&node, error)),
                }
            }
            promise.keep(if failed.is_empty() {
                dropped(&key, messages)
            } else {
                some_failed(&format!("{messages} messages were dropped"), &failed).into()
            });
        })
        .detach();
        Ok(call.later(Operation::Promised(promised)))
    }

    /// Resets this shard's share.
    pub(crate) fn drop_here(&self, key: &QueueKey) -> protocol::Answer {
        let existed = self.engine.borrow().has_partitions(key.tenant, &key.queue);
        protocol::Answer::Dropped { existed, messages: self.reset_here(self.engine_now_ms(), key) }
    }
}

/// Appends `,"failed":[{"node","error","code"},…]`.
pub(crate) fn append_failed(out: &mut Vec<u8>, failed: &[Failed]) {
    out.extend_from_slice(b",\"failed\":[");
    for (index, Failed { node, why }) in failed.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"node\":" } else { b",{\"node\":" });
        append_json_string(out, node);
        out.extend_from_slice(b",\"error\":");
        append_json_string(out, &why.message);
        out.extend_from_slice(b",\"code\":");
        append_json_string(out, why.code.word());
        out.push(b'}');
    }
    out.push(b']');
}

/// The refusal of what some members did not do and would have to.
pub(super) fn some_failed(what: &str, failed: &[Failed]) -> ApiError {
    let each: Vec<_> = failed.iter().map(|Failed { node, why }| format!("{node}: {}", why.message)).collect();
    ApiError::new(Code::EphemeralForwardFailed, format!("{what}, but not at {}", each.join("; ")))
}
