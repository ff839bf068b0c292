//! Lists and counts.
//!
//! A group's position in a partition is its cursor; without one, the first message that it will be given: from its
//! start where it is registered, else the oldest. What is pending lies behind the slowest named group, or behind queue
//! mode where there is no named group. Cursors may lie below the log's start.

use queen_log::{
    id::TenantId,
    read::{ChangedEntry, ChangedRow, Counts, Depth, PartitionLag, PartitionStats, QueueStats, Read, ReadAnswer},
    row::{QUEUE_MODE, QueueRow},
};
use tokio_postgres::{Row, types::Type};

use super::{
    load,
    session::{Session, Sql, Trouble},
    values::{self, Id, count, get, id, partition_columns, partition_from, queue_columns, text},
};

/// Partitions `p` of queues for which `$condition` holds, with their end, newest stamp and the slowest group's position,
/// as `p`; `$1` is queue mode.
macro_rules! partitions {
    ($condition:literal) => {
        concat!(
            "(SELECT p.*, coalesce(n.next, 0) AS next, n.stamp_us, greatest(p.log_start, coalesce(
                (SELECT min(g.position) FROM (
                    SELECT c.next AS position FROM queen.cursor c WHERE c.partition_id = p.id AND c.group_name <> $1
                    UNION ALL
                    SELECT coalesce((SELECT e.next FROM queen.segment e WHERE e.partition_id = p.id
                        AND e.stamp_us < g.from_us ORDER BY e.base DESC LIMIT 1), 0)
                    FROM queen.queue_group g WHERE g.queue_id = p.queue_id AND g.group_name <> $1 AND NOT EXISTS (
                        SELECT FROM queen.cursor c WHERE c.partition_id = p.id AND c.group_name = g.group_name)) g),
                (SELECT c.next FROM queen.cursor c WHERE c.partition_id = p.id AND c.group_name = $1), 0)) AS position
            FROM ",
            partition_from!(),
            " WHERE ",
            $condition,
            ") p"
        )
    };
}
/// The counts of such a `p`: [`counts`].
macro_rules! count_columns {
    () => {
        "p.next - p.log_start AS total, p.next - p.position AS pending,
         coalesce((SELECT max(c.run_end - c.next) FROM queen.cursor c WHERE c.partition_id = p.id
            AND c.lease_until_us > (extract(epoch FROM now()) * 1000000)::int8), 0) AS processing,
         (SELECT count(*) FROM queen.dead_letter d WHERE d.partition_id = p.id) AS dead"
    };
}
/// The stamp of the first message from such a `p`'s position on.
macro_rules! oldest_column {
    () => {
        "(SELECT s.stamp_us FROM queen.segment s WHERE s.partition_id = p.id AND s.next > p.position
            ORDER BY s.base LIMIT 1) AS oldest_us"
    };
}

const QUEUES: Sql = Sql {
    text: concat!(
        "SELECT ",
        queue_columns!(),
        ", coalesce(p.partitions, 0), coalesce(p.bytes, 0), coalesce(p.segments, 0), coalesce(p.total, 0),
            coalesce(p.pending, 0), coalesce(p.processing, 0), coalesce(p.dead, 0)
         FROM queen.queue q LEFT JOIN (
            SELECT p.queue_id, count(*) AS partitions, sum(p.bytes)::int8 AS bytes, sum(p.segments)::int8 AS segments,
                sum(p.total)::int8 AS total, sum(p.pending)::int8 AS pending, sum(p.processing)::int8 AS processing,
                sum(p.dead)::int8 AS dead
            FROM (SELECT p.queue_id, ",
        count_columns!(),
        ",      k.bytes, k.segments
                FROM ",
        partitions!(
            "p.queue_id IN (SELECT q.id FROM queen.queue q WHERE q.tenant = $2 AND ($3 IS NULL OR q.name = $3))"
        ),
        "       CROSS JOIN LATERAL (SELECT sum(octet_length(s.data)) AS bytes, count(*) AS segments
                    FROM queen.segment s WHERE s.partition_id = p.id AND s.next > p.log_start) k
            ) p GROUP BY p.queue_id
         ) p ON p.queue_id = q.id
         WHERE q.tenant = $2 AND ($3 IS NULL OR q.name = $3) ORDER BY q.created_us DESC, q.id DESC"
    ),
    types: &[Type::TEXT, Type::UUID, Type::TEXT],
};
const PARTITIONS: Sql = Sql {
    text: concat!(
        "SELECT p.id, p.name, p.created_us, p.next > p.log_start, p.stamp_us, ",
        oldest_column!(),
        ", ",
        count_columns!(),
        " FROM ",
        partitions!("p.queue_id = $2"),
        " ORDER BY p.number"
    ),
    types: &[Type::TEXT, Type::UUID],
};
const PENDING: Sql = Sql {
    text: concat!(
        "SELECT p.name, p.next - p.position FROM ",
        partitions!("p.queue_id = $2"),
        " WHERE p.next > p.position ORDER BY p.number"
    ),
    types: &[Type::TEXT, Type::UUID],
};
const REGISTERED: Sql = Sql {
    text: "SELECT from_us, conflation FROM queen.queue_group WHERE queue_id = $1 AND group_name = $2",
    types: &[Type::UUID, Type::TEXT],
};
const PENDING_OF: Sql = Sql {
    text: concat!(
        "SELECT name, next - position FROM (
            SELECT p.number, p.name, coalesce(n.next, 0) AS next, greatest(p.log_start, coalesce(
                (SELECT c.next FROM queen.cursor c WHERE c.partition_id = p.id AND c.group_name = $2),
                (SELECT e.next FROM queen.segment e WHERE e.partition_id = p.id AND e.stamp_us < $3
                 ORDER BY e.base DESC LIMIT 1), 0)) AS position
            FROM ",
        partition_from!(),
        " WHERE p.queue_id = $1) p WHERE next > position ORDER BY number"
    ),
    types: &[Type::UUID, Type::TEXT, Type::INT8],
};
const LAGS: Sql = Sql {
    text: concat!(
        "SELECT q.name, p.name, p.id, ((extract(epoch FROM now()) * 1000000)::int8 - p.oldest_us), p.total, p.pending,
            p.processing, p.dead
         FROM (SELECT p.queue_id, p.number, p.name, p.id, ",
        oldest_column!(),
        ", ",
        count_columns!(),
        " FROM ",
        partitions!(
            "p.queue_id IN (SELECT q.id FROM queen.queue q WHERE q.tenant = $2 AND ($3 IS NULL OR q.name = $3))"
        ),
        ") p JOIN queen.queue q ON q.id = p.queue_id ORDER BY p.pending DESC, p.number LIMIT $4"
    ),
    types: &[Type::TEXT, Type::UUID, Type::TEXT, Type::INT8],
};
const CHANGED: Sql = Sql {
    text: concat!(
        "SELECT ",
        partition_columns!(),
        " FROM ",
        partition_from!(),
        " WHERE p.queue_id = $1 AND p.number > $2 AND ($3 IS NULL OR n.stamp_us >= $3) ORDER BY p.number LIMIT $4"
    ),
    types: &[Type::UUID, Type::INT8, Type::INT8, Type::INT8],
};

/// Does one.
pub(super) async fn read(session: &Session, read: &Read) -> Result<ReadAnswer, Trouble> {
    Ok(match read {
        Read::Queues { tenant } => ReadAnswer::Queues(queues(session, *tenant, None).await?),
        Read::Queue { tenant, queue } => {
            let queues = queues(session, *tenant, Some(queue)).await?;
            ReadAnswer::Queue(match queues.into_iter().next() {
                Some(stats) => {
                    let partitions = partitions(session, &stats.row).await?;
                    Some(Box::new((stats, partitions)))
                }
                None => None,
            })
        }
        Read::Depth { tenant, queue, group } => {
            ReadAnswer::Depth(match load::queue_named(session, *tenant, queue).await? {
                Some(row) => Some(depth(session, &row, group.as_deref()).await?),
                None => None,
            })
        }
        Read::Lags { tenant, queue, limit } => {
            let parameters = (Id(*tenant), queue.as_deref(), i64::from(*limit));
            let rows = session.query(&LAGS, &[&QUEUE_MODE, &parameters.0, &parameters.1, &parameters.2]).await?;
            ReadAnswer::Lags(rows.iter().map(lag).collect::<Result<_, _>>()?)
        }
        Read::Changed { tenant, entries } => {
            let safe_us = load::safe_us(session).await? - 1;
            let mut answers = Vec::with_capacity(entries.len());
            for entry in entries {
                answers.push(changed(session, *tenant, entry).await?);
            }
            ReadAnswer::Changed { safe_us, entries: answers }
        }
    })
}

/// Four columns from `at` on.
fn counts(row: &Row, at: usize) -> Result<Counts, Trouble> {
    Ok(Counts {
        total: count(row, at)?,
        pending: count(row, at + 1)?,
        processing: count(row, at + 2)?,
        dead: count(row, at + 3)?,
    })
}

async fn queues(session: &Session, tenant: TenantId, name: Option<&str>) -> Result<Vec<QueueStats>, Trouble> {
    let rows = session.query(&QUEUES, &[&QUEUE_MODE, &Id(tenant), &name]).await?;
    let stats = |row: &Row| {
        Ok(QueueStats {
            row: values::queue(row, 0)?,
            partitions: count(row, 7)?,
            retained_bytes: count(row, 8)?,
            segments: count(row, 9)?,
            counts: counts(row, 10)?,
        })
    };
    rows.iter().map(stats).collect()
}

async fn partitions(session: &Session, queue: &QueueRow) -> Result<Vec<PartitionStats>, Trouble> {
    let rows = session.query(&PARTITIONS, &[&QUEUE_MODE, &Id(queue.id)]).await?;
    let stats = |row: &Row| {
        let stored: bool = get(row, 3)?;
        Ok(PartitionStats {
            id: id(row, 0)?,
            name: text(row, 1)?,
            created_us: get(row, 2)?,
            newest_us: get::<Option<i64>>(row, 4)?.filter(|_| stored),
            oldest_us: get(row, 5)?,
            counts: counts(row, 6)?,
        })
    };
    rows.iter().map(stats).collect()
}

async fn depth(session: &Session, queue: &QueueRow, group: Option<&str>) -> Result<Depth, Trouble> {
    let (rows, conflation) = match group {
        None => (session.query(&PENDING, &[&QUEUE_MODE, &Id(queue.id)]).await?, false),
        Some(group) => {
            let registered = session.query(&REGISTERED, &[&Id(queue.id), &group]).await?;
            let (from_us, conflation) = match registered.first() {
                Some(row) => (get(row, 0)?, get(row, 1)?),
                None => (i64::MIN, false),
            };
            (session.query(&PENDING_OF, &[&Id(queue.id), &group, &from_us]).await?, conflation)
        }
    };
    let pending = rows.iter().map(|row| Ok((text(row, 0)?, count(row, 1)?))).collect::<Result<_, Trouble>>()?;
    Ok(Depth { pending, conflation })
}

fn lag(row: &Row) -> Result<PartitionLag, Trouble> {
    Ok(PartitionLag {
        queue: text(row, 0)?,
        partition: text(row, 1)?,
        id: id(row, 2)?,
        lag_us: get::<Option<i64>>(row, 3)?.map(|lag_us| lag_us.max(0)),
        counts: counts(row, 4)?,
    })
}

async fn changed(
    session: &Session,
    tenant: TenantId,
    entry: &ChangedEntry,
) -> Result<Option<Vec<ChangedRow>>, Trouble> {
    let Some(queue) = load::queue_named(session, tenant, &entry.queue).await? else { return Ok(None) };
    let (after, limit) = (entry.after.cast_signed(), i64::from(entry.limit));
    let rows = session.query(&CHANGED, &[&Id(queue.id), &after, &entry.since_us, &limit]).await?;
    let row = |row: &Row| {
        let partition = values::partition(row, 0)?;
        Ok(ChangedRow {
            name: partition.name,
            id: partition.id,
            number: partition.number,
            next: partition.next,
            log_start: partition.log_start,
            stamp_us: partition.stamp_us,
        })
    };
    Ok(Some(rows.iter().map(row).collect::<Result<_, Trouble>>()?))
}
