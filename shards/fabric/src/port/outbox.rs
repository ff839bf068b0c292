//! What a port sends: per peer a lane, the queue behind it, and the credits.

use std::collections::VecDeque;

use super::{Parcel, PeerCounters, Protocol};
use crate::{ShardId, lane::ring::Producer};

/// A queue that once held a crowd gives its memory back down to this many parcels.
const QUEUE_KEPT: usize = 1024;

/// Everything that goes to one peer.
struct Outbox<P: Protocol> {
    lane: Producer<Parcel<P>>,
    /// Parcels that are not in the lane yet, oldest first. Bounded by credits: see the module's docs.
    queue: VecDeque<Parcel<P>>,
    /// In `Outboxes::unflushed`.
    unflushed: bool,
    /// The lane was full, and the peer will ring when it has taken from it.
    waits_for_room: bool,
    credits: u32,
    credits_max: u32,
    full_events: u64,
    credits_refused: u64,
}

/// The outboxes of a port, by peer.
pub(super) struct Outboxes<P: Protocol> {
    outboxes: Box<[Outbox<P>]>,
    /// Peers whose queue has parcels that the lane was not offered yet.
    unflushed: Vec<ShardId>,
    /// Parcels posted since the last flush.
    posted: usize,
}

impl<P: Protocol> Outboxes<P> {
    pub(super) fn new(lanes: Vec<Producer<Parcel<P>>>, credits: u32) -> Self {
        let outbox = |lane| Outbox {
            lane,
            queue: VecDeque::new(),
            unflushed: false,
            waits_for_room: false,
            credits,
            credits_max: credits,
            full_events: 0,
            credits_refused: 0,
        };
        Self { outboxes: lanes.into_iter().map(outbox).collect(), unflushed: Vec::new(), posted: 0 }
    }

    /// Takes one of the credits towards `to`. Returns whether there was one.
    pub(super) fn take_credit(&mut self, to: ShardId) -> bool {
        let outbox = &mut self.outboxes[usize::from(to)];
        match outbox.credits.checked_sub(1) {
            Some(left) => outbox.credits = left,
            None => {
                outbox.credits_refused += 1;
                return false;
            }
        }
        true
    }

    /// Gives a credit towards `to` back.
    pub(super) fn give_credit(&mut self, to: ShardId) {
        let outbox = &mut self.outboxes[usize::from(to)];
        assert!(outbox.credits < outbox.credits_max, "a credit towards shard {to} was given back twice");
        outbox.credits += 1;
    }

    /// Puts a parcel at the end of the queue towards `to`, for the next [`flush`](Self::flush).
    pub(super) fn post(&mut self, to: ShardId, parcel: Parcel<P>) {
        let outbox = &mut self.outboxes[usize::from(to)];
        outbox.queue.push_back(parcel);
        self.posted += 1;
        if !outbox.unflushed && !outbox.waits_for_room {
            outbox.unflushed = true;
            self.unflushed.push(to);
        }
    }

    /// Parcels posted since the last flush.
    pub(super) fn posted(&self) -> usize {
        self.posted
    }

    /// `peer` rang: its lane may have room.
    pub(super) fn room_told(&mut self, peer: ShardId) {
        let outbox = &mut self.outboxes[usize::from(peer)];
        if outbox.waits_for_room {
            outbox.waits_for_room = false;
            outbox.unflushed = true;
            self.unflushed.push(peer);
        }
    }

    /// Moves what fits from the queues into the lanes and adds the peers that have something new to `to_ring`.
    pub(super) fn flush(&mut self, to_ring: &mut Vec<ShardId>) {
        self.posted = 0;
        for peer in self.unflushed.drain(..) {
            let outbox = &mut self.outboxes[usize::from(peer)];
            outbox.unflushed = false;
            if outbox.flush() {
                to_ring.push(peer);
            }
        }
    }

    pub(super) fn counters(&self) -> Vec<PeerCounters> {
        let counters = |outbox: &Outbox<P>| PeerCounters {
            lane_depth: outbox.lane.len(),
            outbox_length: outbox.queue.len(),
            full_events: outbox.full_events,
            credits_in_use: outbox.credits_max - outbox.credits,
            credits_refused: outbox.credits_refused,
        };
        self.outboxes.iter().map(counters).collect()
    }
}

impl<P: Protocol> Outbox<P> {
    /// Moves what fits into the lane. Returns whether anything was published.
    fn flush(&mut self) -> bool {
        let mut published = false;
        while let Some(parcel) = self.queue.pop_front() {
            let Err(parcel) = self.lane.stage(parcel) else { continue };
            self.queue.push_front(parcel);
            published |= self.lane.publish();
            if self.lane.wait_for_room() {
                self.waits_for_room = true;
                self.full_events += 1;
                break;
            }
        }
        published |= self.lane.publish();
        if self.queue.is_empty() && self.queue.capacity() > QUEUE_KEPT {
            self.queue.shrink_to(QUEUE_KEPT);
        }
        published
    }
}
