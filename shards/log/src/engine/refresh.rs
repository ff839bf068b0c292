//! Learning what other brokers have written to the same store.
//!
//! While somebody waits, the store is asked now and then which partitions have grown; a pop that finds nothing asks at
//! once. The interval doubles while nothing comes, up to a limit. What a group has candidates for and is held up by a
//! lease is read again too: another broker may have ended it.

use super::{Job, Log, cache::GroupKey, op::OpKey};
use crate::store::{Load, Loaded, Work};

/// Cursors that are read again at a time.
const CURSORS_MAX: usize = 100;

/// Removed partitions are told of for longer than this.
const DROPPED_KEPT_US: i64 = 50_000_000;

/// When the store is asked again.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    due_us: Option<u64>,
    interval_us: u64,
    under_way: bool,
    /// It is to be asked at once, whatever the time.
    out_of_turn: bool,
    /// The question under way is one of those, or one whose time had come.
    for_all: bool,
    /// What the last answer gave as its horizon.
    since_us: Option<i64>,
    /// Those that want an answer which was asked for after they came.
    asking: Vec<OpKey>,
    waiting: Vec<OpKey>,
}

impl Refresh {
    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us.filter(|_| !self.under_way)
    }

    /// Another broker has said that there is something.
    pub(super) fn out_of_turn(&mut self, recheck_us: Option<(u64, u64)>) {
        self.out_of_turn = recheck_us.is_some();
    }

    /// Somebody waits for messages that another broker may write.
    pub(super) fn somebody_waits(&mut self, recheck_us: Option<(u64, u64)>, mono_us: u64) {
        let Some((least_us, _)) = recheck_us else { return };
        if self.due_us.is_none() {
            self.interval_us = least_us;
            self.due_us = Some(mono_us + least_us);
        }
    }
}

impl<T: Copy> Log<T> {
    /// Has the store asked for an operation, once, where others may have written, also for the cursors that hold these
    /// groups up. True while it waits for that.
    pub(super) fn looks_at_others(&mut self, key: OpKey, refreshed: &mut bool, groups: &[GroupKey]) -> bool {
        if self.config.recheck_us.is_none() || std::mem::replace(refreshed, true) {
            return false;
        }
        for &group in groups {
            self.reread_held(key, group);
        }
        self.ops[key.slot].waits += 1;
        self.refresh.asking.push(key);
        true
    }

    /// Reads the cursors again that hold a group up.
    fn reread_held(&mut self, key: OpKey, group: GroupKey) {
        let held: Vec<_> = self.groups[group].timed.iter().take(CURSORS_MAX).map(|&(_, partition)| partition).collect();
        for partition in held {
            let load = Load::Cursor {
                partition: self.cache.partitions[partition].id,
                group: std::sync::Arc::clone(&self.groups[group].name),
            };
            self.need(key, load);
        }
    }

    /// Asks the store if somebody wants to know, or it is time.
    pub(super) fn start_refresh(&mut self) {
        let refresh = &mut self.refresh;
        let for_all = refresh.out_of_turn || refresh.due_us.is_some_and(|due_us| due_us <= self.mono_us);
        if refresh.under_way || !for_all && refresh.asking.is_empty() {
            return;
        }
        refresh.under_way = true;
        refresh.for_all = for_all;
        refresh.out_of_turn = false;
        self.refresh.waiting = std::mem::take(&mut self.refresh.asking);
        let since_us = self.refresh.since_us.expect("the horizon is read before anything else");
        self.start(Job::Refresh, Work::Load(Load::Changed { since_us }));
    }

    /// The first horizon: nothing was read before it. The time can be asked for now.
    pub(super) fn horizon_read(&mut self, safe_us: i64) {
        self.refresh.since_us = Some(safe_us);
        self.start(Job::Clock, Work::Load(Load::Clock));
    }

    pub(super) fn refreshed(&mut self, loaded: Loaded) {
        let Loaded::Changed { safe_us, partitions, queues, dropped } = loaded else { panic!("asked what has changed") };
        self.clock.read(safe_us, self.mono_us);
        let before_us = self.refresh.since_us.replace(safe_us);
        if before_us.is_some_and(|before_us| safe_us - before_us > DROPPED_KEPT_US) {
            // What was removed since then is not told any more: every row is read again when it is used.
            for (_, partition) in &mut self.cache.partitions {
                partition.stale = true;
            }
        }
        let mut found = false;
        for id in dropped {
            self.partition_is_gone(id);
        }
        for row in &queues {
            if let Some(key) = self.cache.queue_by_id(row.id) {
                self.cache.queues[key].row = row.clone();
            } else if let Some(old) = self.cache.queue(row.tenant, &row.name) {
                self.forget_queue(old);
                found = true;
            }
        }
        for changed in partitions {
            let Some(queue) = self.cache.queue_by_id(changed.queue) else { continue };
            match self.cache.partition_by_id(changed.partition) {
                Some(key) => found |= self.log_ends_at(key, changed.next, changed.stamp_us),
                None if self.cache.queues[queue].complete => {
                    self.read(Load::PartitionById(changed.partition));
                    found = true;
                }
                None => {}
            }
        }
        if !queues.is_empty() || found {
            self.wake_unborn();
        }
        self.next_refresh(found);
    }

    pub(super) fn not_refreshed(&mut self) {
        self.next_refresh(false);
    }

    fn next_refresh(&mut self, found: bool) {
        self.refresh.under_way = false;
        for key in std::mem::take(&mut self.refresh.waiting) {
            if let Some(op) = self.op_mut(key) {
                op.waits -= 1;
                if op.waits == 0 {
                    self.make_ready(key);
                }
            }
        }
        let Some((least_us, most_us)) = self.config.recheck_us else { return };
        if self.refresh.for_all || self.refresh.due_us.is_some_and(|due_us| due_us <= self.mono_us) {
            let waits = self.reread_for_parked();
            self.refresh.interval_us = if found { least_us } else { (self.refresh.interval_us * 2).min(most_us) };
            self.refresh.due_us = waits.then(|| self.mono_us + self.refresh.interval_us);
        }
    }

    /// Reads cursors again that hold up somebody who waits. False if nobody waits at all.
    fn reread_for_parked(&mut self) -> bool {
        let waiting = self.groups.iter().filter(|(_, group)| !group.parked.is_empty() || !group.pinned.is_empty());
        let groups: Vec<GroupKey> = waiting.map(|(key, _)| key).collect();
        let mut held = Vec::new();
        for &key in &groups {
            let group = &self.groups[key];
            let partitions = group.timed.iter().take(CURSORS_MAX.saturating_sub(held.len())).map(|&(_, key)| key);
            held.extend(partitions.map(|partition| Load::Cursor {
                partition: self.cache.partitions[partition].id,
                group: std::sync::Arc::clone(&group.name),
            }));
        }
        for load in held {
            self.read(load);
        }
        !groups.is_empty() || !self.unborn.is_empty() || !self.fetchers.is_empty()
    }
}
