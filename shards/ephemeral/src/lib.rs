//! The in-memory queue engine: pure rules, no I/O, no clock, no runtime.
//!
//! [`Engine`] is a state machine. Calls take the time and return values; what a call makes
//! available to a parked pop is handed over inside the same call, through a [`Sink`], so there is
//! no wake-up to lose. Sockets, timers and threads are the caller's: it calls
//! [`Engine::advance`] when [`Engine::next_deadline_ms`] says so.
//!
//! A partition moves to another node's engine as a [`Parcel`]: [`Engine::take_out`] there,
//! [`Engine::put_in`] here. Carrying it, and carrying it once, is the caller's, too.
//!
//! ```
//! use queen_ephemeral::{Delivery, Engine, EngineConfig, Pop, Popped, Sink, TenantId, WaiterId};
//!
//! struct Print;
//! impl Sink for Print {
//!     fn deliver(&mut self, _waiter: WaiterId, delivery: Delivery<'_>) {
//!         for message in delivery.messages() {
//!             assert_eq!((message.partition, message.payload), ("Default", &b"42"[..]));
//!         }
//!     }
//! }
//!
//! let mut engine = Engine::new(EngineConfig {
//!     boot_epoch: 1, queue_max_bytes: 1 << 24, queue_max_length: 10_000, lease_ms: 30_000,
//!     retry_limit: 5, implicit_idle_ms: 300_000, group_idle_ms: 0,
//!     max_partitions_per_queue: 1000, max_groups_per_queue: 1000,
//! });
//! let tenant = TenantId::DEFAULT;
//! engine.push(0, tenant, "jobs", "Default", [&b"42"[..]].into_iter(), &mut Print)?;
//! let pop = Pop {
//!     tenant, queue: "jobs", partition: None, group: None, batch: 1, auto_ack: true, wait_ms: 0,
//! };
//! assert_eq!(engine.pop(0, &pop, WaiterId(7), &mut Print)?, Popped::Delivered);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod delivery;
mod engine;
pub mod id;
pub mod inbox;
mod leases;
mod parcel;
mod partition;
mod payload;
mod queue;
mod sequence;
mod slab;
mod tenants;
mod types;
mod waiters;
mod wheel;

pub use delivery::{Claim, Delivery, Message, Sink};
pub use engine::{
    Engine, GROUP_BYTES, INBOX_BYTES, LEASE_BYTES, MESSAGE_BYTES, PARKED_BYTES, PARTITION_BYTES, PartitionPlace,
    PartitionRow, PutInError, PutInLimits, QUEUE_BYTES, TakenOut, UnparkedPop,
};
pub use id::MessageId;
pub use inbox::InboxId;
pub use parcel::{MalformedParcel, Parcel, ParcelBuilder, ParcelGroup, ParcelMessage, Redelivery};
pub use types::{
    AckOutcome, AckStatus, ConfigureError, Deleted, Depth, Drops, EngineConfig, GroupDepth, InboxAddress, InboxInUse,
    Limits, ParkId, PartitionDepth, Policy, Pop, PopError, Popped, PushError, QUEUE_MODE, QueueOptions, QueueRow,
    Stats, TenantId, TenantLimit, TenantUsage, WaiterId, Window,
};

/// Milliseconds since boot on a clock that never goes back: the caller's.
pub type Millis = u64;
