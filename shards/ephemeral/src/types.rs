//! The vocabulary of the engine's interface: what callers pass in and get back.

use std::fmt;

/// A tenant: the first part of every queue's key.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Ord, PartialOrd, Debug)]
pub struct TenantId(
    /// The UUID's sixteen bytes, in the order of its text.
    pub [u8; 16],
);

impl TenantId {
    /// The tenant of requests that name none: `00000000-0000-0000-0000-000000000001`.
    pub const DEFAULT: Self = Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    /// Reads a UUID in its hyphenated form, in either case, with white space around it ignored.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; 36] = text.trim_ascii().try_into().ok()?;
        let mut bytes = [0_u8; 16];
        let mut digits = 0;
        for (place, &byte) in text.iter().enumerate() {
            if matches!(place, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return None;
                }
                continue;
            }
            let digit = char::from(byte).to_digit(16)? as u8;
            bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
            digits += 1;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// What a tenant may hold in one engine. What is not limited is `u64::MAX`.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct TenantLimit {
    /// Payload bytes of messages that count towards bounds.
    pub bytes: u64,
    /// Queues, declared or not.
    pub queues: u64,
}

/// What a tenant holds in one engine, counted as its limit is.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct TenantUsage {
    /// Payload bytes of messages that count towards bounds, as in [`Stats::payload_bytes`].
    pub bytes: u64,
    /// Queues, declared or not.
    pub queues: u64,
}

/// What an engine is made with: defaults for queues, which are their ceilings too, and limits.
#[derive(Copy, Clone, Debug)]
pub struct EngineConfig {
    /// Names this incarnation in message ids; an ack of another epoch is `stale`.
    pub boot_epoch: u64,
    /// Payload bytes a queue may hold: the default and the most a declaration gets.
    pub queue_max_bytes: u64,
    /// Messages a queue may hold: the default and the most a declaration gets.
    pub queue_max_length: u64,
    /// How long a delivered message stays leased by default.
    pub lease_ms: u64,
    /// How often a message is delivered to a group by default before it is dropped.
    pub retry_limit: u32,
    /// How long an implicit queue stays empty and unpolled before it is collected.
    pub implicit_idle_ms: u64,
    /// How long a group of an implicit queue goes unpolled before it is forgotten; 0 keeps it.
    pub group_idle_ms: u64,
    /// Partitions of one queue that hold messages or parked pops.
    pub max_partitions_per_queue: u32,
    /// Consumer groups of one queue, at most 65,535 whatever is asked for.
    pub max_groups_per_queue: u32,
}

/// What a full queue does with a push.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub enum Policy {
    /// The push is refused whole.
    #[default]
    Reject,
    /// The push is taken and the oldest messages go.
    DropOldest,
}

/// How long a waiting pop that has its first message waits for more.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Window {
    /// Milliseconds from the first message, never past the pop's own timeout.
    pub ms: u64,
    /// Messages that end the wait early.
    pub count: u32,
}

/// A declaration as its author wrote it. `None` and 0 both mean the default.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct QueueOptions {
    /// Payload bytes the queue may hold.
    pub max_bytes: Option<u64>,
    /// Messages the queue may hold.
    pub max_length: Option<u64>,
    /// What a full queue does.
    pub policy: Policy,
    /// Age at which a message is dropped, consumed or not; none by default.
    pub ttl_ms: Option<u64>,
    /// How long a delivered message stays leased.
    pub lease_ms: Option<u64>,
    /// Deliveries to one group before a message is dropped for it.
    pub retry_limit: Option<u32>,
    /// The window buffer; none by default.
    pub window: Option<Window>,
}

/// The options in force: defaults filled in, clamped to the ceilings.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Limits {
    /// Payload bytes the queue may hold.
    pub max_bytes: u64,
    /// Messages the queue may hold.
    pub max_length: u64,
    /// What a full queue does.
    pub policy: Policy,
    /// Age at which a message is dropped.
    pub ttl_ms: Option<u64>,
    /// How long a delivered message stays leased.
    pub lease_ms: u64,
    /// Deliveries to one group before a message is dropped for it.
    pub retry_limit: u32,
    /// The window buffer.
    pub window: Option<Window>,
}

impl Limits {
    /// The options of a queue that nobody declared.
    pub fn implicit(config: &EngineConfig) -> Self {
        Self::in_force(config, &QueueOptions::default())
    }

    /// What a declaration comes to under the node's ceilings.
    pub fn in_force(config: &EngineConfig, options: &QueueOptions) -> Self {
        let clamp = |asked: Option<u64>, ceiling: u64| match asked {
            None | Some(0) => ceiling,
            Some(asked) => asked.min(ceiling),
        };
        Self {
            max_bytes: clamp(options.max_bytes, config.queue_max_bytes),
            max_length: clamp(options.max_length, config.queue_max_length),
            policy: options.policy,
            ttl_ms: options.ttl_ms.filter(|&ms| ms > 0),
            lease_ms: options.lease_ms.filter(|&ms| ms > 0).unwrap_or(config.lease_ms),
            retry_limit: options.retry_limit.filter(|&n| n > 0).unwrap_or(config.retry_limit),
            window: options.window.filter(|window| window.ms > 0 && window.count > 0),
        }
    }
}

/// A parked pop as its caller knows it: opaque to the engine.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct WaiterId(
    /// Whatever the caller chose.
    pub u64,
);

/// A parked pop as the engine knows it, to [`cancel`](crate::Engine::cancel) it by.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct ParkId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// How a reply names its inbox.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum InboxAddress<'a> {
    /// By what the broker put into a name of its own.
    Minted(crate::InboxId),
    /// By the name that the requester chose.
    Chosen(&'a str),
}

/// Another request waits at an inbox of this name: choose a name for each.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("another request waits at this inbox")]
pub struct InboxInUse;

/// One pop.
#[derive(Copy, Clone, Debug)]
pub struct Pop<'a> {
    /// Whose queue.
    pub tenant: TenantId,
    /// The queue's name.
    pub queue: &'a str,
    /// One partition, or any, oldest first.
    pub partition: Option<&'a str>,
    /// The consumer group; none is queue mode, the group [`QUEUE_MODE`].
    pub group: Option<&'a str>,
    /// Messages to take at most, from 1.
    pub batch: u32,
    /// Consumes at delivery instead of leasing.
    pub auto_ack: bool,
    /// How long to park when there is nothing; 0 does not wait.
    pub wait_ms: u64,
}

/// The group that pops without a group share, by the name the depth read shows.
pub const QUEUE_MODE: &str = "__QUEUE_MODE__";

/// What became of a pop.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Popped {
    /// The sink was called with at least one message.
    Delivered,
    /// There was nothing and the pop did not wait. The sink was not called.
    Empty,
    /// The pop waits; the sink is called later, with messages or with none at its timeout.
    Parked(ParkId),
}

/// What a consumer says of a delivery.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum AckStatus {
    /// Done with it.
    Completed,
    /// To be delivered again.
    Retry,
}

impl AckStatus {
    /// Reads the word of the wire: none, `completed`, `success`, `acked` and `ok` complete,
    /// every other word returns the message.
    pub fn from_word(word: Option<&str>) -> Self {
        match word {
            None | Some("completed" | "success" | "acked" | "ok") => Self::Completed,
            Some(_) => Self::Retry,
        }
    }
}

/// What became of an ack.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum AckOutcome {
    /// The delivery is settled.
    Acked,
    /// The message is there to be delivered again.
    Redelivered,
    /// The id was minted by another incarnation.
    Stale,
    /// No such lease.
    Unknown,
}

impl AckOutcome {
    /// The word of the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Redelivered => "redelivered",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
        }
    }
}

/// Why a push changed nothing.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum PushError {
    /// The bound of a `reject` queue: push again when consumers have caught up.
    #[error("the queue is full")]
    QueueFull,
    /// One message alone is larger than the queue may be: split it.
    #[error("a message is larger than the queue's maxBytes")]
    MessageTooLarge,
    /// The tenant would hold more payload bytes than it may: push again when its consumers have caught up.
    #[error("the tenant's ephemeral queues hold as much as they may")]
    TenantBytes,
    /// The push would create a queue too many for the tenant.
    #[error("the tenant has as many ephemeral queues as it may")]
    TenantQueues,
    /// The shard's share of the node's memory is used up: raise it or push later.
    #[error("the node's memory for ephemeral queues is used up")]
    NodeMemory,
    /// The push would create a queue too many.
    #[error("the node holds as many queues as it may")]
    QueueLimit,
    /// The push would create a partition too many.
    #[error("the queue has as many partitions as it may")]
    PartitionLimit,
}

/// Why a pop changed nothing.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum PopError {
    /// The pop would create a queue too many for the tenant.
    #[error("the tenant has as many ephemeral queues as it may")]
    TenantQueues,
    /// The pop would create a queue too many.
    #[error("the node holds as many queues as it may")]
    QueueLimit,
    /// The pop would park on a partition too many.
    #[error("the queue has as many partitions as it may")]
    PartitionLimit,
    /// The pop would create a group too many.
    #[error("the queue has as many groups as it may")]
    GroupLimit,
}

/// Why a declaration changed nothing.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum ConfigureError {
    /// The declaration would create a queue too many for the tenant.
    #[error("the tenant has as many ephemeral queues as it may")]
    TenantQueues,
    /// The declaration would create a queue too many.
    #[error("the node holds as many queues as it may")]
    QueueLimit,
}

/// What a delete found.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Deleted {
    /// The queue existed.
    pub deleted: bool,
    /// It had a declaration.
    pub declared: bool,
}

/// Messages that were lost to a rule, by the rule.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Drops {
    /// To `maxLength` or `maxBytes` under `dropOldest`.
    pub bounds: u64,
    /// To their age.
    pub ttl: u64,
    /// To the retry limit, once per group that gave up.
    pub retry: u64,
}

/// One queue of the listing. Gauges: they are computed from counters, not from messages.
#[derive(Copy, Clone, Debug)]
pub struct QueueRow<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// Somebody declared it.
    pub declared: bool,
    /// Messages that some group has still to consume, or that no group exists to consume.
    pub depth: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Partitions that hold messages or parked pops.
    pub partitions: u64,
    /// Consumer groups.
    pub groups: u64,
    /// What the queue lost.
    pub drops: Drops,
    /// The options in force.
    pub limits: Limits,
}

/// The depth read of one queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Depth {
    /// Somebody declared it.
    pub declared: bool,
    /// Messages pending: for the group that was asked about, else for any group.
    pub pending: u64,
    /// Partitions with at least one of them.
    pub partitions_pending: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Partitions that hold messages or parked pops, in no particular order.
    pub partitions: Vec<PartitionDepth>,
    /// Every group, oldest slot first.
    pub groups: Vec<GroupDepth>,
}

/// One partition of a depth read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartitionDepth {
    /// The partition's name.
    pub partition: String,
    /// Messages pending.
    pub pending: u64,
    /// Their payload bytes.
    pub bytes: u64,
}

/// One group of a depth read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupDepth {
    /// The group's name.
    pub group: String,
    /// Messages the group has not consumed, leased ones included.
    pub pending: u64,
    /// Messages that bounds, TTL or the retry limit took before the group had consumed them.
    pub skipped: u64,
}

/// Totals since the engine was made, and gauges of what it holds.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Messages pushed, those that `dropOldest` took at once included.
    pub pushed: u64,
    /// Messages delivered, redeliveries included.
    pub popped: u64,
    /// Leases completed by an ack.
    pub acked: u64,
    /// Messages lost to a rule.
    pub dropped: Drops,
    /// Messages pushed to inboxes that were not there any more.
    pub late_replies: u64,
    /// Messages that count towards bounds.
    pub messages: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// What the memory limit is compared with; see [`Engine::memory_bytes`](crate::Engine::memory_bytes).
    pub memory_bytes: u64,
    /// Queues.
    pub queues: u64,
    /// Queues with a declaration.
    pub declared: u64,
    /// Partitions that hold messages or parked pops.
    pub partitions: u64,
    /// Consumer groups.
    pub groups: u64,
    /// Parked pops.
    pub parked: u64,
    /// Open inboxes.
    pub inboxes: u64,
    /// Messages out on a lease.
    pub leases: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_reads_back_as_it_was_written() {
        let text = "0F8fad5b-d9cb-469f-a165-70867728950e";
        let tenant = TenantId::parse(format!(" {text}\t").as_bytes()).expect("a UUID");
        assert_eq!(tenant.to_string(), text.to_lowercase());
        assert_eq!(TenantId::parse(TenantId::DEFAULT.to_string().as_bytes()), Some(TenantId::DEFAULT));
        for bad in ["", "1", "0f8fad5bd9cb469fa16570867728950e", "0f8fad5b-d9cb-469f-a165-70867728950g"] {
            assert_eq!(TenantId::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn zero_and_nothing_mean_the_default_and_ceilings_hold() {
        let config = EngineConfig {
            boot_epoch: 1,
            queue_max_bytes: 100,
            queue_max_length: 10,
            lease_ms: 30,
            retry_limit: 5,
            implicit_idle_ms: 300,
            group_idle_ms: 0,
            max_partitions_per_queue: 4,
            max_groups_per_queue: 4,
        };
        let options = QueueOptions {
            max_bytes: Some(1000),
            max_length: Some(0),
            ttl_ms: Some(0),
            lease_ms: Some(7),
            window: Some(Window { ms: 0, count: 3 }),
            ..QueueOptions::default()
        };
        let limits = Limits::in_force(&config, &options);
        assert_eq!((limits.max_bytes, limits.max_length, limits.lease_ms), (100, 10, 7));
        assert_eq!((limits.ttl_ms, limits.retry_limit, limits.window), (None, 5, None));
    }
}
