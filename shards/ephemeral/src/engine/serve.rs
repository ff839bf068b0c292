//! Parked pops: parking, serving in the order of arrival, windows, going.
//!
//! Without a window nobody waits while something is there for him, so an event in one partition
//! concerns the first in line for it and nobody else ([`Engine::serve`]). With a window, a pop
//! that has its first messages stands at the head of its line and holds it until the window
//! ends; then whatever changed, the whole group is looked at ([`Engine::serve_group`]).

use super::pop::Scope;
use super::{Engine, PARKED_BYTES, StateTimer, WaitTimer};
use crate::Millis;
use crate::delivery::Sink;
use crate::slab::NONE;
use crate::types::{ParkId, Pop, TenantId, WaiterId};
use crate::waiters::{Parking, Waiter};

impl Engine {
    pub(super) fn park(&mut self, queue: u32, group: u16, request: &Pop<'_>, id: WaiterId) -> ParkId {
        let partition = match request.partition {
            None => NONE,
            Some(name) => self.find_partition(queue, name).unwrap_or_else(|| self.create_partition(queue, name)),
        };
        let deadline_ms = self.now_ms.saturating_add(request.wait_ms);
        let (batch, auto_ack) = (request.batch.max(1), request.auto_ack);
        let record = &mut self.queues[queue];
        record.parked += 1;
        record.group_mut(group).parked += 1;
        let list = if partition == NONE {
            &mut record.group_mut(group).waiters
        } else {
            let partition = record.contents_mut().partition_mut(partition);
            partition.waiting += 1;
            &mut partition.cursor_or_new(group).waiters
        };
        let parking = Parking { id, deadline_ms, queue, group, partition, batch, auto_ack };
        let park = self.waiters.push(list, parking);
        self.waiters.get_mut(park.index).timer = self.wait_timers.insert(deadline_ms, WaitTimer::Pop(park.index));
        self.memory += PARKED_BYTES;
        park
    }

    /// Takes a parked pop out of its line and of every record.
    pub(super) fn unpark(&mut self, index: u32) -> Waiter {
        let waiting = self.waiters.get(index);
        let (queue, group, partition) = (waiting.queue, waiting.group, waiting.partition);
        let record = &mut self.queues[queue];
        record.parked -= 1;
        let group_record = record.group_mut(group);
        group_record.parked -= 1;
        group_record.last_pop_ms = self.now_ms;
        let list = if partition == NONE {
            &mut group_record.waiters
        } else {
            let partition = record.contents_mut().partition_mut(partition);
            partition.waiting -= 1;
            &mut partition.cursor_mut(group).expect("a parked pop has a cursor").waiters
        };
        let waiter = self.waiters.remove(list, index);
        if waiter.timer != NONE {
            self.wait_timers.cancel(waiter.timer);
        }
        self.memory -= PARKED_BYTES;
        waiter
    }

    /// Takes a parked pop away whose client has gone, in O(1). Returns whether it was still
    /// parked. The sink is not called for it; whoever it held back by its window is served by the
    /// next [`Engine::advance`], which is due at once.
    pub fn cancel(&mut self, park: ParkId) -> bool {
        if self.waiters.find(park).is_none() {
            return false;
        }
        let waiter = self.unpark(park.index);
        if waiter.window_end_ms.is_some() {
            self.state_timers.insert(self.now_ms, StateTimer::Serve { queue: waiter.queue });
        }
        self.after_leaving(&waiter);
        true
    }

    /// Answers every parked pop with an empty delivery, and every inbox with no reply: the node stops.
    pub fn release_waiters<S: Sink>(&mut self, sink: &mut S) {
        for index in self.waiters.indexes() {
            self.dismiss(index, sink);
        }
        self.release_inboxes(sink);
    }

    /// Answers every parked pop with an empty delivery; inboxes stay open.
    pub fn release_pops<S: Sink>(&mut self, sink: &mut S) {
        for index in self.waiters.indexes() {
            self.dismiss(index, sink);
        }
    }

    /// As [`release_waiters`](Self::release_waiters), for one tenant.
    pub fn release_waiters_of<S: Sink>(&mut self, tenant: TenantId, sink: &mut S) {
        for index in self.waiters.indexes() {
            let queue = self.waiters.get(index).queue;
            if self.tenants.id(self.queues[queue].tenant) == tenant {
                self.dismiss(index, sink);
            }
        }
        self.release_inboxes_of(tenant, sink);
    }

    /// Answers one parked pop with an empty delivery.
    pub(super) fn dismiss<S: Sink>(&mut self, index: u32, sink: &mut S) -> Waiter {
        let waiter = self.unpark(index);
        self.hand_over(waiter.queue, waiter.id, None, sink);
        self.after_leaving(&waiter);
        waiter
    }

    fn after_leaving(&mut self, waiter: &Waiter) {
        if waiter.partition != NONE {
            self.tidy(waiter.queue, waiter.partition);
        }
        self.note_change(waiter.queue);
    }

    /// Something may have become available in a partition, for every group.
    pub(super) fn serve_all<S: Sink>(&mut self, queue: u32, place: u32, sink: &mut S) {
        if self.queues[queue].parked == 0 {
            return;
        }
        for group in 0..self.queues[queue].groups.len() as u16 {
            self.serve(queue, place, group, sink);
        }
    }

    /// Something may have become available, or have gone, in a partition, for one group.
    pub(super) fn serve<S: Sink>(&mut self, queue: u32, place: u32, group: u16, sink: &mut S) {
        if self.queues[queue].groups[usize::from(group)].as_ref().is_none_or(|group| group.parked == 0) {
            return;
        }
        if self.limits(queue).window.is_some() {
            self.serve_group(queue, group, sink);
            return;
        }
        loop {
            let record = &self.queues[queue];
            let Some(partition) = record.contents.as_ref().and_then(|contents| contents.get(place)) else { return };
            let any = record.group(group).waiters.head;
            let one = partition.cursor(group).map_or(NONE, |cursor| cursor.waiters.head);
            let first = self.earlier(any, one);
            if first == NONE || partition.available(group) == 0 {
                return;
            }
            self.answer(first, sink);
        }
    }

    /// Looks at every line of every group: the queue's options changed, or it was emptied.
    pub(super) fn serve_queue<S: Sink>(&mut self, queue: u32, sink: &mut S) {
        for group in 0..self.queues[queue].groups.len() as u16 {
            if self.queues[queue].groups[usize::from(group)].is_some() {
                self.serve_group(queue, group, sink);
            }
        }
    }

    /// Looks at every line of a group until nobody can be served: opens and closes windows, and
    /// answers whom it may in the order of arrival. Costs a look at each partition with a line.
    pub(super) fn serve_group<S: Sink>(&mut self, queue: u32, group: u16, sink: &mut S) {
        while self.queues[queue].group(group).parked > 0 {
            let lines = self.lines(queue, group);
            let Some(first) = lines.into_iter().find(|line| self.may_go(line)) else { return };
            self.answer(first.waiter, sink);
        }
    }

    /// The heads of the group's lines, in the order of arrival.
    fn lines(&mut self, queue: u32, group: u16) -> Vec<Line> {
        let record = &self.queues[queue];
        let any = record.group(group).waiters.head;
        let mut lines = Vec::new();
        // The first line for any partition may go when there is a partition that it is first for.
        let (mut available, mut is_first) = (0, false);
        for place in record.contents.iter().flat_map(|contents| contents.places()) {
            let partition = record.contents().partition(place);
            let here = partition.available(group);
            let one = partition.cursor(group).map_or(NONE, |cursor| cursor.waiters.head);
            let first = self.earlier(any, one);
            available += here;
            is_first |= here > 0 && first == any;
            if one != NONE {
                lines.push(Line { waiter: one, available: here, is_first: here > 0 && first == one });
            }
        }
        if any != NONE {
            lines.push(Line { waiter: any, available, is_first });
        }
        lines.sort_by_key(|line| self.waiters.get(line.waiter).ticket);
        lines
    }

    /// Whether the head of a line is to be answered now; opens or closes its window otherwise.
    fn may_go(&mut self, line: &Line) -> bool {
        let waiter = self.waiters.get(line.waiter);
        let (queue, batch, deadline_ms, end_ms) =
            (waiter.queue, waiter.batch, waiter.deadline_ms, waiter.window_end_ms);
        if line.available == 0 {
            if end_ms.is_some() {
                self.set_window(line.waiter, None, deadline_ms);
            }
            return false;
        }
        if !line.is_first {
            return false;
        }
        let Some(window) = self.limits(queue).window else { return true };
        if line.available >= u64::from(window.count.min(batch)) {
            return true;
        }
        if end_ms.is_none() {
            let end_ms = self.now_ms.saturating_add(window.ms).min(deadline_ms);
            self.set_window(line.waiter, Some(end_ms), end_ms);
        }
        false
    }

    fn set_window(&mut self, index: u32, end_ms: Option<Millis>, due_ms: Millis) {
        let timer = self.waiters.get(index).timer;
        if timer != NONE {
            self.wait_timers.cancel(timer);
        }
        let timer = self.wait_timers.insert(due_ms, WaitTimer::Pop(index));
        let waiter = self.waiters.get_mut(index);
        (waiter.window_end_ms, waiter.timer) = (end_ms, timer);
    }

    /// A parked pop's timer fired: its window ended, or its time is up.
    pub(super) fn on_wait_timer<S: Sink>(&mut self, index: u32, sink: &mut S) {
        let waiter = self.waiters.get_mut(index);
        waiter.timer = NONE;
        let (queue, group, windowed) = (waiter.queue, waiter.group, waiter.window_end_ms.is_some());
        if windowed && self.answer(index, sink) {
            self.serve_group(queue, group, sink);
            return;
        }
        let waiter = self.waiters.get(index);
        if waiter.deadline_ms > self.now_ms {
            self.set_window(index, None, waiter.deadline_ms);
            return;
        }
        self.dismiss(index, sink);
        if windowed && self.queues.get(queue).is_some() {
            self.serve_group(queue, group, sink);
        }
    }

    /// Hands a parked pop what is available for it. Returns whether there was something.
    fn answer<S: Sink>(&mut self, index: u32, sink: &mut S) -> bool {
        let waiter = self.waiters.get(index);
        let (queue, group, id) = (waiter.queue, waiter.group, waiter.id);
        let scope = if waiter.partition == NONE { Scope::Any } else { Scope::One(waiter.partition) };
        let (batch, auto_ack) = (waiter.batch, waiter.auto_ack);
        let Some(claim) = self.take(queue, group, scope, batch, auto_ack) else { return false };
        self.unpark(index);
        self.hand_over(queue, id, Some(claim), sink);
        self.note_change(queue);
        true
    }

    /// Of two heads of lines, the one that came first.
    fn earlier(&self, one: u32, other: u32) -> u32 {
        if one == NONE || other == NONE {
            return if one == NONE { other } else { one };
        }
        if self.waiters.get(one).ticket < self.waiters.get(other).ticket { one } else { other }
    }
}

/// The head of a line.
struct Line {
    waiter: u32,
    /// Messages that it could be handed.
    available: u64,
    /// There is a partition with something for which it is the first.
    is_first: bool,
}
