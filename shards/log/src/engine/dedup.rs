//! What a partition knows of its transaction ids: the hashes of its latest segments, complete from one offset on.
//!
//! A hash only points at a message; whether the id is the same is for the caller to see.

use std::collections::VecDeque;

use hashbrown::HashTable;

use super::room;

/// The hashes of a partition's newest segments.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Everything from this offset on is in here.
    from: u64,
    /// No segment before `from` is stamped later than this.
    before_us: i64,
    table: HashTable<(u64, u64)>,
    /// The segments in here that have ids, oldest first.
    segments: VecDeque<Indexed>,
}

#[derive(Debug)]
struct Indexed {
    base: u64,
    stamp_us: i64,
    hashes: Box<[u64]>,
}

/// Memory that an id takes in an index: an entry in the table, which is three quarters full, and one in the list.
pub(super) const ID_BYTES: usize = 32;

impl Index {
    /// An index of a partition whose newest segment ends at `next` and was stamped `stamp_us`.
    pub(super) fn starting_at(next: u64, stamp_us: i64) -> Self {
        Self { from: next, before_us: stamp_us, ..Self::default() }
    }

    /// Where it begins.
    pub(super) fn from(&self) -> u64 {
        self.from
    }

    /// Whether all segments stamped at `since_us` or later are in here.
    pub(super) fn covers(&self, since_us: i64) -> bool {
        self.from == 0 || self.before_us < since_us
    }

    /// Takes in the segment that was appended.
    pub(super) fn append(&mut self, base: u64, stamp_us: i64, hashes: &[u64]) -> usize {
        let Some(hashes) = self.insert(base, hashes) else { return 0 };
        let count = hashes.len();
        self.segments.push_back(Indexed { base, stamp_us, hashes });
        count
    }

    /// Takes in the segment that stands before all others in here.
    pub(super) fn prepend(&mut self, base: u64, stamp_us: i64, hashes: &[u64], before_us: i64) -> usize {
        self.from = base;
        self.before_us = before_us;
        let Some(hashes) = self.insert(base, hashes) else { return 0 };
        let count = hashes.len();
        self.segments.push_front(Indexed { base, stamp_us, hashes });
        count
    }

    /// Nothing stands before its beginning: all that was there has been removed.
    pub(super) fn begins_the_log(&mut self) {
        self.before_us = i64::MIN;
    }

    /// Offsets of messages whose id has this hash.
    pub(super) fn find(&self, hash: u64) -> impl Iterator<Item = u64> {
        self.table.iter_hash(hash).filter(move |entry| entry.0 == hash).map(|entry| entry.1)
    }

    /// Lets go of the oldest segment, and says how many ids that were.
    pub(super) fn forget_oldest(&mut self) -> Option<usize> {
        let oldest = self.segments.pop_front()?;
        for (at, &hash) in (oldest.base..).zip(&oldest.hashes) {
            if hash != 0
                && let Ok(entry) = self.table.find_entry(hash, |entry| *entry == (hash, at))
            {
                entry.remove();
            }
        }
        if let Some(room) = room::worth(self.table.len(), self.table.capacity()) {
            self.table.shrink_to(room, |entry| entry.0);
        }
        room::of_queue(&mut self.segments);
        let next = self.segments.front().map_or(oldest.base + oldest.hashes.len() as u64, |segment| segment.base);
        self.from = self.from.max(next);
        self.before_us = self.before_us.max(oldest.stamp_us);
        Some(oldest.hashes.len())
    }

    /// Whether its oldest segment ends at or below an offset.
    pub(super) fn oldest_ends_by(&self, offset: u64) -> bool {
        self.segments.front().is_some_and(|oldest| oldest.base + oldest.hashes.len() as u64 <= offset)
    }

    /// The stamp of its oldest segment.
    pub(super) fn oldest_us(&self) -> Option<i64> {
        self.segments.front().map(|segment| segment.stamp_us)
    }

    /// Number of segments in it that have ids.
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Number of ids in it, as its memory is counted.
    pub(super) fn ids(&self) -> usize {
        self.segments.iter().map(|segment| segment.hashes.len()).sum()
    }

    /// Puts the ids in the table. None where there are none.
    fn insert(&mut self, base: u64, hashes: &[u64]) -> Option<Box<[u64]>> {
        for (at, &hash) in (base..).zip(hashes) {
            if hash != 0 {
                self.table.insert_unique(hash, (hash, at), |entry| entry.0);
            }
        }
        hashes.iter().any(|&hash| hash != 0).then(|| hashes.into())
    }
}

/// Hashes as a store keeps them.
pub(super) fn pack(hashes: &[u64]) -> Vec<u8> {
    if hashes.iter().all(|&hash| hash == 0) {
        return Vec::new();
    }
    hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect()
}

/// Hashes as a store keeps them, read.
pub(super) fn unpack(packed: &[u8]) -> Vec<u64> {
    packed.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_until_its_segment_is_forgotten() {
        let mut index = Index::starting_at(10, 100);
        index.append(10, 200, &[5, 0, 7]);
        index.append(13, 300, &[5]);
        let mut found: Vec<_> = index.find(5).collect();
        found.sort_unstable();
        assert_eq!(found, [10, 13]);
        assert!(index.covers(101) && !index.covers(100));
        assert_eq!(index.forget_oldest(), Some(3));
        assert_eq!(index.find(5).collect::<Vec<_>>(), [13]);
        assert!(index.find(7).next().is_none());
        assert!(index.covers(201) && !index.covers(200));
        assert_eq!(index.from(), 13);
    }

    #[test]
    fn what_is_loaded_goes_before() {
        let mut index = Index::starting_at(10, 100);
        index.prepend(8, 100, &[3, 4], 50);
        assert!(index.covers(51));
        assert_eq!(index.find(4).next(), Some(9));
        index.begins_the_log();
        assert!(index.covers(0));
    }

    #[test]
    fn hashes_are_packed_only_where_there_are_some() {
        assert_eq!(pack(&[0, 0]), []);
        assert_eq!(unpack(&pack(&[0, u64::MAX])), [0, u64::MAX]);
    }
}
