//! What of a partition is being appended: one segment that is gathered, one or two in commit.
//!
//! The second is planned as if the first were written, and sent behind it without waiting. It says which segment it
//! follows, so that the store leaves it out when the first was left out, also where another broker has written just as
//! much meanwhile: what follows a segment that was not written is planned again.

use super::{Job, JobId, Log, batch::AppendPlan, cache::PartitionKey};
use crate::record::Records;

/// The appends of a partition that are gathered or in commit.
#[derive(Debug, Default)]
pub(super) struct Underway {
    count: u32,
    /// The one that was sent last, while it is in commit and can be followed: not after one before it was left out.
    last: Option<Sent>,
    /// Where the log was said to end meanwhile, and its newest stamp: by one of these, or by another broker.
    heard: Option<(u64, i64)>,
}

/// An append in commit, as the one that follows it has to know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) job: JobId,
    pub(super) mark: i64,
    /// Where it ends.
    pub(super) next: u64,
    pub(super) ahead_us: i64,
}

impl Underway {
    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// One is being gathered. Gives the one that it follows.
    pub(super) fn begin(&mut self) -> Option<Sent> {
        self.count += 1;
        self.last
    }

    /// What was gathered is in commit.
    pub(super) fn sent(&mut self, sent: Sent) {
        self.last = Some(sent);
    }

    /// One in commit was written.
    pub(super) fn written(&mut self, job: JobId) {
        self.last = self.last.filter(|sent| sent.job != job);
        self.count -= 1;
    }

    /// One was not written, and none that follows it will be: the next is planned when all are over.
    pub(super) fn not_written(&mut self) {
        self.last = None;
        self.count -= 1;
    }

    /// Keeps what is told of the log's end until it can be compared with what these have written.
    pub(super) fn hear(&mut self, next: u64, stamp_us: i64) {
        self.heard = self.heard.max(Some((next, stamp_us)));
    }

    /// What was told, when none is under way any more.
    fn told(&mut self) -> Option<(u64, i64)> {
        self.heard.take_if(|_| self.count == 0)
    }
}

impl<T: Copy> Log<T> {
    /// Whether a segment of a partition can be gathered that follows the one in commit. A chain has two links, and one
    /// commit is followed at a time.
    pub(super) fn can_follow(&self, key: PartitionKey) -> bool {
        let partition = &self.cache.partitions[key];
        let Some(sent) = partition.underway.last else { return false };
        self.lanes().any(|commit| commit.job == sent.job)
            && !partition.stale
            && self.gathered_for(key).is_none()
            && self.following.as_ref().is_none_or(|(job, following)| *job == sent.job && !following.is_full())
            && !self.commits.iter().any(|commit| commit.behind == Some(sent.job))
    }

    /// The segment that is gathered for a partition.
    pub(super) fn gathered_for(&self, key: PartitionKey) -> Option<&AppendPlan> {
        let following = || self.following.as_ref().and_then(|(_, following)| following.appends.get(&key));
        self.gathering.appends.get(&key).or_else(following)
    }

    /// Sends what follows a commit behind it, when it has about as many messages as batches have had lately. Fewer wait
    /// for others to come, at the longest until that commit ends: sixteen clients that wait for answers are better served
    /// by two batches of eight than by one of fifteen and one of one.
    pub(super) fn emit_following(&mut self) {
        let following = self.following.take().filter(|(_, following)| !following.is_empty());
        let Some((behind, following)) = following else { return };
        if !self.is_in_commit(behind) {
            self.gathering.join(following);
        } else if 2 * following.messages() >= self.lately.iter().sum() {
            self.send(following, Some(behind));
        } else {
            self.following = Some((behind, following));
        }
    }

    /// Whether one of these ids may be among those of the partition's segment in commit: only afterwards can be told
    /// where it is.
    pub(super) fn may_be_in_commit(&self, key: PartitionKey, records: &Records) -> bool {
        let partition = &self.cache.partitions[key];
        let Some(sent) = partition.underway.last else { return false };
        let Job::Commit(plan) = &self.jobs[&sent.job] else { unreachable!("appends are sent in commits") };
        let at = plan.appends.binary_search_by_key(&partition.id, |append| append.id).expect("it was sent with that");
        let ids = &plan.appends[at].ids;
        !ids.is_empty() && records.hashes.iter().any(|hash| *hash != 0 && ids.contains_key(hash))
    }

    /// The log of a partition was said to end at `next`. Groups look at it where another broker has written.
    pub(super) fn log_ends_at(&mut self, key: PartitionKey, next: u64, stamp_us: i64) -> bool {
        let partition = &mut self.cache.partitions[key];
        if partition.underway.any() {
            partition.underway.hear(next, stamp_us);
            return false;
        }
        if next <= partition.next {
            return false;
        }
        partition.stale = true;
        partition.known_by = self.last_job;
        self.cache.advance(key, next, stamp_us);
        self.evaluate_groups(key);
        true
    }

    /// An append is over: if it was the last one, what was told meanwhile is looked at.
    pub(super) fn append_is_over(&mut self, key: PartitionKey) {
        if let Some((next, stamp_us)) = self.cache.partitions[key].underway.told() {
            self.log_ends_at(key, next, stamp_us);
        }
    }

    /// An append was not written. What is gathered to follow it is given back; the row is read again before the next.
    pub(super) fn append_failed(&mut self, append: AppendPlan) {
        let key = append.partition;
        let partition = &mut self.cache.partitions[key];
        partition.underway.not_written();
        partition.stale = true;
        self.return_parts(append);
        let following = self.following.as_mut().and_then(|(_, following)| following.remove(key));
        if let Some(append) = following {
            self.cache.partitions[key].underway.not_written();
            self.return_parts(append);
        }
        self.append_is_over(key);
    }
}
