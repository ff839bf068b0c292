//! What comes back for a request: one answer for each, whatever became of it.

use super::{
    codec::{FieldError, Reader, Writer},
    declaration::Declaration,
    share::{DepthShare, QueueShare},
};
use crate::mesh::SERVER_ID_BYTES_MAX;

/// The longest word of a refusal, in bytes.
pub const CODE_BYTES_MAX: usize = 64;

/// The longest sentence of a refusal, in bytes: what is longer is cut when it is sent.
pub const REFUSAL_BYTES_MAX: usize = 1 << 10;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A push was taken whole: so many messages.
    Pushed(u32),
    /// A pop's messages, or its empty list.
    Popped {
        /// `{"queue":…,"messages":[…]}`.
        body: Vec<u8>,
        /// Whether the other end waits to hear if the body reached the client. None for an empty list.
        has_claim: bool,
    },
    /// A whole response, its body JSON.
    Reply {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: Vec<u8>,
    },
    /// A refusal.
    Refused(Refusal),
    /// The partition is another node's by now: the id of its owner, as far as it is known there.
    Moved {
        /// That node's id.
        owner: String,
    },
    /// What was asked was given up before it was answered.
    Cancelled,
    /// A queue was reset or removed.
    Dropped {
        /// Whether it was there.
        existed: bool,
        /// Messages that are gone.
        messages: u64,
    },
    /// A declaration was looked at.
    Declared {
        /// Whether it was taken over; if not, a newer one is known.
        applied: bool,
    },
    /// Declarations in the order of their keys.
    Declarations {
        /// So many as there are, [`DECLARATIONS_MAX`](super::DECLARATIONS_MAX) at most.
        declarations: Vec<Declaration>,
        /// Whether there are more behind the last.
        more: bool,
    },
    /// An offer or a chunk was taken: the sender need not keep it.
    Adopted,
    /// There is nothing to come of a partition.
    Empty,
    /// A partition is being handed over.
    Coming,
    /// What the node holds of a queue; `None` where it does not have it.
    Depth(Option<DepthShare>),
    /// What the node holds of queues.
    Queues {
        /// Payload bytes of all queues of the tenant, those that are not among these too.
        bytes: u64,
        /// In the order of their names.
        queues: Vec<QueueShare>,
        /// Whether there are more behind the last.
        more: bool,
    },
}

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The word in an error's body.
    pub code: String,
    /// The sentence for the person who reads it.
    pub message: String,
    /// After how many seconds trying again makes sense, if it does.
    pub retry_after_s: Option<u32>,
}

const PUSHED: u8 = 1;
const POPPED: u8 = 2;
const REPLY: u8 = 3;
const REFUSED: u8 = 4;
const MOVED: u8 = 5;
const CANCELLED: u8 = 6;
const DROPPED: u8 = 7;
const DECLARED: u8 = 8;
const DECLARATIONS: u8 = 9;
const ADOPTED: u8 = 10;
const EMPTY: u8 = 11;
const COMING: u8 = 12;
const DEPTH: u8 = 13;
const QUEUES: u8 = 14;

impl Refusal {
    /// The node, or this connection, has no room.
    pub(super) fn overloaded(what: &str) -> Self {
        Self { code: "overloaded".to_owned(), message: format!("{what}; try again"), retry_after_s: Some(1) }
    }

    /// A kind of request that this node does not know.
    pub(super) fn unsupported() -> Self {
        let message = "The node that owns this runs an older version, which does not know this request";
        Self { code: UNSUPPORTED.to_owned(), message: message.to_owned(), retry_after_s: None }
    }
}

/// The word of a refusal because a kind of request or answer is not known: the nodes are of different versions.
pub const UNSUPPORTED: &str = "unsupported";

impl Answer {
    /// Reads one; `None` where its kind is not known.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, FieldError> {
        Ok(Some(match reader.u8()? {
            PUSHED => Self::Pushed(reader.u32()?),
            POPPED => Self::Popped { has_claim: reader.bool()?, body: reader.bytes(usize::MAX)?.to_vec() },
            REPLY => Self::Reply { status: reader.u16()?, body: reader.bytes(usize::MAX)?.to_vec() },
            REFUSED => Self::Refused(Refusal {
                code: reader.text(CODE_BYTES_MAX)?,
                message: reader.text(REFUSAL_BYTES_MAX)?,
                retry_after_s: reader.optional(Reader::u32)?,
            }),
            MOVED => Self::Moved { owner: reader.text(SERVER_ID_BYTES_MAX)? },
            CANCELLED => Self::Cancelled,
            DROPPED => Self::Dropped { existed: reader.bool()?, messages: reader.u64()? },
            DECLARED => Self::Declared { applied: reader.bool()? },
            DECLARATIONS => Self::Declarations { declarations: Declaration::read_list(reader)?, more: reader.bool()? },
            ADOPTED => Self::Adopted,
            EMPTY => Self::Empty,
            COMING => Self::Coming,
            DEPTH => Self::Depth(reader.optional(DepthShare::read)?),
            QUEUES => {
                Self::Queues { bytes: reader.u64()?, queues: QueueShare::read_list(reader)?, more: reader.bool()? }
            }
            _ => return Ok(None),
        }))
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        match self {
            Self::Pushed(messages) => {
                writer.u8(PUSHED);
                writer.u32(*messages);
            }
            Self::Popped { body, has_claim } => {
                writer.u8(POPPED);
                writer.bool(*has_claim);
                writer.bytes(body, usize::MAX);
            }
            Self::Reply { status, body } => {
                writer.u8(REPLY);
                writer.u16(*status);
                writer.bytes(body, usize::MAX);
            }
            Self::Refused(refusal) => {
                let message = &refusal.message[..refusal.message.floor_char_boundary(REFUSAL_BYTES_MAX)];
                writer.u8(REFUSED);
                writer.text(&refusal.code, CODE_BYTES_MAX);
                writer.text(message, REFUSAL_BYTES_MAX);
                writer.optional(refusal.retry_after_s, Writer::u32);
            }
            Self::Moved { owner } => {
                writer.u8(MOVED);
                writer.text(owner, SERVER_ID_BYTES_MAX);
            }
            Self::Cancelled => writer.u8(CANCELLED),
            Self::Dropped { existed, messages } => {
                writer.u8(DROPPED);
                writer.bool(*existed);
                writer.u64(*messages);
            }
            Self::Declared { applied } => {
                writer.u8(DECLARED);
                writer.bool(*applied);
            }
            Self::Declarations { declarations, more } => {
                writer.u8(DECLARATIONS);
                Declaration::write_list(declarations, writer);
                writer.bool(*more);
            }
            Self::Adopted => writer.u8(ADOPTED),
            Self::Empty => writer.u8(EMPTY),
            Self::Coming => writer.u8(COMING),
            Self::Depth(share) => {
                writer.u8(DEPTH);
                writer.optional(share.as_ref(), |writer, share| share.write(writer));
            }
            Self::Queues { bytes, queues, more } => {
                writer.u8(QUEUES);
                writer.u64(*bytes);
                QueueShare::write_list(queues, writer);
                writer.bool(*more);
            }
        }
    }
}
