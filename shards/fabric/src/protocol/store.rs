//! What data shards ask of the store role: durable requests, and the declarations of ephemeral queues.

use queen_log::request::{Answer, Request};

use crate::port::Protocol;

/// The mesh between data shards and the store role.
pub struct StoreProtocol;

impl Protocol for StoreProtocol {
    type Ask = StoreAsk;
    /// Nothing follows a store's answer.
    type Tell = std::convert::Infallible;
    type Answer = StoreAnswer;
}

/// A declared queue as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The tenant's UUID.
    pub tenant: [u8; 16],
    /// The queue's name.
    pub queue: String,
    /// The options as JSON text, as the data shard wrote them.
    pub options_json: String,
    /// When it was declared last, in milliseconds since the Unix epoch.
    pub updated_at_ms: u64,
}

/// What the store is asked.
#[derive(Debug)]
pub enum StoreAsk {
    /// Keep this declaration, in place of an earlier one of the same queue. Answered by [`StoreAnswer::Done`].
    Declare(Box<Declaration>),
    /// Forget the declaration of this tenant's queue. Answered by [`StoreAnswer::Removed`].
    Remove(Box<([u8; 16], String)>),
    /// All declarations of queues that the asking shard owns, which is answered once the database can be reached:
    /// [`StoreAnswer::Declarations`].
    Declarations,
    /// Serve a durable request. Answered by [`StoreAnswer::Log`]; one that waits may be cancelled.
    Log(Box<Request>),
}

/// What the store answers, once it is durable.
#[derive(Debug)]
pub enum StoreAnswer {
    /// The declaration is kept.
    Done {
        /// The time it is kept under, in milliseconds since the Unix epoch.
        updated_at_ms: u64,
    },
    /// The declaration is gone.
    Removed {
        /// Whether there was one.
        declared: bool,
    },
    /// Declarations.
    Declarations(Vec<Declaration>),
    /// The answer to a durable request.
    Log(Box<Answer>),
    /// The store can't do it now. Nothing was changed, or, if it failed while committing, that is not known.
    Unavailable(Box<str>),
}
