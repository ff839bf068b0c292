//! What data shards ask of the store role: durable requests, the declarations of ephemeral queues, and what operators
//! have switched and granted.

use std::sync::Arc;

use queen_log::request::{Answer, Request};

use super::control::{Control, ControlAsk};
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
    /// The options as JSON text, as the data shard wrote them. `None` is a tombstone: it was deleted, and others may not
    /// have heard of that yet.
    pub options_json: Option<String>,
    /// When it was declared or deleted last, in milliseconds since the Unix epoch. In what is to be kept, 0 stands for the
    /// time at which it is; a store that several brokers share always takes that.
    pub updated_at_ms: u64,
    /// The id of the node where that was, if nodes with stores of their own tell each other of it; else empty.
    pub origin: String,
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
    /// Change or read what operators have switched and granted. Answered by [`StoreAnswer::Control`].
    Control(Box<ControlAsk>),
    /// Tell me when what is known of it is not what I have `seen`: answered by [`StoreAnswer::Control`] as soon as the
    /// version that the role knows is another one, which may be never, or when it is cancelled.
    WatchControl {
        /// The version of the asker; 0 when it has none.
        seen: u64,
    },
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
        /// The time, by the store's clock, in milliseconds since the Unix epoch.
        updated_at_ms: u64,
    },
    /// Declarations.
    Declarations(Vec<Declaration>),
    /// The answer to a durable request.
    Log(Box<Answer>),
    /// What operators have switched and granted.
    Control {
        /// All of it.
        control: Arc<Control>,
        /// Raised by every change that the role comes to know; 0 while the store was never read.
        version: u64,
        /// Whether what was asked changed anything: for a grant that is taken away, whether there was one.
        changed: bool,
    },
    /// The store can't do it now. Nothing was changed, or, if it failed while committing, that is not known.
    Unavailable(Box<str>),
}
