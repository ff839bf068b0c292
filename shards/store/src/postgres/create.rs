//! Rows that are made if they are not there: queues, then partitions and groups, all of a kind in one statement.
//!
//! Sorted, so that two brokers that make the same rows wait for each other in one order.

use std::{collections::HashMap, sync::Arc};

use queen_log::{
    id::QueueId,
    options::QueueOptions,
    row::{GroupRow, PartitionRow, QueueRow},
    store::{Create, Created},
};
use tokio_postgres::types::Type;

use super::{
    load,
    session::{Session, Sql, Trouble},
    values::{self, Id, group_columns, id, partition_columns, partition_from, queue_columns},
};
use crate::options_text;

/// Longer names have no room in an index.
pub(super) const NAME_BYTES_MAX: usize = 2048;

const MAKE_QUEUES: Sql = Sql {
    text: "INSERT INTO queen.queue (id, tenant, name, namespace, task, created_us, changed_us, retains, options)
        SELECT w.id, w.tenant, w.name, w.namespace, w.task, now.us, now.us, w.retains, w.options
        FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS us) now CROSS JOIN
            unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::bool[], $7::text[])
            AS w(id, tenant, name, namespace, task, retains, options)
        ORDER BY w.tenant, w.name COLLATE \"C\" ON CONFLICT (tenant, name) DO NOTHING RETURNING id",
    types: &[
        Type::UUID_ARRAY,
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::BOOL_ARRAY,
        Type::TEXT_ARRAY,
    ],
};
const QUEUES: Sql = Sql {
    text: concat!(
        "SELECT ",
        queue_columns!(),
        " FROM unnest($1::uuid[], $2::text[]) AS w(tenant, name)
          JOIN queen.queue q ON q.tenant = w.tenant AND q.name = w.name"
    ),
    types: &[Type::UUID_ARRAY, Type::TEXT_ARRAY],
};
/// The queues are locked, so that none of them is deleted meanwhile and leaves a partition behind.
const MAKE_PARTITIONS: Sql = Sql {
    text: "WITH live AS MATERIALIZED (
            SELECT id FROM queen.queue WHERE id = ANY($2) ORDER BY id FOR KEY SHARE)
        INSERT INTO queen.partition (id, queue_id, name, created_us)
        SELECT w.id, w.queue_id, w.name, (extract(epoch FROM clock_timestamp()) * 1000000)::int8
        FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS w(id, queue_id, name)
        WHERE w.queue_id IN (SELECT id FROM live)
            AND NOT EXISTS (SELECT FROM queen.partition p WHERE p.queue_id = w.queue_id AND p.name = w.name)
        ORDER BY w.queue_id, w.name COLLATE \"C\" ON CONFLICT DO NOTHING RETURNING id",
    types: &[Type::UUID_ARRAY, Type::UUID_ARRAY, Type::TEXT_ARRAY],
};
const PARTITIONS: Sql = Sql {
    text: concat!(
        "SELECT ",
        partition_columns!(),
        " FROM unnest($1::uuid[], $2::text[]) AS w(queue_id, name) JOIN (",
        partition_from!(),
        ") ON p.queue_id = w.queue_id AND p.name = w.name"
    ),
    types: &[Type::UUID_ARRAY, Type::TEXT_ARRAY],
};
const MAKE_GROUPS: Sql = Sql {
    text: "WITH live AS MATERIALIZED (
            SELECT id FROM queen.queue WHERE id = ANY($1) ORDER BY id FOR KEY SHARE)
        INSERT INTO queen.queue_group (queue_id, group_name, mode, from_us, created_us, conflation)
        SELECT w.queue_id, w.group_name, w.mode, coalesce(w.from_us, now.us), now.us, w.conflation
        FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS us FROM (SELECT count(*) FROM live) l) now
        CROSS JOIN unnest($1::uuid[], $2::text[], $3::text[], $4::int8[], $5::bool[])
            AS w(queue_id, group_name, mode, from_us, conflation)
        WHERE w.queue_id IN (SELECT id FROM live)
        ORDER BY w.queue_id, w.group_name COLLATE \"C\" ON CONFLICT DO NOTHING RETURNING 1",
    types: &[Type::UUID_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::BOOL_ARRAY],
};
const GROUPS: Sql = Sql {
    text: concat!(
        "SELECT g.queue_id, ",
        group_columns!(),
        " FROM unnest($1::uuid[], $2::text[]) AS w(queue_id, group_name)
          JOIN queen.queue_group g ON g.queue_id = w.queue_id AND g.group_name = w.group_name
          JOIN queen.queue q ON q.id = g.queue_id"
    ),
    types: &[Type::UUID_ARRAY, Type::TEXT_ARRAY],
};

/// Makes what is missing and gives what is there, in the order asked.
pub(super) async fn create(session: &Session, creates: &[Create]) -> Result<Vec<Created>, Trouble> {
    if let Some(name) = creates.iter().map(name_of).find(|name| name.len() > NAME_BYTES_MAX || name.contains('\0')) {
        let reason = format!("a name of {} bytes is too long or holds a zero byte", name.len());
        return Err(Trouble::Refused(reason.into()));
    }
    let queues = queues(session, creates).await?;
    let partitions = partitions(session, creates).await?;
    let groups = groups(session, creates).await?;
    let created = creates.iter().map(|create| match create {
        Create::Queue { tenant, name, .. } => queues
            .get(&(*tenant, Arc::clone(name)))
            .cloned()
            .map_or(Created::Gone, |(row, groups)| Created::Queue(row, groups)),
        Create::Partition { queue, name, .. } => {
            partitions.get(&(*queue, Arc::clone(name))).cloned().map_or(Created::Gone, Created::Partition)
        }
        Create::Group { queue, group, .. } => {
            groups.get(&(*queue, Arc::clone(group))).cloned().map_or(Created::Gone, Created::Group)
        }
    });
    Ok(created.collect())
}

fn name_of(create: &Create) -> &str {
    match create {
        Create::Queue { name, .. } | Create::Partition { name, .. } | Create::Group { group: name, .. } => name,
    }
}

type ByName<T> = HashMap<(QueueId, Arc<str>), T>;

async fn queues(session: &Session, creates: &[Create]) -> Result<ByName<(QueueRow, Vec<GroupRow>)>, Trouble> {
    let mut new = Vec::new();
    for create in creates {
        if let Create::Queue { id, tenant, name, namespace, task, options } = create {
            new.push(NewQueue { id: *id, tenant: *tenant, name, namespace, task, options });
        }
    }
    if new.is_empty() {
        return Ok(HashMap::new());
    }
    make_queues(session, &new).await?;
    let tenants: Vec<_> = new.iter().map(|queue| Id(queue.tenant)).collect();
    let names: Vec<_> = new.iter().map(|queue| queue.name).collect();
    let rows = session.query(&QUEUES, &[&tenants, &names]).await?;
    let rows = rows.iter().map(|row| values::queue(row, 0)).collect::<Result<_, _>>()?;
    let with_groups = load::with_groups(session, rows).await?;
    Ok(with_groups.into_iter().map(|(row, groups)| ((row.tenant, Arc::clone(&row.name)), (row, groups))).collect())
}

/// A queue to be made.
pub(super) struct NewQueue<'a> {
    pub(super) id: QueueId,
    pub(super) tenant: QueueId,
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) task: &'a str,
    pub(super) options: &'a QueueOptions,
}

/// Makes those that are not there: how many.
pub(super) async fn make_queues(session: &Session, new: &[NewQueue<'_>]) -> Result<usize, Trouble> {
    let ids: Vec<_> = new.iter().map(|queue| Id(queue.id)).collect();
    let tenants: Vec<_> = new.iter().map(|queue| Id(queue.tenant)).collect();
    let names: Vec<_> = new.iter().map(|queue| queue.name).collect();
    let namespaces: Vec<_> = new.iter().map(|queue| queue.namespace).collect();
    let tasks: Vec<_> = new.iter().map(|queue| queue.task).collect();
    let retains: Vec<_> = new.iter().map(|queue| options_text::retains(queue.options)).collect();
    let options: Vec<_> = new.iter().map(|queue| options_text::write(queue.options)).collect();
    let made = session.query(&MAKE_QUEUES, &[&ids, &tenants, &names, &namespaces, &tasks, &retains, &options]).await?;
    Ok(made.len())
}

async fn partitions(session: &Session, creates: &[Create]) -> Result<ByName<PartitionRow>, Trouble> {
    let (mut ids, mut queues, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for create in creates {
        if let Create::Partition { id, queue, name } = create {
            ids.push(Id(*id));
            queues.push(Id(*queue));
            names.push(&**name);
        }
    }
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    session.query(&MAKE_PARTITIONS, &[&ids, &queues, &names]).await?;
    let rows = session.query(&PARTITIONS, &[&queues, &names]).await?;
    let keyed = rows.iter().map(|row| {
        let partition = values::partition(row, 0)?;
        Ok(((partition.queue, Arc::clone(&partition.name)), partition))
    });
    keyed.collect()
}

async fn groups(session: &Session, creates: &[Create]) -> Result<ByName<GroupRow>, Trouble> {
    let (mut queues, mut names, mut modes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut from, mut conflations) = (Vec::new(), Vec::new());
    for create in creates {
        if let Create::Group { queue, group, mode, from_us, conflation } = create {
            queues.push(Id(*queue));
            names.push(&**group);
            modes.push(&**mode);
            from.push(*from_us);
            conflations.push(*conflation);
        }
    }
    if queues.is_empty() {
        return Ok(HashMap::new());
    }
    session.query(&MAKE_GROUPS, &[&queues, &names, &modes, &from, &conflations]).await?;
    let rows = session.query(&GROUPS, &[&queues, &names]).await?;
    let keyed = rows.iter().map(|row| {
        let group = values::group(row, 1)?;
        Ok(((id(row, 0)?, Arc::clone(&group.group)), group))
    });
    keyed.collect()
}
