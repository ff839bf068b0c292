//! The waiting pops of a shard: who is to be told when the engine has something for them.
//!
//! The engine knows a waiter by a number. This table says what the number stands for: a connection of this shard, or
//! a ticket of another shard. An entry lives from the pop until its answer is taken or the pop is cancelled; the
//! engine answers a waiter once, so a number is free again afterwards.

use std::{
    collections::HashMap,
    task::{Context, Poll, Waker},
};

use queen_ephemeral::{ParkId, WaiterId};
use queen_fabric::port::Ticket;
use slab::Slab;

use crate::reply::Popped;

/// The waiter of a pop whose answer is taken in the same call: it needs no entry.
pub(crate) const AT_ONCE: WaiterId = WaiterId(u64::MAX);

enum Waiter {
    /// A connection of this shard, parked.
    Here { park: Option<ParkId>, waker: Option<Waker> },
    /// A connection of this shard whose answer has come.
    Answered(Popped),
    /// A pop that another shard asked for.
    There { ticket: Ticket, park: Option<ParkId> },
}

/// What a delivery is to be done with.
pub(crate) enum Destination {
    /// It was put into the table for a connection of this shard; wake this task, if it waits already.
    Here(Option<Waker>),
    /// Send it to the shard that asked.
    There(Ticket),
}

/// The table.
#[derive(Default)]
pub(crate) struct Waiters {
    entries: Slab<Waiter>,
    tickets: HashMap<Ticket, usize>,
}

impl Waiters {
    /// An entry for a connection of this shard.
    pub(crate) fn add_here(&mut self) -> WaiterId {
        WaiterId(self.entries.insert(Waiter::Here { park: None, waker: None }) as u64)
    }

    /// An entry for another shard's pop.
    pub(crate) fn add_there(&mut self, ticket: Ticket) -> WaiterId {
        let key = self.entries.insert(Waiter::There { ticket, park: None });
        self.tickets.insert(ticket, key);
        WaiterId(key as u64)
    }

    /// The engine parked the pop.
    pub(crate) fn parked(&mut self, waiter: WaiterId, at: ParkId) {
        match &mut self.entries[waiter.0 as usize] {
            Waiter::Here { park, .. } | Waiter::There { park, .. } => *park = Some(at),
            Waiter::Answered(_) => unreachable!("a pop is parked or answered, not both"),
        }
    }

    /// The engine answered the pop. `popped` stays in the table for a connection of this shard, and comes back with
    /// its ticket for another shard's.
    pub(crate) fn answer(&mut self, waiter: WaiterId, popped: Popped) -> (Destination, Option<Popped>) {
        let key = waiter.0 as usize;
        match std::mem::replace(&mut self.entries[key], Waiter::Answered(popped)) {
            Waiter::Here { waker, .. } => (Destination::Here(waker), None),
            Waiter::There { ticket, .. } => {
                self.tickets.remove(&ticket);
                let Waiter::Answered(popped) = self.entries.remove(key) else { unreachable!("just put there") };
                (Destination::There(ticket), Some(popped))
            }
            Waiter::Answered(_) => unreachable!("the engine answers a waiter once"),
        }
    }

    /// The pop had nothing to wait for, or was refused: the entry goes.
    pub(crate) fn remove(&mut self, waiter: WaiterId) {
        if let Waiter::There { ticket, .. } = self.entries.remove(waiter.0 as usize) {
            self.tickets.remove(&ticket);
        }
    }

    /// The answer for a connection of this shard, once it is there; the entry goes with it.
    pub(crate) fn poll(&mut self, waiter: WaiterId, cx: &mut Context<'_>) -> Poll<Popped> {
        let key = waiter.0 as usize;
        match &mut self.entries[key] {
            Waiter::Here { waker, .. } => {
                match waker {
                    Some(known) => known.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            Waiter::Answered(_) => {
                let Waiter::Answered(popped) = self.entries.remove(key) else { unreachable!("just seen") };
                Poll::Ready(popped)
            }
            Waiter::There { .. } => unreachable!("a connection polls its own entry"),
        }
    }

    /// The connection of this shard has gone. The entry goes; what is left to undo comes back.
    pub(crate) fn abandon(&mut self, waiter: WaiterId) -> Abandoned {
        match self.entries.remove(waiter.0 as usize) {
            Waiter::Here { park: Some(park), .. } => Abandoned::Parked(park),
            Waiter::Answered(popped) => Abandoned::Answered(popped),
            Waiter::Here { park: None, .. } | Waiter::There { .. } => {
                unreachable!("only a parked pop of this shard is abandoned")
            }
        }
    }

    /// The other shard's client has gone. None where the answer was faster: the other shard gives it back.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> Option<ParkId> {
        let key = self.tickets.remove(&ticket)?;
        match self.entries.remove(key) {
            Waiter::There { park, .. } => park,
            Waiter::Here { .. } | Waiter::Answered(_) => unreachable!("tickets name other shards' pops"),
        }
    }
}

/// What an abandoned pop leaves behind.
pub(crate) enum Abandoned {
    /// It is still parked in the engine.
    Parked(ParkId),
    /// It was answered; the claim is to be given back.
    Answered(Popped),
}
