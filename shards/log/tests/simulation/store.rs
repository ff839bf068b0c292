//! A store in memory, as small as it can be: what the databases do, and what must hold whenever they do it.

use std::collections::BTreeMap;
use std::sync::Arc;

use queen_log::{
    id::{PartitionId, QueueId, TenantId},
    options::QueueOptions,
    read::ReadAnswer,
    row::{CursorRow, DeadLetter, GroupRow, IndexRow, Lease, PartitionRow, QueueRow, SegmentRow},
    store::{Admin, AdminDone, Batch, ChangedPartition, Committed, Create, Created, Done, Load, Loaded, Retain, Work},
};

type Key = (PartitionId, Arc<str>);

#[derive(Default)]
pub struct Store {
    pub queues: BTreeMap<QueueId, QueueRow>,
    groups: BTreeMap<(QueueId, Arc<str>), GroupRow>,
    pub partitions: BTreeMap<PartitionId, PartitionRow>,
    pub segments: BTreeMap<(PartitionId, u64), SegmentRow>,
    /// The mark of each partition's newest segment.
    marks: BTreeMap<PartitionId, i64>,
    pub cursors: BTreeMap<Key, CursorRow>,
    pub dead: Vec<DeadLetter>,
    changed: BTreeMap<QueueId, i64>,
    dropped: Vec<(PartitionId, i64)>,
    numbers: u64,
    /// It has lost something.
    has_lost: bool,
    /// Batches of which something was left out.
    pub conflicts: u64,
}

impl Store {
    pub fn queue(&self, tenant: TenantId, name: &str) -> Option<&QueueRow> {
        self.queues.values().find(|row| row.tenant == tenant && &*row.name == name)
    }

    pub fn partition(&self, tenant: TenantId, queue: &str, name: &str) -> Option<&PartitionRow> {
        let queue = self.queue(tenant, queue)?.id;
        self.partitions.values().find(|row| row.queue == queue && &*row.name == name)
    }

    pub fn work(&mut self, work: &Work, now_us: i64) -> Done {
        match work {
            Work::Load(load) => Done::Loaded(self.load(load, now_us)),
            Work::Commit(batch) => Done::Committed(self.commit(batch, now_us)),
            Work::Create(creates) => Done::Created(creates.iter().map(|create| self.create(create, now_us)).collect()),
            Work::Admin(admin) => Done::Admin(self.admin(admin, now_us)),
            Work::Read(_) => Done::Read(ReadAnswer::Queues(Vec::new())),
        }
    }

    /// Loses everything of a partition from an offset on, as if it had been restored from before.
    pub fn lose(&mut self, id: PartitionId, from: u64) {
        self.has_lost = true;
        self.segments.retain(|(of, base), _| *of != id || *base < from);
        let last = self.segments_of(id).next_back().cloned();
        self.marks.remove(&id);
        let row = self.partitions.get_mut(&id).expect("it is there");
        (row.next, row.stamp_us) = last.map_or((0, 0), |last| (last.next, last.stamp_us));
    }

    fn groups_of(&self, queue: QueueId) -> Vec<GroupRow> {
        self.groups.iter().filter(|((of, _), _)| *of == queue).map(|(_, row)| row.clone()).collect()
    }

    fn with_groups(&self, row: &QueueRow) -> (QueueRow, Vec<GroupRow>) {
        (row.clone(), self.groups_of(row.id))
    }

    fn segments_of(&self, partition: PartitionId) -> impl DoubleEndedIterator<Item = &SegmentRow> {
        self.segments.range((partition, 0)..=(partition, u64::MAX)).map(|(_, row)| row)
    }

    fn load(&self, load: &Load, now_us: i64) -> Loaded {
        match load {
            Load::Queue { tenant, name } => Loaded::Queue(self.queue(*tenant, name).map(|row| self.with_groups(row))),
            Load::Discover { tenant, namespace, task } => {
                let matches = |row: &&QueueRow| {
                    row.tenant == *tenant
                        && namespace.as_ref().is_none_or(|namespace| *namespace == row.namespace)
                        && task.as_ref().is_none_or(|task| *task == row.task)
                };
                Loaded::Queues(self.queues.values().filter(matches).map(|row| self.with_groups(row)).collect())
            }
            Load::Partition { queue, name } => {
                let found = self.partitions.values().find(|row| row.queue == *queue && row.name == *name);
                Loaded::Partition(found.cloned())
            }
            Load::PartitionById(id) => Loaded::PartitionById(self.partitions.get(id).map(|row| {
                let (queue, groups) = self.with_groups(&self.queues[&row.queue]);
                (row.clone(), queue, groups)
            })),
            Load::Partitions { queue, after, limit } => {
                let mut rows: Vec<_> = self
                    .partitions
                    .values()
                    .filter(|row| row.queue == *queue && row.number > *after)
                    .cloned()
                    .collect();
                rows.sort_by_key(|row| row.number);
                rows.truncate(*limit as usize);
                Loaded::Partitions(rows)
            }
            Load::CursorsOf { queue, group, after, limit } => {
                let of = self.cursors.iter().filter(|((_, name), _)| name == group).filter_map(|((id, _), row)| {
                    let partition = &self.partitions[id];
                    (partition.queue == *queue && partition.number > *after).then(|| (partition.number, row.clone()))
                });
                let mut rows: Vec<_> = of.collect();
                rows.sort_by_key(|(number, _)| *number);
                rows.truncate(*limit as usize);
                Loaded::Cursors(rows)
            }
            Load::Cursor { partition, group } => {
                Loaded::Cursor(self.cursors.get(&(*partition, Arc::clone(group))).cloned())
            }
            Load::Segments { partition, from, max_bytes } => {
                let log_start = self.partitions.get(partition).map_or(0, |row| row.log_start);
                let mut bytes = 0;
                let mut rows = Vec::new();
                let wanted = |row: &&SegmentRow| row.next > *from && row.next > log_start;
                for row in self.segments_of(*partition).filter(wanted) {
                    if !rows.is_empty() && bytes + row.data.len() > *max_bytes as usize {
                        break;
                    }
                    bytes += row.data.len();
                    rows.push(row.clone());
                }
                Loaded::Segments(rows)
            }
            Load::Indexes { partition, since_us, below } => {
                let mut rows = Vec::new();
                for row in self.segments_of(*partition).rev().filter(|row| row.base < *below) {
                    rows.push(IndexRow {
                        base: row.base,
                        next: row.next,
                        stamp_us: row.stamp_us,
                        hashes: row.hashes.clone(),
                    });
                    if row.stamp_us < *since_us {
                        break;
                    }
                }
                Loaded::Indexes(rows)
            }
            Load::OffsetAt { partition, stamp_us } => {
                let next = self.partitions.get(partition).map_or(0, |row| row.next);
                let first = self.segments_of(*partition).find(|row| row.stamp_us >= *stamp_us);
                Loaded::Offset(first.map_or(next, |row| row.base))
            }
            Load::Clock => Loaded::Clock(now_us),
            Load::Retaining => {
                let retains = |row: &&QueueRow| row.options.retention_enabled || row.options.max_wait_s > 0;
                Loaded::Queues(self.queues.values().filter(retains).map(|row| (row.clone(), Vec::new())).collect())
            }
            Load::Changed { since_us } => {
                let changed = self.partitions.values().filter(|row| row.stamp_us >= *since_us && row.next > 0);
                let partitions = changed
                    .map(|row| ChangedPartition {
                        queue: row.queue,
                        partition: row.id,
                        next: row.next,
                        stamp_us: row.stamp_us,
                    })
                    .collect();
                let queues = self.changed.iter().filter(|(_, at_us)| **at_us >= *since_us).map(|(id, _)| *id);
                let queues = queues.filter_map(|id| self.queues.get(&id).cloned()).collect();
                let dropped = self.dropped.iter().filter(|(_, at_us)| *at_us >= *since_us).map(|(id, _)| *id).collect();
                Loaded::Changed { safe_us: now_us, partitions, queues, dropped }
            }
        }
    }

    fn commit(&mut self, batch: &Batch, now_us: i64) -> Committed {
        assert!(batch.appends.is_sorted_by(|a, b| a.partition < b.partition), "appends are sorted, one a partition");
        assert!(batch.cursors.is_sorted_by(|a, b| (a.partition, &a.group) < (b.partition, &b.group)));
        let mut stamps = Vec::new();
        for append in &batch.appends {
            let Some(partition) = self.partitions.get_mut(&append.partition) else {
                stamps.push(None);
                continue;
            };
            let mark = self.marks.get(&append.partition).copied();
            if partition.next != append.base || append.follows.is_some() && append.follows != mark {
                let is_known = self.has_lost || append.follows.is_some();
                assert!(is_known || partition.next > append.base, "nobody plans behind the end");
                stamps.push(None);
                continue;
            }
            self.marks.insert(append.partition, append.mark);
            assert!(append.follows.is_some() || partition.stamp_us <= append.floor_us, "the end is known");
            let stamp_us = append.floor_us.max(now_us).max(partition.stamp_us);
            partition.next = append.next;
            partition.stamp_us = stamp_us;
            partition.ahead_us = append.ahead_us;
            let row = SegmentRow {
                partition: append.partition,
                base: append.base,
                next: append.next,
                stamp_us,
                hashes: append.hashes.clone(),
                data: append.data.clone(),
            };
            assert!(self.segments.insert((append.partition, append.base), row).is_none());
            stamps.push(Some(stamp_us));
        }
        let mut cursors = Vec::new();
        for write in &batch.cursors {
            let key = (write.partition, Arc::clone(&write.group));
            let before = self.cursors.get(&key);
            let needed = write.needs_append.is_none_or(|append| stamps[append].is_some());
            let Some(partition) = self.partitions.get(&write.partition) else {
                cursors.push(false);
                continue;
            };
            if before.map(|row| row.version) != write.expect || !needed {
                cursors.push(false);
                continue;
            }
            let until_us =
                |lease: queen_log::store::LeaseWrite| lease.floor_us.max(now_us.saturating_add(lease.for_us));
            let lease = write.lease.map(|lease| Lease { id: lease.id, until_us: until_us(lease) });
            assert!(write.next <= write.run_end && write.run_end <= partition.next.max(write.next), "{write:?}");
            if let Some(before) = before {
                assert!(before.next <= write.next, "a cursor never goes back: {before:?} {write:?}");
                let live = before.lease.filter(|lease| lease.until_us > now_us);
                if let (Some(live), Some(new)) = (live, lease) {
                    assert_eq!(live.id, new.id, "a live lease is not taken away");
                }
                if live.is_some() && lease.is_none() && write.next > before.next {
                    assert!(
                        write.run_end <= before.run_end,
                        "a live lease's run is not passed by autoAck: {before:?} {write:?}"
                    );
                }
            }
            let row = CursorRow {
                partition: write.partition,
                group: Arc::clone(&write.group),
                version: write.version,
                next: write.next,
                run_end: write.run_end,
                lease,
                retries: write.retries,
                consumed: write.consumed,
            };
            self.cursors.insert(key, row);
            cursors.push(true);
        }
        for (cursor, letter) in &batch.dead {
            if cursors[*cursor] {
                self.dead.push(letter.clone());
            }
        }
        self.conflicts += u64::from(stamps.iter().any(Option::is_none) || cursors.iter().any(|done| !done));
        Committed { now_us, stamps, cursors }
    }

    fn create(&mut self, create: &Create, now_us: i64) -> Created {
        match create {
            Create::Queue { id, tenant, name, namespace, task, options } => {
                if self.queue(*tenant, name).is_none() {
                    let (namespace, task) = (Arc::clone(namespace), Arc::clone(task));
                    let row = QueueRow {
                        id: *id,
                        tenant: *tenant,
                        name: Arc::clone(name),
                        namespace,
                        task,
                        created_us: now_us,
                        options: options.clone(),
                    };
                    self.queues.insert(*id, row);
                    self.changed.insert(*id, now_us);
                }
                let (row, groups) = self.with_groups(self.queue(*tenant, name).expect("just made"));
                Created::Queue(row, groups)
            }
            Create::Partition { id, queue, name } => {
                if !self.queues.contains_key(queue) {
                    return Created::Gone;
                }
                let there = self.partitions.values().find(|row| row.queue == *queue && row.name == *name);
                if let Some(row) = there {
                    return Created::Partition(row.clone());
                }
                self.numbers += 1;
                let row = PartitionRow {
                    id: *id,
                    number: self.numbers,
                    queue: *queue,
                    name: Arc::clone(name),
                    log_start: 0,
                    next: 0,
                    stamp_us: 0,
                    ahead_us: 0,
                };
                self.partitions.insert(*id, row.clone());
                Created::Partition(row)
            }
            Create::Group { queue, group, mode, from_us, conflation } => {
                if !self.queues.contains_key(queue) {
                    return Created::Gone;
                }
                let row = self.groups.entry((*queue, Arc::clone(group))).or_insert_with(|| GroupRow {
                    group: Arc::clone(group),
                    mode: Arc::clone(mode),
                    from_us: from_us.unwrap_or(now_us),
                    created_us: now_us,
                    conflation: *conflation,
                });
                Created::Group(row.clone())
            }
        }
    }

    fn admin(&mut self, admin: &Admin, now_us: i64) -> AdminDone {
        match admin {
            Admin::Configure { id, tenant, name, patch } => {
                let before = self.queue(*tenant, name).cloned();
                let id = before.as_ref().map_or(*id, |row| row.id);
                let (options, namespace, task) = match &before {
                    Some(row) => patch.as_ref().clone().apply(&row.options, &row.namespace, &row.task),
                    None => patch.as_ref().clone().apply(&QueueOptions::default(), "", ""),
                };
                let created_us = before.map_or(now_us, |row| row.created_us);
                let (namespace, task, name) = (namespace.into(), task.into(), Arc::clone(name));
                let row = QueueRow { id, tenant: *tenant, name, namespace, task, created_us, options };
                self.queues.insert(id, row.clone());
                self.changed.insert(id, now_us);
                AdminDone::Configured(row, self.groups_of(id))
            }
            Admin::Delete { tenant, name } => {
                let id = self.queue(*tenant, name).map(|row| row.id);
                if let Some(id) = id {
                    self.queues.remove(&id);
                    self.groups.retain(|(queue, _), _| *queue != id);
                    let gone: Vec<_> =
                        self.partitions.values().filter(|row| row.queue == id).map(|row| row.id).collect();
                    for partition in gone {
                        self.partitions.remove(&partition);
                        self.dropped.push((partition, now_us));
                        self.segments.retain(|(of, _), _| *of != partition);
                        self.cursors.retain(|(of, _), _| *of != partition);
                    }
                }
                AdminDone::Deleted(id)
            }
            Admin::Extend { lease, for_us, .. } => {
                let mut cursors = Vec::new();
                for row in self.cursors.values_mut() {
                    if let Some(held) = &mut row.lease
                        && held.id == *lease
                        && held.until_us > now_us
                    {
                        held.until_us = held.until_us.max(now_us + for_us);
                        row.version = row.version.wrapping_add(1);
                        cursors.push(row.clone());
                    }
                }
                AdminDone::Extended { now_us, cursors }
            }
            Admin::Retain(retain) => self.retain(retain, now_us),
        }
    }

    fn retain(&mut self, retain: &Retain, now_us: i64) -> AdminDone {
        let (mut starts, mut messages) = (Vec::new(), 0);
        let ids: Vec<_> = self.partitions.values().filter(|row| row.queue == retain.queue).map(|row| row.id).collect();
        for id in ids {
            let consumed = self.cursors.iter().filter(|((of, _), _)| *of == id).map(|(_, row)| row.next).min();
            let mut start = self.partitions[&id].log_start;
            for row in self.segments_of(id) {
                let old = |age_us: Option<i64>| age_us.is_some_and(|age_us| row.stamp_us <= now_us - age_us);
                let done = old(retain.consumed_age_us) && consumed.is_some_and(|next| next >= row.next);
                if old(retain.age_us) || done {
                    start = start.max(row.next);
                } else {
                    break;
                }
            }
            let partition = self.partitions.get_mut(&id).expect("listed");
            if start > partition.log_start {
                messages += start - partition.log_start;
                partition.log_start = start;
                starts.push((id, start));
                let last = self.segments_of(id).next_back().map(|row| row.base);
                self.segments.retain(|(of, base), row| *of != id || row.next > start || Some(*base) == last);
            }
        }
        AdminDone::Retained { starts, messages, more: false }
    }
}
