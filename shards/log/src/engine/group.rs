//! A consumer group on a queue: its cursors, and which partitions have something for it.
//!
//! The candidates are the hot list: partitions that have messages behind the cursor and are not held up stand in
//! `ready`, those that are (a lease, a delay) in `timed` by when it ends. A pop takes from the front of `ready`, so it
//! never looks at partitions that have nothing, and the others get their turn.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use hashbrown::HashMap;

use super::{
    cache::{Partition, PartitionKey, Queue, QueueKey},
    op::OpKey,
    room,
};
use crate::row::{CursorRow, GroupRow, Lease};

/// A window buffer lets go of so many messages before its time.
const WINDOW_MESSAGES: u64 = 100;

/// A group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) queue: QueueKey,
    pub(super) name: Arc<str>,
    /// Its registration, once it has one.
    pub(super) row: Option<GroupRow>,
    pub(super) scan: Scan,
    pub(super) cursors: HashMap<PartitionKey, Cursor>,
    pub(super) ready: VecDeque<PartitionKey>,
    pub(super) timed: BTreeSet<(i64, PartitionKey)>,
    /// The time under which the log has noted the group.
    pub(super) noted_us: Option<i64>,
    /// Pops that wait for any partition, the longest first. Some may have gone.
    pub(super) parked: VecDeque<OpKey>,
    /// Pops that wait for one.
    pub(super) pinned: HashMap<PartitionKey, VecDeque<OpKey>>,
}

/// How far the store's partitions and cursors were read into a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    /// Only what pinned pops and acks have asked for is known.
    None,
    /// The partitions of its queue are being read.
    Partitions,
    /// Its cursors are being read.
    Cursors,
    /// A partition without a known cursor has none, unless another broker has made it.
    Done,
}

/// A group's cursor in a partition.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    pub(super) known: Known,
    /// It is being written.
    pub(super) busy: bool,
    place: Place,
    /// It stands in `ready`, perhaps from before.
    enqueued: bool,
}

/// What is known of a cursor's row.
#[derive(Debug, Default, Clone)]
pub(super) enum Known {
    /// Nothing: it has to be read.
    #[default]
    No,
    /// There is none. Where the group starts, if that was worked out.
    Absent { start: Option<u64> },
    /// The row.
    Row(Position),
}

/// A cursor's row, without its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) version: i64,
    pub(super) next: u64,
    pub(super) run_end: u64,
    pub(super) lease: Option<Lease>,
    pub(super) retries: i64,
    pub(super) consumed: u64,
}

impl From<&CursorRow> for Position {
    fn from(row: &CursorRow) -> Self {
        Self {
            version: row.version,
            next: row.next,
            run_end: row.run_end,
            lease: row.lease,
            retries: row.retries,
            consumed: row.consumed,
        }
    }
}

/// Where a partition stands among the candidates.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    None,
    Ready,
    Timed(i64),
}

/// What a partition has for a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing, or it is being written.
    Nothing,
    /// Something, from this time of the store on.
    Later(i64),
    /// Something now, or it has to be looked at.
    Now,
}

impl Group {
    pub(super) fn new(queue: QueueKey, name: Arc<str>, row: Option<GroupRow>) -> Self {
        Self {
            queue,
            name,
            row,
            scan: Scan::None,
            cursors: HashMap::new(),
            ready: VecDeque::new(),
            timed: BTreeSet::new(),
            noted_us: None,
            parked: VecDeque::new(),
            pinned: HashMap::new(),
        }
    }

    /// What is known of the cursor in a partition.
    pub(super) fn known(&self, key: PartitionKey) -> Known {
        match self.cursors.get(&key) {
            Some(cursor) => cursor.known.clone(),
            None if self.scan == Scan::Done => Known::Absent { start: None },
            None => Known::No,
        }
    }

    pub(super) fn is_busy(&self, key: PartitionKey) -> bool {
        self.cursors.get(&key).is_some_and(|cursor| cursor.busy)
    }

    pub(super) fn cursor(&mut self, key: PartitionKey) -> &mut Cursor {
        let known = self.known(key);
        self.cursors.entry(key).or_insert_with(|| Cursor { known, ..Cursor::default() })
    }

    /// Where the group begins in a partition in which it has no cursor, if that can be said without looking.
    pub(super) fn start(&self, partition: &Partition) -> Option<u64> {
        let row = self.row.as_ref()?;
        if row.from_us <= 0 {
            Some(partition.log_start)
        } else if partition.stamp_us < row.from_us {
            Some(partition.next)
        } else {
            None
        }
    }

    /// What a partition has for the group at `now_us`.
    pub(super) fn standing(&self, key: PartitionKey, partition: &Partition, queue: &Queue, now_us: i64) -> Standing {
        if self.is_busy(key) {
            return Standing::Nothing;
        }
        let (next, lease) = match self.known(key) {
            Known::No => return Standing::Now,
            Known::Absent { start } => match start.or_else(|| self.start(partition)) {
                Some(start) => (start, None),
                None => return Standing::Now,
            },
            Known::Row(position) => (position.next, position.lease),
        };
        let next = next.max(partition.log_start);
        // Of one whose row is too old, nobody knows where it ends.
        if next >= partition.next && !partition.stale {
            return Standing::Nothing;
        }
        let mut from_us = lease.map_or(0, |lease| lease.until_us);
        let options = &queue.row.options;
        if options.delayed_s > 0 || options.window_buffer_s > 0 {
            // A segment that is not in memory has to be looked at; nobody waits long for an old one.
            if let Some(cached) = partition.segment(next) {
                let stamp_us = cached.segment.stamp_us;
                from_us = from_us.max(stamp_us + options.delayed_s * 1_000_000);
                if partition.next.saturating_sub(next) < WINDOW_MESSAGES {
                    from_us = from_us.max(stamp_us + options.window_buffer_s * 1_000_000);
                }
            }
        }
        if from_us > now_us { Standing::Later(from_us) } else { Standing::Now }
    }

    /// Puts a partition where it stands. Says whether it has something now.
    pub(super) fn place(&mut self, key: PartitionKey, standing: Standing) -> bool {
        let place = match standing {
            Standing::Nothing => Place::None,
            Standing::Later(at_us) => Place::Timed(at_us),
            Standing::Now => Place::Ready,
        };
        let before = self.cursors.get(&key).map_or(Place::None, |cursor| cursor.place);
        if before == place {
            return place == Place::Ready;
        }
        // One that was ready stays in that queue, and is passed over there.
        if let Place::Timed(at_us) = before {
            self.timed.remove(&(at_us, key));
        }
        self.cursor(key).place = place;
        match place {
            Place::None => {}
            Place::Ready => {
                if !std::mem::replace(&mut self.cursor(key).enqueued, true) {
                    self.ready.push_back(key);
                }
            }
            Place::Timed(at_us) => {
                self.timed.insert((at_us, key));
            }
        }
        place == Place::Ready
    }

    /// Whether a partition that stands in `ready` still belongs there.
    pub(super) fn is_ready(&self, key: PartitionKey) -> bool {
        self.cursors.get(&key).is_some_and(|cursor| cursor.place == Place::Ready)
    }

    /// Drops from the front of `ready` what does not belong there.
    pub(super) fn tidy(&mut self) {
        while let Some(&first) = self.ready.front()
            && !self.is_ready(first)
        {
            self.ready.pop_front();
            self.left_ready(first);
        }
    }

    /// Takes a partition that is claimed out of the candidates.
    pub(super) fn take(&mut self, key: PartitionKey) {
        self.place(key, Standing::Nothing);
        if self.ready.front() == Some(&key) {
            self.ready.pop_front();
            self.left_ready(key);
        }
    }

    fn left_ready(&mut self, key: PartitionKey) {
        if let Some(cursor) = self.cursors.get_mut(&key) {
            cursor.enqueued = false;
        }
    }

    /// Forgets a partition, but for its place in `ready`: that is taken away by [`sweep`](Self::sweep), for many at once.
    pub(super) fn drop_partition(&mut self, key: PartitionKey) -> VecDeque<OpKey> {
        self.place(key, Standing::Nothing);
        self.cursors.remove(&key);
        room::of_map(&mut self.cursors);
        self.pinned.remove(&key).unwrap_or_default()
    }

    /// Takes partitions that were forgotten out of `ready`, before others can get their keys.
    pub(super) fn sweep(&mut self) {
        let cursors = &self.cursors;
        self.ready.retain(|ready| cursors.contains_key(ready));
        room::of_queue(&mut self.ready);
    }
}
