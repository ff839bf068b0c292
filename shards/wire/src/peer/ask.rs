//! What a data shard asks of another node: what it asks of a shard of its own, in owned values, and what nodes ask each
//! other for themselves.

use super::{
    Tenant,
    codec::{FieldError, Reader, Writer},
    declaration::{Declaration, OPTIONS_BYTES_MAX, QueueKey},
    handover::{Chunk, Offer},
};
use crate::{body::ITEMS_MAX, name::NAME_BYTES_MAX};

/// The longest id of a message, in bytes: a partition's name, an epoch, two numbers, and what stands between them.
pub const MESSAGE_ID_BYTES_MAX: usize = 1_024;

/// A request, and for whom it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose queue it is about. What is about declarations names the tenant inside.
    pub tenant: Tenant,
    /// The access that the first node has verified, as the data shards number it; the client's token does not travel.
    pub access: u8,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Append messages. Answered by `Pushed`.
    Push(Push),
    /// Take messages, or wait for them. Answered by `Popped`.
    Pop(Pop),
    /// Push a message and wait for its reply. Answered by `Reply`.
    Request(RequestReply),
    /// Settle leases. Answered by `Reply`.
    Ack(Ack),
    /// Drop a queue's messages. Answered by `Dropped`.
    Reset {
        /// The queue.
        queue: String,
    },
    /// Remove a queue that the asking node knows no declaration of. Answered by `Dropped`.
    Delete {
        /// The queue.
        queue: String,
    },
    /// Declare a queue. Answered by `Reply`.
    Configure {
        /// The queue.
        queue: String,
        /// The options as sent.
        options_json: String,
        /// When it was declared, in milliseconds since 1970.
        updated_at_ms: u64,
    },
    /// Read the answering node's share of a queue. Answered by `Depth`.
    Depth {
        /// The queue.
        queue: String,
        /// Count what this group has before it.
        group: Option<String>,
    },
    /// Take over a declaration that was made or deleted elsewhere, if it is the newest. Answered by `Declared`, or by
    /// `Dropped` where it was deleted.
    Declare(Declaration),
    /// Name declarations, in the order of their keys. Answered by `Declarations`.
    Declarations {
        /// Behind this one; from the beginning if there is none.
        after: Option<QueueKey>,
    },
    /// Announce a partition that is going to be handed over. Answered by `Adopted`, as soon as chunks may come.
    Offer(Offer),
    /// Hand over a piece of a partition. Answered by `Adopted`.
    Chunk(Chunk),
    /// Whether a partition is still to come from there. Answered by `Coming` or `Empty`.
    Inquire {
        /// The queue.
        queue: String,
        /// The partition.
        partition: String,
    },
    /// Read the answering node's share of the tenant's queues, in the order of their names. Answered by `Queues`.
    Queues {
        /// Names up to and including this one are left out.
        after: Option<String>,
        /// At most so many, and [`QUEUES_MAX`](super::QUEUES_MAX).
        limit: u32,
    },
}

/// Messages to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The queue, or an inbox.
    pub queue: String,
    /// The partition.
    pub partition: String,
    /// All payloads, one after the other.
    pub bytes: Vec<u8>,
    /// Where each payload ends in `bytes`: in order, and the last at its end.
    pub ends: Vec<u32>,
    /// The inbox that the reply to the one message goes to, if it is a request.
    pub reply_to: Option<String>,
}

/// A pop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pop {
    /// The queue, or an inbox.
    pub queue: String,
    /// One partition, or any.
    pub partition: Option<String>,
    /// The group, or queue mode.
    pub group: Option<String>,
    /// At most so many messages.
    pub batch: u32,
    /// Whether delivery settles them.
    pub auto_ack: bool,
    /// How long to wait for the first message; 0 does not wait.
    pub wait_ms: u64,
}

/// A message whose reply is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReply {
    /// The queue.
    pub queue: String,
    /// The partition.
    pub partition: String,
    /// The message.
    pub payload: Vec<u8>,
    /// The inbox that the reply goes to.
    pub reply_to: String,
    /// How long to wait for the reply.
    pub wait_ms: u64,
}

/// The acks of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The queue.
    pub queue: String,
    /// The group, or queue mode.
    pub group: Option<String>,
    /// Ids and what became of the messages.
    pub acks: Vec<(String, AckStatus)>,
}

/// What became of a message that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckStatus {
    /// Done with it.
    Completed,
    /// To be delivered again.
    Retry,
}

const PUSH: u8 = 1;
const POP: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 4;
const RESET: u8 = 5;
const DELETE: u8 = 6;
const CONFIGURE: u8 = 7;
const DEPTH: u8 = 8;
const DECLARE: u8 = 9;
const DECLARATIONS: u8 = 10;
const OFFER: u8 = 11;
const CHUNK: u8 = 12;
const INQUIRE: u8 = 13;
const QUEUES: u8 = 14;

fn name(reader: &mut Reader<'_>) -> Result<String, FieldError> {
    reader.text(NAME_BYTES_MAX)
}

fn optional_name(reader: &mut Reader<'_>) -> Result<Option<String>, FieldError> {
    reader.optional(name)
}

fn put_names(writer: &mut Writer, names: &[&str]) {
    names.iter().for_each(|name| writer.text(name, NAME_BYTES_MAX));
}

fn put_optional_name(writer: &mut Writer, name: Option<&str>) {
    writer.optional(name, |writer, name| writer.text(name, NAME_BYTES_MAX));
}

impl Ask {
    /// Whether its answer may take as long as somebody else likes: such a request needs no credit.
    #[must_use]
    pub fn waits(&self) -> bool {
        match self {
            Self::Pop(pop) => pop.wait_ms > 0,
            Self::Request(_) => true,
            _ => false,
        }
    }

    /// Reads one; `None` where its kind is not known.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, FieldError> {
        Ok(Some(match reader.u8()? {
            PUSH => Self::Push(Push::read(reader)?),
            POP => Self::Pop(Pop {
                queue: name(reader)?,
                partition: optional_name(reader)?,
                group: optional_name(reader)?,
                batch: reader.u32()?,
                auto_ack: reader.bool()?,
                wait_ms: reader.u64()?,
            }),
            REQUEST => Self::Request(RequestReply {
                queue: name(reader)?,
                partition: name(reader)?,
                payload: reader.bytes(usize::MAX)?.to_vec(),
                reply_to: name(reader)?,
                wait_ms: reader.u64()?,
            }),
            ACK => Self::Ack(Ack::read(reader)?),
            RESET => Self::Reset { queue: name(reader)? },
            DELETE => Self::Delete { queue: name(reader)? },
            CONFIGURE => Self::Configure {
                queue: name(reader)?,
                options_json: reader.text(OPTIONS_BYTES_MAX)?,
                updated_at_ms: reader.u64()?,
            },
            DEPTH => Self::Depth { queue: name(reader)?, group: optional_name(reader)? },
            DECLARE => Self::Declare(Declaration::read(reader)?),
            DECLARATIONS => Self::Declarations { after: reader.optional(QueueKey::read)? },
            OFFER => Self::Offer(Offer::read(reader)?),
            CHUNK => Self::Chunk(Chunk::read(reader)?),
            INQUIRE => Self::Inquire { queue: name(reader)?, partition: name(reader)? },
            QUEUES => Self::Queues { after: optional_name(reader)?, limit: reader.u32()? },
            _ => return Ok(None),
        }))
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        match self {
            Self::Push(push) => push.write(writer),
            Self::Pop(pop) => {
                writer.u8(POP);
                put_names(writer, &[&pop.queue]);
                put_optional_name(writer, pop.partition.as_deref());
                put_optional_name(writer, pop.group.as_deref());
                writer.u32(pop.batch);
                writer.bool(pop.auto_ack);
                writer.u64(pop.wait_ms);
            }
            Self::Request(request) => {
                writer.u8(REQUEST);
                put_names(writer, &[&request.queue, &request.partition]);
                writer.bytes(&request.payload, usize::MAX);
                put_names(writer, &[&request.reply_to]);
                writer.u64(request.wait_ms);
            }
            Self::Ack(ack) => ack.write(writer),
            Self::Reset { queue } => {
                writer.u8(RESET);
                put_names(writer, &[queue]);
            }
            Self::Delete { queue } => {
                writer.u8(DELETE);
                put_names(writer, &[queue]);
            }
            Self::Configure { queue, options_json, updated_at_ms } => {
                writer.u8(CONFIGURE);
                put_names(writer, &[queue]);
                writer.text(options_json, OPTIONS_BYTES_MAX);
                writer.u64(*updated_at_ms);
            }
            Self::Depth { queue, group } => {
                writer.u8(DEPTH);
                put_names(writer, &[queue]);
                put_optional_name(writer, group.as_deref());
            }
            Self::Declare(declaration) => {
                writer.u8(DECLARE);
                declaration.write(writer);
            }
            Self::Declarations { after } => {
                writer.u8(DECLARATIONS);
                writer.optional(after.as_ref(), |writer, key| key.write(writer));
            }
            Self::Offer(offer) => {
                writer.u8(OFFER);
                offer.write(writer);
            }
            Self::Chunk(chunk) => {
                writer.u8(CHUNK);
                chunk.write(writer);
            }
            Self::Inquire { queue, partition } => {
                writer.u8(INQUIRE);
                put_names(writer, &[queue, partition]);
            }
            Self::Queues { after, limit } => {
                writer.u8(QUEUES);
                put_optional_name(writer, after.as_deref());
                writer.u32(*limit);
            }
        }
    }
}

impl Push {
    /// The payloads in order.
    ///
    /// # Panics
    /// When `ends` are not in order or go beyond `bytes`; those of a push that came in never do.
    pub fn payloads(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.ends.len()).map(|index| {
            let start = if index == 0 { 0 } else { self.ends[index - 1] };
            &self.bytes[start as usize..self.ends[index] as usize]
        })
    }

    fn ends_fit(&self) -> bool {
        self.ends.is_sorted() && self.ends.last().map_or(0, |&end| end as usize) == self.bytes.len()
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        let push = Self {
            queue: name(reader)?,
            partition: name(reader)?,
            reply_to: optional_name(reader)?,
            ends: reader.list(ITEMS_MAX, 4, Reader::u32)?,
            bytes: reader.bytes(usize::MAX)?.to_vec(),
        };
        if push.ends_fit() { Ok(push) } else { Err(FieldError::Value) }
    }

    fn write(&self, writer: &mut Writer) {
        if !self.ends_fit() {
            writer.fail(FieldError::Value);
        }
        writer.u8(PUSH);
        put_names(writer, &[&self.queue, &self.partition]);
        put_optional_name(writer, self.reply_to.as_deref());
        writer.list(&self.ends, ITEMS_MAX, |writer, &end| writer.u32(end));
        writer.bytes(&self.bytes, usize::MAX);
    }
}

impl Ack {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        let (queue, group) = (name(reader)?, optional_name(reader)?);
        let acks = reader.list(ITEMS_MAX, 4 + 1, |reader| {
            let id = reader.text(MESSAGE_ID_BYTES_MAX)?;
            let status = if reader.bool()? { AckStatus::Completed } else { AckStatus::Retry };
            Ok((id, status))
        })?;
        Ok(Self { queue, group, acks })
    }

    fn write(&self, writer: &mut Writer) {
        writer.u8(ACK);
        put_names(writer, &[&self.queue]);
        put_optional_name(writer, self.group.as_deref());
        writer.list(&self.acks, ITEMS_MAX, |writer, (id, status)| {
            writer.text(id, MESSAGE_ID_BYTES_MAX);
            writer.bool(*status == AckStatus::Completed);
        });
    }
}
