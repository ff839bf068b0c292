//! The owner's side of every verb: one synchronous engine call each, whichever shard the request came in on.
//!
//! Before a call that may need more memory or another queue, the shard draws on the node's budgets; after it, the
//! timer learns when the engine wants to be called next.

use queen_ephemeral::{
    Claim, InboxAddress, Millis, Pop, Popped as Outcome, PushError, TenantId, WaiterId,
    inbox::{self, Minted},
};
use queen_fabric::{ShardId, slice};
use queen_wire::response::append_json_string;

use crate::{
    error::ApiError,
    protocol::{AckAsk, Piece, QueueKey, ScanAsk},
    shard::Shard,
    waiters::Place,
};

/// Bytes of bookkeeping that a push may add beside its messages: a new queue, partition and name.
const PUSH_RECORDS_BYTES: u64 = 1024;

/// Bytes of bookkeeping per message, as the node's maximum counts them.
const MESSAGE_RECORD_BYTES: u64 = 48;

/// Queue slots that one piece of the listing looks at: well under a millisecond of work.
const SCAN_SLOTS: u32 = 2_000;

impl Shard {
    /// The data shard that owns a queue: the same on every shard and in every run. An inbox that this node named is
    /// where its name says.
    pub(crate) fn owner(&self, tenant: TenantId, queue: &str) -> ShardId {
        if inbox::is_inbox(queue)
            && let Some(minted) = Minted::parse(queue)
            && minted.epoch == self.node.boot_epoch
            && usize::from(minted.shard) < self.peers.shards()
        {
            return minted.shard;
        }
        slice::owner(slice::slice(&tenant.0, queue), self.peers.shards())
    }

    pub(crate) fn push_here<'p>(
        &self,
        now_ms: Millis,
        tenant: TenantId,
        queue: &str,
        partition: &str,
        payloads: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
    ) -> Result<(), ApiError> {
        if inbox::is_inbox(queue) {
            self.push_reply_here(now_ms, tenant, queue, payloads);
            return Ok(());
        }
        let bytes: u64 = payloads.clone().map(|payload| payload.len() as u64).sum();
        self.make_room(tenant, bytes, bytes + payloads.len() as u64 * MESSAGE_RECORD_BYTES + PUSH_RECORDS_BYTES);
        let pushed = self.engine.borrow_mut().push(now_ms, tenant, queue, partition, payloads, &mut &self.outlet);
        self.pushed(pushed, queue)
    }

    /// Pushes one message that names the inbox of its reply.
    pub(crate) fn push_request_here(
        &self,
        now_ms: Millis,
        tenant: TenantId,
        queue: &str,
        partition: &str,
        payload: &[u8],
        reply_to: &str,
    ) -> Result<(), ApiError> {
        let bytes = payload.len() as u64;
        self.make_room(tenant, bytes, bytes + reply_to.len() as u64 + MESSAGE_RECORD_BYTES + PUSH_RECORDS_BYTES);
        let mut engine = self.engine.borrow_mut();
        let pushed = engine.push_request(now_ms, tenant, queue, partition, payload, reply_to, &mut &self.outlet);
        drop(engine);
        self.pushed(pushed, queue)
    }

    fn pushed(&self, pushed: Result<(), PushError>, queue: &str) -> Result<(), ApiError> {
        self.timers.rearm(self);
        pushed.map_err(|error| ApiError::push(error, queue))
    }

    /// Hands a reply to whoever waits at the inbox; it is never refused, and never kept.
    fn push_reply_here<'p>(
        &self,
        now_ms: Millis,
        tenant: TenantId,
        name: &str,
        payloads: impl ExactSizeIterator<Item = &'p [u8]>,
    ) {
        let to = match Minted::parse(name) {
            Some(minted) if minted.epoch == self.node.boot_epoch && minted.shard == self.id() => {
                InboxAddress::Minted(minted.inbox)
            }
            // One of another epoch is nobody's choice: it is not found, and its reply is late.
            _ => InboxAddress::Chosen(name),
        };
        self.engine.borrow_mut().push_reply(now_ms, tenant, to, payloads, &mut &self.outlet);
    }

    /// Pops for `waiter`. A stopping node parks nobody.
    pub(crate) fn pop_here(&self, now_ms: Millis, mut pop: Pop<'_>, waiter: WaiterId) -> Result<Outcome, ApiError> {
        // Another shard may not have heard yet that they are switched off, and here nobody would be released again.
        if !self.grants.is_ephemeral_enabled() {
            return Err(ApiError::ephemeral_disabled());
        }
        if self.node.is_stopping() {
            pop.wait_ms = 0;
        }
        self.make_room(pop.tenant, 0, PUSH_RECORDS_BYTES);
        let popped = self.engine.borrow_mut().pop(now_ms, &pop, waiter, &mut &self.outlet);
        self.timers.rearm(self);
        popped.map_err(|error| ApiError::pop(error, pop.queue))
    }

    /// Takes a waiter away whose client has gone.
    pub(crate) fn cancel_here(&self, place: Place) {
        match place {
            Place::Parked(park) => {
                self.engine.borrow_mut().cancel(park);
                // One that held others back by its window lets them go at the engine's next turn.
                self.timers.rearm(self);
            }
            Place::Inbox(inbox) => {
                self.engine.borrow_mut().close_inbox(inbox);
            }
        }
    }

    pub(crate) fn settle_here(&self, claim: Claim) {
        self.engine.borrow_mut().settle(claim);
    }

    pub(crate) fn give_back_here(&self, claim: Claim) {
        let now_ms = self.engine_now_ms();
        self.engine.borrow_mut().give_back(now_ms, claim, &mut &self.outlet);
        self.timers.rearm(self);
        if self.node.cluster.is_some() {
            // What came back may be of a partition that has gone to another node meanwhile.
            self.handover.look_at_given_back();
        }
    }

    /// Acks in order; appends `{"results":[{"id","outcome"},…]}`.
    pub(crate) fn ack_here(&self, now_ms: Millis, ask: &AckAsk, out: &mut Vec<u8>) {
        let (key, group) = (&ask.key, ask.group.as_deref());
        out.extend_from_slice(b"{\"results\":[");
        let mut engine = self.engine.borrow_mut();
        for (index, (id, status)) in ask.acks.iter().enumerate() {
            let outcome = engine.ack(now_ms, key.tenant, &key.queue, group, id, *status, &mut &self.outlet);
            out.extend_from_slice(if index == 0 { b"{\"id\":" } else { b",{\"id\":" });
            append_json_string(out, id);
            out.extend_from_slice(b",\"outcome\":\"");
            out.extend_from_slice(outcome.as_str().as_bytes());
            out.extend_from_slice(b"\"}");
        }
        drop(engine);
        out.extend_from_slice(b"]}");
        self.timers.rearm(self);
    }

    /// Drops the queue's messages and says how many.
    pub(crate) fn reset_here(&self, now_ms: Millis, key: &QueueKey) -> u64 {
        let dropped = self.engine.borrow_mut().reset(now_ms, key.tenant, &key.queue, &mut &self.outlet);
        self.timers.rearm(self);
        dropped
    }

    /// A piece of the listing.
    pub(crate) fn scan_here(&self, ask: &ScanAsk) -> Piece {
        let mut rows = Vec::new();
        let next = self.engine.borrow().scan(ask.tenant, ask.from, SCAN_SLOTS, &mut |row| {
            rows.push(crate::ephemeral::reads::share_of(&row));
        });
        Piece { rows, next }
    }

    /// Draws on the tenant's grant and the node's budgets so that the engine may grow by one queue, `payload_bytes` and
    /// `memory_bytes` in all, if they have it.
    pub(crate) fn make_room(&self, tenant: TenantId, payload_bytes: u64, memory_bytes: u64) {
        let mut engine = self.engine.borrow_mut();
        self.draw_on_grant(&mut engine, tenant, payload_bytes);
        let memory = self.memory.cover(&self.node.memory, engine.memory_bytes() + memory_bytes);
        engine.set_memory_limit(memory);
        let queues = self.queues.cover(&self.node.queues, engine.queues() + 1);
        engine.set_queue_limit(queues);
    }

    /// Gives the node back what the engine does not need at the moment.
    pub(crate) fn return_room(&self) {
        let mut engine = self.engine.borrow_mut();
        let memory = self.memory.trim(&self.node.memory, engine.memory_bytes());
        engine.set_memory_limit(memory);
        let queues = self.queues.trim(&self.node.queues, engine.queues());
        engine.set_queue_limit(queues);
        self.return_grants(&mut engine);
    }
}
