//! Loads: rows as they are now.

use queen_log::{
    id::Uuid,
    row::{GroupRow, PartitionRow, QueueRow},
    store::{ChangedPartition, Load, Loaded},
};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::columns::{self, CURSOR, PARTITION, PARTITION_FROM, QUEUE};

/// Segments in one answer.
const SEGMENTS_MAX: usize = 1024;
/// Indexes in one answer.
const INDEXES_MAX: usize = 10_000;
/// Queues in one answer.
const QUEUES_MAX: u32 = 10_000;

/// Does one. Nothing stamped below `safe_us` can still appear.
pub(super) fn load(connection: &Connection, load: &Load, safe_us: i64) -> Result<Loaded> {
    Ok(match load {
        Load::Queue { tenant, name } => Loaded::Queue(match columns::queue_named(connection, *tenant, name)? {
            Some(queue) => {
                let groups = columns::groups_of(connection, queue.id)?;
                Some((queue, groups))
            }
            None => None,
        }),
        Load::Discover { tenant, namespace, task } => {
            let queues: Vec<_> = connection
                .prepare_cached(&format!(
                    "SELECT {QUEUE} FROM queue q WHERE q.tenant = ?1 AND (?2 IS NULL OR q.namespace = ?2)
                     AND (?3 IS NULL OR q.task = ?3) ORDER BY q.name LIMIT {QUEUES_MAX}"
                ))?
                .query_map(params![tenant.0, namespace, task], columns::queue)?
                .collect::<Result<_>>()?;
            let with_groups = queues.into_iter().map(|queue| {
                let groups = columns::groups_of(connection, queue.id)?;
                Ok((queue, groups))
            });
            Loaded::Queues(with_groups.collect::<Result<_>>()?)
        }
        Load::Retaining => Loaded::Queues(
            connection
                .prepare_cached(&format!(
                    "SELECT {QUEUE} FROM queue q WHERE q.retains ORDER BY q.id LIMIT {QUEUES_MAX}"
                ))?
                .query_map([], |row| Ok((columns::queue(row)?, Vec::new())))?
                .collect::<Result<_>>()?,
        ),
        Load::Partition { queue, name } => Loaded::Partition(
            connection
                .prepare_cached(&format!(
                    "SELECT {PARTITION} FROM {PARTITION_FROM} WHERE p.queue_id = ?1 AND p.name = ?2"
                ))?
                .query_row(params![queue.0, name], columns::partition)
                .optional()?,
        ),
        Load::PartitionById(id) => Loaded::PartitionById(partition_by_id(connection, *id)?),
        Load::Partitions { queue, after, limit } => Loaded::Partitions(
            connection
                .prepare_cached(&format!(
                    "SELECT {PARTITION} FROM {PARTITION_FROM} WHERE p.queue_id = ?1 AND p.number > ?2
                     ORDER BY p.number LIMIT ?3"
                ))?
                .query_map(params![queue.0, after.cast_signed(), limit], columns::partition)?
                .collect::<Result<_>>()?,
        ),
        Load::CursorsOf { queue, group, after, limit } => Loaded::Cursors(
            connection
                .prepare_cached(&format!(
                    "SELECT {CURSOR}, p.number FROM partition p CROSS JOIN cursor c
                     ON c.partition_id = p.id AND c.group_name = ?2
                     WHERE p.queue_id = ?1 AND p.number > ?3 ORDER BY p.number LIMIT ?4"
                ))?
                .query_map(params![queue.0, group, after.cast_signed(), limit], |row| {
                    Ok((columns::count(row, 9)?, columns::cursor(row)?))
                })?
                .collect::<Result<_>>()?,
        ),
        Load::Cursor { partition, group } => Loaded::Cursor(
            connection
                .prepare_cached(&format!(
                    "SELECT {CURSOR} FROM cursor c WHERE c.partition_id = ?1 AND c.group_name = ?2"
                ))?
                .query_row(params![partition.0, group], columns::cursor)
                .optional()?,
        ),
        Load::Segments { partition, from, max_bytes } => segments(connection, *partition, *from, *max_bytes)?,
        Load::Indexes { partition, since_us, below } => indexes(connection, *partition, *since_us, *below)?,
        Load::OffsetAt { partition, stamp_us } => Loaded::Offset(offset_at(connection, *partition, *stamp_us)?),
        Load::Clock => unreachable!("the thread tells the time"),
        Load::Changed { since_us } => changed(connection, *since_us, safe_us)?,
    })
}

fn partition_by_id(connection: &Connection, id: Uuid) -> Result<Option<(PartitionRow, QueueRow, Vec<GroupRow>)>> {
    let partition = connection
        .prepare_cached(&format!("SELECT {PARTITION} FROM {PARTITION_FROM} WHERE p.id = ?1"))?
        .query_row(params![id.0], columns::partition)
        .optional()?;
    let Some(partition) = partition else { return Ok(None) };
    let queue = connection
        .prepare_cached(&format!("SELECT {QUEUE} FROM queue q WHERE q.id = ?1"))?
        .query_row(params![partition.queue.0], columns::queue)
        .optional()?;
    let Some(queue) = queue else { return Ok(None) };
    let groups = columns::groups_of(connection, queue.id)?;
    Ok(Some((partition, queue, groups)))
}

/// From the segment that holds `from` on, or from the first that is kept above it.
fn segments(connection: &Connection, partition: Uuid, from: u64, max_bytes: u32) -> Result<Loaded> {
    let mut statement = connection.prepare_cached(
        "SELECT s.partition_id, s.base, s.next, s.stamp_us, s.hashes, s.data
         FROM partition p CROSS JOIN segment s ON s.partition_id = p.id
         WHERE p.id = ?1 AND s.next > ?2 AND s.next > p.log_start
         AND s.base >= coalesce((SELECT max(f.base) FROM segment f WHERE f.partition_id = ?1 AND f.base <= ?2), 0)
         ORDER BY s.base",
    )?;
    let mut rows = statement.query(params![partition.0, from.cast_signed()])?;
    let (mut segments, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let row_bytes = row.get_ref(5)?.as_blob()?.len();
        if !segments.is_empty() && bytes + row_bytes > max_bytes as usize {
            break;
        }
        bytes += row_bytes;
        segments.push(columns::segment(row)?);
        if segments.len() == SEGMENTS_MAX {
            break;
        }
    }
    Ok(Loaded::Segments(segments))
}

/// The newest first, down to the first that is too old.
fn indexes(connection: &Connection, partition: Uuid, since_us: i64, below: u64) -> Result<Loaded> {
    let mut statement = connection.prepare_cached(
        "SELECT base, next, stamp_us, hashes FROM segment WHERE partition_id = ?1 AND base < ?2 ORDER BY base DESC",
    )?;
    let mut rows = statement.query(params![partition.0, below.cast_signed()])?;
    let mut indexes = Vec::new();
    while indexes.len() < INDEXES_MAX
        && let Some(row) = rows.next()?
    {
        let index = columns::index(row)?;
        let last = index.stamp_us < since_us;
        indexes.push(index);
        if last {
            break;
        }
    }
    Ok(Loaded::Indexes(indexes))
}

/// The first kept offset stamped at `stamp_us` or later, or the high watermark. Stamps rise with offsets, and most ask
/// for a time not long ago: it looks for the last that is too early, from the end.
fn offset_at(connection: &Connection, partition: Uuid, stamp_us: i64) -> Result<u64> {
    let offset = connection
        .prepare_cached(
            "SELECT max(p.log_start, coalesce((SELECT s.next FROM segment s
                 WHERE s.partition_id = p.id AND s.stamp_us < ?2 ORDER BY s.base DESC LIMIT 1), 0))
             FROM partition p WHERE p.id = ?1",
        )?
        .query_row(params![partition.0, stamp_us], |row| columns::count(row, 0))
        .optional()?;
    Ok(offset.unwrap_or(0))
}

/// `safe_us` was read before.
fn changed(connection: &Connection, since_us: i64, safe_us: i64) -> Result<Loaded> {
    if since_us == i64::MAX {
        return Ok(Loaded::Changed { safe_us, partitions: Vec::new(), queues: Vec::new(), dropped: Vec::new() });
    }
    let partitions = connection
        .prepare_cached(
            "SELECT p.queue_id, p.id, max(s.next), max(s.stamp_us)
             FROM segment s CROSS JOIN partition p ON p.id = s.partition_id
             WHERE s.stamp_us >= ?1 GROUP BY p.id",
        )?
        .query_map(params![since_us], |row| {
            Ok(ChangedPartition {
                queue: columns::id(row, 0)?,
                partition: columns::id(row, 1)?,
                next: columns::count(row, 2)?,
                stamp_us: row.get(3)?,
            })
        })?
        .collect::<Result<_>>()?;
    let queues = connection
        .prepare_cached(&format!("SELECT {QUEUE} FROM queue q WHERE q.changed_us >= ?1"))?
        .query_map(params![since_us], columns::queue)?
        .collect::<Result<_>>()?;
    // Nobody else removes queues.
    Ok(Loaded::Changed { safe_us, partitions, queues, dropped: Vec::new() })
}
