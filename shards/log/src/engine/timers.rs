//! When operations are answered as they are, and when candidates of groups become ready.

use std::collections::BTreeSet;

use super::{Log, cache::GroupKey, op::OpKey};

/// Deadlines of operations on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeSet<(u64, OpKey)>,
    /// Times at which operations go on by themselves.
    again: BTreeSet<(u64, OpKey)>,
}

impl Timers {
    pub(super) fn set(&mut self, due_us: u64, key: OpKey) {
        self.due.insert((due_us, key));
    }

    pub(super) fn clear(&mut self, due_us: u64, key: OpKey) {
        self.due.remove(&(due_us, key));
    }

    /// Lets an operation go on at this time.
    pub(super) fn again_at(&mut self, at_us: u64, key: OpKey) {
        self.again.insert((at_us, key));
    }

    pub(super) fn next_us(&self) -> Option<u64> {
        [self.due.first(), self.again.first()].into_iter().flatten().map(|&(at_us, _)| at_us).min()
    }

    fn pop_due(&mut self, now_us: u64) -> Option<OpKey> {
        let &(at_us, key) = self.due.first()?;
        (at_us <= now_us).then(|| {
            self.due.pop_first();
            key
        })
    }

    fn pop_again(&mut self, now_us: u64) -> Option<OpKey> {
        let &(at_us, key) = self.again.first()?;
        (at_us <= now_us).then(|| {
            self.again.pop_first();
            key
        })
    }
}

impl<T: Copy> Log<T> {
    pub(super) fn fire_timers(&mut self) {
        while let Some(key) = self.timers.pop_due(self.mono_us) {
            self.give_up(key);
        }
        while let Some(key) = self.timers.pop_again(self.mono_us) {
            self.make_ready(key);
        }
        let now_us = self.now_us();
        while let Some(&(at_us, group)) = self.group_times.first()
            && at_us <= now_us
        {
            self.group_times.pop_first();
            self.ripen(group, now_us);
        }
    }

    /// Looks again at the candidates of a group whose time has come.
    fn ripen(&mut self, group: GroupKey, now_us: i64) {
        self.groups[group].noted_us = None;
        while let Some(&(at_us, partition)) = self.groups[group].timed.first()
            && at_us <= now_us
        {
            // It becomes ready, or its new time is later: that is worked out from the same clock.
            self.evaluate(group, partition);
        }
        self.note_group_time(group);
    }

    /// Notes when the first candidate of a group becomes ready.
    pub(super) fn note_group_time(&mut self, group: GroupKey) {
        let Some(&(at_us, _)) = self.groups[group].timed.first() else { return };
        let noted_us = self.groups[group].noted_us;
        if noted_us.is_some_and(|noted_us| noted_us <= at_us) {
            return;
        }
        if let Some(noted_us) = noted_us {
            self.group_times.remove(&(noted_us, group));
        }
        self.groups[group].noted_us = Some(at_us);
        self.group_times.insert((at_us, group));
    }
}
