//! Lists and counts.
//!
//! A group's position in a partition is its cursor; without one, the first message that it will be given: from its
//! start where it is registered, else the oldest. What is pending lies behind the slowest named group, or behind queue
//! mode where there is no named group. Cursors may lie below the log's start.

use std::sync::Arc;

use queen_log::{
    id::TenantId,
    read::{ChangedEntry, ChangedRow, Counts, Depth, PartitionLag, PartitionStats, QueueStats, Read, ReadAnswer},
    row::{QUEUE_MODE, QueueRow},
};
use rusqlite::{Connection, OptionalExtension, Result, Row, named_params};

use super::columns::{self, PARTITION, PARTITION_FROM, QUEUE};

/// Of each partition: `p`'s columns, `next`, `stamp_us`, and the slowest group's `position`.
const PARTITIONS: &str = "
    SELECT p.*, coalesce(n.next, 0) AS next, n.stamp_us AS stamp_us, max(p.log_start, coalesce(
        (SELECT min(position) FROM (
            SELECT c.next AS position FROM cursor c WHERE c.partition_id = p.id AND c.group_name <> :queue_mode
            UNION ALL
            SELECT coalesce((SELECT e.next FROM segment e WHERE e.partition_id = p.id AND e.stamp_us < g.from_us
                ORDER BY e.base DESC LIMIT 1), 0)
            FROM queue_group g WHERE g.queue_id = p.queue_id AND g.group_name <> :queue_mode AND NOT EXISTS (
                SELECT 1 FROM cursor c WHERE c.partition_id = p.id AND c.group_name = g.group_name)
        )),
        (SELECT c.next FROM cursor c WHERE c.partition_id = p.id AND c.group_name = :queue_mode), 0)) AS position
    FROM partition p LEFT JOIN segment n
        ON n.partition_id = p.id AND n.base = (SELECT max(m.base) FROM segment m WHERE m.partition_id = p.id)";

/// The counts of `PARTITIONS AS p`: [`counts`].
const COUNTS: &str = "p.next - p.log_start AS total, p.next - p.position AS pending,
    coalesce((SELECT max(c.run_end - c.next) FROM cursor c
        WHERE c.partition_id = p.id AND c.lease_until_us > :now_us), 0) AS processing,
    (SELECT count(*) FROM dead_letter d WHERE d.partition_id = p.id) AS dead";

/// The stamp of the first message from `p.position` on.
const OLDEST: &str = "(SELECT s.stamp_us FROM segment s WHERE s.partition_id = p.id AND s.next > p.position
    ORDER BY s.base LIMIT 1)";

/// Does one; nothing stamped below `safe_us` can still appear.
pub(super) fn read(connection: &Connection, read: &Read, now_us: i64, safe_us: i64) -> Result<ReadAnswer> {
    Ok(match read {
        Read::Queues { tenant } => ReadAnswer::Queues(queues(connection, *tenant, None, now_us)?),
        Read::Queue { tenant, queue } => {
            let queues = queues(connection, *tenant, Some(queue), now_us)?;
            ReadAnswer::Queue(match queues.into_iter().next() {
                Some(stats) => {
                    let partitions = partitions(connection, &stats.row, now_us)?;
                    Some(Box::new((stats, partitions)))
                }
                None => None,
            })
        }
        Read::Depth { tenant, queue, group } => {
            ReadAnswer::Depth(match columns::queue_named(connection, *tenant, queue)? {
                Some(row) => Some(depth(connection, &row, group.as_deref())?),
                None => None,
            })
        }
        Read::Lags { tenant, queue, limit } => {
            ReadAnswer::Lags(lags(connection, *tenant, queue.as_deref(), *limit, now_us)?)
        }
        Read::Changed { tenant, entries } => {
            let entries = entries.iter().map(|entry| changed(connection, *tenant, entry)).collect::<Result<_>>()?;
            ReadAnswer::Changed { safe_us: safe_us - 1, entries }
        }
    })
}

/// Four columns from `at` on, as [`COUNTS`] gives them.
fn counts(row: &Row<'_>, at: usize) -> Result<Counts> {
    Ok(Counts {
        total: columns::count(row, at)?,
        pending: columns::count(row, at + 1)?,
        processing: columns::count(row, at + 2)?,
        dead: columns::count(row, at + 3)?,
    })
}

fn queues(connection: &Connection, tenant: TenantId, name: Option<&Arc<str>>, now_us: i64) -> Result<Vec<QueueStats>> {
    connection
        .prepare_cached(&format!(
            "SELECT {QUEUE}, count(p.id), coalesce(sum(p.bytes), 0), coalesce(sum(p.segments), 0),
                 coalesce(sum(p.total), 0), coalesce(sum(p.pending), 0), coalesce(sum(p.processing), 0),
                 coalesce(sum(p.dead), 0)
             FROM queue q LEFT JOIN (
                 SELECT p.id, p.queue_id, {COUNTS},
                     (SELECT sum(length(s.data)) FROM segment s
                      WHERE s.partition_id = p.id AND s.next > p.log_start) AS bytes,
                     (SELECT count(*) FROM segment s
                      WHERE s.partition_id = p.id AND s.next > p.log_start) AS segments
                 FROM ({PARTITIONS}) AS p
             ) AS p ON p.queue_id = q.id
             WHERE q.tenant = :tenant AND (:name IS NULL OR q.name = :name)
             GROUP BY q.id ORDER BY q.created_us DESC, q.id DESC"
        ))?
        .query_map(
            named_params! {":tenant": tenant.0, ":name": name, ":now_us": now_us, ":queue_mode": QUEUE_MODE},
            |row| {
                Ok(QueueStats {
                    row: columns::queue(row)?,
                    partitions: columns::count(row, 7)?,
                    retained_bytes: columns::count(row, 8)?,
                    segments: columns::count(row, 9)?,
                    counts: counts(row, 10)?,
                })
            },
        )?
        .collect()
}

fn partitions(connection: &Connection, queue: &QueueRow, now_us: i64) -> Result<Vec<PartitionStats>> {
    connection
        .prepare_cached(&format!(
            "SELECT p.id, p.name, p.created_us, p.next > p.log_start, p.stamp_us, {OLDEST}, {COUNTS}
             FROM ({PARTITIONS} WHERE p.queue_id = :queue) AS p ORDER BY p.number"
        ))?
        .query_map(named_params! {":queue": queue.id.0, ":now_us": now_us, ":queue_mode": QUEUE_MODE}, |row| {
            let stored: bool = row.get(3)?;
            Ok(PartitionStats {
                id: columns::id(row, 0)?,
                name: columns::text(row, 1)?,
                created_us: row.get(2)?,
                newest_us: row.get::<_, Option<i64>>(4)?.filter(|_| stored),
                oldest_us: row.get(5)?,
                counts: counts(row, 6)?,
            })
        })?
        .collect()
}

fn depth(connection: &Connection, queue: &QueueRow, group: Option<&str>) -> Result<Depth> {
    let row = |row: &Row<'_>| Ok((columns::text(row, 0)?, columns::count(row, 1)?));
    let Some(group) = group else {
        let pending = connection
            .prepare_cached(&format!(
                "SELECT p.name, p.next - p.position FROM ({PARTITIONS} WHERE p.queue_id = :queue) AS p
                 WHERE p.next > p.position ORDER BY p.number"
            ))?
            .query_map(named_params! {":queue": queue.id.0, ":queue_mode": QUEUE_MODE}, row)?
            .collect::<Result<_>>()?;
        return Ok(Depth { pending, conflation: false });
    };
    let registered: Option<(i64, bool)> = connection
        .prepare_cached("SELECT from_us, conflation FROM queue_group WHERE queue_id = :queue AND group_name = :group")?
        .query_row(named_params! {":queue": queue.id.0, ":group": group}, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (from_us, conflation) = registered.unwrap_or((i64::MIN, false));
    let pending = connection
        .prepare_cached(
            "SELECT name, next - position FROM (
                 SELECT p.number, p.name,
                     coalesce((SELECT s.next FROM segment s WHERE s.partition_id = p.id ORDER BY s.base DESC LIMIT 1), 0)
                         AS next,
                     max(p.log_start, coalesce(
                         (SELECT c.next FROM cursor c WHERE c.partition_id = p.id AND c.group_name = :group),
                         (SELECT e.next FROM segment e WHERE e.partition_id = p.id AND e.stamp_us < :from_us
                          ORDER BY e.base DESC LIMIT 1), 0)) AS position
                 FROM partition p WHERE p.queue_id = :queue)
             WHERE next > position ORDER BY number",
        )?
        .query_map(named_params! {":queue": queue.id.0, ":group": group, ":from_us": from_us}, row)?
        .collect::<Result<_>>()?;
    Ok(Depth { pending, conflation })
}

fn lags(
    connection: &Connection,
    tenant: TenantId,
    queue: Option<&str>,
    limit: u32,
    now_us: i64,
) -> Result<Vec<PartitionLag>> {
    connection
        .prepare_cached(&format!(
            "SELECT q.name, p.name, p.id, {OLDEST}, {COUNTS} FROM queue q CROSS JOIN ({PARTITIONS}) AS p
             ON p.queue_id = q.id WHERE q.tenant = :tenant AND (:queue IS NULL OR q.name = :queue)
             ORDER BY pending DESC, p.number LIMIT :limit"
        ))?
        .query_map(
            named_params! {
                ":tenant": tenant.0, ":queue": queue, ":limit": limit, ":now_us": now_us, ":queue_mode": QUEUE_MODE
            },
            |row| {
                let oldest_us: Option<i64> = row.get(3)?;
                Ok(PartitionLag {
                    queue: columns::text(row, 0)?,
                    partition: columns::text(row, 1)?,
                    id: columns::id(row, 2)?,
                    lag_us: oldest_us.map(|oldest_us| (now_us - oldest_us).max(0)),
                    counts: counts(row, 4)?,
                })
            },
        )?
        .collect()
}

fn changed(connection: &Connection, tenant: TenantId, entry: &ChangedEntry) -> Result<Option<Vec<ChangedRow>>> {
    let Some(queue) = columns::queue_named(connection, tenant, &entry.queue)? else { return Ok(None) };
    let rows = connection
        .prepare_cached(&format!(
            "SELECT {PARTITION} FROM {PARTITION_FROM} WHERE p.queue_id = :queue AND p.number > :after
             AND (:since_us IS NULL OR s.stamp_us >= :since_us) ORDER BY p.number LIMIT :limit"
        ))?
        .query_map(
            named_params! {
                ":queue": queue.id.0, ":after": entry.after.cast_signed(), ":since_us": entry.since_us,
                ":limit": entry.limit
            },
            |row| {
                let partition = columns::partition(row)?;
                Ok(ChangedRow {
                    name: partition.name,
                    id: partition.id,
                    number: partition.number,
                    next: partition.next,
                    log_start: partition.log_start,
                    stamp_us: partition.stamp_us,
                })
            },
        )?
        .collect::<Result<_>>()?;
    Ok(Some(rows))
}
