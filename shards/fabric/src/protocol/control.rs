//! What operators have switched and granted. Data shards and the store role speak of it; the store keeps it.

use std::collections::HashMap;

/// What operators have switched and granted; kept in the store, the same for every broker on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Whether ephemeral queues are served at all.
    pub ephemeral_enabled: bool,
    /// What tenants were granted, by the tenant's UUID.
    pub grants: HashMap<[u8; 16], Grant>,
}

impl Default for Control {
    /// Everything is on, and nobody was granted anything.
    fn default() -> Self {
        Self { ephemeral_enabled: true, grants: HashMap::new() }
    }
}

/// What a tenant may use of ephemeral queues. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whether it may use them at all.
    pub enabled: bool,
    /// Payload bytes that its queues may hold on a node. Kept up to `i64::MAX`, as the others are.
    pub max_bytes: Option<u64>,
    /// Queues that it may have on a node.
    pub max_queues: Option<u64>,
    /// Messages that it may push to a node in a second.
    pub max_msgs_per_sec: Option<u64>,
}

/// What the store is asked about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAsk {
    /// Read it from the database.
    Load,
    /// Switch ephemeral queues on or off.
    SetEphemeral(bool),
    /// Grant this to a tenant, in place of an earlier grant.
    PutGrant([u8; 16], Grant),
    /// Take a tenant's grant away.
    RemoveGrant([u8; 16]),
}
