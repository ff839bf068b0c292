//! A batch in one statement: one round trip, one transaction, nothing half done.
//!
//! One with cursors goes by a lane's row. How its parts come one after the other, and why two of them cannot stop each
//! other:
//!
//! 1. `lane` locks the row of the connection. Without it, or with another batch in it than the one before this, no part
//!    does anything: whoever has closed the lane knows that the batch will not be written any more.
//! 2. `clock` reads the time, after the lock.
//! 3. `appended` inserts segments, sorted by key. It locks no partition: a segment that another broker has put there is
//!    a conflict of the primary key, waited for and then left out, or is seen as the newest. See [`crate::retention`]
//!    for why that is enough.
//! 4. `held` locks cursors, sorted by key, that have the version that is expected; a row that changed while it waited is
//!    looked at again and dropped. It reads `wanted`, which needs all of `appended`: so segments come before cursors.
//! 5. `changed` updates those. `made` inserts new cursors, sorted by key, after all locks of `held`.
//!
//! So every broker takes what it may have to wait for in one order: its lane, segments, old cursors, new cursors, each
//! sorted. The parts look at one snapshot and write disjoint rows. `held` must not look at `appended` itself: where a
//! row is looked at again, the server cannot run a part that writes.
//!
//! What was left out stands in the lane's row, so that it can be read there when the connection dies before it answers.
//! A batch of segments alone needs no lane: see [`super::append`].

use queen_log::store::{Batch, Committed};
use tokio_postgres::{Row, types::Type};

use super::{
    columns::Columns,
    session::{Sql, Trouble},
    values::get,
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
/// Inserts segments, from nine columns of them and the time in `clock`. One is left out where the newest segment of its
/// partition does not end where it begins, or is not the one that it follows, and where the partition is gone.
macro_rules! insert_segments {
    ($columns:literal) => {
        concat!(
            "INSERT INTO queen.segment (partition_id, base, next, stamp_us, ahead_us, mark, hashes, data)
    SELECT a.partition_id, a.base, a.next, greatest(a.floor_us, clock.now_us, newest.stamp_us), a.ahead_us, a.mark,
        a.hashes, a.data
    FROM clock CROSS JOIN unnest(",
            $columns,
            ") AS a(partition_id, base, next, floor_us, ahead_us, mark, follows, hashes, data)
    LEFT JOIN LATERAL (
        SELECT s.next, s.stamp_us, s.mark FROM queen.segment s
        WHERE s.partition_id = a.partition_id ORDER BY s.base DESC LIMIT 1) newest ON true
    WHERE a.base = coalesce(newest.next, 0) AND (a.follows IS NULL OR a.follows = newest.mark)
    AND EXISTS (SELECT FROM queen.partition p WHERE p.id = a.partition_id)
    ORDER BY a.partition_id, a.base
    ON CONFLICT DO NOTHING
    RETURNING "
        )
    };
}
pub(super) use insert_segments;

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

/// Writes into the lane's row what came of the batch: the appends that were left out, and of the cursors with these
/// columns those.
macro_rules! outcome_noted {
    ($from:literal, $appends:literal, $cursors:literal) => {
        concat!(
            "UPDATE queen.lane l SET batch = $2, now_us = ",
            $from,
            ".now_us, left_appends = ",
            $appends,
            ", left_cursors = (
    SELECT array_agg(w.place)
    FROM unnest(",
            $cursors,
            ") WITH ORDINALITY AS w(partition_id, group_name, place)
    WHERE w.place NOT IN (SELECT place FROM changed)
        AND (w.partition_id, w.group_name) NOT IN (SELECT partition_id, group_name FROM made))
FROM ",
            $from,
            " WHERE l.id = $1
RETURNING l.batch, l.now_us, l.left_appends, l.left_cursors"
        )
    };
}

/// Parameters: 1 lane, 2 batch; 3-11 appends; 12-23 cursors; 24-32 dead letters. No row when the lane is not as expected.
const COMMIT: Sql = Sql {
    text: concat!(
        "WITH ",
        lane_and_clock!(),
        ", appended AS (
    ",
        insert_segments!(
            "$3::uuid[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], $9::int8[], $10::bytea[], $11::bytea[]"
        ),
        "partition_id
), done AS MATERIALIZED (
    SELECT clock.now_us, (SELECT array_agg(a.place)
        FROM unnest($3::uuid[]) WITH ORDINALITY AS a(partition_id, place)
        WHERE a.partition_id NOT IN (SELECT partition_id FROM appended)) AS left_out
    FROM clock
), wanted AS MATERIALIZED (
    SELECT w.*, done.now_us
    FROM done CROSS JOIN unnest($12::uuid[], $13::text[], $14::int8[], $15::int8[], $16::uuid[], $17::int8[],
        $18::int8[], $19::uuid[], $20::int8[], $21::int8[], $22::int8[], $23::int8[]) WITH ORDINALITY
        AS w(partition_id, group_name, expect, version, needs, next, run_end, lease_id, floor_us, for_us, retries,
            consumed, place)
    WHERE w.needs IS NULL OR w.needs IN (SELECT partition_id FROM appended)
), ",
        cursors_written!(),
        ", buried AS (
    INSERT INTO queen.dead_letter (id, partition_id, at_offset, group_name, transaction_id, error, retries, record,
        failed_us)
    SELECT d.id, d.partition_id, d.at_offset, d.group_name, d.transaction_id, d.error, d.retries, d.record, done.now_us
    FROM done CROSS JOIN unnest($24::uuid[], $25::int8[], $26::uuid[], $27::int8[], $28::text[], $29::bytea[],
        $30::bytea[], $31::int8[], $32::bytea[])
        AS d(id, place, partition_id, at_offset, group_name, transaction_id, error, retries, record)
    WHERE d.place IN (SELECT place FROM changed)
        OR (d.partition_id, d.group_name) IN (SELECT partition_id, group_name FROM made)
    ON CONFLICT DO NOTHING
)
",
        outcome_noted!("done", "done.left_out", "$12::uuid[], $13::text[]"),
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
",
        outcome_noted!("clock", "NULL", "$3::uuid[], $4::text[]"),
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

/// The smallest statement that does all of a batch, and its parameters from 3 on: a server sets up each part anew for
/// every batch.
pub(super) fn statement(batch: &Batch) -> (&'static Sql, Columns<'_>) {
    if batch.appends.is_empty() && batch.dead.is_empty() {
        let mut columns = Columns::default();
        columns.add_cursors(&batch.cursors);
        return (&COMMIT_CURSORS, columns);
    }
    let mut columns = Columns::default();
    columns.add_appends(&batch.appends);
    columns.add_cursors_with_needs(batch);
    columns.add_dead(&batch.dead);
    (&COMMIT, columns)
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
