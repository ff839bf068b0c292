//! The waiting pops and requests of a shard: who is to be told when the engine has something for them.
//!
//! The engine knows a waiter by a number. This table says what the number stands for: a connection of this shard, or
//! a ticket of another shard. An entry lives from the pop or request until its answer is taken or it is cancelled;
//! the engine answers a waiter once, so a number is free again afterwards.

use std::{
    collections::HashMap,
    task::{Context, Poll, Waker},
};

use queen_ephemeral::{InboxId, ParkId, WaiterId};
use queen_fabric::port::Ticket;
use slab::Slab;

use crate::reply::{Popped, Reply};

/// The waiter of a pop whose answer is taken in the same call: it needs no entry.
pub(crate) const AT_ONCE: WaiterId = WaiterId(u64::MAX);

enum Waiter {
    /// A connection of this shard that waits.
    Here { place: Option<Place>, waker: Option<Waker> },
    /// A connection of this shard whose answer has come.
    Answered(Given),
    /// What another shard asked for.
    There { ticket: Ticket, place: Option<Place> },
}

/// Where the engine keeps a waiter.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In a queue's line.
    Parked(ParkId),
    /// At an inbox.
    Inbox(InboxId),
}

/// What a waiter is given.
pub(crate) enum Given {
    /// Messages, or the empty list.
    Popped(Popped),
    /// A reply, or that none came.
    Reply(Reply),
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
        WaiterId(self.entries.insert(Waiter::Here { place: None, waker: None }) as u64)
    }

    /// An entry for what another shard asks.
    pub(crate) fn add_there(&mut self, ticket: Ticket) -> WaiterId {
        let key = self.entries.insert(Waiter::There { ticket, place: None });
        self.tickets.insert(ticket, key);
        WaiterId(key as u64)
    }

    /// The engine keeps the waiter.
    pub(crate) fn placed(&mut self, waiter: WaiterId, at: Place) {
        match &mut self.entries[waiter.0 as usize] {
            Waiter::Here { place, .. } | Waiter::There { place, .. } => *place = Some(at),
            Waiter::Answered(_) => unreachable!("a waiter is kept or answered, not both"),
        }
    }

    /// The engine answered. What it gave stays in the table for a connection of this shard, and comes back with
    /// its ticket for another shard's.
    pub(crate) fn answer(&mut self, waiter: WaiterId, given: Given) -> (Destination, Option<Given>) {
        let key = waiter.0 as usize;
        match std::mem::replace(&mut self.entries[key], Waiter::Answered(given)) {
            Waiter::Here { waker, .. } => (Destination::Here(waker), None),
            Waiter::There { ticket, .. } => {
                self.tickets.remove(&ticket);
                let Waiter::Answered(given) = self.entries.remove(key) else { unreachable!("just put there") };
                (Destination::There(ticket), Some(given))
            }
            Waiter::Answered(_) => unreachable!("the engine answers a waiter once"),
        }
    }

    /// There is nothing to wait for, or it was refused: the entry goes.
    pub(crate) fn remove(&mut self, waiter: WaiterId) {
        if let Waiter::There { ticket, .. } = self.entries.remove(waiter.0 as usize) {
            self.tickets.remove(&ticket);
        }
    }

    /// The answer for a connection of this shard, once it is there; the entry goes with it.
    pub(crate) fn poll(&mut self, waiter: WaiterId, cx: &mut Context<'_>) -> Poll<Given> {
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
                let Waiter::Answered(given) = self.entries.remove(key) else { unreachable!("just seen") };
                Poll::Ready(given)
            }
            Waiter::There { .. } => unreachable!("a connection polls its own entry"),
        }
    }

    /// The connection of this shard has gone. The entry goes; what is left to undo comes back.
    pub(crate) fn abandon(&mut self, waiter: WaiterId) -> Abandoned {
        match self.entries.remove(waiter.0 as usize) {
            Waiter::Here { place: Some(place), .. } => Abandoned::Waiting(place),
            Waiter::Answered(given) => Abandoned::Answered(given),
            Waiter::Here { place: None, .. } | Waiter::There { .. } => {
                unreachable!("only a waiter of this shard that the engine keeps is abandoned")
            }
        }
    }

    /// The other shard's client has gone. None where the answer was faster: the other shard gives it back.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> Option<Place> {
        let key = self.tickets.remove(&ticket)?;
        match self.entries.remove(key) {
            Waiter::There { place, .. } => place,
            Waiter::Here { .. } | Waiter::Answered(_) => unreachable!("tickets name what other shards asked"),
        }
    }
}

/// What an abandoned waiter leaves behind.
pub(crate) enum Abandoned {
    /// The engine still keeps it.
    Waiting(Place),
    /// It was answered; a claim is to be given back.
    Answered(Given),
}
