//! The shard's lane to the store role: durable requests and ephemeral declarations go out on it.

use std::{cell::Cell, future::poll_fn, rc::Rc, sync::Arc};

use queen_fabric::{
    ShardId,
    port::{Asked, Incoming, Port, PortCounters},
    protocol::{
        control::Control,
        store::{Declaration, StoreAnswer, StoreAsk, StoreProtocol},
    },
    rt,
};
use queen_log::{
    id::{LeaseId, PartitionId, TenantId},
    request::{Answer, Popped, Request},
};

use crate::{error::ApiError, shard::Shard};

/// The lane.
pub(crate) struct StoreLane {
    port: Port<StoreProtocol>,
    /// One request of the shard's own is always unanswered: the one for what will be switched and granted.
    watches: Cell<bool>,
}

impl StoreLane {
    pub(crate) fn new(port: Port<StoreProtocol>) -> Self {
        Self { port, watches: Cell::new(false) }
    }

    /// The store role is the last on its lanes, after the data shards.
    fn role(&self) -> ShardId {
        self.port.shards() as ShardId - 1
    }

    /// Asks, for a credit.
    pub(crate) fn ask(&self, ask: StoreAsk) -> Result<Asked<StoreProtocol>, ApiError> {
        self.port.ask(self.role(), ask).map_err(|_| ApiError::overloaded("The lane to the store is full"))
    }

    /// Asks what may stay unanswered for long; its caller holds a [`ParkedPermit`](crate::connection::ParkedPermit).
    pub(crate) fn ask_parked(&self, request: Request) -> Asked<StoreProtocol> {
        self.port.ask_parked(self.role(), StoreAsk::Log(Box::new(request)))
    }

    /// Asks for the declarations of the shard's slice, however long the database is away.
    pub(crate) async fn declarations(&self) -> Vec<Declaration> {
        match self.port.ask_parked(self.role(), StoreAsk::Declarations).await.answer {
            StoreAnswer::Declarations(declared) => declared,
            other => unreachable!("asked for declarations, not for {other:?}"),
        }
    }

    /// What is switched and granted, as soon as it is not what it was at version `seen`, and its version.
    pub(crate) async fn control_after(&self, seen: u64) -> (Arc<Control>, u64) {
        self.watches.set(true);
        let answer = self.port.ask_parked(self.role(), StoreAsk::WatchControl { seen }).await.answer;
        self.watches.set(false);
        match answer {
            StoreAnswer::Control { control, version, .. } => (control, version),
            other => unreachable!("asked for what is switched and granted, not for {other:?}"),
        }
    }

    /// What the role knows now of what is switched and granted.
    pub(crate) fn control_now(&self) -> Result<Asked<StoreProtocol>, ApiError> {
        // No version is this one: it is answered at once.
        self.ask(StoreAsk::WatchControl { seen: u64::MAX })
    }

    /// Counters in which what is unanswered is what clients wait for.
    pub(crate) fn counters(&self) -> PortCounters {
        let counters = self.port.counters();
        PortCounters { unanswered: counters.unanswered - usize::from(self.watches.get()), ..counters }
    }

    /// Makes messages that did not reach their client claimable again, before their lease lapses.
    pub(crate) fn give_back(&self, leased: Leased) {
        let Leased { tenant, group, lease, partitions } = leased;
        let asked = self.ask_parked(Request::GiveBack { tenant, group, lease, partitions });
        // Whether it was still there to be given back makes no difference to anybody.
        rt::spawn_local(async move { drop(asked.await) }).detach();
    }
}

/// Messages that a pop was given under a lease.
#[derive(Debug)]
pub(crate) struct Leased {
    tenant: TenantId,
    group: Arc<str>,
    lease: LeaseId,
    partitions: Vec<PartitionId>,
}

impl Leased {
    /// What is to be given back if this answer does not reach its client; with autoAck, nothing can be.
    pub(crate) fn of(popped: &Popped) -> Option<Self> {
        let lease = popped.lease.filter(|_| !popped.runs.is_empty())?;
        Some(Self {
            tenant: popped.tenant,
            group: Arc::clone(&popped.group),
            lease,
            partitions: popped.runs.iter().map(|run| run.partition_id).collect(),
        })
    }
}

/// Takes the store's answers in, for as long as the shard runs. They are awaited where they were asked for; what comes
/// here was given up there.
pub(crate) async fn run(shard: Rc<Shard>) {
    loop {
        let incoming = poll_fn(|cx| shard.store.port.poll_incoming(cx)).await;
        match incoming {
            Incoming::Orphan { answer: StoreAnswer::Log(answer), .. } => {
                if let Answer::Popped(popped) = &*answer
                    && let Some(leased) = Leased::of(popped)
                {
                    // The client went while its messages were on the way.
                    shard.store.give_back(leased);
                }
            }
            Incoming::Orphan { .. } => {}
            Incoming::Ask { .. } | Incoming::Cancel { .. } | Incoming::Tell { .. } => {
                debug_assert!(false, "the store asks a data shard for nothing");
            }
        }
    }
}
