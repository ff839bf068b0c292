//! Values as the server takes and gives them, and rows as the log knows them.

use std::{error::Error, sync::Arc};

use bytes::{BufMut, BytesMut};
use queen_log::{
    id::Uuid,
    row::{CursorRow, GroupRow, IndexRow, Lease, PartitionRow, QueueRow, SegmentRow},
};
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked},
};

use super::session::Trouble;
use crate::options_text;

/// A UUID on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub(super) Uuid);

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(&self.0.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(Uuid(raw.try_into()?)))
    }

    accepts!(UUID);
}

/// The columns of [`queue`], the table called `q`.
macro_rules! queue_columns {
    () => {
        "q.id, q.tenant, q.name, q.namespace, q.task, q.created_us, q.options"
    };
}
/// The columns of [`partition`], from [`partition_from`].
macro_rules! partition_columns {
    () => {
        "p.id, p.number, p.queue_id, p.name, p.log_start, n.next, n.stamp_us, n.ahead_us"
    };
}
/// A partition `p` and its newest segment `n`.
macro_rules! partition_from {
    () => {
        "queen.partition p LEFT JOIN LATERAL (SELECT s.next, s.stamp_us, s.ahead_us FROM queen.segment s
         WHERE s.partition_id = p.id ORDER BY s.base DESC LIMIT 1) n ON true"
    };
}
/// The columns of [`group`], the table called `g`.
macro_rules! group_columns {
    () => {
        "g.group_name, g.mode, g.from_us, g.created_us, g.conflation"
    };
}
/// The columns of [`cursor`], the table called `c`.
macro_rules! cursor_columns {
    () => {
        "c.partition_id, c.group_name, c.version, c.next, c.run_end, c.lease_id, c.lease_until_us, c.retries, c.consumed"
    };
}
pub(super) use {cursor_columns, group_columns, partition_columns, partition_from, queue_columns};

/// A column of a row, by place.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Trouble> {
    row.try_get(at).map_err(|error| Trouble::Refused(error.to_string().into()))
}

pub(super) fn id(row: &Row, at: usize) -> Result<Uuid, Trouble> {
    get::<Id>(row, at).map(|id| id.0)
}

pub(super) fn text(row: &Row, at: usize) -> Result<Arc<str>, Trouble> {
    get::<&str>(row, at).map(Into::into)
}

/// A number that is never negative.
pub(super) fn count(row: &Row, at: usize) -> Result<u64, Trouble> {
    get::<i64>(row, at).map(i64::cast_unsigned)
}

pub(super) fn queue(row: &Row, at: usize) -> Result<QueueRow, Trouble> {
    Ok(QueueRow {
        id: id(row, at)?,
        tenant: id(row, at + 1)?,
        name: text(row, at + 2)?,
        namespace: text(row, at + 3)?,
        task: text(row, at + 4)?,
        created_us: get(row, at + 5)?,
        options: options_text::read(get(row, at + 6)?),
    })
}

pub(super) fn partition(row: &Row, at: usize) -> Result<PartitionRow, Trouble> {
    Ok(PartitionRow {
        id: id(row, at)?,
        number: count(row, at + 1)?,
        queue: id(row, at + 2)?,
        name: text(row, at + 3)?,
        log_start: count(row, at + 4)?,
        next: get::<Option<i64>>(row, at + 5)?.unwrap_or(0).cast_unsigned(),
        stamp_us: get::<Option<i64>>(row, at + 6)?.unwrap_or(0),
        ahead_us: get::<Option<i64>>(row, at + 7)?.unwrap_or(0),
    })
}

pub(super) fn group(row: &Row, at: usize) -> Result<GroupRow, Trouble> {
    Ok(GroupRow {
        group: text(row, at)?,
        mode: text(row, at + 1)?,
        from_us: get(row, at + 2)?,
        created_us: get(row, at + 3)?,
        conflation: get(row, at + 4)?,
    })
}

pub(super) fn cursor(row: &Row, at: usize) -> Result<CursorRow, Trouble> {
    let lease = match (get::<Option<Id>>(row, at + 5)?, get(row, at + 6)?) {
        (Some(Id(id)), Some(until_us)) => Some(Lease { id, until_us }),
        _ => None,
    };
    Ok(CursorRow {
        partition: id(row, at)?,
        group: text(row, at + 1)?,
        version: get(row, at + 2)?,
        next: count(row, at + 3)?,
        run_end: count(row, at + 4)?,
        lease,
        retries: get(row, at + 7)?,
        consumed: count(row, at + 8)?,
    })
}

/// Of `partition_id, base, next, stamp_us, hashes, data`.
pub(super) fn segment(row: &Row) -> Result<SegmentRow, Trouble> {
    Ok(SegmentRow {
        partition: id(row, 0)?,
        base: count(row, 1)?,
        next: count(row, 2)?,
        stamp_us: get(row, 3)?,
        hashes: get(row, 4)?,
        data: get(row, 5)?,
    })
}

/// Of `base, next, stamp_us, hashes`.
pub(super) fn index(row: &Row) -> Result<IndexRow, Trouble> {
    Ok(IndexRow { base: count(row, 0)?, next: count(row, 1)?, stamp_us: get(row, 2)?, hashes: get(row, 3)? })
}
