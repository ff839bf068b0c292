//! Removing what nobody needs: segments of deleted queues, and lanes of brokers that are no more.

use std::rc::Rc;

use tokio_postgres::types::Type;

use super::session::{Session, Sql, Trouble};
use crate::retention::SETTLE_US;

/// Segments that one statement removes: some tenths of a second.
const SEGMENTS: i64 = 5_000;

const SEGMENTS_OF_DROPPED: Sql = Sql {
    text: "WITH gone AS (
               DELETE FROM queen.segment WHERE (partition_id, base) IN (
                   SELECT s.partition_id, s.base FROM queen.dropped_partition d
                   JOIN queen.segment s ON s.partition_id = d.id LIMIT $1)
               RETURNING 1)
           SELECT count(*) FROM gone",
    types: &[Type::INT8],
};
/// The statements that ran beside the removal of the queue are over.
const DROPPED: Sql = Sql {
    text: "WITH over AS MATERIALIZED (
               SELECT id FROM queen.dropped_partition
               WHERE dropped_us < (extract(epoch FROM now()) * 1000000)::int8 - $1 ORDER BY id FOR UPDATE SKIP LOCKED),
           cursors AS (DELETE FROM queen.cursor WHERE partition_id IN (SELECT id FROM over)),
           letters AS (DELETE FROM queen.dead_letter WHERE partition_id IN (SELECT id FROM over)),
           segments AS (DELETE FROM queen.segment WHERE partition_id IN (SELECT id FROM over))
           DELETE FROM queen.dropped_partition WHERE id IN (SELECT id FROM over)",
    types: &[Type::INT8],
};
const LANES: Sql = Sql {
    text: "DELETE FROM queen.lane WHERE now_us < (extract(epoch FROM now()) * 1000000)::int8 - 86400000000",
    types: &[],
};

/// Removes what there is to remove now. What fails is done another time.
pub(super) async fn sweep(session: Rc<Session>) {
    if let Err(trouble) = try_sweep(&session).await {
        tracing::debug!("rows that nobody needs stay for now: {trouble}");
    }
}

async fn try_sweep(session: &Session) -> Result<(), Trouble> {
    loop {
        let rows = session.query(&SEGMENTS_OF_DROPPED, &[&SEGMENTS]).await?;
        let removed: i64 = rows.first().map_or(Ok(0), |row| super::values::get(row, 0))?;
        if removed < SEGMENTS {
            break;
        }
    }
    session.query(&DROPPED, &[&SETTLE_US]).await?;
    session.query(&LANES, &[]).await?;
    Ok(())
}
