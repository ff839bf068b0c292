//! What is rare: configuring and removing queues, extending leases, retention.

use std::sync::Arc;

use super::{
    Job, Log, News, Step,
    group::Known,
    op::{Kind, OpKey},
};
use crate::{
    id::QueueId,
    options::QueueOptions,
    request::{Answer, ExtendRequest, Extended},
    row::{GroupRow, QueueRow},
    store::{Admin, AdminDone, Load, Retain, Work},
};

/// Segments that one step of retention removes.
const RETAIN_LIMIT: u32 = 1000;

/// When retention runs, and what it has still to look at.
#[derive(Debug, Default)]
pub(super) struct Retention {
    interval_us: Option<u64>,
    due_us: u64,
    under_way: bool,
    left: Vec<Retain>,
}

impl Retention {
    pub(super) fn due_us(&self) -> Option<u64> {
        self.interval_us.filter(|_| !self.under_way).map(|_| self.due_us)
    }

    pub(super) fn is_due(&self, mono_us: u64) -> bool {
        self.due_us().is_some_and(|due_us| due_us <= mono_us)
    }
}

/// What retention removes from a queue, if anything.
fn retain(queue: QueueId, options: &QueueOptions) -> Option<Retain> {
    let seconds = |seconds: i64| (seconds > 0).then(|| seconds.saturating_mul(1_000_000));
    let age_us = options.retention_enabled.then(|| seconds(options.retention_s)).flatten();
    let age_us = [age_us, seconds(options.max_wait_s)].into_iter().flatten().min();
    let consumed_age_us = options.retention_enabled.then(|| seconds(options.completed_retention_s)).flatten();
    let limit = RETAIN_LIMIT;
    (age_us.is_some() || consumed_age_us.is_some()).then_some(Retain { queue, age_us, consumed_age_us, limit })
}

impl<T: Copy> Log<T> {
    /// Runs retention over all queues of the store this often.
    pub fn retain_every(&mut self, interval_us: u64, mono_us: u64) {
        self.retention.interval_us = Some(interval_us);
        self.retention.due_us = mono_us + interval_us;
    }

    pub(super) fn start_admin(&mut self, key: OpKey, admin: Admin) -> Step {
        self.start(Job::Admin(key), Work::Admin(admin));
        Step::Waits
    }

    pub(super) fn step_extend(&mut self, key: OpKey, extend: ExtendRequest) -> Step {
        let Some(lease) = extend.lease else {
            return Step::Answer(Answer::Extended(Extended { renewed: 0, until_us: None }));
        };
        let for_us = i64::try_from(extend.seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        self.start_admin(key, Admin::Extend { tenant: extend.tenant, lease, for_us })
    }

    pub(super) fn admin_done(&mut self, key: OpKey, done: AdminDone) {
        match done {
            AdminDone::Configured(row, groups) => {
                let queue = self.put_queue(&row, groups);
                // Another window or delay moves the candidates.
                let partitions = self.cache.partitions_of(queue);
                for partition in partitions {
                    self.evaluate_groups(partition);
                }
                self.wake_unborn();
                self.tell(News::Configured { tenant: row.tenant, queue: Arc::clone(&row.name) });
                self.finish(key, Answer::Configured(row));
            }
            AdminDone::Deleted(id) => {
                if let Some(Kind::Admin(Admin::Delete { tenant, name })) = self.op(key).map(|op| &op.kind) {
                    let news = News::Deleted { tenant: *tenant, queue: Arc::clone(name) };
                    self.tell(news);
                }
                if let Some(queue) = id.and_then(|id| self.cache.queue_by_id(id)) {
                    self.forget_queue(queue);
                }
                self.finish(key, Answer::Deleted(id.is_some()));
            }
            AdminDone::Extended { now_us, cursors } => {
                self.clock.read(now_us, self.mono_us);
                for row in &cursors {
                    let Some(partition) = self.cache.partition_by_id(row.partition) else { continue };
                    let group = self.group_of(self.cache.partitions[partition].queue, &row.group);
                    let cursor = self.groups[group].cursor(partition);
                    if !cursor.busy {
                        cursor.known = Known::Row(row.into());
                        self.evaluate(group, partition);
                    }
                }
                let until_us = cursors.iter().filter_map(|row| row.lease).map(|lease| lease.until_us).min();
                let renewed = u32::try_from(cursors.len()).unwrap_or(u32::MAX);
                self.finish(key, Answer::Extended(Extended { renewed, until_us }));
            }
            AdminDone::Retained { .. } => panic!("retention has jobs of its own"),
        }
    }

    pub(super) fn start_retention(&mut self) {
        if !self.retention.is_due(self.mono_us) {
            return;
        }
        self.retention.under_way = true;
        self.start(Job::Retaining, Work::Load(Load::Retaining));
    }

    pub(super) fn retaining(&mut self, queues: Vec<(QueueRow, Vec<GroupRow>)>) {
        self.retention.left = queues.iter().filter_map(|(row, _)| retain(row.id, &row.options)).collect();
        self.next_retain();
    }

    fn next_retain(&mut self) {
        match self.retention.left.last() {
            Some(retain) => {
                self.start(Job::Retain, Work::Admin(Admin::Retain(retain.clone())));
            }
            None => self.retention_failed(),
        }
    }

    pub(super) fn retained(&mut self, done: AdminDone) {
        let AdminDone::Retained { starts, messages, more } = done else { panic!("asked to retain") };
        self.counters.retained += messages;
        let mut empty = Vec::new();
        for (id, log_start) in starts {
            if let Some(partition) = self.cache.partition_by_id(id) {
                self.cache.start_log_at(partition, log_start);
                if self.cache.partitions[partition].next <= log_start {
                    empty.push(partition);
                } else {
                    self.evaluate_groups(partition);
                }
            }
        }
        // Nothing is left in them: they are read again when somebody names them.
        if let Some(&first) = empty.first() {
            self.forget_partitions(self.cache.partitions[first].queue, &empty);
        }
        if !more {
            self.retention.left.pop();
        }
        self.next_retain();
    }

    /// A round of retention is over, or the store is away: the next one comes after the interval.
    pub(super) fn retention_failed(&mut self) {
        self.retention.under_way = false;
        self.retention.left.clear();
        self.retention.due_us = self.mono_us + self.retention.interval_us.unwrap_or_default();
    }
}
