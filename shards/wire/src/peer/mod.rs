//! What data shards of two nodes say to each other: requests for partitions that the other one owns, and their answers.
//!
//! ```text
//! dialer                                             listener
//!   (the mesh's handshake under the label queen-peer/1)
//!         ◀──────────────────────────────── CREDIT 256
//!   REQUEST 7: pop, wait 30 s       ───────────────▶
//!   REQUEST 8: push                 ───────────────▶
//!         ◀──────────────────────────────── ANSWER 8: pushed
//!         ◀──────────────────────────────── ANSWER 7: popped, with a claim
//!   SETTLED 7, or GIVE_BACK 7       ───────────────▶
//! ```
//!
//! [`Dialing`] is the end that asks, [`Accepted`] the one that answers; a node that asks back dials a connection of its
//! own. The data shard is the caller: it moves bytes between a socket and one of them, and knows what requests mean. No
//! sockets, no clock: a handshake that takes too long, or a peer that has gone silent, is for the caller to notice, which
//! then drops the connection and calls `end`.
//!
//! - A request gets one answer, also when it was cancelled: so a number is free again on both ends at once, and an answer
//!   and a CANCEL that cross are told apart from everything else.
//! - A request that does not wait needs a credit, which comes back with its answer; one that waits costs its owner a parked
//!   pop and needs none. Without a credit nothing is sent, and the client is told to try again.
//! - An answer with messages leaves a claim at the listener until it hears SETTLED or GIVE_BACK, or the connection ends.
//! - Everything is bounded, see [`Limits`], and what happens at a bound is an answer, not a wait.
//!
//! What a frame looks like stands at [`Frame`], how a message that is larger than one travels at [`PART_BYTES`].

mod accepted;
mod answer;
mod ask;
mod codec;
mod declaration;
mod dialing;
mod frame;
mod handover;
mod link;
mod share;

pub use accepted::{Accepted, Asked, Left, Undelivered};
pub use answer::{Answer, CODE_BYTES_MAX, REFUSAL_BYTES_MAX, Refusal, UNSUPPORTED};
pub use ask::{Ack, AckStatus, Ask, MESSAGE_ID_BYTES_MAX, Pop, Push, Request, RequestReply};
pub use codec::FieldError;
pub use declaration::{DECLARATIONS_MAX, Declaration, DeclarationState, OPTIONS_BYTES_MAX, QueueKey};
pub use dialing::{Dialing, Heard, SendError, Unsent};
pub use frame::Frame;
pub use handover::{CHUNK_BYTES_MAX, Chunk, Offer};
pub use link::{LABEL, Limits, PART_BYTES, PeerError, Read};
pub use share::{DEPTH_ROWS_MAX, DepthShare, QUEUES_MAX, QueueLimits, QueueShare};

/// A tenant's UUID.
pub type Tenant = [u8; 16];
