//! What the mesh role, the store role and data shards tell each other: what peers are to hear, what they have said, who
//! the members are, and how the mesh stands.
//!
//! Every role has a seat on these lanes: the data shards first, in the order of their ids, then the store, then the mesh.

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use queen_wire::mesh::Message;

use crate::{ShardId, members::Members, port::Protocol};

/// The mesh of lanes between all roles.
pub struct MeshProtocol;

impl Protocol for MeshProtocol {
    type Ask = MeshAsk;
    /// Nothing follows an answer.
    type Tell = Infallible;
    type Answer = MeshAnswer;
}

/// Seats on the lanes besides those of data shards.
pub const ROLE_SEATS: usize = 2;

/// The store role's seat, of so many.
#[must_use]
pub fn store_seat(seats: usize) -> ShardId {
    (seats - ROLE_SEATS) as ShardId
}

/// The mesh role's seat, of so many.
#[must_use]
pub fn mesh_seat(seats: usize) -> ShardId {
    (seats - 1) as ShardId
}

/// What is asked over these lanes.
#[derive(Debug)]
pub enum MeshAsk {
    /// Of the mesh: say this to every peer. It is a hint: it may be lost.
    Say {
        /// What.
        message: Box<Message>,
        /// What the asker had no room for since it last asked.
        unsaid: u64,
    },
    /// Of the mesh: the maintenance switches are these now, by the store. Peers that come later are told so first of all.
    Switches {
        /// Push maintenance.
        push: bool,
        /// Pop maintenance.
        pop: bool,
        /// Peers that are there may take the former to be elsewhere: they are told.
        tell_push: bool,
        /// And the latter.
        tell_pop: bool,
    },
    /// Of the mesh: who the members are, as soon as the version is not the one that was `seen`, which may be never, or
    /// when it is cancelled. Answered by [`MeshAnswer::Members`].
    WatchMembers {
        /// The version of the asker; 0 when it has none.
        seen: u64,
    },
    /// Of the mesh: how it stands. Answered by [`MeshAnswer::Report`].
    Report,
    /// By the mesh, of the store or a data shard: a peer has said this.
    Heard(Box<Message>),
}

/// What is answered.
#[derive(Debug)]
pub enum MeshAnswer {
    /// It was taken.
    Done,
    /// The members.
    Members(Arc<Members>),
    /// How the mesh stands.
    Report(Box<Report>),
}

/// Why a node has no mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// No peers are configured.
    NoPeers,
    /// It was switched off.
    SyncDisabled,
}

impl Alone {
    /// Its word in answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NoPeers => "no_peers",
            Self::SyncDisabled => "sync_disabled",
        }
    }
}

/// Counts by the word for what is counted.
pub type Counts = Vec<(&'static str, u64)>;

/// How the mesh stands, as one node sees it; counts are since its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Why there is none, if so: everything else but the members is empty then.
    pub alone: Option<Alone>,
    /// Whether peers prove themselves.
    pub has_secret: bool,
    /// Where peers connect.
    pub port: u16,
    /// Those that are configured, in the setting's order.
    pub peers: Vec<PeerReport>,
    /// Every id that was heard.
    pub heard: Vec<HeardReport>,
    /// Handshakes that failed, in either direction, by reason.
    pub handshake_failures: Counts,
    /// Frames that were none, not the peer's or not understood, and connections that took nothing, by reason.
    pub faults: Counts,
    /// What this node itself could not hand to the mesh.
    pub unsaid: u64,
    /// The members.
    pub members: Arc<Members>,
}

/// A configured peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// As configured.
    pub host: String,
    /// As configured.
    pub port: u16,
    /// The id that its listener proved, once it has.
    pub server_id: Option<Arc<str>>,
    /// Whether frames can be sent to it now.
    pub is_connected: bool,
    /// Where the connection to it leads, while there is one.
    pub remote: Option<IpAddr>,
    /// Frames sent, by kind.
    pub sent: Counts,
    /// Frames dropped.
    pub dropped: u64,
}

/// An id that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeardReport {
    /// The id.
    pub server_id: Arc<str>,
    /// Whether it was heard lately.
    pub is_alive: bool,
    /// Frames received, by kind.
    pub received: Counts,
}
