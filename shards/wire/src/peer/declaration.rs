//! Declarations as brokers without a common store keep them: newest wins, and what is deleted leaves a tombstone.

use super::{
    Tenant,
    codec::{FieldError, Reader, Writer},
};
use crate::{mesh::SERVER_ID_BYTES_MAX, name::NAME_BYTES_MAX};

/// Declarations of one [`Answer::Declarations`](super::Answer::Declarations), at most.
pub const DECLARATIONS_MAX: usize = 1_000;

/// The longest text of a declaration's options, in bytes.
pub const OPTIONS_BYTES_MAX: usize = 1 << 20;

/// A queue of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    /// Whose.
    pub tenant: Tenant,
    /// Its name.
    pub queue: String,
}

/// What is known of a queue's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The queue.
    pub key: QueueKey,
    /// When it was declared or deleted, in milliseconds since 1970: the newest wins.
    pub updated_at_ms: u64,
    /// The id of the member where it was: between two of the same time the higher one wins.
    pub origin: String,
    /// What was done.
    pub state: DeclarationState,
}

/// What was done to a declaration last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclarationState {
    /// It was made or changed: its options as JSON text, as they were sent.
    Declared(String),
    /// It was deleted: a tombstone.
    Deleted,
}

/// Bytes of the smallest declaration: a tenant, two lengths, a time and a state.
const DECLARATION_BYTES_MIN: usize = 16 + 4 + 8 + 4 + 1;

const DECLARED: u8 = 1;
const DELETED: u8 = 2;

impl QueueKey {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self { tenant: reader.tenant()?, queue: reader.text(NAME_BYTES_MAX)? })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.tenant(&self.tenant);
        writer.text(&self.queue, NAME_BYTES_MAX);
    }
}

impl Declaration {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            key: QueueKey::read(reader)?,
            updated_at_ms: reader.u64()?,
            origin: reader.text(SERVER_ID_BYTES_MAX)?,
            state: match reader.u8()? {
                DECLARED => DeclarationState::Declared(reader.text(OPTIONS_BYTES_MAX)?),
                DELETED => DeclarationState::Deleted,
                _ => return Err(FieldError::Value),
            },
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        self.key.write(writer);
        writer.u64(self.updated_at_ms);
        writer.text(&self.origin, SERVER_ID_BYTES_MAX);
        match &self.state {
            DeclarationState::Declared(options_json) => {
                writer.u8(DECLARED);
                writer.text(options_json, OPTIONS_BYTES_MAX);
            }
            DeclarationState::Deleted => writer.u8(DELETED),
        }
    }

    pub(super) fn read_list(reader: &mut Reader<'_>) -> Result<Vec<Self>, FieldError> {
        reader.list(DECLARATIONS_MAX, DECLARATION_BYTES_MIN, Self::read)
    }

    pub(super) fn write_list(list: &[Self], writer: &mut Writer) {
        writer.list(list, DECLARATIONS_MAX, |writer, declaration| declaration.write(writer));
    }
}
