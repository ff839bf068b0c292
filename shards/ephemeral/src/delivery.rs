//! What a pop gets: messages to read in place, and the claim that names what was handed out.

use crate::payload::{Chunks, Span};
use crate::queue::{Contents, Partition};
use crate::sequence;
use crate::types::WaiterId;

/// Where deliveries go.
pub trait Sink {
    /// An answer to a pop, called synchronously inside the engine call that made it. It is empty
    /// for a parked pop that ran into its timeout. A claim that is not taken counts as written.
    fn deliver(&mut self, waiter: WaiterId, delivery: Delivery<'_>);

    /// What came to the one-time inbox of `waiter`, or that nothing came in its time, called
    /// synchronously inside the engine call that brought it. The inbox is gone by then. Without
    /// inboxes it is never called.
    fn reply(&mut self, waiter: WaiterId, reply: Option<&[u8]>) {
        let _ = (waiter, reply);
    }
}

/// The messages of one answer, borrowed from the engine for the length of the call.
pub struct Delivery<'a> {
    pub(crate) queue: &'a str,
    pub(crate) contents: Option<&'a Contents>,
    pub(crate) taken: &'a [Taken],
    pub(crate) claim: &'a mut Option<Claim>,
}

impl<'a> Delivery<'a> {
    /// The queue's name.
    pub const fn queue(&self) -> &'a str {
        self.queue
    }

    /// How many messages there are.
    pub const fn len(&self) -> usize {
        self.taken.len()
    }

    /// A parked pop ran into its timeout.
    pub const fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// The messages, in order within each partition.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = Message<'a>> + use<'a> {
        let contents = self.contents;
        let mut name = "";
        let mut named = crate::slab::NONE;
        let mut chunks: Option<&'a Chunks> = None;
        self.taken.iter().map(move |taken| {
            let contents = contents.expect("messages come from a queue that has some");
            if taken.partition != named {
                named = taken.partition;
                name = Partition::name(contents.partition(named));
            }
            let chunks = *chunks.get_or_insert(&contents.chunks);
            Message {
                partition: name,
                sequence: sequence::shown(taken.sequence),
                attempts: taken.attempts,
                payload: chunks.get(taken.span),
                reply_to: chunks.reply_to(taken.span),
            }
        })
    }

    /// The claim to settle or give back once the answer is written or lost. `None` when the
    /// delivery is empty or the claim was taken before.
    pub const fn take_claim(&mut self) -> Option<Claim> {
        self.claim.take()
    }
}

/// One delivered message.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Message<'a> {
    /// The partition it is of.
    pub partition: &'a str,
    /// Its sequence number, for the id.
    pub sequence: u64,
    /// Which delivery to this group it is, from 1.
    pub attempts: u32,
    /// The bytes that were pushed.
    pub payload: &'a [u8],
    /// The inbox that its sender waits at, if it is a request.
    pub reply_to: Option<&'a str>,
}

#[derive(Copy, Clone)]
pub(crate) struct Taken {
    pub(crate) sequence: u64,
    pub(crate) span: Span,
    pub(crate) partition: u32,
    pub(crate) attempts: u32,
}

/// Names what one answer handed out. Pass it to [`settle`](crate::Engine::settle) when the answer
/// is written, or to [`give_back`](crate::Engine::give_back) when it can't be. Dropping an autoAck
/// claim keeps its
/// payloads in memory until the queue is reset or deleted.
#[must_use = "a claim is settled or given back"]
pub struct Claim(pub(crate) Box<Handed>);

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("queue", &self.0.queue).field("runs", &self.0.runs.len()).finish()
    }
}

/// The inside of a claim. It names messages by sequence, which is never reused, so a claim that
/// outlives its queue or partition finds nothing; the group is known by a number of its own.
#[derive(Default)]
pub(crate) struct Handed {
    pub(crate) queue: u32,
    pub(crate) group_uid: u32,
    pub(crate) group: u16,
    pub(crate) leased: bool,
    pub(crate) runs: Vec<Run>,
}

/// Neighbours in one partition that were handed out together, at the same attempt.
#[derive(Copy, Clone)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) partition: u32,
    pub(crate) attempts: u32,
}
