//! How a broker is spoken to: operations into bytes, bytes into answers, without a socket and without a clock.
//!
//! A [`Driver`] is one connection's end of a protocol. It appends what a role wants to do to an output buffer and cuts
//! answers out of an input buffer as they come, in any pieces. Sockets, times and retries are the connection's
//! (`run::connection`), what to do next is the role's (`run::role`). A protocol is added by another implementation
//! here and a word in [`DriverKind`].

mod durable;
mod exchange;
mod http;
mod nats;
mod queen;
mod redis;
mod scan;

use crate::plan::{DriverKind, Style, Target};

/// One connection's end of a protocol.
pub trait Driver {
    /// Appends what opens a connection. Also forgets whatever an earlier connection still owed.
    fn greet(&mut self, out: &mut Vec<u8>) -> Owed;

    /// Appends a question that any broker of this protocol answers, to find out that it is one.
    fn probe(&mut self, out: &mut Vec<u8>) -> Owed;

    /// Appends what makes a queue ready for the run, if anything does.
    fn declare(&mut self, queue: &str, bound: Bound, out: &mut Vec<u8>) -> Owed;

    /// Appends what removes a queue of `partitions` partitions, if anything does.
    fn remove(&mut self, queue: &str, partitions: usize, out: &mut Vec<u8>) -> Owed;

    /// Appends a push of all messages of a batch to one place.
    fn push(&mut self, to: Place<'_>, messages: &Batch, out: &mut Vec<u8>) -> Owed;

    /// Appends a push whose messages go to these partitions of a queue in turns. Only of [`DriverKind::Durable`].
    fn push_across(&mut self, _queue: &str, _partitions: &[usize], _messages: &Batch, _out: &mut Vec<u8>) -> Owed {
        unreachable!("a plan with such pushes is refused where they can't be made")
    }

    /// Appends a pop of up to `max` messages that waits for the first one for up to `wait_ms`.
    fn pop(&mut self, from: Source<'_>, max: usize, wait_ms: u64, out: &mut Vec<u8>) -> Owed;

    /// Appends a request whose answer is the reply itself. Only of a driver whose [`round_trip`] is in one step.
    fn request(&mut self, queue: &str, payload: &[u8], timeout_ms: u64, out: &mut Vec<u8>) -> Owed;

    /// Appends replies, each to the name that its request brought, and a wait for up to `max` more requests. Only of a
    /// driver whose [`round_trip`] is in one step.
    fn exchange(&mut self, replies: &Replies, from: Source<'_>, max: usize, wait_ms: u64, out: &mut Vec<u8>) -> Owed;

    /// Cuts what is complete out of `input`, hands each event to `on`, and says how many bytes it took. What it leaves
    /// is offered again with more behind it.
    ///
    /// # Errors
    ///
    /// [`Garbled`]: the connection is of no more use.
    fn decode(&mut self, input: &[u8], on: &mut dyn FnMut(Event<'_>)) -> Result<usize, Garbled>;
}

/// What an operation brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// One [`Event::Answered`] or [`Event::Refused`], in the order of the operations that are owed one.
    Answer,
    /// No answer: messages come on their own, or nothing does.
    Nothing,
}

/// What a driver found in its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message. Of a pop or a request, it comes before the answer.
    Message {
        /// Its bytes, as they were pushed.
        payload: &'a [u8],
        /// Where its reply goes, if the protocol says so.
        reply_to: Option<&'a [u8]>,
    },
    /// A part of the oldest operation failed, and its answer is still to come.
    PartRefused {
        /// The broker's word for it.
        code: &'a str,
    },
    /// The oldest operation was done.
    Answered {
        /// Messages taken, of a push.
        pushed: u64,
    },
    /// The oldest operation was not done.
    Refused {
        /// The broker's word for it.
        code: &'a str,
    },
}

/// The other side does not speak the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbled;

/// Where messages are pushed to.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// One of its partitions; `None` if it has only one.
    pub partition: Option<usize>,
}

/// Where messages are popped from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// How many partitions it has. All of them are popped from.
    pub partitions: usize,
    /// How many of them one pop may take messages of, where the protocol has a say in it.
    pub claims: usize,
    /// The consumer group; `None` shares the messages among all who pop.
    pub group: Option<usize>,
}

/// How a queue is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It drops its oldest messages: it is only pushed to.
    DropOldest,
    /// As long as the broker allows; a push beyond that is refused.
    Reject,
}

/// What a connection will listen to, for protocols that subscribe before anything comes.
#[derive(Clone, Debug)]
pub enum Listens {
    /// Nothing.
    No,
    /// A queue, alone or with others of its group.
    Queue {
        /// Its name.
        queue: String,
        /// How many partitions it has.
        partitions: usize,
        /// The consumer group; `None` shares.
        group: Option<usize>,
    },
    /// Replies to its own requests, at this name.
    Inbox(String),
}

/// In how many steps a round trip goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundTrip {
    /// Push and pop on both sides.
    PushPop,
    /// [`Driver::request`] and [`Driver::exchange`].
    OneStep,
}

/// How a driver goes about a round trip of this style.
#[must_use]
pub fn round_trip(kind: DriverKind, style: Style) -> RoundTrip {
    match (kind, style) {
        (DriverKind::Nats, _) | (DriverKind::Queen, Style::Verbs) => RoundTrip::OneStep,
        (DriverKind::Queen | DriverKind::Durable | DriverKind::Redis, _) => RoundTrip::PushPop,
    }
}

/// The driver of one connection. `bound` is how the queues are bounded that it pushes to.
#[must_use]
pub fn new(kind: DriverKind, target: &Target, listens: Listens, bound: Bound) -> Box<dyn Driver> {
    match kind {
        DriverKind::Queen => Box::new(queen::Queen::new(&target.host)),
        DriverKind::Durable => Box::new(durable::Durable::new(&target.host)),
        DriverKind::Nats => Box::new(nats::Nats::new(listens)),
        DriverKind::Redis => Box::new(redis::Redis::new(bound)),
    }
}

/// Byte strings one behind the other in one buffer that is used again.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds what `append` appends.
    pub fn add(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of all together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut begin = 0;
        self.ends.iter().map(move |&end| {
            let piece = &self.bytes[begin..end];
            begin = end;
            piece
        })
    }
}

/// Replies and where each goes.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    names: Batch,
    payloads: Batch,
}

impl Replies {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.names.clear();
        self.payloads.clear();
    }

    /// Adds a reply to what `name` appends.
    pub fn add(&mut self, name: impl FnOnce(&mut Vec<u8>), payload: &[u8]) {
        self.names.add(name);
        self.payloads.add(|out| out.extend_from_slice(payload));
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Each name with its payload.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.names.iter().zip(self.payloads.iter())
    }
}

/// Appends a number in decimal.
fn append_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// How many digits a number has in decimal.
fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Reads a number in decimal that is all digits.
fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &digit| {
        digit.is_ascii_digit().then_some(())?;
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod testing {
    use super::{Driver, Event};

    /// An event that owns its bytes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) enum Seen {
        Message(String, Option<String>),
        PartRefused(String),
        Answered(u64),
        Refused(String),
    }

    fn seen(event: Event<'_>) -> Seen {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match event {
            Event::Message { payload, reply_to } => Seen::Message(text(payload), reply_to.map(text)),
            Event::PartRefused { code } => Seen::PartRefused(code.into()),
            Event::Answered { pushed } => Seen::Answered(pushed),
            Event::Refused { code } => Seen::Refused(code.into()),
        }
    }

    /// What a driver finds in `input` when it comes in pieces of `piece_bytes`, each decoded with what was left.
    pub(super) fn decoded(driver: &mut dyn Driver, input: &[u8], piece_bytes: usize) -> Vec<Seen> {
        let (mut events, mut rest) = (Vec::new(), Vec::new());
        for piece in input.chunks(piece_bytes) {
            rest.extend_from_slice(piece);
            let taken = driver.decode(&rest, &mut |event| events.push(seen(event))).unwrap();
            rest.drain(..taken);
        }
        assert!(rest.is_empty(), "{} bytes are left", rest.len());
        events
    }

    /// Asserts that a driver finds `wanted` however its input is cut. `ask` makes a driver that is owed the answers.
    pub(super) fn assert_decodes<D: Driver>(ask: impl Fn() -> D, input: &[u8], wanted: &[Seen]) {
        for piece_bytes in [1, 2, 3, 7, 64, input.len().max(1)] {
            assert_eq!(decoded(&mut ask(), input, piece_bytes), wanted, "in pieces of {piece_bytes}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_have_as_many_digits_as_said() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            let mut out = Vec::new();
            append_number(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
            assert_eq!(out.len(), decimal_digits(number));
            assert_eq!(parse_number(&out), Some(number));
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in ["", "-1", "1a", "99999999999999999999"] {
            assert_eq!(parse_number(text.as_bytes()), None, "{text:?}");
        }
    }
}
