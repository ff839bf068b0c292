//! Batches: appends, cursors and dead letters that commit as one.
//!
//! Appends come before cursors, as they do on every database.

use queen_log::store::{Append, Batch, Committed, CursorWrite, KEEP_LEASE, LeaseWrite};
use rusqlite::{Connection, OptionalExtension, Result, params};

/// Writes what meets the rows that it expects.
pub(super) fn commit(connection: &Connection, batch: &Batch, now_us: i64) -> Result<Committed> {
    let stamps: Vec<_> =
        batch.appends.iter().map(|append| self::append(connection, append, now_us)).collect::<Result<_>>()?;
    let cursors: Vec<_> = batch
        .cursors
        .iter()
        .map(|write| {
            let lacks = write.needs_append.is_some_and(|needed| stamps[needed].is_none());
            if lacks { Ok(false) } else { cursor(connection, write, now_us) }
        })
        .collect::<Result<_>>()?;
    for (cursor, letter) in batch.dead.iter().filter(|(cursor, _)| cursors[*cursor]) {
        debug_assert_eq!(letter.partition, batch.cursors[*cursor].partition);
        connection
            .prepare_cached(
                "INSERT OR IGNORE INTO dead_letter
                 (id, partition_id, at_offset, group_name, transaction_id, error, retries, record, failed_us)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                letter.id.0,
                letter.partition.0,
                letter.offset.cast_signed(),
                letter.group,
                letter.transaction_id,
                letter.error,
                letter.retries,
                letter.record,
                now_us
            ])?;
    }
    Ok(Committed { now_us, stamps, cursors })
}

fn append(connection: &Connection, append: &Append, now_us: i64) -> Result<Option<i64>> {
    let newest = connection
        .prepare_cached("SELECT next, stamp_us, mark FROM segment WHERE partition_id = ?1 ORDER BY base DESC LIMIT 1")?
        .query_row([append.partition.0], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let (end, before_us, mark) = newest.map_or((0, i64::MIN, None), |(end, us, mark)| (end, us, Some(mark)));
    if end != append.base.cast_signed() || append.follows.is_some() && append.follows != mark {
        return Ok(None);
    }
    let stamp_us = append.floor_us.max(now_us).max(before_us);
    let written = connection
        .prepare_cached(
            "INSERT INTO segment (partition_id, base, next, stamp_us, ahead_us, mark, hashes, data)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
             WHERE EXISTS (SELECT 1 FROM partition WHERE id = ?1)",
        )?
        .execute(params![
            append.partition.0,
            append.base.cast_signed(),
            append.next.cast_signed(),
            stamp_us,
            append.ahead_us,
            append.mark,
            append.hashes,
            append.data
        ])?;
    Ok((written == 1).then_some(stamp_us))
}

fn cursor(connection: &Connection, write: &CursorWrite, now_us: i64) -> Result<bool> {
    let lease_id = write.lease.map(|lease| lease.id.0);
    let lease_until_us = write.lease.map(|lease| lease_end_us(lease, now_us));
    let row = params![
        write.partition.0,
        write.group,
        write.version,
        write.next.cast_signed(),
        write.run_end.cast_signed(),
        lease_id,
        lease_until_us,
        write.retries,
        write.consumed.cast_signed(),
        write.expect
    ];
    let mut statement = connection.prepare_cached(if write.expect.is_some() {
        "UPDATE cursor SET version = ?3, next = ?4, run_end = ?5, lease_id = ?6, lease_until_us = ?7, retries = ?8,
         consumed = ?9 WHERE partition_id = ?1 AND group_name = ?2 AND version = ?10"
    } else {
        "INSERT OR IGNORE INTO cursor
         (partition_id, group_name, version, next, run_end, lease_id, lease_until_us, retries, consumed)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
         WHERE ?10 IS NULL AND EXISTS (SELECT 1 FROM partition WHERE id = ?1)"
    })?;
    Ok(statement.execute(row)? == 1)
}

/// When a lease that is written at `now_us` lapses.
fn lease_end_us(lease: LeaseWrite, now_us: i64) -> i64 {
    if lease.for_us == KEEP_LEASE { lease.floor_us } else { lease.floor_us.max(now_us.saturating_add(lease.for_us)) }
}
