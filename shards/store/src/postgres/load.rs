//! Loads: rows as they are now.

use queen_log::{
    id::QueueId,
    row::{GroupRow, QueueRow},
    store::{ChangedPartition, Load, Loaded},
};
use tokio_postgres::types::{ToSql, Type};

use super::{
    session::{Session, Sql, Trouble},
    values::{
        self, Id, count, cursor_columns, get, group_columns, id, partition_columns, partition_from, queue_columns,
    },
};

const QUEUE: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), " FROM queen.queue q WHERE q.tenant = $1 AND q.name = $2"),
    types: &[Type::UUID, Type::TEXT],
};
const GROUPS: Sql = Sql {
    text: concat!(
        "SELECT g.queue_id, ",
        group_columns!(),
        " FROM queen.queue_group g WHERE g.queue_id = ANY($1) ORDER BY g.queue_id, g.group_name"
    ),
    types: &[Type::UUID_ARRAY],
};
const DISCOVER: Sql = Sql {
    text: concat!(
        "SELECT ",
        queue_columns!(),
        " FROM queen.queue q WHERE q.tenant = $1 AND ($2 IS NULL OR q.namespace = $2)
          AND ($3 IS NULL OR q.task = $3) ORDER BY q.name LIMIT 10000"
    ),
    types: &[Type::UUID, Type::TEXT, Type::TEXT],
};
const RETAINING: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), " FROM queen.queue q WHERE q.retains ORDER BY q.id LIMIT 10000"),
    types: &[],
};
const PARTITION: Sql = Sql {
    text: concat!(
        "SELECT ",
        partition_columns!(),
        " FROM ",
        partition_from!(),
        " WHERE p.queue_id = $1 AND p.name = $2"
    ),
    types: &[Type::UUID, Type::TEXT],
};
const PARTITION_BY_ID: Sql = Sql {
    text: concat!(
        "SELECT ",
        partition_columns!(),
        ", ",
        queue_columns!(),
        " FROM ",
        partition_from!(),
        " JOIN queen.queue q ON q.id = p.queue_id WHERE p.id = $1"
    ),
    types: &[Type::UUID],
};
const PARTITIONS: Sql = Sql {
    text: concat!(
        "SELECT ",
        partition_columns!(),
        " FROM ",
        partition_from!(),
        " WHERE p.queue_id = $1 AND p.number > $2 ORDER BY p.number LIMIT $3"
    ),
    types: &[Type::UUID, Type::INT8, Type::INT8],
};
const CURSORS_OF: Sql = Sql {
    text: concat!(
        "SELECT ",
        cursor_columns!(),
        ", p.number FROM queen.partition p
          JOIN queen.cursor c ON c.partition_id = p.id AND c.group_name = $2
          WHERE p.queue_id = $1 AND p.number > $3 ORDER BY p.number LIMIT $4"
    ),
    types: &[Type::UUID, Type::TEXT, Type::INT8, Type::INT8],
};
const CURSOR: Sql = Sql {
    text: concat!("SELECT ", cursor_columns!(), " FROM queen.cursor c WHERE c.partition_id = $1 AND c.group_name = $2"),
    types: &[Type::UUID, Type::TEXT],
};
/// What a segment takes is known without reading it. The first is given whatever it takes.
const SEGMENTS: Sql = Sql {
    text: "SELECT partition_id, base, next, stamp_us, hashes, data FROM (
        SELECT s.*, row_number() OVER (ORDER BY s.base) AS place, sum(octet_length(s.data)) OVER (ORDER BY s.base) AS up_to
        FROM (
            SELECT s.* FROM queen.partition p JOIN queen.segment s ON s.partition_id = p.id
            WHERE p.id = $1 AND s.partition_id = $1 AND s.next > $2 AND s.next > p.log_start
            AND s.base >= coalesce((SELECT f.base FROM queen.segment f WHERE f.partition_id = $1 AND f.base <= $2
                ORDER BY f.base DESC LIMIT 1), 0)
            ORDER BY s.base LIMIT 1024) s) s
        WHERE place = 1 OR up_to <= $3 ORDER BY base",
    types: &[Type::UUID, Type::INT8, Type::INT8],
};
const INDEXES: Sql = Sql {
    text: "SELECT base, next, stamp_us, hashes FROM queen.segment
        WHERE partition_id = $1 AND base < $3 AND base >= coalesce((
            SELECT s.base FROM queen.segment s WHERE s.partition_id = $1 AND s.base < $3 AND s.stamp_us < $2
            ORDER BY s.base DESC LIMIT 1), 0)
        ORDER BY base DESC LIMIT 10000",
    types: &[Type::UUID, Type::INT8, Type::INT8],
};
/// Stamps rise with offsets, and most ask for a time not long ago: it looks for the last that is too early.
const OFFSET_AT: Sql = Sql {
    text: "SELECT greatest(p.log_start, coalesce((SELECT s.next FROM queen.segment s
            WHERE s.partition_id = p.id AND s.stamp_us < $2 ORDER BY s.base DESC LIMIT 1), 0))
        FROM queen.partition p WHERE p.id = $1",
    types: &[Type::UUID, Type::INT8],
};
/// A statement reads the time for its stamps after it began, and what has not begun to look yet will read a later one
/// than this. Connections that only read are left out; where the server does not tell when statements began, none is
/// older than its timeout.
pub(super) const SAFE: Sql = Sql {
    text:
        "SELECT (extract(epoch FROM least(now(), min(coalesce(a.xact_start, now() - interval '31 s')))) * 1000000)::int8
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
        AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
        AND a.application_name NOT IN ('queen load', 'queen read')",
    types: &[],
};
const CLOCK: Sql = Sql { text: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8", types: &[] };
const CHANGED_PARTITIONS: Sql = Sql {
    text: "SELECT p.queue_id, p.id, s.next, s.stamp_us FROM (
            SELECT partition_id, max(next) AS next, max(stamp_us) AS stamp_us FROM queen.segment
            WHERE stamp_us >= $1 GROUP BY partition_id) s
        JOIN queen.partition p ON p.id = s.partition_id",
    types: &[Type::INT8],
};
const CHANGED_QUEUES: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), " FROM queen.queue q WHERE q.changed_us >= $1"),
    types: &[Type::INT8],
};

const DROPPED_PARTITIONS: Sql =
    Sql { text: "SELECT id FROM queen.dropped_partition WHERE dropped_us >= $1", types: &[Type::INT8] };

/// Does one.
pub(super) async fn load(session: &Session, load: &Load) -> Result<Loaded, Trouble> {
    Ok(match load {
        Load::Queue { tenant, name } => {
            let queue = queue_named(session, *tenant, name).await?;
            Loaded::Queue(match queue {
                Some(queue) => with_groups(session, vec![queue]).await?.pop(),
                None => None,
            })
        }
        Load::Discover { tenant, namespace, task } => {
            let rows = session.query(&DISCOVER, &[&Id(*tenant), &namespace.as_deref(), &task.as_deref()]).await?;
            let queues = rows.iter().map(|row| values::queue(row, 0)).collect::<Result<_, _>>()?;
            Loaded::Queues(with_groups(session, queues).await?)
        }
        Load::Retaining => {
            let rows = session.query(&RETAINING, &[]).await?;
            Loaded::Queues(
                rows.iter().map(|row| Ok((values::queue(row, 0)?, Vec::new()))).collect::<Result<_, Trouble>>()?,
            )
        }
        Load::Partition { queue, name } => {
            let rows = session.query(&PARTITION, &[&Id(*queue), &&**name]).await?;
            Loaded::Partition(rows.first().map(|row| values::partition(row, 0)).transpose()?)
        }
        Load::PartitionById(partition) => {
            let rows = session.query(&PARTITION_BY_ID, &[&Id(*partition)]).await?;
            Loaded::PartitionById(match rows.first() {
                Some(row) => {
                    let (partition, queue) = (values::partition(row, 0)?, values::queue(row, 8)?);
                    let with_groups = with_groups(session, vec![queue]).await?.pop();
                    with_groups.map(|(queue, groups)| (partition, queue, groups))
                }
                None => None,
            })
        }
        Load::Partitions { queue, after, limit } => {
            let rows = session.query(&PARTITIONS, &[&Id(*queue), &after.cast_signed(), &i64::from(*limit)]).await?;
            Loaded::Partitions(rows.iter().map(|row| values::partition(row, 0)).collect::<Result<_, _>>()?)
        }
        Load::CursorsOf { queue, group, after, limit } => {
            let parameters = (Id(*queue), &**group, after.cast_signed(), i64::from(*limit));
            let rows =
                session.query(&CURSORS_OF, &[&parameters.0, &parameters.1, &parameters.2, &parameters.3]).await?;
            Loaded::Cursors(
                rows.iter().map(|row| Ok((count(row, 9)?, values::cursor(row, 0)?))).collect::<Result<_, Trouble>>()?,
            )
        }
        Load::Cursor { partition, group } => {
            let rows = session.query(&CURSOR, &[&Id(*partition), &&**group]).await?;
            Loaded::Cursor(rows.first().map(|row| values::cursor(row, 0)).transpose()?)
        }
        Load::Segments { partition, from, max_bytes } => {
            let rows =
                session.query(&SEGMENTS, &[&Id(*partition), &from.cast_signed(), &i64::from(*max_bytes)]).await?;
            Loaded::Segments(rows.iter().map(values::segment).collect::<Result<_, _>>()?)
        }
        Load::Indexes { partition, since_us, below } => {
            let rows = session.query(&INDEXES, &[&Id(*partition), since_us, &below.cast_signed()]).await?;
            Loaded::Indexes(rows.iter().map(values::index).collect::<Result<_, _>>()?)
        }
        Load::OffsetAt { partition, stamp_us } => {
            let rows = session.query(&OFFSET_AT, &[&Id(*partition), stamp_us]).await?;
            Loaded::Offset(rows.first().map_or(Ok(0), |row| count(row, 0))?)
        }
        Load::Clock => {
            let rows = session.query(&CLOCK, &[]).await?;
            Loaded::Clock(rows.first().map_or(Ok(0), |row| get(row, 0))?)
        }
        Load::Changed { since_us } => changed(session, *since_us).await?,
    })
}

/// A queue by name.
pub(super) async fn queue_named(session: &Session, tenant: QueueId, name: &str) -> Result<Option<QueueRow>, Trouble> {
    let rows = session.query(&QUEUE, &[&Id(tenant), &name]).await?;
    rows.first().map(|row| values::queue(row, 0)).transpose()
}

/// Queues, each with its groups.
pub(super) async fn with_groups(
    session: &Session,
    queues: Vec<QueueRow>,
) -> Result<Vec<(QueueRow, Vec<GroupRow>)>, Trouble> {
    let ids: Vec<_> = queues.iter().map(|queue| Id(queue.id)).collect();
    let mut groups: Vec<(QueueId, GroupRow)> = Vec::new();
    for row in session.query(&GROUPS, &[&ids]).await? {
        groups.push((id(&row, 0)?, values::group(&row, 1)?));
    }
    let of = |queue: QueueId| {
        let first = groups.partition_point(|(id, _)| *id < queue);
        groups[first..].iter().take_while(|(id, _)| *id == queue).map(|(_, group)| group.clone()).collect()
    };
    let with_groups = queues.iter().map(|queue| (queue.clone(), of(queue.id))).collect();
    Ok(with_groups)
}

/// Nothing stamped below it can still appear to a statement that is sent after this.
pub(super) async fn safe_us(session: &Session) -> Result<i64, Trouble> {
    let rows = session.query(&SAFE, &[]).await?;
    rows.first().map_or(Ok(0), |row| get(row, 0))
}

async fn changed(session: &Session, since_us: i64) -> Result<Loaded, Trouble> {
    let safe_us = safe_us(session).await?;
    let (mut partitions, mut queues, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    if since_us < i64::MAX {
        let since: [&(dyn ToSql + Sync); 1] = [&since_us];
        let asked = [&CHANGED_PARTITIONS, &CHANGED_QUEUES, &DROPPED_PARTITIONS].map(|sql| (sql, &since[..]));
        let [of_partitions, of_queues, of_dropped] = session.queries(asked).await?;
        for row in of_partitions {
            partitions.push(ChangedPartition {
                queue: id(&row, 0)?,
                partition: id(&row, 1)?,
                next: count(&row, 2)?,
                stamp_us: get(&row, 3)?,
            });
        }
        for row in of_queues {
            queues.push(values::queue(&row, 0)?);
        }
        for row in of_dropped {
            dropped.push(id(&row, 0)?);
        }
    }
    Ok(Loaded::Changed { safe_us, partitions, queues, dropped })
}
