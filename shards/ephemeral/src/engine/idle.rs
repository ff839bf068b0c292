//! Idle queues: drained implicit ones that nobody waits on, in two lists, longest idle first. The node's is collected by
//! time and where the node is short of room, a tenant's where the tenant may not have more queues.

use super::Engine;
use crate::partition::List;
use crate::queue::{Links, Queue};
use crate::slab::{NONE, Slab};

impl Engine {
    pub(super) fn may_idle(&self, queue: u32) -> bool {
        let queue = &self.queues[queue];
        queue.declared.is_none() && queue.contents.is_none() && queue.parked == 0
    }

    /// Somebody pushed to the queue or popped it: its idle time starts again.
    pub(super) fn note_use(&mut self, queue: u32) {
        self.leave_idle(queue);
        self.note_change(queue);
    }

    /// Something changed in the queue: it may have become idle, or have stopped to be.
    pub(super) fn note_change(&mut self, queue: u32) {
        let may_idle = self.may_idle(queue);
        if may_idle == self.queues[queue].idle_since_ms().is_some() {
            return;
        }
        if !may_idle {
            self.leave_idle(queue);
            return;
        }
        self.queues[queue].set_idle_since(Some(self.now_ms));
        append(&mut self.queues, &mut self.idle, queue, |record| &mut record.idle);
        if let Some(tenant) = self.tenants.get_mut(self.queues[queue].tenant) {
            append(&mut self.queues, &mut tenant.idle, queue, |record| &mut record.idle_of_tenant);
        }
    }

    pub(super) fn leave_idle(&mut self, queue: u32) {
        let record = &mut self.queues[queue];
        if record.idle_since_ms().is_none() {
            return;
        }
        record.set_idle_since(None);
        let tenant = record.tenant;
        unlink(&mut self.queues, &mut self.idle, queue, |record| &mut record.idle);
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            unlink(&mut self.queues, &mut tenant.idle, queue, |record| &mut record.idle_of_tenant);
        }
    }

    /// Collects idle queues, longest idle first, until so much memory and a place for so many
    /// queues are free. Spares `keep`. Returns whether it succeeded.
    pub(super) fn make_room(&mut self, bytes: u64, queues: u64, keep: Option<u32>) -> bool {
        let ceilings = Ceilings { memory_bytes: self.memory_limit, queues: self.queue_limit };
        self.make_room_under(ceilings, bytes, queues, keep)
    }

    /// As [`Engine::make_room`], under other limits than its own.
    pub(super) fn make_room_under(&mut self, under: Ceilings, bytes: u64, queues: u64, keep: Option<u32>) -> bool {
        let mut at = self.idle.head;
        loop {
            let memory_fits = bytes == 0 || self.memory.saturating_add(bytes) <= under.memory_bytes;
            let queues_fit = queues == 0 || self.queues().saturating_add(queues) <= under.queues;
            if memory_fits && queues_fit {
                return true;
            }
            if at == NONE {
                return false;
            }
            let next = self.queues[at].idle.next;
            if Some(at) != keep {
                self.remove_queue(at);
            }
            at = next;
        }
    }
}

/// What the engine may come to.
#[derive(Copy, Clone)]
pub(super) struct Ceilings {
    pub(super) memory_bytes: u64,
    pub(super) queues: u64,
}

/// Which of a queue's links a list goes by.
type LinksOf = fn(&mut Queue) -> &mut Links;

fn append(queues: &mut Slab<Queue>, list: &mut List, queue: u32, links: LinksOf) {
    let last = std::mem::replace(&mut list.tail, queue);
    *links(&mut queues[queue]) = Links { prev: last, next: NONE };
    if last == NONE {
        list.head = queue;
    } else {
        links(&mut queues[last]).next = queue;
    }
}

fn unlink(queues: &mut Slab<Queue>, list: &mut List, queue: u32, links: LinksOf) {
    let Links { prev, next } = *links(&mut queues[queue]);
    if prev == NONE {
        list.head = next;
    } else {
        links(&mut queues[prev]).next = next;
    }
    if next == NONE {
        list.tail = prev;
    } else {
        links(&mut queues[next]).prev = prev;
    }
}
