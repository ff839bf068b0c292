//! Reading a group's candidates: the partitions of its queue, then its cursors, a page at a time.

use std::sync::Arc;

use super::{
    Log,
    cache::GroupKey,
    group::{Known, Scan},
    op::Wait,
};
use crate::{
    row::{CursorRow, PartitionRow},
    store::Load,
};

/// Rows of a page: some hundred microseconds of work.
const PAGE_ROWS: u32 = 1000;

impl<T: Copy> Log<T> {
    /// Starts to read a group's candidates, if that is not under way.
    pub(super) fn scan(&mut self, group: GroupKey) {
        if self.groups[group].scan != Scan::None {
            return;
        }
        if self.cache.queues[self.groups[group].queue].complete {
            self.scan_cursors(group, 0);
        } else {
            self.groups[group].scan = Scan::Partitions;
            let queue = self.cache.queues[self.groups[group].queue].row.id;
            self.read(Load::Partitions { queue, after: 0, limit: PAGE_ROWS });
        }
    }

    fn scan_cursors(&mut self, group: GroupKey, after: u64) {
        self.groups[group].scan = Scan::Cursors;
        let queue = self.cache.queues[self.groups[group].queue].row.id;
        let group = Arc::clone(&self.groups[group].name);
        self.read(Load::CursorsOf { queue, group, after, limit: PAGE_ROWS });
    }

    pub(super) fn scanned_partitions(&mut self, load: &Load, rows: &[PartitionRow]) {
        let &Load::Partitions { queue: id, limit, .. } = load else { unreachable!("asked for partitions") };
        let Some(queue) = self.cache.queue_by_id(id) else { return };
        for row in rows {
            self.put_partition(row, queue);
        }
        if rows.len() == limit as usize {
            let after = rows.last().map_or(0, |row| row.number);
            self.read(Load::Partitions { queue: id, after, limit });
            return;
        }
        self.cache.queues[queue].complete = true;
        for group in self.groups_in(queue, Scan::Partitions) {
            self.scan_cursors(group, 0);
        }
    }

    pub(super) fn scanned_cursors(&mut self, load: &Load, rows: &[(u64, CursorRow)]) {
        let Load::CursorsOf { queue: id, group: name, limit, .. } = load else { unreachable!("asked for cursors") };
        let Some(queue) = self.cache.queue_by_id(*id) else { return };
        let group = self.group_of(queue, name);
        for (_, row) in rows {
            let Some(partition) = self.cache.partition_by_id(row.partition) else { continue };
            let cursor = self.groups[group].cursor(partition);
            if !cursor.busy && matches!(cursor.known, Known::No | Known::Absent { .. }) {
                cursor.known = Known::Row(row.into());
            }
        }
        if rows.len() == *limit as usize {
            let after = rows.last().map_or(0, |(number, _)| *number);
            self.scan_cursors(group, after);
            return;
        }
        self.groups[group].scan = Scan::Done;
        let partitions = self.cache.partitions_of(queue);
        for partition in partitions {
            self.evaluate(group, partition);
        }
        self.wake(&Wait::Scan(group));
    }

    /// A page could not be read: those that wait fail, and the next one starts anew.
    pub(super) fn scan_failed(&mut self, load: &Load, failure: &crate::store::StoreFailure) {
        let (Load::Partitions { queue, .. } | Load::CursorsOf { queue, .. }) = load else { return };
        let Some(queue) = self.cache.queue_by_id(*queue) else { return };
        let mut groups = self.groups_in(queue, Scan::Partitions);
        groups.extend(self.groups_in(queue, Scan::Cursors));
        for group in groups {
            self.groups[group].scan = Scan::None;
            for key in self.wake(&Wait::Scan(group)) {
                self.fail(key, failure);
            }
        }
    }

    fn groups_in(&self, queue: usize, scan: Scan) -> Vec<GroupKey> {
        let groups = self.cache.groups_of(queue).into_iter();
        groups.filter(|&group| self.groups[group].scan == scan).collect()
    }
}
