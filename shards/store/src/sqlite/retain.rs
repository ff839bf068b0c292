//! A step of retention; the rules stand in [`crate::retention`].

use queen_log::{
    id::Uuid,
    store::{AdminDone, Retain},
};
use rusqlite::{Connection, Result, params};

use crate::retention::SETTLE_US;

/// The end of the last segment of the first `?4` kept ones that is old enough for `?2` (age), or for `?3` (consumed).
/// A group without a cursor has consumed what is older than its start.
const MOVES: &str = "
    SELECT id, log_start, max(coalesce(aged, 0), coalesce(consumed, 0)) AS start FROM (
        SELECT p.id, p.log_start,
            (SELECT max(s.next) FROM (
                SELECT next, stamp_us FROM segment WHERE partition_id = p.id AND base >= p.log_start
                ORDER BY base LIMIT ?4) s
             WHERE s.stamp_us <= ?2) AS aged,
            (SELECT max(s.next) FROM (
                SELECT next, stamp_us FROM segment WHERE partition_id = p.id AND base >= p.log_start
                ORDER BY base LIMIT ?4) s
             WHERE s.stamp_us <= ?3 AND s.next <= (
                SELECT min(done) FROM (
                    SELECT c.next AS done FROM cursor c WHERE c.partition_id = p.id
                    UNION ALL
                    SELECT coalesce((SELECT e.next FROM segment e WHERE e.partition_id = p.id
                        AND e.stamp_us < g.from_us ORDER BY e.base DESC LIMIT 1), 0)
                    FROM queue_group g WHERE g.queue_id = p.queue_id AND NOT EXISTS (
                        SELECT 1 FROM cursor c WHERE c.partition_id = p.id AND c.group_name = g.group_name)
                ))) AS consumed
        FROM partition p WHERE p.queue_id = ?1
    ) WHERE start > log_start LIMIT ?4";

/// Removes what an earlier step has let go of; once all of that is gone, moves the starts of logs.
pub(super) fn retain(connection: &Connection, step: &Retain, now_us: i64) -> Result<AdminDone> {
    let queue = step.queue.0;
    if remove(connection, queue, step.limit, now_us)? {
        // To look for starts that move is to look at every partition: not at each of many steps that have no part in it.
        return Ok(AdminDone::Retained { starts: Vec::new(), messages: 0, more: true });
    }
    let before = |age: Option<i64>| age.map_or(i64::MIN, |age| now_us.saturating_sub(age));
    let moves: Vec<([u8; 16], i64, i64)> = connection
        .prepare_cached(MOVES)?
        .query_map(params![queue, before(step.age_us), before(step.consumed_age_us), step.limit], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<Result<_>>()?;
    for (id, _, start) in &moves {
        connection.prepare_cached("UPDATE partition SET log_start = ?2 WHERE id = ?1")?.execute(params![id, start])?;
    }
    // What is below a start that was moved now, or had to wait for the one before it, can go in a while.
    connection
        .prepare_cached(
            "UPDATE partition SET removable_start = log_start, removable_us = ?2
             WHERE queue_id = ?1 AND removable_start = removed_start AND log_start > removable_start",
        )?
        .execute(params![queue, now_us + SETTLE_US])?;
    let limit = step.limit as usize;
    Ok(AdminDone::Retained {
        messages: moves.iter().map(|(_, old, new)| (new - old).cast_unsigned()).sum(),
        more: moves.len() >= limit,
        starts: moves.into_iter().map(|(id, _, start)| (Uuid(id), start.cast_unsigned())).collect(),
    })
}

/// Removes what an earlier step has let go of, `limit` segments of as many partitions at most; the newest of a partition
/// is left, and made empty where all of it is gone. True when there may be more.
fn remove(connection: &Connection, queue: [u8; 16], limit: u32, now_us: i64) -> Result<bool> {
    let due: Vec<([u8; 16], i64)> = connection
        .prepare_cached(
            "SELECT id, removable_start FROM partition
             WHERE queue_id = ?1 AND removable_start > removed_start AND removable_us <= ?2 ORDER BY number LIMIT ?3",
        )?
        .query_map(params![queue, now_us, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_>>()?;
    let mut newest = connection.prepare_cached("SELECT coalesce(max(base), 0) FROM segment WHERE partition_id = ?1")?;
    let mut removed = connection.prepare_cached(
        "DELETE FROM segment WHERE rowid IN (
            SELECT rowid FROM segment WHERE partition_id = ?1 AND next <= ?2 AND base < ?3 LIMIT ?4)",
    )?;
    let mut emptied = connection
        .prepare_cached("UPDATE segment SET data = x'' WHERE partition_id = ?1 AND base = ?3 AND next <= ?2")?;
    let mut done = connection.prepare_cached("UPDATE partition SET removed_start = ?2 WHERE id = ?1")?;
    let mut left = limit;
    for (id, start) in &due {
        let base: i64 = newest.query_row([id], |row| row.get(0))?;
        left -= u32::try_from(removed.execute(params![id, start, base, left])?).unwrap_or(left);
        if left == 0 {
            return Ok(true);
        }
        emptied.execute(params![id, start, base])?;
        done.execute(params![id, start])?;
    }
    Ok(due.len() == limit as usize)
}
