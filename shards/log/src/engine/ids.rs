//! Finding a message by its transaction id: for a push, whether it is known; for an ack, where it is.
//!
//! The ids of the newest segments are indexed in memory; how far back an id has to be looked for depends on it. One of
//! version 7 tells when it was made, so it cannot be stored before that, but for clocks that were ahead; any other can
//! be as old as the window. What the index does not reach is read from the store, searched, and kept if there is room.

use hashbrown::HashSet;

use super::{
    Log,
    cache::PartitionKey,
    op::{OpKey, Probe},
};
use crate::{
    id::{Uuid, hash_of_id, offset_of_message_id},
    row::IndexRow,
    store::Load,
};

/// What clocks may differ by beyond what was seen.
const CLOCKS_DIFFER_US: i64 = 1_000_000;

/// Where an id is.
#[derive(Debug)]
pub(super) enum Lookup {
    /// At this offset, stamped so.
    At { offset: u64, stamp_us: i64 },
    /// Nowhere within the time.
    Nowhere,
    /// The store has to be asked.
    Need(Load),
}

/// The time in an id that is a version 7 UUID, in microseconds since 1970.
pub(super) fn time_of_id(id: &[u8]) -> Option<i64> {
    let ms = Uuid::parse(std::str::from_utf8(id).ok()?)?.v7_ms()?;
    i64::try_from(ms).ok()?.checked_mul(1000)
}

impl<T: Copy> Log<T> {
    /// Looks for an id in what is stored of a partition, among messages stamped `since_us` or later.
    pub(super) fn find_id(&self, op: OpKey, key: PartitionKey, id: &[u8], since_us: i64) -> Lookup {
        let partition = &self.cache.partitions[key];
        if let Some(offset) = std::str::from_utf8(id).ok().and_then(|id| offset_of_message_id(id, partition.number))
            && (partition.log_start..partition.next).contains(&offset)
        {
            // It may be a message's own id. Such messages are in no index.
            match partition.segment(offset) {
                Some(cached) if cached.segment.id_is(offset, id, partition.number) => {
                    return at_if_within(offset, cached.segment.stamp_us, since_us);
                }
                Some(_) => {}
                None => return Lookup::Need(Load::Segments { partition: partition.id, from: offset, max_bytes: 1 }),
            }
        }
        let hash = hash_of_id(id);
        let made_us = time_of_id(id);
        let since_us =
            made_us.map_or(since_us, |made_us| since_us.max(made_us - partition.ahead_us - CLOCKS_DIFFER_US));
        let index = &partition.index;
        let probe = self.probe(op, key).filter(|probe| probe.below >= index.from());
        let probed = probe.map(|probe| probe.hits.iter()).unwrap_or_default();
        let probed = probed.filter(|hit| hit.0 == hash).map(|hit| hit.1);
        for offset in index.find(hash).chain(probed) {
            if offset < partition.log_start {
                continue;
            }
            match partition.segment(offset) {
                Some(cached) if cached.segment.id_is(offset, id, partition.number) => {
                    if let found @ Lookup::At { .. } = at_if_within(offset, cached.segment.stamp_us, since_us) {
                        return found;
                    }
                }
                Some(_) => {}
                None => return Lookup::Need(Load::Segments { partition: partition.id, from: offset, max_bytes: 1 }),
            }
        }
        let covered =
            index.covers(since_us) || probe.is_some_and(|probe| probe.from == 0 || probe.before_us < since_us);
        if covered {
            return Lookup::Nowhere;
        }
        let below = probe.map_or(index.from(), |probe| probe.from);
        Lookup::Need(Load::Indexes { partition: partition.id, since_us, below })
    }

    fn probe(&self, op: OpKey, key: PartitionKey) -> Option<&Probe> {
        let id = self.cache.partitions[key].id;
        self.ops.get(op.slot)?.probes.iter().find(|probe| probe.partition == id)
    }

    /// Notes which ids an operation looks for in indexes that are about to be read.
    pub(super) fn start_probe(&mut self, op: OpKey, key: PartitionKey, hashes: HashSet<u64>) {
        let partition = &self.cache.partitions[key];
        let from = partition.index.from();
        let probes = &mut self.ops[op.slot].probes;
        if let Some(probe) = probes.iter_mut().find(|probe| probe.partition == partition.id) {
            if probe.below >= from {
                return;
            }
            // The index has let go of what lies between.
            (probe.below, probe.from) = (from, from);
            probe.hits.clear();
            return;
        }
        let before_us = i64::MAX;
        probes.push(Probe { partition: partition.id, hashes, below: from, from, before_us, hits: Vec::new() });
    }

    /// Takes indexes in that were read for these operations: they search them, and the index keeps them if it has room.
    pub(super) fn take_indexes(&mut self, load: &Load, rows: &[IndexRow], waiters: &[OpKey]) {
        let &Load::Indexes { partition: id, since_us, below } = load else { unreachable!("asked for indexes") };
        let Some(key) = self.cache.partition_by_id(id) else { return };
        let unpacked: Vec<Vec<u64>> = rows.iter().map(|row| super::dedup::unpack(&row.hashes)).collect();
        let complete = rows.last().is_none_or(|oldest| oldest.stamp_us >= since_us && rows.len() < INDEX_ROWS_MAX);
        // The oldest row only says what stands before the others, unless it is the first of the log.
        let searched = if complete { rows.len() } else { rows.len().saturating_sub(1) };
        let (from, before_us) = match (complete, searched) {
            (true, _) => (0, i64::MIN),
            (false, 0) => (below, rows[0].stamp_us),
            (false, _) => (rows[searched - 1].base, rows[searched].stamp_us),
        };
        for waiter in waiters {
            let Some(op) = self.ops.get_mut(waiter.slot).filter(|op| op.serial == waiter.serial) else { continue };
            let Some(probe) = op.probes.iter_mut().find(|probe| probe.partition == id && probe.from == below) else {
                continue;
            };
            for (row, hashes) in rows.iter().zip(&unpacked).take(searched) {
                let found = (row.base..).zip(hashes).filter(|(_, hash)| probe.hashes.contains(*hash));
                probe.hits.extend(found.map(|(offset, hash)| (*hash, offset)));
            }
            (probe.from, probe.before_us) = (from, before_us);
        }
        let ids: usize = unpacked.iter().map(Vec::len).sum();
        if self.cache.partitions[key].index.from() == below && self.cache.has_room_for_ids(ids, self.config.cache_bytes)
        {
            for (at, (row, hashes)) in rows.iter().zip(&unpacked).take(searched).enumerate() {
                let before_us = rows.get(at + 1).map_or(i64::MIN, |older| older.stamp_us);
                self.cache.index_loaded(key, row.base, row.stamp_us, hashes, before_us);
            }
            if complete {
                self.cache.partitions[key].index.begins_the_log();
            }
        }
    }
}

/// The most rows that a store answers to [`Load::Indexes`].
const INDEX_ROWS_MAX: usize = 10_000;

fn at_if_within(offset: u64, stamp_us: i64, since_us: i64) -> Lookup {
    if stamp_us >= since_us { Lookup::At { offset, stamp_us } } else { Lookup::Nowhere }
}
