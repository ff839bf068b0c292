//! What happens by itself: leases run out, messages age, groups and queues go idle, parked pops
//! run into their window's end or their timeout, inboxes into theirs.

use super::messages::Cause;
use super::{Engine, StateTimer, WaitTimer};
use crate::Millis;
use crate::delivery::Sink;
use crate::slab::NONE;

/// A line to look at: queue, partition, group. [`ANY`] is every one.
type Dirty = (u32, u32, u16);
const ANY: u16 = u16::MAX;

impl Engine {
    /// Does what is due, up to about `budget` messages and parked pops, and returns whether more
    /// is due. First what changes state, then the pops that this serves, then windows and
    /// timeouts: a pop is not sent away empty in the millisecond in which a lease comes back.
    pub fn advance<S: Sink>(&mut self, now_ms: Millis, budget: usize, sink: &mut S) -> bool {
        self.note_time(now_ms);
        // A timer and one thing it is about: less would make no progress.
        let mut left = budget.max(2);
        let mut dirty: Vec<Dirty> = Vec::new();
        while left > 0
            && let Some(timer) = self.state_timers.pop_due(now_ms)
        {
            left -= 1;
            self.on_state_timer(timer, &mut left, &mut dirty);
        }
        dirty.sort_unstable();
        dirty.dedup();
        for (queue, place, group) in dirty {
            if self.queues.get(queue).is_none() {
                continue;
            }
            if group == ANY {
                self.serve_queue(queue, sink);
            } else {
                self.serve(queue, place, group, sink);
            }
        }
        while left > 0
            && let Some(timer) = self.wait_timers.pop_due(now_ms)
        {
            left -= 1;
            match timer {
                WaitTimer::Pop(waiter) => self.on_wait_timer(waiter, sink),
                WaitTimer::Inbox(inbox) => self.on_inbox_timer(inbox, sink),
            }
        }
        while left > 0 && self.idle_deadline_ms().is_some_and(|at_ms| at_ms <= now_ms) {
            left -= 1;
            self.remove_queue(self.idle.head);
        }
        left == 0 && self.next_deadline_ms().is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// When [`Engine::advance`] has something to do next: never later than the first thing due,
    /// at times earlier. `None` while nothing can happen by itself.
    pub fn next_deadline_ms(&self) -> Option<Millis> {
        let deadlines =
            [self.state_timers.next_deadline_ms(), self.wait_timers.next_deadline_ms(), self.idle_deadline_ms()];
        deadlines.into_iter().flatten().min()
    }

    fn idle_deadline_ms(&self) -> Option<Millis> {
        let since_ms = self.queues.get(self.idle.head)?.idle_since_ms()?;
        Some(since_ms.saturating_add(self.config.implicit_idle_ms))
    }

    fn on_state_timer(&mut self, timer: StateTimer, left: &mut usize, dirty: &mut Vec<Dirty>) {
        match timer {
            StateTimer::Lease { queue, partition, group } => {
                let record = self.queues[queue].contents_mut().partition_mut(partition);
                record.cursor_mut(group).expect("a cursor with a timer").lease_timer = NONE;
                self.expire_leases(queue, partition, group, left);
                // Messages that were too old went for every group: windows may have to close.
                let windowed = self.limits(queue).window.is_some();
                dirty.push(if windowed { (queue, NONE, ANY) } else { (queue, partition, group) });
            }
            StateTimer::Ttl { queue, partition } => {
                self.expire_messages(queue, partition, left);
                if self.limits(queue).window.is_some() {
                    dirty.push((queue, NONE, ANY));
                }
            }
            StateTimer::Groups { queue } => self.forget_idle_groups(queue, left),
            StateTimer::Serve { queue } => {
                if self.queues.get(queue).is_some() {
                    dirty.push((queue, NONE, ANY));
                }
            }
        }
    }

    /// Ends the leases of a cursor that have run out: their messages come back, or are dropped
    /// after the last attempt.
    pub(super) fn expire_leases(&mut self, queue: u32, place: u32, group: u16, left: &mut usize) {
        let limits = *self.limits(queue);
        // A message that is too old is dropped as such, not for its attempts.
        self.drop_aged(queue, place, left);
        let partition = self.queues[queue].contents().partition(place);
        if partition.cursor(group).is_none() {
            return;
        }
        loop {
            let partition = self.queues[queue].contents_mut().partition_mut(place);
            let cursor = partition.cursor_mut(group).expect("a cursor with leases");
            let Some(oldest) = self.leases.first(cursor) else { break };
            if oldest.delivered_ms.saturating_add(limits.lease_ms) > self.now_ms || *left == 0 {
                break;
            }
            *left -= 1;
            let (sequence, attempts) = (oldest.sequence, oldest.attempts);
            self.leases.remove(cursor, sequence);
            self.memory -= super::LEASE_BYTES;
            if attempts < limits.retry_limit {
                cursor.returned.insert(sequence, attempts);
            } else {
                let at = partition.find(sequence).expect("a leased message is alive");
                self.exhaust(queue, place, at, group);
            }
        }
        self.arm_lease(queue, place, group);
        self.refresh(queue, place);
        self.tidy(queue, place);
        self.note_change(queue);
    }

    fn expire_messages(&mut self, queue: u32, place: u32, left: &mut usize) {
        self.queues[queue].contents_mut().partition_mut(place).ttl_timer = NONE;
        self.drop_aged(queue, place, left);
        self.arm_ttl(queue, place);
        self.refresh(queue, place);
        self.tidy(queue, place);
        self.note_change(queue);
    }

    /// Drops the messages of a partition that have reached their TTL.
    pub(super) fn drop_aged(&mut self, queue: u32, place: u32, left: &mut usize) {
        let Some(ttl_ms) = self.limits(queue).ttl_ms else { return };
        let groups = self.queues[queue].group_count;
        if self.queues[queue].contents().partition(place).is_bent() {
            self.drop_aged_anywhere(queue, place, ttl_ms, left);
            return;
        }
        while *left > 0 {
            let partition = self.queues[queue].contents_mut().partition_mut(place);
            let Some(at) = partition.oldest(groups) else { break };
            if partition.ring[at].born.plus(ttl_ms) > self.now_ms {
                break;
            }
            *left -= 1;
            self.drop_message(queue, place, at, Cause::Ttl);
            self.queues[queue].contents_mut().partition_mut(place).sweep();
        }
    }

    /// As [`Engine::drop_aged`], where messages may stand behind younger ones.
    fn drop_aged_anywhere(&mut self, queue: u32, place: u32, ttl_ms: u64, left: &mut usize) {
        let groups = self.queues[queue].group_count;
        for at in 0..self.queues[queue].contents().partition(place).ring.len() {
            let slot = &self.queues[queue].contents().partition(place).ring[at];
            if *left == 0 {
                break;
            }
            if slot.is_counted(groups) && slot.born.plus(ttl_ms) <= self.now_ms {
                *left -= 1;
                self.lose_message(queue, place, at, Cause::Ttl);
            }
        }
        let partition = self.queues[queue].contents_mut().partition_mut(place);
        partition.bury();
        partition.look_at_births();
    }
}
