//! The ephemeral verbs as HTTP requests: one file per family, each of which reads the request, finds the owner and
//! either calls the engine here or asks the shard that owns the queue.

mod ack;
pub(crate) mod declare;
mod exchange;
mod pop;
mod push;
pub(crate) mod reads;
pub(crate) mod request;
pub(crate) mod reset;

use queen_ephemeral::inbox;
use queen_fabric::{ShardId, port::Asked};
use queen_wire::{body::BodyError, name, target};

use crate::{
    dispatch::{Call, Handled},
    error::ApiError,
    protocol::{Ask, DataProtocol},
    shard::Shard,
};

impl Call<'_> {
    /// The queue that the path names, decoded and checked.
    fn queue(&self) -> Result<String, ApiError> {
        let raw = self.segments[0].unwrap_or_default();
        let queue = target::decode_segment(raw)
            .map_err(|fault| BodyError::Encoding { parameter: "queue".to_owned(), fault })?;
        name::check("queue", &queue)?;
        not_reserved(&queue)?;
        Ok(queue.into_owned())
    }
}

impl Shard {
    /// Sends a request to the shard that owns the queue, or says that its lane has no room.
    pub(crate) fn ask(&self, owner: ShardId, ask: Ask) -> Result<Asked<DataProtocol>, ApiError> {
        self.peers
            .ask(owner, ask)
            .map_err(|_| ApiError::overloaded("The lane to the shard that owns the queue is full"))
    }
}

/// Refuses an inbox where a queue is named.
pub(crate) fn not_reserved(queue: &str) -> Result<(), ApiError> {
    if inbox::is_inbox(queue) { Err(ApiError::reserved_name(queue)) } else { Ok(()) }
}
