//! What brokers say to each other: frames over TCP, and how the two ends of a connection find out who the other is.
//!
//! ```text
//! u32 BE length | u8 type | payload | (16 bytes of MAC, once both ends have proved themselves)
//! ```
//!
//! The mesh shard is the caller. It reads bytes into a buffer of its own and asks a [`Framing`] for the next frame in
//! them; [`Message`] says what a frame means, and [`Dialer`] and [`Listener`] lead a new connection to the point at which
//! frames count. No sockets, no clock: times and random numbers come in as arguments.
//!
//! A frame of a type that is not known is passed over by its length: an older and a newer broker stand next to each other
//! during a rolling upgrade.

mod frame;
mod handshake;
mod message;

pub use frame::{FRAME_BYTES_MAX, FrameError, Framing, MAC_BYTES, Next, UNPROVEN_FRAME_BYTES_MAX, append_frame};
pub use handshake::{
    Dialer, DialerStep, HandshakeError, Identity, Listener, ListenerStep, Nonce, PLACEMENT, PeerIdentity, Proven,
    SERVER_ID_BYTES_MAX, Seal, Seals, Secret, is_server_id,
};
pub use message::{
    Administration, Candidate, Message, MessageError, NAME_BYTES_MAX, PLACES_PER_FRAME, Place, QueueName,
};
