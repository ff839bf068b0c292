//! A batch of segments alone, the hottest: one insert, without a lane.
//!
//! When its connection dies it may be written or not. It is simply written again: where the first insert is still at
//! work the second waits for it at the primary key, and where it comes later it finds that the log has grown. What the
//! second leaves out has another's segment in its place, or its own, which its mark tells.

use queen_log::store::{Batch, Committed};
use tokio_postgres::types::Type;

use super::{
    columns::Columns,
    commit::insert_segments,
    session::{Session, Sql, Trouble},
    values::{Id, get},
};

/// Gives those that were written, and the time.
const APPEND: Sql = Sql {
    text: concat!(
        "WITH clock AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now_us)
    ",
        insert_segments!(
            "$1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::bytea[], $9::bytea[]"
        ),
        "partition_id, stamp_us, (SELECT now_us FROM clock)"
    ),
    types: &[
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};
/// Gives those that are there, and the time in any case.
const MARKED: Sql = Sql {
    text: "SELECT s.partition_id, s.stamp_us, (extract(epoch FROM clock_timestamp()) * 1000000)::int8
        FROM (SELECT) one LEFT JOIN (
            SELECT s.partition_id, s.stamp_us
            FROM unnest($1::uuid[], $2::int8[], $3::int8[]) AS a(partition_id, base, mark)
            JOIN queen.segment s ON s.partition_id = a.partition_id AND s.base = a.base AND s.mark = a.mark) s ON true",
    types: &[Type::UUID_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY],
};

/// Writes a batch without cursors; `again` where that may have been done before.
pub(super) async fn append(session: &Session, batch: &Batch, again: bool) -> Result<Committed, Trouble> {
    let mut committed = Committed { now_us: 0, stamps: vec![None; batch.appends.len()], cursors: Vec::new() };
    let mut columns = Columns::default();
    columns.add_appends(&batch.appends);
    take(&mut committed, batch, &session.query(&APPEND, &columns.after(&[])).await?)?;
    let left_out = committed.stamps.iter().filter(|stamp| stamp.is_none()).count();
    // Without a row there is no time either.
    if left_out == batch.appends.len() || left_out > 0 && again {
        look(session, batch, &mut committed).await?;
    }
    Ok(committed)
}

/// What is there of a batch, where it is not written any more.
pub(super) async fn written(session: &Session, batch: &Batch) -> Result<Committed, Trouble> {
    let mut committed = Committed { now_us: 0, stamps: vec![None; batch.appends.len()], cursors: Vec::new() };
    look(session, batch, &mut committed).await?;
    Ok(committed)
}

async fn look(session: &Session, batch: &Batch, committed: &mut Committed) -> Result<(), Trouble> {
    let mut columns = Columns::default();
    columns.add_marks(&batch.appends);
    take(committed, batch, &session.query(&MARKED, &columns.after(&[])).await?)
}

/// Takes rows of a partition, a stamp and the time in.
fn take(committed: &mut Committed, batch: &Batch, rows: &[tokio_postgres::Row]) -> Result<(), Trouble> {
    for row in rows {
        committed.now_us = get(row, 2)?;
        if let Some(Id(partition)) = get(row, 0)? {
            let at = batch.appends.binary_search_by_key(&partition, |append| append.partition);
            committed.stamps[at.expect("it was asked for")] = Some(get(row, 1)?);
        }
    }
    Ok(())
}
