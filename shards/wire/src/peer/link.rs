//! What both ends of a peer link have in common: frames cut out of what comes in, and a queue of what goes out.
//!
//! A message that is larger than [`PART_BYTES`] travels as PART frames and a last one of its own type, next to each other.
//! So no frame is large, whatever a client sends, and making or checking a MAC never holds a core for long: a frame is
//! sealed when it leaves the queue.

use std::{borrow::Cow, collections::VecDeque};

use super::{
    codec::FieldError,
    frame::{Frame, PART},
};
use crate::mesh::{FrameError, Framing, HandshakeError, MAC_BYTES, Next, Seal, append_frame};

/// What tells a peer link's handshake from the mesh's, and what its connection is upgraded to.
pub const LABEL: &str = "queen-peer/1";

/// The most payload bytes that a frame is sent with. SHA-256 takes some 200 µs for them.
pub const PART_BYTES: usize = 256 << 10;

/// What a frame has beside its payload.
const OVERHEAD_BYTES: usize = 4 + 1 + MAC_BYTES;

/// What one connection may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that are not over, at most; one whose messages are not settled is not.
    pub outstanding_max: usize,
    /// Bytes that wait to be sent: with so many no request and no large answer is taken, and the end that is dialled reads
    /// no further. With fewer one of any size is, for otherwise large ones would not get through on a busy link: so the
    /// most that waits is this, one message, and small answers.
    pub waiting_bytes_max: usize,
    /// The largest request or answer, in bytes. No smaller at any node than what another's clients may send.
    pub message_bytes_max: usize,
    /// Requests that do not wait which may be on their way at once. Only the end that is dialled goes by its own.
    pub credit: u32,
}

impl Default for Limits {
    /// 16384 requests, 256 of them that do not wait, 16 MiB waiting, messages of 80 MiB: bodies of 64 MiB and what is
    /// around them.
    fn default() -> Self {
        Self { outstanding_max: 16 << 10, waiting_bytes_max: 16 << 20, message_bytes_max: 80 << 20, credit: 256 }
    }
}

/// Why a peer link ended. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Its bytes are no frames of the peer's.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer did not prove itself.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// Another node answered than the one that was dialled.
    #[error("another node than the one that was dialled")]
    WrongPeer,
    /// A frame of a known type cannot be read.
    #[error("a frame of type {tag} that cannot be read: {error}")]
    Malformed {
        /// The type.
        tag: u8,
        /// What is wrong.
        error: FieldError,
    },
    /// A message in parts that is larger than [`Limits::message_bytes_max`].
    #[error("a message that is larger than it may be")]
    TooLarge,
    /// A request with the number of one that is not over.
    #[error("two requests of the same number")]
    SameNumber,
    /// A request that does not wait, without a credit.
    #[error("a request without a credit")]
    NoCredit,
}

impl PeerError {
    /// The word under which it is counted.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Frame(error) => error.reason(),
            Self::Handshake(error) => error.reason(),
            Self::WrongPeer => "wrong_peer",
            Self::Malformed { .. } => "malformed",
            Self::TooLarge => "too_large",
            Self::SameNumber => "same_number",
            Self::NoCredit => "no_credit",
        }
    }
}

/// What the bytes so far begin with.
#[derive(Debug, PartialEq, Eq)]
pub enum Read<E> {
    /// A part of a frame: read until there are so many bytes in all, or more.
    NeedMore {
        /// Bytes from the beginning of the frame.
        bytes: usize,
    },
    /// A frame.
    Frame {
        /// Bytes that it took; the next one begins behind them.
        consumed: usize,
        /// What it comes to, if the caller has to know of it.
        event: Option<E>,
    },
    /// Nothing is read before some of what waits has been sent: the peer takes nothing, so nothing is taken from it.
    Hold,
}

/// The bytes of one connection.
pub(super) struct Link {
    pub(super) limits: Limits,
    framing: Framing,
    /// Of what is sent, once both ends have proved themselves.
    seal: Option<Seal>,
    /// The handshake's frames, which have no MAC.
    handshake: Vec<u8>,
    queue: VecDeque<Message>,
    waiting_bytes: usize,
    /// The parts so far of a message that is coming in.
    parts: Vec<u8>,
    ended: Option<PeerError>,
}

/// A message on its way out.
struct Message {
    tag: u8,
    payload: Vec<u8>,
    /// Where what is not sent begins.
    start: usize,
}

impl Link {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            framing: Framing::unproven(),
            seal: None,
            handshake: Vec::new(),
            queue: VecDeque::new(),
            waiting_bytes: 0,
            parts: Vec::new(),
            ended: None,
        }
    }

    /// Both ends have proved themselves.
    pub(super) fn trust(&mut self, incoming: Seal, outgoing: Seal) {
        self.framing.trust(Some(incoming));
        self.seal = Some(outgoing);
    }

    pub(super) fn is_up(&self) -> bool {
        self.seal.is_some() && self.ended.is_none()
    }

    /// Ends it; whatever comes or is to be sent means nothing any more.
    pub(super) fn fail(&mut self, error: PeerError) -> PeerError {
        *self.ended.get_or_insert(error)
    }

    /// The next frame but a part: type and payload are `None` for a part.
    pub(super) fn next<'a>(&mut self, input: &'a [u8]) -> Result<Incoming<'a>, PeerError> {
        if let Some(error) = self.ended {
            return Err(error);
        }
        match self.cut(input) {
            Ok(incoming) => Ok(incoming),
            Err(error) => Err(self.fail(error)),
        }
    }

    fn cut<'a>(&mut self, input: &'a [u8]) -> Result<Incoming<'a>, PeerError> {
        let (tag, payload, consumed) = match self.framing.next(input)? {
            Next::NeedMore { bytes } => return Ok(Incoming::NeedMore { bytes }),
            Next::Frame { tag, payload, consumed } => (tag, payload, consumed),
        };
        if self.parts.len() + payload.len() > self.limits.message_bytes_max {
            return Err(PeerError::TooLarge);
        }
        // In the handshake there are no parts: the type is one that it does not have.
        if tag == PART && self.seal.is_some() {
            self.parts.extend_from_slice(payload);
            return Ok(Incoming::Part { consumed });
        }
        let payload = if self.parts.is_empty() {
            Cow::Borrowed(payload)
        } else {
            let mut whole = std::mem::take(&mut self.parts);
            whole.extend_from_slice(payload);
            Cow::Owned(whole)
        };
        Ok(Incoming::Frame { tag, payload, consumed })
    }

    /// What a frame says; `None` where its type is not known.
    pub(super) fn parse(tag: u8, payload: &[u8]) -> Result<Option<Frame>, PeerError> {
        Frame::parse(tag, payload).map_err(|error| PeerError::Malformed { tag, error })
    }

    pub(super) fn put_handshake(&mut self, (tag, payload): &(u8, Vec<u8>)) {
        append_frame(&mut self.handshake, *tag, payload, None);
    }

    pub(super) fn put(&mut self, (tag, payload): (u8, Vec<u8>)) {
        self.waiting_bytes += OVERHEAD_BYTES + payload.len();
        self.queue.push_back(Message { tag, payload, start: 0 });
    }

    /// Queues a frame that is a number.
    pub(super) fn put_number(&mut self, frame: &Frame) {
        self.put(frame.render().expect("nothing that could be too long"));
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.handshake.len() + self.waiting_bytes
    }

    /// Whether so much waits that nothing large is to be put behind it.
    pub(super) fn is_full(&self) -> bool {
        self.waiting_bytes >= self.limits.waiting_bytes_max
    }

    /// Appends frames until there are so many bytes of them, or more: a frame is not cut.
    pub(super) fn output(&mut self, out: &mut Vec<u8>, bytes_max: usize) {
        if self.ended.is_some() {
            return;
        }
        let end = out.len().saturating_add(bytes_max);
        out.append(&mut self.handshake);
        while out.len() < end
            && let Some(message) = self.queue.front_mut()
        {
            let seal = self.seal.as_mut().expect("nothing is queued before the proof");
            let rest = &message.payload[message.start..];
            if rest.len() > PART_BYTES {
                append_frame(out, PART, &rest[..PART_BYTES], Some(seal));
                message.start += PART_BYTES;
                self.waiting_bytes -= PART_BYTES;
            } else {
                append_frame(out, message.tag, rest, Some(seal));
                self.waiting_bytes -= OVERHEAD_BYTES + rest.len();
                self.queue.pop_front();
            }
        }
    }
}

/// See [`Link::next`].
pub(super) enum Incoming<'a> {
    NeedMore { bytes: usize },
    Part { consumed: usize },
    Frame { tag: u8, payload: Cow<'a, [u8]>, consumed: usize },
}
