//! Fetch: reading at offsets. No lease, no cursor, no group.

use std::sync::Arc;

use super::{
    Log, Resolved, Step,
    cache::PartitionKey,
    op::{FetchOp, OpKey},
    pop::Reach,
};
use crate::request::{Answer, FetchError, Fetched};

impl<T: Copy> Log<T> {
    pub(super) fn step_fetch(&mut self, key: OpKey, fetch: &mut FetchOp) -> Step {
        // Others may have written behind what is known here, or removed it.
        if self.looks_at_others(key, &mut fetch.refreshed, &[]) {
            return Step::Waits;
        }
        let waits_for_more = self.may_wait_for_more(key);
        let mut bytes_left = fetch.request.max_bytes;
        let mut bytes = 0;
        let mut answer = Vec::with_capacity(fetch.request.entries.len());
        let mut partitions = Vec::new();
        for index in 0..fetch.request.entries.len() {
            let Some((fetched, partition, size)) = self.fetch_entry(key, fetch, index, bytes_left, waits_for_more)
            else {
                continue;
            };
            bytes_left = bytes_left.saturating_sub(size);
            // An empty payload counts too: it is something new.
            bytes += size;
            if !waits_for_more && bytes > 0 {
                // What the others have is asked for again by who wants it.
                bytes_left = 0;
            }
            partitions.extend(partition);
            answer.push(fetched);
        }
        if self.ops[key.slot].waits > 0 {
            return Step::Waits;
        }
        let has_error = answer.iter().any(|fetched| fetched.error.is_some());
        if has_error || fetch.request.max_wait_ms == 0 || bytes >= fetch.request.min_bytes {
            return Step::Answer(Answer::Fetched(answer));
        }
        fetch.last = answer;
        let op = &mut self.ops[key.slot];
        op.parked = true;
        op.absent.clear();
        self.refresh.somebody_waits(self.config.recheck_us, self.mono_us);
        for partition in partitions {
            let waiting = self.fetchers.entry(partition).or_default();
            if !waiting.contains(&key) {
                waiting.push(key);
            }
        }
        Step::Waits
    }

    /// Reads one entry: what it gives, its partition, and its bytes. `None` while something is read.
    fn fetch_entry(
        &mut self,
        key: OpKey,
        fetch: &FetchOp,
        index: usize,
        bytes_left: u64,
        waits_for_more: bool,
    ) -> Option<(Fetched, Option<PartitionKey>, u64)> {
        let entry = &fetch.request.entries[index];
        let unknown = || Some((Fetched { error: Some(FetchError::Unknown), ..Fetched::default() }, None, 0));
        let (queue, name) = (Arc::clone(&entry.queue), Arc::clone(&entry.partition));
        let queue = match self.resolve_queue(key, fetch.request.tenant, &queue, false) {
            Resolved::Here(queue) => queue,
            Resolved::Waits => return None,
            Resolved::Absent => return unknown(),
        };
        let partition = match self.resolve_partition(key, queue, &name, false) {
            Resolved::Here(partition) => partition,
            Resolved::Waits => return None,
            Resolved::Absent => return unknown(),
        };
        if self.rereads_partition(key, partition) {
            return None;
        }
        let row = &self.cache.partitions[partition];
        let mut fetched = Fetched {
            error: None,
            number: row.number,
            slices: Vec::new(),
            high_watermark: row.next,
            log_start: row.log_start,
        };
        if entry.offset < row.log_start || entry.offset > row.next {
            fetched.error = Some(FetchError::OutOfRange);
            return Some((fetched, Some(partition), 0));
        }
        if bytes_left == 0 {
            return Some((fetched, Some(partition), 0));
        }
        let bytes = usize::try_from(entry.max_bytes.min(bytes_left)).unwrap_or(usize::MAX);
        let reach = Reach {
            from: entry.offset,
            messages: u64::MAX,
            bytes: bytes.min(self.config.answer_bytes_max),
            stamped_until_us: i64::MAX,
            waits_for_more,
        };
        let (slices, size) = self.slices(key, partition, &reach)?;
        fetched.slices = slices;
        let size = (size as u64).max(u64::from(!fetched.slices.is_empty()));
        Some((fetched, Some(partition), size))
    }

    /// A partition has more: fetches that wait for it look again.
    pub(super) fn wake_fetches(&mut self, partition: PartitionKey) {
        for key in self.fetchers.remove(&partition).unwrap_or_default() {
            if self.op(key).is_some_and(|op| op.parked) {
                self.make_ready(key);
            }
        }
    }
}
