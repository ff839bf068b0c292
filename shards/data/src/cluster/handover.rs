//! Partitions that other nodes own by now go to them.
//!
//! When the members change, each shard ends the waits of its parked pops, which are asked again where their partitions are
//! now, and walks its partitions. One that is another node's is taken out of the engine whole, travels in chunks, and is
//! let go of once the other node has adopted it. Until then it is kept here and tried again: its new owner may be starting,
//! or have yet to hear that it is the owner. A chunk may come twice, known by its transfer and index. The new owner asks
//! whether something is to come before it serves ([`hold`](super::hold)). What could not be handed over when the grace of
//! a stop ends is gone, and is said and counted.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use queen_ephemeral::{Parcel, PartitionPlace, PutInLimits, TenantId, inbox};
use queen_fabric::rt::{self, Notify, within};
use queen_wire::peer::{Answer, Ask, CHUNK_BYTES_MAX, Chunk, Request};

use super::{Home, parcel};
use crate::{
    error::{ApiError, Code},
    protocol::{self, AdoptAsk, PartitionKey},
    shard::Shard,
    waiters::Given,
};

/// Places that one step of the walk looks at: well under a millisecond of work.
const PLACES_PER_STEP: u32 = 2_000;

/// Partitions that are taken out at a time: what is on its way is in memory twice.
const PARCELS_AT_A_TIME: usize = 16;

/// The pause before what was not adopted is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// The pause before partitions are looked at because messages were given back, unless the node stops.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a chunk's answer is waited for.
const CHUNK_PATIENCE: Duration = Duration::from_secs(2);

/// Partitions that were dropped and are named in the log, each on a line.
const WIPES_LOGGED_MAX: usize = 100;

/// Transfers that are remembered, so that one whose answer was lost is not adopted twice.
const ADOPTED_MAX: usize = 4_096;

/// What a shard hands over, and what it has adopted.
#[derive(Default)]
pub(crate) struct Handover {
    /// There is a reason to look.
    changed: Notify,
    /// Counts the reasons.
    looks: Cell<u64>,
    /// The members have changed.
    are_members_new: Cell<bool>,
    /// Messages went back to where they were.
    is_given_back: Cell<bool>,
    /// Something of other nodes' is still here.
    is_busy: Cell<bool>,
    last_transfer: Cell<u64>,
    adopted: RefCell<VecDeque<u64>>,
    /// Partitions that are out of the engine and not adopted yet.
    under_way: RefCell<Vec<PartitionKey>>,
}

/// Partitions that left a node with what they held, over all its shards.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    /// Partitions that had to go.
    pub(crate) rings: AtomicU64,
    /// Those that others have adopted.
    pub(crate) delivered: AtomicU64,
    /// Those whose contents were dropped, as nobody took them in time.
    pub(crate) wiped: AtomicU64,
}

impl Handed {
    /// Says what became of what this node held, when it stops.
    pub(crate) fn log(&self) {
        let (rings, delivered) = (self.rings.load(Ordering::Relaxed), self.delivered.load(Ordering::Relaxed));
        let lost = self.wiped.load(Ordering::Relaxed);
        if lost > 0 {
            tracing::error!("shutdown: ephemeral rings handed over rings={rings} delivered={delivered} lost={lost}");
        } else {
            tracing::info!("shutdown: ephemeral rings handed over rings={rings} delivered={delivered} lost=0");
        }
    }
}

impl Handover {
    /// Whether everything that is here is this node's.
    pub(crate) fn is_done(&self) -> bool {
        !self.is_busy.get()
    }

    /// The members have changed: what is here may be others'.
    pub(crate) fn look(&self) {
        self.are_members_new.set(true);
        self.look_again();
    }

    /// Messages went back to where they were: their partition may be another's since.
    pub(crate) fn look_at_given_back(&self) {
        self.is_given_back.set(true);
        self.look_again();
    }

    fn look_again(&self) {
        self.looks.set(self.looks.get().wrapping_add(1));
        self.is_busy.set(true);
        self.changed.notify();
    }

    /// Remembers a transfer that was adopted.
    fn note(&self, transfer: u64) {
        let mut adopted = self.adopted.borrow_mut();
        if adopted.len() >= ADOPTED_MAX {
            adopted.pop_front();
        }
        adopted.push_back(transfer);
    }

    fn next_transfer(&self) -> u64 {
        if self.last_transfer.get() == 0 {
            let nonce = super::nonce();
            self.last_transfer.set(u64::from_le_bytes(*nonce.first_chunk().expect("a nonce is longer")));
        }
        self.last_transfer.set(self.last_transfer.get().wrapping_add(1));
        self.last_transfer.get()
    }
}

/// A partition on its way.
struct Leaving {
    transfer: u64,
    parcel: Parcel,
    since_ms: u64,
}

impl Shard {
    /// Hands partitions over, for as long as the shard runs.
    pub(crate) async fn hand_over(self: Rc<Self>) {
        let mut leaving: VecDeque<Leaving> = VecDeque::new();
        loop {
            if leaving.is_empty() && self.handover.is_done() {
                self.handover.changed.wait().await;
            }
            let is_given_back = self.handover.is_given_back.take();
            if self.handover.are_members_new.take() {
                self.release_moved();
            } else if is_given_back && leaving.is_empty() && !self.node.is_stopping() {
                // Clients go all the time, and a look is at every partition.
                let _or_sooner = within(LOOK_AGAIN, self.handover.changed.wait()).await;
            }
            self.take_out(&mut leaving).await;
            let mut kept = VecDeque::new();
            while let Some(mut one) = leaving.pop_front() {
                if !self.ship(&mut one).await {
                    kept.push_back(one);
                }
            }
            leaving = kept;
            let looks = self.handover.looks.get();
            let done = leaving.is_empty() && self.moved(1).await.is_empty();
            // What was said while this looked may be about what it had passed.
            self.handover.is_busy.set(!done || looks != self.handover.looks.get());
            if !leaving.is_empty() {
                // Tried again after a moment, or as soon as there are other members.
                let _or_later = within(RETRY, self.handover.changed.wait()).await;
            }
        }
    }

    /// Ends the waits of pops: each is asked again where its partition is now, which may be here.
    pub(crate) fn release_moved(&self) {
        self.outlet.refuse_those_released(Some(ApiError::owner_moved()));
        self.engine.borrow_mut().release_pops(&mut &self.outlet);
        self.outlet.refuse_those_released(None);
    }

    /// Partitions here that other nodes own, up to so many.
    async fn moved(&self, most: usize) -> Vec<(TenantId, String, String)> {
        let (mut found, mut from) = (Vec::new(), Some(PartitionPlace::default()));
        while let Some(place) = from
            && found.len() < most
        {
            from = self.engine.borrow().scan_partitions(place, PLACES_PER_STEP, &mut |row| {
                let home = self.home_of(row.tenant, row.queue, row.partition);
                if (row.depth > 0 || row.parked > 0) && matches!(home, Ok(Home::Elsewhere(_))) {
                    found.push((row.tenant, row.queue.to_owned(), row.partition.to_owned()));
                }
            });
            rt::yield_now().await;
        }
        found.truncate(most);
        found
    }

    async fn take_out(&self, leaving: &mut VecDeque<Leaving>) {
        let room = PARCELS_AT_A_TIME.saturating_sub(leaving.len());
        for (tenant, queue, partition) in self.moved(room).await {
            let taken = {
                let mut engine = self.engine.borrow_mut();
                engine.take_out(self.engine_now_ms(), tenant, &queue, &partition, &mut &self.outlet)
            };
            self.timers.rearm(self);
            // A shard that had not heard yet has parked these here: they are asked again where the partition is now.
            for pop in taken.pops {
                self.outlet.give(pop.waiter, Given::Reply(ApiError::owner_moved().into()));
            }
            if let Some(parcel) = taken.parcel {
                self.handover.under_way.borrow_mut().push(PartitionKey { tenant, queue, partition });
                self.node.handed.rings.fetch_add(1, Ordering::Relaxed);
                let (transfer, since_ms) = (self.handover.next_transfer(), self.now_ms());
                leaving.push_back(Leaving { transfer, parcel, since_ms });
            }
        }
    }

    /// Sends a partition to its owner. False where that has not adopted it.
    async fn ship(&self, leaving: &mut Leaving) -> bool {
        let now_ms = self.now_ms();
        leaving.parcel.grow_older(now_ms.saturating_sub(std::mem::replace(&mut leaving.since_ms, now_ms)));
        let parcel = &leaving.parcel;
        let (tenant, queue, partition) = (parcel.tenant(), parcel.queue(), parcel.partition());
        let adopted = match self.home_of(tenant, queue, partition) {
            Err(_) => false,
            // It has come back to this node meanwhile.
            Ok(Home::Here | Home::Awaited) => self.put_in(parcel).is_ok(),
            Ok(Home::Elsewhere(owner)) => match self.links.to(&owner) {
                Ok(link) => {
                    let bytes = parcel::encode(parcel);
                    let pieces: Vec<_> = bytes.chunks(CHUNK_BYTES_MAX).collect();
                    let mut all = true;
                    for (index, piece) in pieces.iter().enumerate() {
                        let ask = Ask::Chunk(Chunk {
                            transfer: leaving.transfer,
                            index: index as u32,
                            last: index + 1 == pieces.len(),
                            queue: queue.to_owned(),
                            partition: partition.to_owned(),
                            bytes: piece.to_vec(),
                        });
                        let Ok(mut sent) = link.ask(&Request { tenant: tenant.0, access: 0, ask }) else {
                            all = false;
                            break;
                        };
                        let answer = within(CHUNK_PATIENCE, poll_fn(|cx| sent.poll(cx))).await;
                        if !matches!(answer, Some(Ok(Answer::Adopted))) {
                            all = false;
                            break;
                        }
                    }
                    all
                }
                Err(_) => false,
            },
        };
        if adopted {
            let is_it = |key: &PartitionKey| key.tenant == tenant && key.queue == queue && key.partition == partition;
            self.handover.under_way.borrow_mut().retain(|key| !is_it(key));
            self.node.handed.delivered.fetch_add(1, Ordering::Relaxed);
        }
        adopted
    }

    /// Whether a partition is still to go to its owner, which asks.
    pub(crate) fn inquire_here(&self, key: &PartitionKey) -> protocol::Answer {
        let PartitionKey { tenant, queue, partition } = key;
        if !matches!(self.home_of(*tenant, queue, partition), Ok(Home::Elsewhere(_))) {
            // Who asks has heard of a change of which this node has not: it is still served here.
            return protocol::Answer::Refused(Box::new(ApiError::owner_moved()));
        }
        let is_here = || self.engine.borrow().holds_messages(*tenant, queue, partition);
        if self.handover.under_way.borrow().contains(key) || is_here() {
            protocol::Answer::Coming
        } else {
            protocol::Answer::Empty
        }
    }

    /// Whether a node that stops has messages that another could take.
    pub(crate) fn has_something_to_leave(&self) -> bool {
        !self.handover.under_way.borrow().is_empty() || !self.left_here(1).is_empty()
    }

    /// Partitions that hold messages, up to so many. Not inboxes, which go with their node.
    fn left_here(&self, most: usize) -> Vec<PartitionKey> {
        let (mut found, mut from) = (Vec::new(), Some(PartitionPlace::default()));
        while let Some(place) = from
            && found.len() < most
        {
            from = self.engine.borrow().scan_partitions(place, PLACES_PER_STEP, &mut |row| {
                if row.depth > 0 && !inbox::is_inbox(row.queue) {
                    let (queue, partition) = (row.queue.to_owned(), row.partition.to_owned());
                    found.push(PartitionKey { tenant: row.tenant, queue, partition });
                }
            });
        }
        found
    }

    /// At the end of a stop: what nobody has taken over goes with this node.
    pub(crate) fn wipe_what_is_left(&self) {
        let mut left = self.handover.under_way.take();
        let not_taken_out = left.len();
        left.extend(self.left_here(usize::MAX));
        self.node.handed.rings.fetch_add((left.len() - not_taken_out) as u64, Ordering::Relaxed);
        self.node.handed.wiped.fetch_add(left.len() as u64, Ordering::Relaxed);
        for PartitionKey { queue, partition, .. } in left.iter().take(WIPES_LOGGED_MAX) {
            tracing::error!(queue, partition, "hand-over failed; the partition's contents are dropped");
        }
        if let Some(more @ 1..) = left.len().checked_sub(WIPES_LOGGED_MAX) {
            tracing::error!(partitions = more, "hand-over failed; the contents of more partitions are dropped");
        }
    }

    /// Takes a partition that another node has handed over into this shard's engine, once.
    pub(crate) fn adopt_here(&self, ask: &AdoptAsk) -> Result<(), ApiError> {
        if self.handover.adopted.borrow().contains(&ask.transfer) {
            return Ok(());
        }
        self.put_in(&ask.parcel)?;
        self.handover.note(ask.transfer);
        Ok(())
    }

    fn put_in(&self, parcel: &Parcel) -> Result<(), ApiError> {
        self.make_room(parcel.tenant(), parcel.payload_bytes(), parcel.memory_bytes());
        let limits = {
            let engine = self.engine.borrow();
            let quarter = self.node.config.ephemeral_max_bytes / 4 / self.peers.shards() as u64;
            let memory = self.memory.cover(&self.node.memory, engine.memory_bytes() + parcel.memory_bytes());
            let queues = self.queues.cover(&self.node.queues, engine.queues() + 1);
            PutInLimits { memory_bytes: memory.saturating_add(quarter), queues }
        };
        let put = self.engine.borrow_mut().put_in(self.engine_now_ms(), parcel, limits, &mut &self.outlet);
        self.timers.rearm(self);
        put.map_err(|error| ApiError::new(Code::Overloaded, format!("Queue {:?}: {error}", parcel.queue())))
    }
}
