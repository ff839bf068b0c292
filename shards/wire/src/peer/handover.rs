//! The hand-over of a partition: an offer, then its contents in pieces. What is in a piece is for the engines to know.

use super::codec::{FieldError, Reader, Writer};
use crate::name::NAME_BYTES_MAX;

/// The most bytes that one [`Chunk`] carries.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// A partition that is going to be handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The sender's number for it, which its chunks carry.
    pub transfer: u64,
    /// The queue.
    pub queue: String,
    /// The partition.
    pub partition: String,
    /// Messages that will come.
    pub messages: u64,
    /// Bytes that their payloads have.
    pub payload_bytes: u64,
}

/// A piece of a partition. The same piece may come twice: it is known by its transfer and index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The sender's number for the whole.
    pub transfer: u64,
    /// Counts the pieces, from 0.
    pub index: u32,
    /// Whether the partition is whole with this piece.
    pub last: bool,
    /// The queue.
    pub queue: String,
    /// The partition.
    pub partition: String,
    /// The piece, [`CHUNK_BYTES_MAX`] at most.
    pub bytes: Vec<u8>,
}

impl Offer {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            transfer: reader.u64()?,
            queue: reader.text(NAME_BYTES_MAX)?,
            partition: reader.text(NAME_BYTES_MAX)?,
            messages: reader.u64()?,
            payload_bytes: reader.u64()?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u64(self.transfer);
        writer.text(&self.queue, NAME_BYTES_MAX);
        writer.text(&self.partition, NAME_BYTES_MAX);
        writer.u64(self.messages);
        writer.u64(self.payload_bytes);
    }
}

impl Chunk {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            transfer: reader.u64()?,
            index: reader.u32()?,
            last: reader.bool()?,
            queue: reader.text(NAME_BYTES_MAX)?,
            partition: reader.text(NAME_BYTES_MAX)?,
            bytes: reader.bytes(CHUNK_BYTES_MAX)?.to_vec(),
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u64(self.transfer);
        writer.u32(self.index);
        writer.bool(self.last);
        writer.text(&self.queue, NAME_BYTES_MAX);
        writer.text(&self.partition, NAME_BYTES_MAX);
        writer.bytes(&self.bytes, CHUNK_BYTES_MAX);
    }
}
