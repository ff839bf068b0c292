//! One-time inboxes: each waits for one reply, for a bounded time, and keeps nothing.
//!
//! A reply goes from the call that pushes it to the sink of the same call. What comes to an inbox that is not there,
//! because it was answered, timed out or closed before, is counted as late and forgotten.

use hashbrown::HashTable;

use super::{Engine, INBOX_BYTES, WaitTimer};
use crate::Millis;
use crate::delivery::Sink;
use crate::inbox::InboxId;
use crate::slab::{NONE, Slab};
use crate::types::{InboxAddress, InboxInUse, TenantId, WaiterId};

/// The open inboxes of an engine.
pub(super) struct Inboxes {
    slab: Slab<Inbox>,
    /// Those whose requester chose the name.
    chosen: HashTable<u32>,
    serials: u64,
}

struct Inbox {
    serial: u64,
    tenant: TenantId,
    waiter: WaiterId,
    timer: u32,
    name: Option<Box<str>>,
}

impl Inbox {
    fn memory_bytes(&self) -> u64 {
        INBOX_BYTES + self.name.as_ref().map_or(0, |name| name.len() as u64)
    }
}

impl Inboxes {
    pub(super) const fn new() -> Self {
        Self { slab: Slab::new(), chosen: HashTable::new(), serials: 0 }
    }

    pub(super) const fn len(&self) -> u32 {
        self.slab.len()
    }

    /// Every open inbox's index, for a shutdown.
    fn indexes(&self) -> Vec<u32> {
        (0..self.slab.slots()).filter(|&index| self.slab.get(index).is_some()).collect()
    }
}

impl Engine {
    /// Opens an inbox for one reply, for `wait_ms` at most: [`Sink::reply`] is called once with what comes, or with
    /// nothing when the time is up. Without a `name` the inbox is reached by its id, which goes into a name of the
    /// broker's own ([`Minted`](crate::inbox::Minted)); with one, by that.
    ///
    /// # Errors
    /// [`InboxInUse`], when another inbox of the tenant is open under the name.
    pub fn open_inbox(
        &mut self,
        now_ms: Millis,
        tenant: TenantId,
        name: Option<&str>,
        wait_ms: u64,
        waiter: WaiterId,
    ) -> Result<InboxId, InboxInUse> {
        self.note_time(now_ms);
        if name.is_some_and(|name| self.find_inbox(tenant, name).is_some()) {
            return Err(InboxInUse);
        }
        let serial = self.inboxes.serials;
        self.inboxes.serials += 1;
        let inbox = Inbox { serial, tenant, waiter, timer: NONE, name: name.map(Into::into) };
        self.memory += inbox.memory_bytes();
        let index = self.inboxes.slab.insert(inbox);
        let timer = self.wait_timers.insert(now_ms.saturating_add(wait_ms), WaitTimer::Inbox(index));
        self.inboxes.slab[index].timer = timer;
        if let Some(name) = name {
            let Inboxes { slab, chosen, .. } = &mut self.inboxes;
            let hasher = &self.hasher;
            let hash = |index: &u32| hash_of(hasher, slab[*index].tenant, slab[*index].name.as_deref());
            chosen.insert_unique(hash_of(hasher, tenant, Some(name)), index, hash);
        }
        Ok(InboxId { index, serial })
    }

    /// Closes an inbox whose requester has gone, or whose request could not be pushed, in O(1). Returns its waiter,
    /// which the sink is not called for, or `None` if it was not open any more.
    pub fn close_inbox(&mut self, inbox: InboxId) -> Option<WaiterId> {
        let open = self.inboxes.slab.get(inbox.index).is_some_and(|open| open.serial == inbox.serial);
        open.then(|| self.remove_inbox(inbox.index))
    }

    /// Pushes to an inbox. The first payload is its reply; the others, and all of them where the inbox is not there
    /// (or is another tenant's), are late: counted and forgotten.
    pub fn push_reply<'p, S: Sink>(
        &mut self,
        now_ms: Millis,
        tenant: TenantId,
        to: InboxAddress<'_>,
        mut payloads: impl ExactSizeIterator<Item = &'p [u8]>,
        sink: &mut S,
    ) {
        self.note_time(now_ms);
        self.totals.pushed += payloads.len() as u64;
        let open = match to {
            InboxAddress::Minted(inbox) => {
                let open = self.inboxes.slab.get(inbox.index);
                let same = open.is_some_and(|open| open.serial == inbox.serial && open.tenant == tenant);
                same.then_some(inbox.index)
            }
            InboxAddress::Chosen(name) => self.find_inbox(tenant, name),
        };
        if let Some(open) = open
            && let Some(reply) = payloads.next()
        {
            let waiter = self.remove_inbox(open);
            self.totals.popped += 1;
            sink.reply(waiter, Some(reply));
        }
        self.totals.late_replies += payloads.len() as u64;
    }

    /// Tells every inbox's waiter that nothing came: the node stops.
    pub(super) fn release_inboxes<S: Sink>(&mut self, sink: &mut S) {
        for index in self.inboxes.indexes() {
            self.end_inbox(index, sink);
        }
    }

    pub(super) fn release_inboxes_of<S: Sink>(&mut self, tenant: TenantId, sink: &mut S) {
        for index in self.inboxes.indexes() {
            if self.inboxes.slab[index].tenant == tenant {
                self.end_inbox(index, sink);
            }
        }
    }

    /// An inbox's time is up.
    pub(super) fn on_inbox_timer<S: Sink>(&mut self, index: u32, sink: &mut S) {
        self.inboxes.slab[index].timer = NONE;
        self.end_inbox(index, sink);
    }

    fn end_inbox<S: Sink>(&mut self, index: u32, sink: &mut S) {
        let waiter = self.remove_inbox(index);
        sink.reply(waiter, None);
    }

    fn find_inbox(&self, tenant: TenantId, name: &str) -> Option<u32> {
        let slab = &self.inboxes.slab;
        let same = |&index: &u32| slab[index].tenant == tenant && slab[index].name.as_deref() == Some(name);
        self.inboxes.chosen.find(hash_of(&self.hasher, tenant, Some(name)), same).copied()
    }

    fn remove_inbox(&mut self, index: u32) -> WaiterId {
        let inbox = &self.inboxes.slab[index];
        if inbox.name.is_some() {
            let hash = hash_of(&self.hasher, inbox.tenant, inbox.name.as_deref());
            let entry = self.inboxes.chosen.find_entry(hash, |&other| other == index);
            entry.expect("an inbox with a chosen name is found by it").remove();
        }
        let inbox = self.inboxes.slab.remove(index);
        if inbox.timer != NONE {
            self.wait_timers.cancel(inbox.timer);
        }
        self.memory -= inbox.memory_bytes();
        inbox.waiter
    }

    /// What the open inboxes add to the engine's memory, counted again.
    #[cfg(any(test, feature = "invariants"))]
    pub(super) fn check_inboxes(&self) -> u64 {
        let mut memory = 0;
        let mut named = 0;
        for index in self.inboxes.indexes() {
            let inbox = &self.inboxes.slab[index];
            assert!(inbox.serial < self.inboxes.serials, "serials are never used again");
            assert_ne!(inbox.timer, NONE, "every inbox has a timeout");
            memory += inbox.memory_bytes();
            if let Some(name) = inbox.name.as_deref() {
                named += 1;
                assert_eq!(self.find_inbox(inbox.tenant, name), Some(index), "the index finds the inbox");
            }
        }
        assert_eq!(self.inboxes.chosen.len(), named);
        memory
    }
}

fn hash_of(hasher: &hashbrown::DefaultHashBuilder, tenant: TenantId, name: Option<&str>) -> u64 {
    std::hash::BuildHasher::hash_one(hasher, (tenant.0, name))
}
