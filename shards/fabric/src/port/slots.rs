//! The questions of a port that have no reply yet: a slab, and the answers that nobody waits for.

use std::{collections::VecDeque, task::Waker};

use super::Protocol;
use crate::ShardId;

/// What a question holds until it is settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    /// The peer asked.
    pub(super) to: ShardId,
    /// Whether a credit towards it is held.
    pub(super) credited: bool,
}

/// One question.
enum Slot<P: Protocol> {
    /// No question: the next free slot, if any.
    Free(Option<u32>),
    /// Asked, and somebody waits.
    Waiting(Charge, Option<Waker>),
    /// Asked, and dropped since. The answer is to come.
    Cancelled(Charge),
    /// Answered, and not taken yet.
    Answered(Charge, P::Answer),
}

/// The slab. It grows to the most questions that were ever out at once, and stays so.
pub(super) struct Slots<P: Protocol> {
    slots: Vec<Slot<P>>,
    free: Option<u32>,
    in_use: usize,
    /// Answers whose question was dropped after they came and before they were taken.
    orphans: VecDeque<(Charge, P::Answer)>,
}

/// Who gets an answer that came.
pub(super) enum Arrived<P: Protocol> {
    /// The task that waits: wake it.
    Waited(Option<Waker>),
    /// Nobody.
    Orphan(Charge, P::Answer),
}

impl<P: Protocol> Slots<P> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: None, in_use: 0, orphans: VecDeque::new() }
    }

    /// Opens a slot for a question. Its id is unique until [`close`](Self::close) or the answer to a cancelled one.
    pub(super) fn open(&mut self, charge: Charge) -> u32 {
        self.in_use += 1;
        let waiting = Slot::Waiting(charge, None);
        let Some(id) = self.free else {
            let id = u32::try_from(self.slots.len()).expect("fewer than 2^32 questions are out");
            self.slots.push(waiting);
            return id;
        };
        let Slot::Free(next) = std::mem::replace(&mut self.slots[id as usize], waiting) else {
            unreachable!("the free list holds free slots")
        };
        self.free = next;
        id
    }

    /// The answer, if it is there, which closes the slot; otherwise `waker` is woken when it comes.
    pub(super) fn take(&mut self, id: u32, waker: &Waker) -> Option<(Charge, P::Answer)> {
        match &mut self.slots[id as usize] {
            Slot::Answered(..) => {
                let Slot::Answered(charge, answer) = self.close(id) else { unreachable!("matched above") };
                Some((charge, answer))
            }
            Slot::Waiting(_, waiting) => {
                if !waiting.as_ref().is_some_and(|known| known.will_wake(waker)) {
                    *waiting = Some(waker.clone());
                }
                None
            }
            Slot::Free(_) | Slot::Cancelled(_) => unreachable!("a question that is waited for has a slot"),
        }
    }

    /// The question is dropped. Returns the peer to send a cancel to; an answer that is here already becomes an orphan.
    pub(super) fn cancel(&mut self, id: u32) -> Option<ShardId> {
        match std::mem::replace(&mut self.slots[id as usize], Slot::Free(None)) {
            Slot::Waiting(charge, _) => {
                self.slots[id as usize] = Slot::Cancelled(charge);
                Some(charge.to)
            }
            Slot::Answered(charge, answer) => {
                self.close(id);
                self.orphans.push_back((charge, answer));
                None
            }
            Slot::Free(_) | Slot::Cancelled(_) => unreachable!("a question is dropped once"),
        }
    }

    /// The answer to question `id` came from `from`.
    pub(super) fn answered(&mut self, from: ShardId, id: u32, answer: P::Answer) -> Arrived<P> {
        let slot = &mut self.slots[id as usize];
        match slot {
            Slot::Waiting(charge, waker) => {
                assert_eq!(charge.to, from, "the shard that was asked answers");
                let waker = waker.take();
                *slot = Slot::Answered(*charge, answer);
                Arrived::Waited(waker)
            }
            Slot::Cancelled(charge) => {
                let charge = *charge;
                assert_eq!(charge.to, from, "the shard that was asked answers");
                self.close(id);
                Arrived::Orphan(charge, answer)
            }
            Slot::Free(_) | Slot::Answered(..) => panic!("shard {from} answered question {id} twice"),
        }
    }

    /// The next answer that was dropped after it came.
    pub(super) fn next_orphan(&mut self) -> Option<(Charge, P::Answer)> {
        self.orphans.pop_front()
    }

    /// Questions whose reply was not taken yet.
    pub(super) fn unanswered(&self) -> usize {
        self.in_use
    }

    /// Frees a slot and returns what was in it.
    fn close(&mut self, id: u32) -> Slot<P> {
        self.in_use -= 1;
        std::mem::replace(&mut self.slots[id as usize], Slot::Free(self.free.replace(id)))
    }
}
