//! Rows of the tables as the log knows them.

use std::sync::Arc;

use queen_log::{
    id::Uuid,
    row::{CursorRow, GroupRow, IndexRow, Lease, PartitionRow, QueueRow, SegmentRow},
};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use crate::options_text;

/// The columns of [`queue`].
pub(super) const QUEUE: &str = "q.id, q.tenant, q.name, q.namespace, q.task, q.created_us, q.options";
/// The columns of [`partition`], to be followed by [`PARTITION_FROM`].
pub(super) const PARTITION: &str = "p.id, p.number, p.queue_id, p.name, p.log_start, s.next, s.stamp_us, s.ahead_us";
/// A partition and its newest segment.
pub(super) const PARTITION_FROM: &str = "partition p LEFT JOIN segment s
    ON s.partition_id = p.id AND s.base = (SELECT max(n.base) FROM segment n WHERE n.partition_id = p.id)";
/// The columns of [`group`].
pub(super) const GROUP: &str = "g.group_name, g.mode, g.from_us, g.created_us, g.conflation";
/// The columns of [`cursor`].
pub(super) const CURSOR: &str = "c.partition_id, c.group_name, c.version, c.next, c.run_end, c.lease_id, \
    c.lease_until_us, c.retries, c.consumed";

/// An id at a column.
pub(super) fn id(row: &Row<'_>, at: usize) -> Result<Uuid> {
    row.get(at).map(Uuid)
}

/// Text at a column.
pub(super) fn text(row: &Row<'_>, at: usize) -> Result<Arc<str>> {
    Ok(row.get_ref(at)?.as_str()?.into())
}

/// A number that is never negative at a column.
pub(super) fn count(row: &Row<'_>, at: usize) -> Result<u64> {
    row.get::<_, i64>(at).map(i64::cast_unsigned)
}

/// A row of [`QUEUE`].
pub(super) fn queue(row: &Row<'_>) -> Result<QueueRow> {
    Ok(QueueRow {
        id: id(row, 0)?,
        tenant: id(row, 1)?,
        name: text(row, 2)?,
        namespace: text(row, 3)?,
        task: text(row, 4)?,
        created_us: row.get(5)?,
        options: options_text::read(row.get_ref(6)?.as_str()?),
    })
}

/// A row of [`PARTITION`].
pub(super) fn partition(row: &Row<'_>) -> Result<PartitionRow> {
    Ok(PartitionRow {
        id: id(row, 0)?,
        number: count(row, 1)?,
        queue: id(row, 2)?,
        name: text(row, 3)?,
        log_start: count(row, 4)?,
        next: row.get::<_, Option<i64>>(5)?.unwrap_or(0).cast_unsigned(),
        stamp_us: row.get::<_, Option<i64>>(6)?.unwrap_or(0),
        ahead_us: row.get::<_, Option<i64>>(7)?.unwrap_or(0),
    })
}

/// A row of [`GROUP`].
pub(super) fn group(row: &Row<'_>) -> Result<GroupRow> {
    Ok(GroupRow {
        group: text(row, 0)?,
        mode: text(row, 1)?,
        from_us: row.get(2)?,
        created_us: row.get(3)?,
        conflation: row.get(4)?,
    })
}

/// A row of [`CURSOR`].
pub(super) fn cursor(row: &Row<'_>) -> Result<CursorRow> {
    let lease = match (row.get::<_, Option<[u8; 16]>>(5)?, row.get(6)?) {
        (Some(id), Some(until_us)) => Some(Lease { id: Uuid(id), until_us }),
        _ => None,
    };
    Ok(CursorRow {
        partition: id(row, 0)?,
        group: text(row, 1)?,
        version: row.get(2)?,
        next: count(row, 3)?,
        run_end: count(row, 4)?,
        lease,
        retries: row.get(7)?,
        consumed: count(row, 8)?,
    })
}

/// A row of `partition_id, base, next, stamp_us, hashes, data`.
pub(super) fn segment(row: &Row<'_>) -> Result<SegmentRow> {
    Ok(SegmentRow {
        partition: id(row, 0)?,
        base: count(row, 1)?,
        next: count(row, 2)?,
        stamp_us: row.get(3)?,
        hashes: row.get(4)?,
        data: row.get(5)?,
    })
}

/// A row of `base, next, stamp_us, hashes`.
pub(super) fn index(row: &Row<'_>) -> Result<IndexRow> {
    Ok(IndexRow { base: count(row, 0)?, next: count(row, 1)?, stamp_us: row.get(2)?, hashes: row.get(3)? })
}

/// The groups that are registered on a queue.
pub(super) fn groups_of(connection: &Connection, queue: Uuid) -> Result<Vec<GroupRow>> {
    connection
        .prepare_cached(&format!("SELECT {GROUP} FROM queue_group g WHERE g.queue_id = ?1 ORDER BY g.group_name"))?
        .query_map(params![queue.0], group)?
        .collect()
}

/// A queue by name.
pub(super) fn queue_named(connection: &Connection, tenant: Uuid, name: &str) -> Result<Option<QueueRow>> {
    connection
        .prepare_cached(&format!("SELECT {QUEUE} FROM queue q WHERE q.tenant = ?1 AND q.name = ?2"))?
        .query_row(params![tenant.0, name], queue)
        .optional()
}
