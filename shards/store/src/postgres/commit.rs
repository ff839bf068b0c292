//! A batch in one statement: one round trip, one transaction, nothing half done.
//!
//! How its parts come one after the other, and why two of them cannot stop each other:
//!
//! 1. `lane` locks the row of the connection. Without it, or with another batch in it than the one before this, no part
//!    does anything: whoever has closed the lane knows that the batch will not be written any more.
//! 2. `clock` reads the time, after the lock.
//! 3. `appended` inserts segments, sorted by key. It locks no partition: a segment that another broker has put there is
//!    a conflict of the primary key, waited for and then left out, or is seen by the `NOT EXISTS`. See
//!    [`crate::retention`] for why that is enough.
//! 4. `held` locks cursors, sorted by key, that have the version that is expected; a row that changed while it waited is
//!    looked at again and dropped. It reads `wanted`, which needs all of `appended`: so segments come before cursors.
//! 5. `changed` updates those. `made` inserts new cursors, sorted by key, after all locks of `held`.
//!
//! So every broker takes what it may have to wait for in one order: its lane, segments, old cursors, new cursors, each
//! sorted. The parts look at one snapshot and write disjoint rows. `held` must not look at `appended` itself: where a
//! row is looked at again, the server cannot run a part that writes.
//!
//! What was left out stands in the lane's row, so that it can be read there when the connection dies before it answers.

use queen_log::{
    row::DeadLetter,
    store::{Append, Batch, Committed, KEEP_LEASE},
};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    session::{Sql, Trouble},
    values::{Id, get},
};

/// The lane's row, locked, and the time.
macro_rules! lane_and_clock {
    () => {
        "lane AS MATERIALIZED (
    SELECT id FROM queen.lane WHERE id = $1 AND batch = $2 - 1 AND NOT closed FOR UPDATE
), clock AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now_us FROM lane
)"
    };
}
/// The segments, from parameters 3 to 9.
macro_rules! appended {
    () => {
        "appended AS (
    INSERT INTO queen.segment (partition_id, base, next, stamp_us, ahead_us, hashes, data)
    SELECT a.partition_id, a.base, a.next, greatest(a.floor_us, clock.now_us), a.ahead_us, a.hashes, a.data
    FROM clock CROSS JOIN unnest($3::uuid[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::bytea[], $9::bytea[])
        AS a(partition_id, base, next, floor_us, ahead_us, hashes, data)
    JOIN queen.partition p ON p.id = a.partition_id
    WHERE NOT EXISTS (SELECT FROM queen.segment s WHERE s.partition_id = a.partition_id AND s.base >= a.base)
    ORDER BY a.partition_id, a.base
    ON CONFLICT DO NOTHING
    RETURNING partition_id
)"
    };
}
/// The cursors that are `wanted`: old ones locked and changed, new ones made.
macro_rules! cursors_written {
    () => {
        "held AS MATERIALIZED (
    SELECT w.* FROM wanted w
    JOIN queen.cursor c ON c.partition_id = w.partition_id AND c.group_name = w.group_name
    WHERE c.version = w.expect
    ORDER BY w.partition_id, w.group_name COLLATE \"C\"
    FOR UPDATE OF c
), changed AS (
    UPDATE queen.cursor c SET version = h.version, next = h.next, run_end = h.run_end, lease_id = h.lease_id,
        lease_until_us = greatest(h.floor_us, h.now_us + h.for_us), retries = h.retries, consumed = h.consumed
    FROM held h WHERE c.partition_id = h.partition_id AND c.group_name = h.group_name
    RETURNING h.place
), made AS (
    INSERT INTO queen.cursor (partition_id, group_name, version, next, run_end, lease_id, lease_until_us, retries,
        consumed)
    SELECT w.partition_id, w.group_name, w.version, w.next, w.run_end, w.lease_id,
        greatest(w.floor_us, w.now_us + w.for_us), w.retries, w.consumed
    FROM (SELECT count(*) AS locks FROM held) h CROSS JOIN wanted w JOIN queen.partition p ON p.id = w.partition_id
    WHERE w.expect IS NULL AND h.locks >= 0
    ORDER BY w.partition_id, w.group_name COLLATE \"C\"
    ON CONFLICT DO NOTHING
    RETURNING partition_id, group_name
)"
    };
}

/// Parameters: 1 lane, 2 batch; 3-9 appends; 10-21 cursors; 22-30 dead letters. No row when the lane is not as expected.
const COMMIT: Sql = Sql {
    text: concat!(
        "WITH ",
        lane_and_clock!(),
        ", ",
        appended!(),
        ", done AS MATERIALIZED (
    SELECT clock.now_us, (SELECT array_agg(a.place)
        FROM unnest($3::uuid[]) WITH ORDINALITY AS a(partition_id, place)
        WHERE a.partition_id NOT IN (SELECT partition_id FROM appended)) AS left_out
    FROM clock
), wanted AS MATERIALIZED (
    SELECT w.*, done.now_us
    FROM done CROSS JOIN unnest($10::uuid[], $11::text[], $12::int8[], $13::int8[], $14::uuid[], $15::int8[],
        $16::int8[], $17::uuid[], $18::int8[], $19::int8[], $20::int8[], $21::int8[]) WITH ORDINALITY
        AS w(partition_id, group_name, expect, version, needs, next, run_end, lease_id, floor_us, for_us, retries,
            consumed, place)
    WHERE w.needs IS NULL OR w.needs IN (SELECT partition_id FROM appended)
), ",
        cursors_written!(),
        ", buried AS (
    INSERT INTO queen.dead_letter (id, partition_id, at_offset, group_name, transaction_id, error, retries, record,
        failed_us)
    SELECT d.id, d.partition_id, d.at_offset, d.group_name, d.transaction_id, d.error, d.retries, d.record, done.now_us
    FROM done CROSS JOIN unnest($22::uuid[], $23::int8[], $24::uuid[], $25::int8[], $26::text[], $27::bytea[],
        $28::bytea[], $29::int8[], $30::bytea[])
        AS d(id, place, partition_id, at_offset, group_name, transaction_id, error, retries, record)
    WHERE d.place IN (SELECT place FROM changed)
        OR (d.partition_id, d.group_name) IN (SELECT partition_id, group_name FROM made)
    ON CONFLICT DO NOTHING
)
UPDATE queen.lane l SET batch = $2, now_us = done.now_us, left_appends = done.left_out, left_cursors = (
    SELECT array_agg(w.place)
    FROM unnest($10::uuid[], $11::text[]) WITH ORDINALITY AS w(partition_id, group_name, place)
    WHERE w.place NOT IN (SELECT place FROM changed)
        AND (w.partition_id, w.group_name) NOT IN (SELECT partition_id, group_name FROM made))
FROM done WHERE l.id = $1
RETURNING l.batch, l.now_us, l.left_appends, l.left_cursors",
    ),
    types: &[
        Type::UUID,
        Type::INT8,
        // Appends.
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        // Cursors.
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        // Dead letters.
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

/// The same for a batch of appends alone: a third of the parts, which a server sets up anew for every batch. Parameters as
/// the first nine of [`COMMIT`].
const COMMIT_APPENDS: Sql = Sql {
    text: concat!(
        "WITH ",
        lane_and_clock!(),
        ", ",
        appended!(),
        "
UPDATE queen.lane l SET batch = $2, now_us = clock.now_us, left_cursors = NULL, left_appends = (
    SELECT array_agg(a.place) FROM unnest($3::uuid[]) WITH ORDINALITY AS a(partition_id, place)
    WHERE a.partition_id NOT IN (SELECT partition_id FROM appended))
FROM clock WHERE l.id = $1
RETURNING l.batch, l.now_us, l.left_appends, l.left_cursors",
    ),
    types: &[
        Type::UUID,
        Type::INT8,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

/// The same for a batch of cursors alone. Parameters: 1 lane, 2 batch; 3-13 cursors, without what they need.
const COMMIT_CURSORS: Sql = Sql {
    text: concat!(
        "WITH ",
        lane_and_clock!(),
        ", wanted AS MATERIALIZED (
    SELECT w.*, clock.now_us
    FROM clock CROSS JOIN unnest($3::uuid[], $4::text[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], $9::uuid[],
        $10::int8[], $11::int8[], $12::int8[], $13::int8[]) WITH ORDINALITY
        AS w(partition_id, group_name, expect, version, next, run_end, lease_id, floor_us, for_us, retries, consumed,
            place)
), ",
        cursors_written!(),
        "
UPDATE queen.lane l SET batch = $2, now_us = clock.now_us, left_appends = NULL, left_cursors = (
    SELECT array_agg(w.place)
    FROM unnest($3::uuid[], $4::text[]) WITH ORDINALITY AS w(partition_id, group_name, place)
    WHERE w.place NOT IN (SELECT place FROM changed)
        AND (w.partition_id, w.group_name) NOT IN (SELECT partition_id, group_name FROM made))
FROM clock WHERE l.id = $1
RETURNING l.batch, l.now_us, l.left_appends, l.left_cursors",
    ),
    types: &[
        Type::UUID,
        Type::INT8,
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
    ],
};

/// What a batch has in it: the smallest statement that does all of it is the cheapest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Appends,
    Cursors,
    All,
}

impl Shape {
    pub(super) fn of(batch: &Batch) -> Self {
        match (batch.appends.is_empty(), batch.cursors.is_empty()) {
            (_, true) => Self::Appends,
            (true, false) if batch.dead.is_empty() => Self::Cursors,
            _ => Self::All,
        }
    }

    pub(super) fn statement(self) -> &'static Sql {
        match self {
            Self::Appends => &COMMIT_APPENDS,
            Self::Cursors => &COMMIT_CURSORS,
            Self::All => &COMMIT,
        }
    }
}

/// A batch as the parameters of its statement from 3 on, column by column. Borrows the large ones.
pub(super) struct Columns<'a>(Vec<Box<dyn ToSql + Sync + 'a>>);

impl<'a> Columns<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        let shape = Shape::of(batch);
        let mut columns = Self(Vec::with_capacity(shape.statement().types.len() - 2));
        if shape != Shape::Cursors {
            columns.add_appends(&batch.appends);
        }
        if shape != Shape::Appends {
            columns.add_cursors(batch, shape == Shape::All);
        }
        if shape == Shape::All {
            columns.add_dead(&batch.dead);
        }
        columns
    }

    fn add_appends(&mut self, appends: &'a [Append]) {
        self.add(appends, |append| Id(append.partition));
        self.add(appends, |append| append.base.cast_signed());
        self.add(appends, |append| append.next.cast_signed());
        self.add(appends, |append| append.floor_us);
        self.add(appends, |append| append.ahead_us);
        self.add(appends, |append| append.hashes.as_slice());
        self.add(appends, |append| append.data.as_slice());
    }

    /// Cursors, with the appends that they need where there may be some.
    fn add_cursors(&mut self, batch: &'a Batch, with_needs: bool) {
        let cursors = &batch.cursors;
        self.add(cursors, |cursor| Id(cursor.partition));
        self.add(cursors, |cursor| &*cursor.group);
        self.add(cursors, |cursor| cursor.expect);
        self.add(cursors, |cursor| cursor.version);
        if with_needs {
            self.add(cursors, |cursor| cursor.needs_append.map(|needed| Id(batch.appends[needed].partition)));
        }
        self.add(cursors, |cursor| cursor.next.cast_signed());
        self.add(cursors, |cursor| cursor.run_end.cast_signed());
        self.add(cursors, |cursor| cursor.lease.map(|lease| Id(lease.id)));
        self.add(cursors, |cursor| cursor.lease.map(|lease| lease.floor_us));
        self.add(cursors, |cursor| cursor.lease.and_then(|lease| (lease.for_us != KEEP_LEASE).then_some(lease.for_us)));
        self.add(cursors, |cursor| cursor.retries);
        self.add(cursors, |cursor| cursor.consumed.cast_signed());
    }

    fn add_dead(&mut self, dead: &'a [(usize, DeadLetter)]) {
        self.add(dead, |(_, letter)| Id(letter.id));
        self.add(dead, |(cursor, _)| *cursor as i64 + 1);
        self.add(dead, |(_, letter)| Id(letter.partition));
        self.add(dead, |(_, letter)| letter.offset.cast_signed());
        self.add(dead, |(_, letter)| &*letter.group);
        self.add(dead, |(_, letter)| letter.transaction_id.as_bytes());
        self.add(dead, |(_, letter)| letter.error.as_bytes());
        self.add(dead, |(_, letter)| letter.retries);
        self.add(dead, |(_, letter)| letter.record.as_slice());
    }

    fn add<R, T: ToSql + Sync + 'a>(&mut self, rows: &'a [R], value: impl Fn(&'a R) -> T) {
        self.0.push(Box::new(rows.iter().map(value).collect::<Vec<T>>()));
    }

    /// All parameters.
    pub(super) fn parameters<'s>(&'s self, lane: &'s Id, batch: &'s i64) -> Vec<&'s (dyn ToSql + Sync)> {
        let fixed: [&(dyn ToSql + Sync); 2] = [lane, batch];
        fixed.into_iter().chain(self.0.iter().map(|column| &**column as &(dyn ToSql + Sync))).collect()
    }
}

/// What a lane's row says of its last batch.
pub(super) struct Outcome {
    /// The batch's number.
    pub(super) batch: i64,
    now_us: i64,
    left_appends: Vec<i64>,
    left_cursors: Vec<i64>,
}

impl Outcome {
    /// Of a row of `batch, now_us, left_appends, left_cursors`.
    pub(super) fn of(row: &Row) -> Result<Self, Trouble> {
        Ok(Self {
            batch: get(row, 0)?,
            now_us: get(row, 1)?,
            left_appends: get::<Option<_>>(row, 2)?.unwrap_or_default(),
            left_cursors: get::<Option<_>>(row, 3)?.unwrap_or_default(),
        })
    }

    /// What it says of this batch: stamps follow from the time.
    pub(super) fn committed(&self, batch: &Batch) -> Committed {
        let is_left = |left: &[i64], at: usize| left.contains(&(at as i64 + 1));
        let stamp = |at: usize, floor_us: i64| (!is_left(&self.left_appends, at)).then(|| floor_us.max(self.now_us));
        Committed {
            now_us: self.now_us,
            stamps: batch.appends.iter().enumerate().map(|(at, append)| stamp(at, append.floor_us)).collect(),
            cursors: (0..batch.cursors.len()).map(|at| !is_left(&self.left_cursors, at)).collect(),
        }
    }
}
