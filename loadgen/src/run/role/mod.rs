//! What a connection does: it starts operations and takes their answers.
//!
//! A role knows nothing of sockets. Its connection calls it with each event that the driver finds, and then lets it
//! start what it may; what it appends to the output leaves in one write.

mod fill;
mod pop;
mod push;
mod read;
mod request;
mod work;

use self::{fill::Filler, pop::Popper, push::Pusher, read::Reader, request::Requester, work::Worker};
use super::{
    core::Core,
    flow::{Job, Part},
    sizes::Sizes,
};
use crate::driver::{Driver, Event};

/// How long an answer may take, in nanoseconds, beyond what the operation itself waits.
const PATIENCE_NS: u64 = 30_000_000_000;

/// How long a pop waits in the broker before it is asked again, in milliseconds. Less than the patience, so that an
/// empty answer is never taken for a broker that does not answer.
const POP_WAIT_MS: u64 = 20_000;

/// Why a connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// An answer did not come in time.
    Timeout,
    /// The other side ended it.
    Disconnected,
    /// The other side sent what is not the protocol.
    Garbled,
}

impl Loss {
    /// As reports call it.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
            Self::Garbled => "garbled",
        }
    }
}

/// What a connection does.
pub(super) trait Role {
    /// Takes what the driver found.
    fn on_event(&mut self, event: Event<'_>, core: &mut Core);

    /// Starts what may be started, by appending it to `out`.
    fn send(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core);

    /// Gives up all that is under way, and says how many requests that were. They are failures.
    fn on_loss(&mut self, loss: Loss, core: &mut Core) -> u64;

    /// When to give up if nothing has come until then; `None` if nothing is waited for.
    fn gives_up_at_ns(&self) -> Option<u64>;

    /// Whether something is under way.
    fn is_busy(&self) -> bool {
        self.gives_up_at_ns().is_some()
    }

    /// Whether it will never send anything again.
    fn is_exhausted(&self) -> bool {
        false
    }
}

/// The role of a part.
pub(super) fn new(part: &Part, seat: usize, sizes: Sizes, core: &Core) -> Box<dyn Role> {
    match part.job {
        Job::Push { producer } => Box::new(Pusher::new(part.flow, seat, producer, sizes, core)),
        Job::Fill { producer, ref queues } => {
            Box::new(Filler::new(part.flow, seat, producer, queues.clone(), sizes, core))
        }
        Job::Pop { queue, group } => Box::new(Popper::new(part.flow, seat, queue, group, core)),
        Job::Request { producer } => Box::new(Requester::new(part.flow, seat, producer, sizes, core)),
        Job::Read { queue } => Box::new(Reader::new(part.flow, seat, queue, core)),
        Job::Work { queue } => Box::new(Worker::new(part.flow, seat, queue, core)),
    }
}
