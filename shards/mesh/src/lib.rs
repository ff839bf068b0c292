//! How brokers find each other: whom to dial, who is at the other end, who is there, and what they say.
//!
//! [`Node`] is one broker of the mesh as a state machine: it is told what connections do and what time it is, and says
//! what is to be dialled, written and closed, what peers have said, and who the members are. It has no sockets, no clock
//! and no random numbers of its own, so that a simulation drives the very code that runs.
//!
//! ```text
//! peers       whom to dial: the setting, read tolerantly
//! outbound    the connection that this node has dialled to a peer, and what waits to be sent on it
//! inbound     a connection that was accepted, and what comes in on it
//! membership  who is alive, who leaves, who owns partitions
//! node        all of these together
//! stats       what is counted
//! role        sockets, a clock and lanes around the node; nothing else here knows a runtime
//! ```
//!
//! Between two nodes there are two connections, each used one way: a node sends on those that it has dialled and receives
//! on those that it has accepted. So there is nothing to decide about which of two connections counts.

mod inbound;
mod membership;
mod node;
mod outbound;
mod peers;
mod role;
mod stats;

pub use membership::{LEFT_OUT_MS, STARTING_MS};
pub use node::{Action, Config, Connection, Delivered, HANDSHAKE_MS, IDS_MAX, INPUT_BYTES_MAX, Node, UNPROVEN_MAX};
pub use outbound::{BACKOFF_MAX_MS, BACKOFF_MIN_MS, QUEUE_BYTES_MAX, QUEUE_FRAMES_MAX};
pub use peers::{PEERS_MAX, Peer, PeersError, parse_peers};
pub use role::{MeshConfig, run};
pub use stats::{FrameKind, PeerStats, Stats};
