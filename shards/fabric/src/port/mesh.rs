//! Making a mesh: every shard's lanes, doorbells and limits, before they go to their executors.

use std::rc::Rc;

use super::{PARCEL_BYTES_MAX, Parcel, Port, Protocol, Shared, inbox::Inbox, outbox::Outboxes};
use crate::{
    ShardId,
    lane::{
        LANE_DEPTH,
        ring::{Consumer, Producer, ring},
        wake::{Doorbell, Ringer},
    },
};

/// Limits of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct MeshOptions {
    /// Charged questions that may be unanswered at a time, from each shard to each other one.
    pub credits: u32,
}

impl Default for MeshOptions {
    /// 1024 credits: eight rings full.
    fn default() -> Self {
        Self { credits: 1024 }
    }
}

/// A port before it is on its executor.
pub struct PortSeed<P: Protocol> {
    id: ShardId,
    options: MeshOptions,
    doorbell: Doorbell,
    /// By peer: the lane to it, the lane from it, and this shard's side of its doorbell.
    to: Vec<Producer<Parcel<P>>>,
    from: Vec<Consumer<Parcel<P>>>,
    ringers: Vec<Ringer>,
}

/// Connects `shards` shards, each with each other and with itself. The seeds come in the order of their ids; each is
/// moved into its executor and opened there.
///
/// # Panics
///
/// When `shards` is 0 or more than [`ShardId`] counts.
#[must_use]
pub fn mesh<P: Protocol>(shards: usize, options: MeshOptions) -> Vec<PortSeed<P>> {
    const { assert!(size_of::<Parcel<P>>() <= PARCEL_BYTES_MAX, "a message of this protocol is too large: box it") };
    let count = ShardId::try_from(shards).expect("a mesh has no more shards than ids");
    assert!(count > 0, "a mesh has at least one shard");

    let doorbells: Vec<Doorbell> = (0..shards).map(|_| Doorbell::new(shards)).collect();
    let mut seeds: Vec<PortSeed<P>> = Vec::with_capacity(shards);
    let ringers: Vec<Vec<Ringer>> =
        (0..shards).map(|from| doorbells.iter().map(|bell| bell.ringer(from)).collect()).collect();
    for ((id, doorbell), ringers) in (0..count).zip(doorbells).zip(ringers) {
        let (to, from) = (Vec::with_capacity(shards), Vec::with_capacity(shards));
        seeds.push(PortSeed { id, options, doorbell, to, from, ringers });
    }
    for sender in 0..shards {
        for receiver in 0..shards {
            let (producer, consumer) = ring(LANE_DEPTH);
            seeds[sender].to.push(producer);
            seeds[receiver].from.push(consumer);
        }
    }
    seeds
}

impl<P: Protocol> PortSeed<P> {
    /// The id that the port will have.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Makes the port, on the executor where it stays.
    #[must_use]
    pub fn open(self) -> Port<P> {
        let outboxes = Outboxes::new(self.to, self.options.credits);
        let inbox = Inbox::new(self.doorbell, self.from);
        Port { shared: Rc::new(Shared::new(self.id, self.ringers.into(), outboxes, inbox)) }
    }
}
