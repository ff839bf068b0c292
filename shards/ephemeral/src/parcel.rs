//! A partition on its way from one engine to another.
//!
//! [`Engine::take_out`](crate::Engine::take_out) makes a [`Parcel`], [`Engine::put_in`](crate::Engine::put_in) adopts
//! one. What comes off a wire is gathered by a [`ParcelBuilder`], which takes anything and lets only that become a parcel
//! which an engine can adopt. The payloads stand in one buffer, so that a million small ones are no million allocations.

use crate::Millis;
use crate::engine::{GROUP_BYTES, MESSAGE_BYTES, PARTITION_BYTES, QUEUE_BYTES};
use crate::inbox::is_inbox;
use crate::payload::{PAYLOAD_MAX_BYTES, reply_to_bytes};
use crate::types::TenantId;

/// One partition: its messages, and what every consumer group of the queue has consumed of them. It holds at least one
/// message, and each message is one that some group has still to consume, or that no group exists to consume.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Parcel {
    tenant: TenantId,
    queue: Box<str>,
    partition: Box<str>,
    messages: Vec<Item>,
    payloads: Vec<u8>,
    groups: Vec<ParcelGroup>,
}

#[derive(Clone, Eq, PartialEq, Debug)]
struct Item {
    age_ms: u64,
    /// Where its payload ends; it begins where the one before it ends.
    end: usize,
    reply_to: Option<Box<str>>,
}

/// One message of a parcel.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ParcelMessage<'a> {
    /// Milliseconds since it was pushed.
    pub age_ms: u64,
    /// The bytes that were pushed.
    pub payload: &'a [u8],
    /// The inbox that its sender waits at, if it is a request.
    pub reply_to: Option<&'a str>,
}

/// Where a consumer group stands: it has consumed every message before `fresh_from` that is not among the `returned`.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct ParcelGroup {
    /// Its name; [`QUEUE_MODE`](crate::QUEUE_MODE) is the group of pops without one.
    pub name: Box<str>,
    /// The place of the first message that it was never handed, from 0; as many as there are, if it was handed all.
    pub fresh_from: u32,
    /// Those before it that it has still to consume, in their order.
    pub returned: Vec<Redelivery>,
}

/// A message that a group was handed and has not consumed.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Redelivery {
    /// Its place in the parcel, from 0.
    pub message: u32,
    /// Deliveries that count; the next one is that plus one.
    pub attempts: u32,
}

impl Parcel {
    /// Whose queue.
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The queue's name.
    pub const fn queue(&self) -> &str {
        &self.queue
    }

    /// The partition's name.
    pub const fn partition(&self) -> &str {
        &self.partition
    }

    /// The messages, in order. Going on from any place costs nothing (`messages().skip(n)`).
    pub fn messages(&self) -> impl ExactSizeIterator<Item = ParcelMessage<'_>> + DoubleEndedIterator {
        (0..self.messages.len()).map(|at| self.message(at))
    }

    fn message(&self, at: usize) -> ParcelMessage<'_> {
        let start = at.checked_sub(1).map_or(0, |before| self.messages[before].end);
        let Item { age_ms, end, reply_to } = &self.messages[at];
        ParcelMessage { age_ms: *age_ms, payload: &self.payloads[start..*end], reply_to: reply_to.as_deref() }
    }

    /// Every group of the queue, in no particular order.
    pub fn groups(&self) -> &[ParcelGroup] {
        &self.groups
    }

    /// The payloads' bytes.
    pub const fn payload_bytes(&self) -> u64 {
        self.payloads.len() as u64
    }

    /// The most by which [`Engine::memory_bytes`](crate::Engine::memory_bytes) grows where it is adopted.
    pub fn memory_bytes(&self) -> u64 {
        QUEUE_BYTES + PARTITION_BYTES + self.groups.len() as u64 * GROUP_BYTES + self.message_bytes()
    }

    /// What its messages come to in the engine's memory.
    pub(crate) fn message_bytes(&self) -> u64 {
        let names: usize = self.messages.iter().map(|item| reply_to_bytes(item.reply_to.as_deref())).sum();
        self.payload_bytes() + names as u64 + self.messages.len() as u64 * MESSAGE_BYTES
    }

    /// Counts the time for which it waited between two engines towards its messages' age.
    pub fn grow_older(&mut self, by_ms: Millis) {
        for item in &mut self.messages {
            item.age_ms = item.age_ms.saturating_add(by_ms);
        }
    }

    fn check(&self) -> Result<(), MalformedParcel> {
        let named = [&self.queue, &self.partition].into_iter().chain(self.groups.iter().map(|group| &group.name));
        if named.into_iter().any(|name| name.is_empty()) || is_inbox(&self.queue) {
            return Err(MalformedParcel::Name);
        }
        if self.messages.is_empty() {
            return Err(MalformedParcel::NoMessages);
        }
        let count = u32::try_from(self.messages.len()).map_err(|_| MalformedParcel::TooLarge)?;
        let fits = |message: ParcelMessage<'_>| {
            let name_bytes = message.reply_to.map_or(0, str::len);
            message.payload.len() as u64 <= PAYLOAD_MAX_BYTES && name_bytes <= usize::from(u16::MAX)
        };
        if self.groups.len() > usize::from(u16::MAX) || !self.messages().all(fits) {
            return Err(MalformedParcel::TooLarge);
        }
        let mut names: Vec<&str> = self.groups.iter().map(|group| &*group.name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(MalformedParcel::Name);
        }
        if !self.groups.iter().all(|group| group.is_sound(count)) {
            return Err(MalformedParcel::Position);
        }
        // What is fresh for one group is for somebody to consume; before that it must have come back to some group.
        if let Some(first_fresh) = self.groups.iter().map(|group| group.fresh_from).min() {
            let mut wanted = vec![false; first_fresh as usize];
            for redelivery in self.groups.iter().flat_map(|group| &group.returned) {
                if let Some(wanted) = wanted.get_mut(redelivery.message as usize) {
                    *wanted = true;
                }
            }
            if !wanted.into_iter().all(|wanted| wanted) {
                return Err(MalformedParcel::Consumed);
            }
        }
        Ok(())
    }
}

impl ParcelGroup {
    fn is_sound(&self, messages: u32) -> bool {
        let in_order = self.returned.is_sorted_by(|one, other| one.message < other.message);
        let in_range = |redelivery: &Redelivery| {
            redelivery.message < self.fresh_from && redelivery.attempts <= Redelivery::ATTEMPTS_MAX
        };
        self.fresh_from <= messages && in_order && self.returned.iter().all(in_range)
    }
}

impl Redelivery {
    /// The next delivery's number must still be one.
    pub(crate) const ATTEMPTS_MAX: u32 = u32::MAX - 1;
}

/// Gathers a parcel, as it comes off a wire or out of an engine.
///
/// ```
/// use queen_ephemeral::{MalformedParcel, ParcelBuilder, ParcelGroup, QUEUE_MODE, Redelivery, TenantId};
///
/// let mut builder = ParcelBuilder::new(TenantId::DEFAULT, "jobs", "Default");
/// builder.message(1500, b"42", None);
/// builder.message(20, b"43", None);
/// // The first was handed out once and came back, the second was not yet handed out.
/// let returned = vec![Redelivery { message: 0, attempts: 1 }];
/// builder.group(ParcelGroup { name: QUEUE_MODE.into(), fresh_from: 1, returned });
/// let parcel = builder.build()?;
/// assert_eq!(parcel.messages().map(|message| message.age_ms).collect::<Vec<_>>(), [1500, 20]);
/// assert_eq!(ParcelBuilder::new(TenantId::DEFAULT, "jobs", "p").build(), Err(MalformedParcel::NoMessages));
/// # Ok::<(), MalformedParcel>(())
/// ```
#[derive(Debug)]
pub struct ParcelBuilder(Parcel);

impl ParcelBuilder {
    /// A parcel of a partition, with nothing in it yet.
    pub fn new(tenant: TenantId, queue: &str, partition: &str) -> Self {
        Self(Parcel {
            tenant,
            queue: queue.into(),
            partition: partition.into(),
            messages: Vec::new(),
            payloads: Vec::new(),
            groups: Vec::new(),
        })
    }

    /// Makes room for so much more.
    pub(crate) fn reserve(&mut self, messages: usize, payload_bytes: usize) {
        self.0.messages.reserve_exact(messages);
        self.0.payloads.reserve_exact(payload_bytes);
    }

    /// Adds the next message.
    pub fn message(&mut self, age_ms: u64, payload: &[u8], reply_to: Option<&str>) {
        self.0.payloads.extend_from_slice(payload);
        let end = self.0.payloads.len();
        self.0.messages.push(Item { age_ms, end, reply_to: reply_to.map(Into::into) });
    }

    /// How many messages it has by now.
    pub const fn messages(&self) -> usize {
        self.0.messages.len()
    }

    /// How many bytes their payloads have.
    pub const fn payload_bytes(&self) -> u64 {
        self.0.payload_bytes()
    }

    /// Adds a group. Its places may be those of messages that are still to come.
    pub fn group(&mut self, group: ParcelGroup) {
        self.0.groups.push(group);
    }

    /// The parcel.
    ///
    /// # Errors
    /// See [`MalformedParcel`].
    pub fn build(self) -> Result<Parcel, MalformedParcel> {
        self.0.check()?;
        Ok(self.0)
    }

    /// The parcel that an engine made.
    pub(crate) fn trusted(self) -> Parcel {
        debug_assert_eq!(self.0.check(), Ok(()), "an engine takes out what another can put in");
        self.0
    }
}

/// Why no engine can adopt what was gathered: whoever sent it does not keep to the rules, so there is no use in its
/// sending it again.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum MalformedParcel {
    /// A name is empty, two groups have the same, or the queue is an inbox.
    #[error("a name is empty, there twice, or an inbox's")]
    Name,
    /// There is nothing to adopt.
    #[error("the parcel holds no messages")]
    NoMessages,
    /// There are more messages or groups than are counted, or a payload or an inbox's name is longer than may be.
    #[error("the parcel, a payload or a name is too large")]
    TooLarge,
    /// A group's place, a redelivery's place or its attempts are out of range, or redeliveries are out of order.
    #[error("a group's position does not fit the messages")]
    Position,
    /// A message has been consumed by every group: it should not have been sent.
    #[error("nobody has still to consume one of the messages")]
    Consumed,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, fresh_from: u32, returned: &[(u32, u32)]) -> ParcelGroup {
        let returned = returned.iter().map(|&(message, attempts)| Redelivery { message, attempts }).collect();
        ParcelGroup { name: name.into(), fresh_from, returned }
    }

    fn built(queue: &str, messages: usize, groups: &[ParcelGroup]) -> Result<Parcel, MalformedParcel> {
        let mut builder = ParcelBuilder::new(TenantId::DEFAULT, queue, "p");
        for group in groups {
            builder.group(group.clone());
        }
        for n in 0..messages {
            builder.message(n as u64, &[n as u8; 3], None);
        }
        builder.build()
    }

    #[test]
    fn a_parcel_reads_back_as_it_was_gathered() {
        let mut builder = ParcelBuilder::new(TenantId([3; 16]), "q", "p");
        builder.message(7, b"", None);
        builder.message(5, b"ask", Some("_inbox.mine"));
        builder.message(u64::MAX, b"x", None);
        let mut parcel = builder.build().expect("well-formed");
        parcel.grow_older(2);
        let seen: Vec<_> = parcel.messages().map(|m| (m.age_ms, m.payload, m.reply_to)).collect();
        let expected: [(u64, &[u8], Option<&str>); 3] =
            [(9, b"", None), (7, b"ask", Some("_inbox.mine")), (u64::MAX, b"x", None)];
        assert_eq!(seen, expected);
        assert_eq!((parcel.tenant(), parcel.queue(), parcel.partition()), (TenantId([3; 16]), "q", "p"));
        assert_eq!((parcel.payload_bytes(), parcel.message_bytes()), (4, 4 + 2 + 11 + 3 * MESSAGE_BYTES));
    }

    #[test]
    fn what_no_engine_could_adopt_is_malformed() {
        use MalformedParcel::{Consumed, Name, NoMessages, Position, TooLarge};
        assert!(built("q", 2, &[]).is_ok());
        assert!(built("q", 2, &[group("a", 2, &[(0, 3)]), group("b", 1, &[])]).is_ok());
        for (queue, messages, groups, error) in [
            ("", 1, vec![], Name),
            ("_inbox.mine", 1, vec![], Name),
            ("q", 1, vec![group("", 0, &[])], Name),
            ("q", 1, vec![group("a", 0, &[]), group("a", 0, &[])], Name),
            ("q", 0, vec![], NoMessages),
            ("q", 0, vec![group("a", 0, &[])], NoMessages),
            ("q", 2, vec![group("a", 3, &[])], Position),
            ("q", 2, vec![group("a", 1, &[(1, 1)])], Position),
            ("q", 3, vec![group("a", 3, &[(1, 1), (0, 1), (2, 1)])], Position),
            ("q", 2, vec![group("a", 2, &[(0, 1), (0, 1), (1, 1)])], Position),
            ("q", 1, vec![group("a", 1, &[(0, u32::MAX)])], Position),
            ("q", 2, vec![group("a", 1, &[])], Consumed),
            ("q", 2, vec![group("a", 2, &[(0, 1)]), group("b", 2, &[(0, 0)])], Consumed),
        ] {
            assert_eq!(built(queue, messages, &groups), Err(error), "{queue:?} {messages} {groups:?}");
        }
        let mut builder = ParcelBuilder::new(TenantId::DEFAULT, "q", "p");
        builder.message(0, b"", Some(&"x".repeat(65_536)));
        assert_eq!(builder.build(), Err(TooLarge));
    }
}
