//! Between what data shards of one node ask each other and what travels to another node.

use queen_ephemeral::{AckStatus, TenantId};
use queen_wire::peer::{self, Refusal};

use super::placement::DEFAULT_PARTITION;
use crate::{
    error::{ApiError, Code},
    protocol::{AckAsk, Ask, PopAsk, PushAsk, QueueKey, RequestAsk},
    reply::Reply,
};

/// The queue that a request is about and, where it is about one, the partition that decides who answers it.
pub(super) fn place(ask: &peer::Ask) -> Option<(&str, Option<&str>)> {
    Some(match ask {
        peer::Ask::Push(push) => (&push.queue, Some(&push.partition)),
        peer::Ask::Pop(pop) => (&pop.queue, pop.partition.as_deref()),
        // It is served where the inbox is.
        peer::Ask::Request(request) => (&request.reply_to, Some(DEFAULT_PARTITION)),
        peer::Ask::Chunk(chunk) => (&chunk.queue, Some(&chunk.partition)),
        // What is acked names its partition itself.
        peer::Ask::Ack(ack) => (&ack.queue, None),
        _ => return None,
    })
}

/// What this node's shards are asked.
pub(super) fn ask(tenant: TenantId, ask: peer::Ask) -> Option<Ask> {
    let key = |queue| QueueKey { tenant, queue };
    Some(match ask {
        peer::Ask::Push(push) => Ask::Push(Box::new(PushAsk {
            key: key(push.queue),
            partition: push.partition,
            bytes: push.bytes,
            ends: push.ends.into_iter().map(|end| end as usize).collect(),
            reply_to: push.reply_to,
        })),
        peer::Ask::Pop(pop) => Ask::Pop(Box::new(PopAsk {
            key: key(pop.queue),
            partition: pop.partition,
            group: pop.group,
            batch: pop.batch,
            auto_ack: pop.auto_ack,
            wait_ms: pop.wait_ms,
            unless_empty: false,
        })),
        peer::Ask::Request(request) => Ask::Request(Box::new(RequestAsk {
            key: key(request.queue),
            partition: request.partition,
            payload: request.payload,
            reply_to: request.reply_to,
            wait_ms: request.wait_ms,
        })),
        peer::Ask::Ack(ack) => Ask::Ack(Box::new(AckAsk {
            key: key(ack.queue),
            group: ack.group,
            acks: ack.acks.into_iter().map(|(id, status)| (id, of_peer(status))).collect(),
        })),
        _ => return None,
    })
}

fn of_peer(status: peer::AckStatus) -> AckStatus {
    match status {
        peer::AckStatus::Completed => AckStatus::Completed,
        peer::AckStatus::Retry => AckStatus::Retry,
    }
}

fn to_peer(status: AckStatus) -> peer::AckStatus {
    match status {
        AckStatus::Completed => peer::AckStatus::Completed,
        AckStatus::Retry => peer::AckStatus::Retry,
    }
}

pub(super) fn push_of(push: PushAsk) -> Result<peer::Ask, ApiError> {
    let end = |end: usize| {
        u32::try_from(end).map_err(|_| ApiError::new(Code::PayloadTooLarge, "Too many bytes for another node"))
    };
    Ok(peer::Ask::Push(peer::Push {
        queue: push.key.queue,
        partition: push.partition,
        bytes: push.bytes,
        ends: push.ends.into_iter().map(end).collect::<Result<_, _>>()?,
        reply_to: push.reply_to,
    }))
}

pub(super) fn pop_of(pop: PopAsk) -> peer::Ask {
    peer::Ask::Pop(peer::Pop {
        queue: pop.key.queue,
        partition: pop.partition,
        group: pop.group,
        batch: pop.batch,
        auto_ack: pop.auto_ack,
        wait_ms: pop.wait_ms,
    })
}

pub(super) fn request_of(request: RequestAsk) -> peer::Ask {
    peer::Ask::Request(peer::RequestReply {
        queue: request.key.queue,
        partition: request.partition,
        payload: request.payload,
        reply_to: request.reply_to,
        wait_ms: request.wait_ms,
    })
}

pub(super) fn ack_of(ack: AckAsk) -> peer::Ask {
    let acks = ack.acks.into_iter().map(|(id, status)| (id, to_peer(status))).collect();
    peer::Ask::Ack(peer::Ack { queue: ack.key.queue, group: ack.group, acks })
}

/// A refusal that is rendered already.
pub(super) fn refusal_of(reply: &Reply) -> Refusal {
    let code = reply.code.map_or("", Code::word).to_owned();
    let body = String::from_utf8_lossy(&reply.body);
    // Its sentence stands between the first key and the last.
    let message = body.strip_prefix("{\"error\":\"").and_then(|rest| rest.rsplit_once("\",\"code\""));
    Refusal {
        code,
        message: message.map_or("", |(message, _)| message).replace("\\\"", "\""),
        retry_after_s: reply.retry_after_s,
    }
}

/// A refusal of another node as this one's.
pub(super) fn refused(refusal: Refusal) -> ApiError {
    let code = Code::of_word(&refusal.code).unwrap_or(Code::EphemeralForwardFailed);
    let error = ApiError::new(code, refusal.message);
    match refusal.retry_after_s {
        Some(seconds) => error.after_s(seconds.into()),
        None => error,
    }
}
