//! What a node counts of its mesh.

use std::collections::BTreeMap;
use std::sync::Arc;

use queen_wire::mesh::{HandshakeError, Message};

/// A kind of frame, for the counters: those that mean something apart, the others together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// Wakes of waiting pops.
    Available,
    /// Signs of life.
    Heartbeat,
    /// Hints for pops to come.
    Dirty,
    /// The sender leaves.
    Leaving,
    /// A queue's options changed, or it is gone.
    Config,
    /// Administration of ephemeral queues.
    EphemeralAdmin,
    /// A maintenance switch.
    Maintenance,
    /// Of a type that is not known.
    Unknown,
}

impl FrameKind {
    /// The kind of a message.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        match message {
            Message::Available(_) => Self::Available,
            Message::Heartbeat => Self::Heartbeat,
            Message::Dirty(_) => Self::Dirty,
            Message::Leaving => Self::Leaving,
            Message::ConfigSet(_) | Message::ConfigDelete(_) => Self::Config,
            Message::EphemeralAdmin(..) => Self::EphemeralAdmin,
            Message::Maintenance(_) | Message::PopMaintenance(_) => Self::Maintenance,
        }
    }

    /// Its word in metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Heartbeat => "heartbeat",
            Self::Dirty => "dirty",
            Self::Leaving => "leaving",
            Self::Config => "config",
            Self::EphemeralAdmin => "ephemeral_admin",
            Self::Maintenance => "maintenance",
            Self::Unknown => "unknown",
        }
    }
}

/// What was sent to one configured peer, and how it stands with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStats {
    /// The id that it proved, or announced in the old form on a connection of its own; `None` before.
    pub server_id: Option<Arc<str>>,
    /// Whether frames can be sent to it now.
    pub connected: bool,
    /// Frames sent, by kind.
    pub sent: BTreeMap<FrameKind, u64>,
    /// Frames that its full queue had no room for, or for which there was no connection.
    pub dropped: u64,
    /// Frames that wait for room in its socket.
    pub queued_frames: usize,
    /// Bytes of memory that they hold.
    pub queued_bytes: usize,
}

/// What a node counts, all of it since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Each configured peer, in the setting's order.
    pub peers: Vec<PeerStats>,
    /// Frames received, by the id of the sender and their kind.
    pub received: BTreeMap<(Arc<str>, FrameKind), u64>,
    /// Handshakes that failed, in either direction, by reason.
    pub handshake_failures: BTreeMap<&'static str, u64>,
    /// Frames that were none, not the peer's or not understood, and connections that took nothing, by reason.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Stats {
    pub(crate) fn handshake_failed(&mut self, error: HandshakeError) {
        self.failed(error.reason());
    }

    pub(crate) fn fault(&mut self, reason: &'static str) {
        *self.faults.entry(reason).or_default() += 1;
    }

    pub(crate) fn failed(&mut self, reason: &'static str) {
        *self.handshake_failures.entry(reason).or_default() += 1;
    }
}
