//! What was done and what was answered, as the clients saw it: the ground on which [`crate::judge`] stands.
//!
//! Times are nanoseconds since the start of the run on one clock. Messages are known by their number in
//! [`History::messages`], which their payload carries.

use std::collections::HashMap;

use crate::{
    produce::{pad, partition_name},
    wire::Popped,
};

/// A message's number in its history.
pub type MessageNumber = usize;

/// Everything that was noted.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Who reads all of it.
    pub groups: Vec<Group>,
    /// What was pushed or was to be.
    pub messages: Vec<Message>,
    /// Answers to pushes.
    pub pushes: Vec<Pushed>,
    /// Messages that pops brought.
    pub deliveries: Vec<Delivery>,
    /// Acknowledgements that were sent.
    pub acks: Vec<Ack>,
    /// Pops that acknowledge what they take and were not answered: how many messages each of them may have taken.
    pub lost_pops: Vec<usize>,
    /// Requests that a broker in its right mind would not have refused.
    pub refusals: Vec<String>,
    /// Requests that had no answer, or one that says nothing of whether they were carried out.
    pub unanswered: u64,
}

/// A message, before anybody knows whether it was stored.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its partition's number.
    pub partition: usize,
    /// Who pushed it.
    pub producer: usize,
    /// Its number among those of its producer in its partition.
    pub sequence: u64,
    /// Its transaction id.
    pub transaction_id: String,
}

/// An answer to a push, for one message of it.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// Which.
    pub message: MessageNumber,
    /// What was said.
    pub status: PushStatus,
    /// The id that it was given, if one was told.
    pub message_id: Option<String>,
    /// Its offset, where the broker tells.
    pub offset: Option<u64>,
    /// Whether an earlier push of it may have been carried out.
    pub is_retry: bool,
}

/// What a push says of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushStatus {
    /// It is stored now.
    Queued,
    /// It was there.
    Duplicate,
    /// It is kept elsewhere until it can be stored.
    Buffered,
}

/// Messages of one partition that one pop brought.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Who popped.
    pub group: Group,
    /// Of which partition.
    pub partition: usize,
    /// The partition's id.
    pub partition_id: String,
    /// The lease; `None` where popping acknowledges.
    pub lease: Option<Lease>,
    /// When the pop was sent.
    pub sent_ns: u64,
    /// When its answer was there.
    pub answered_ns: u64,
    /// What it brought, in order.
    pub messages: Vec<Seen>,
}

/// A lease, as the pop's answer told and its request asked for.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Its id.
    pub id: String,
    /// How long it lasts.
    pub lasts_ns: u64,
}

/// A message as it was delivered.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which; `None` when its payload is none of ours, or is not that of its transaction id.
    pub message: Option<MessageNumber>,
    /// The id that the broker gave it.
    pub message_id: String,
    /// Its offset, where the broker tells.
    pub offset: Option<u64>,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Consumers that take leases and acknowledge.
    Leased(usize),
    /// A consumer whose pops acknowledge what they take.
    AutoAck,
}

/// An acknowledgement of messages of one partition under one lease.
#[derive(Clone, Debug)]
pub struct Ack {
    /// Whose.
    pub group: Group,
    /// Of which partition.
    pub partition: usize,
    /// Under which lease.
    pub lease_id: String,
    /// When it was sent.
    pub sent_ns: u64,
    /// When its answer was there; `None` if none came.
    pub answered_ns: Option<u64>,
    /// What it said of each message.
    pub items: Vec<AckItem>,
}

/// What an acknowledgement says of a message.
#[derive(Clone, Debug)]
pub struct AckItem {
    /// Which.
    pub message: MessageNumber,
    /// What.
    pub word: AckWord,
    /// Whether the broker took it; `None` without an answer.
    pub success: Option<bool>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckWord {
    /// It is done.
    Completed,
    /// It failed, and is to come again.
    Failed,
    /// It is given back, and is to come again.
    Retry,
}

impl AckWord {
    /// As the wire has it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Retry => "retry",
        }
    }
}

/// The log as it stands at the end, partition by partition: what a new group reads from its beginning.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Messages in their order.
    pub partitions: Vec<Vec<Seen>>,
}

impl History {
    /// Which message this is, if its payload, transaction id and partition are those that were pushed together.
    pub fn identify(&self, popped: &Popped) -> Option<MessageNumber> {
        let number = usize::try_from(popped.payload["message"].as_u64()?).ok()?;
        let message = self.messages.get(number)?;
        let is_it = message.transaction_id == popped.transaction_id
            && partition_name(message.partition) == popped.partition
            && popped.payload["pad"] == pad(number);
        is_it.then_some(number)
    }
}

impl Log {
    /// Where each message stands in its partition; of one that is there twice, where it stands first.
    pub fn positions(&self) -> HashMap<MessageNumber, usize> {
        let mut positions = HashMap::new();
        for partition in &self.partitions {
            for (position, seen) in partition.iter().enumerate() {
                if let Some(message) = seen.message {
                    positions.entry(message).or_insert(position);
                }
            }
        }
        positions
    }
}
