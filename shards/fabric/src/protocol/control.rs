//! What operators have switched and granted. Data shards and the store role speak of it; the store keeps it.

use std::collections::HashMap;

/// What operators have switched and granted; kept in the store, the same for every broker on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Whether ephemeral queues are served at all.
    pub ephemeral_enabled: bool,
    /// Whether durable pushes are refused.
    pub push_maintenance: bool,
    /// Whether durable pops are answered with nothing.
    pub pop_maintenance: bool,
    /// What tenants were granted, by the tenant's UUID.
    pub grants: HashMap<[u8; 16], Grant>,
}

impl Default for Control {
    /// Everything is on, and nobody was granted anything.
    fn default() -> Self {
        Self { ephemeral_enabled: true, push_maintenance: false, pop_maintenance: false, grants: HashMap::new() }
    }
}

impl Control {
    /// Puts a switch.
    pub fn set(&mut self, switch: Switch, on: bool) {
        *match switch {
            Switch::Ephemeral => &mut self.ephemeral_enabled,
            Switch::PushMaintenance => &mut self.push_maintenance,
            Switch::PopMaintenance => &mut self.pop_maintenance,
        } = on;
    }
}

/// Something that operators switch, for every broker on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Whether ephemeral queues are served.
    Ephemeral,
    /// Whether durable pushes are refused.
    PushMaintenance,
    /// Whether durable pops are answered with nothing.
    PopMaintenance,
}

impl Switch {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ephemeral, Self::PushMaintenance, Self::PopMaintenance];

    /// The name under which it is kept.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeral",
            Self::PushMaintenance => "maintenance",
            Self::PopMaintenance => "pop_maintenance",
        }
    }

    /// The switch that is kept under a name, if this version knows it.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|switch| switch.name() == name)
    }

    /// What holds where it was never put: nothing is kept then.
    #[must_use]
    pub fn default_on(self) -> bool {
        self == Self::Ephemeral
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
    /// Put a switch.
    Set(Switch, bool),
    /// Grant this to a tenant, in place of an earlier grant.
    PutGrant([u8; 16], Grant),
    /// Take a tenant's grant away.
    RemoveGrant([u8; 16]),
}
