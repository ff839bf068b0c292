//! A step of retention; the rules stand in [`crate::retention`].

use queen_log::store::{AdminDone, Retain};
use tokio_postgres::types::Type;

use super::{
    session::{Session, Sql, Trouble},
    values::{Id, count, get, id},
};
use crate::retention::SETTLE_US;

/// Removes what an earlier step has let go of, of the first `$2` partitions where there is something, `$2` segments at most;
/// the newest of a partition is left. Where fewer had to go, all of those partitions are done: the newest segment is made
/// empty where all of it is gone, and the partition says so. Passes by what another broker has in hand. Gives how many
/// segments and how many partitions.
const REMOVE: Sql = Sql {
    text: "WITH due AS MATERIALIZED (
            SELECT p.id, p.removable_start FROM queen.partition p
            WHERE p.queue_id = $1 AND p.removable_start > p.removed_start
            AND p.removable_us <= (extract(epoch FROM now()) * 1000000)::int8
            ORDER BY p.number LIMIT $2 FOR UPDATE SKIP LOCKED),
        newest AS MATERIALIZED (
            SELECT p.id, p.removable_start, n.base FROM due p CROSS JOIN LATERAL (
                SELECT s.base FROM queen.segment s WHERE s.partition_id = p.id ORDER BY s.base DESC LIMIT 1) n),
        gone AS (
            DELETE FROM queen.segment WHERE (partition_id, base) IN (
                SELECT s.partition_id, s.base FROM newest n JOIN queen.segment s ON s.partition_id = n.id
                WHERE s.next <= n.removable_start AND s.base < n.base LIMIT $2)
            RETURNING 1),
        counted AS MATERIALIZED (SELECT count(*) AS gone FROM gone),
        emptied AS (
            UPDATE queen.segment s SET data = '' FROM newest n, counted
            WHERE counted.gone < $2 AND s.partition_id = n.id AND s.base = n.base AND s.next <= n.removable_start
            AND s.data <> ''),
        done AS (
            UPDATE queen.partition p SET removed_start = due.removable_start FROM due, counted
            WHERE counted.gone < $2 AND p.id = due.id)
        SELECT counted.gone, (SELECT count(*) FROM due) FROM counted",
    types: &[Type::UUID, Type::INT8],
};
/// The end of the last segment of the first `$4` kept ones that is old enough for `$2` (age), or for `$3` (consumed).
/// A group without a cursor has consumed what is older than its start. Gives old and new starts.
const MOVE: Sql = Sql {
    text: "WITH now AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS us),
        moves AS MATERIALIZED (
            SELECT p.id, p.log_start, greatest(
                (SELECT max(s.next) FROM (
                    SELECT k.next, k.stamp_us FROM queen.segment k WHERE k.partition_id = p.id AND k.base >= p.log_start
                    ORDER BY k.base LIMIT $4) s
                 WHERE s.stamp_us <= now.us - $2),
                (SELECT max(s.next) FROM (
                    SELECT k.next, k.stamp_us FROM queen.segment k WHERE k.partition_id = p.id AND k.base >= p.log_start
                    ORDER BY k.base LIMIT $4) s
                 WHERE s.stamp_us <= now.us - $3 AND s.next <= (
                    SELECT min(done) FROM (
                        SELECT c.next AS done FROM queen.cursor c WHERE c.partition_id = p.id
                        UNION ALL
                        SELECT coalesce((SELECT e.next FROM queen.segment e WHERE e.partition_id = p.id
                            AND e.stamp_us < g.from_us ORDER BY e.base DESC LIMIT 1), 0)
                        FROM queen.queue_group g WHERE g.queue_id = p.queue_id AND NOT EXISTS (
                            SELECT FROM queen.cursor c WHERE c.partition_id = p.id AND c.group_name = g.group_name)
                    ) d))) AS start
            FROM queen.partition p CROSS JOIN now WHERE p.queue_id = $1
        ),
        held AS MATERIALIZED (
            SELECT p.id, m.log_start, m.start FROM (SELECT * FROM moves WHERE start > log_start LIMIT $4) m
            JOIN queen.partition p ON p.id = m.id WHERE p.log_start = m.log_start ORDER BY p.id FOR UPDATE OF p)
        UPDATE queen.partition p SET log_start = h.start FROM held h WHERE p.id = h.id
        RETURNING p.id, h.log_start, h.start",
    types: &[Type::UUID, Type::INT8, Type::INT8, Type::INT8],
};
/// What is below a start that was moved now, or had to wait for the one before it, can go in a while.
const SETTLE: Sql = Sql {
    text: "UPDATE queen.partition SET removable_start = log_start,
            removable_us = (extract(epoch FROM clock_timestamp()) * 1000000)::int8 + $2
        WHERE id IN (SELECT id FROM queen.partition
            WHERE queue_id = $1 AND removable_start = removed_start AND log_start > removable_start
            ORDER BY id FOR UPDATE)",
    types: &[Type::UUID, Type::INT8],
};

/// Removes what an earlier step has let go of; once all of that is gone, moves the starts of logs.
pub(super) async fn retain(session: &Session, step: &Retain) -> Result<AdminDone, Trouble> {
    let (queue, limit) = (Id(step.queue), i64::from(step.limit));
    let rows = session.query(&REMOVE, &[&queue, &limit]).await?;
    let (segments, partitions): (i64, i64) = match rows.first() {
        Some(row) => (get(row, 0)?, get(row, 1)?),
        None => (0, 0),
    };
    if segments == limit || partitions == limit {
        // To look for starts that move is to look at every partition: not at each of many steps that have no part in it.
        return Ok(AdminDone::Retained { starts: Vec::new(), messages: 0, more: true });
    }
    let moved = session.query(&MOVE, &[&queue, &step.age_us, &step.consumed_age_us, &limit]).await?;
    session.query(&SETTLE, &[&queue, &SETTLE_US]).await?;
    let (mut starts, mut messages) = (Vec::with_capacity(moved.len()), 0);
    for row in &moved {
        let (old, new) = (count(row, 1)?, count(row, 2)?);
        messages += new - old;
        starts.push((id(row, 0)?, new));
    }
    let more = starts.len() as i64 >= limit;
    Ok(AdminDone::Retained { starts, messages, more })
}
