//! What is rare: configuring and deleting queues, extending leases. Retention stands in its own file.

use queen_log::{
    id::{LeaseId, QueueId, TenantId},
    options::{OptionsPatch, QueueOptions},
    store::{Admin, AdminDone},
};
use tokio_postgres::types::Type;

use super::{
    create::{self, NewQueue},
    load, retain,
    session::{Session, Sql, Trouble},
    values::{self, Id, cursor_columns, get, id, queue_columns},
};
use crate::{options_text, random};

const REVISION: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), ", q.revision FROM queen.queue q WHERE q.tenant = $1 AND q.name = $2"),
    types: &[Type::UUID, Type::TEXT],
};
const CHANGE: Sql = Sql {
    text: "UPDATE queen.queue SET namespace = $3, task = $4, retains = $5, options = $6, revision = revision + 1,
            changed_us = (extract(epoch FROM clock_timestamp()) * 1000000)::int8
        WHERE id = $1 AND revision = $2 RETURNING 1",
    types: &[Type::UUID, Type::INT8, Type::TEXT, Type::TEXT, Type::BOOL, Type::TEXT],
};
/// Segments are found by their partitions' ids, which are noted; statements that run beside this may still write some.
const DELETE: Sql = Sql {
    text: "WITH gone AS (DELETE FROM queen.queue WHERE tenant = $1 AND name = $2 RETURNING id),
        partitions AS (DELETE FROM queen.partition p USING gone WHERE p.queue_id = gone.id RETURNING p.id),
        groups AS (DELETE FROM queen.queue_group g USING gone WHERE g.queue_id = gone.id),
        held AS MATERIALIZED (
            SELECT c.partition_id, c.group_name FROM queen.partition p JOIN queen.cursor c ON c.partition_id = p.id
            WHERE p.queue_id IN (SELECT id FROM queen.queue WHERE tenant = $1 AND name = $2)
            ORDER BY c.partition_id, c.group_name FOR UPDATE OF c),
        cursors AS (DELETE FROM queen.cursor c USING held h
            WHERE c.partition_id = h.partition_id AND c.group_name = h.group_name),
        letters AS (DELETE FROM queen.dead_letter d USING partitions p WHERE d.partition_id = p.id),
        noted AS (INSERT INTO queen.dropped_partition (id, dropped_us)
            SELECT id, (extract(epoch FROM clock_timestamp()) * 1000000)::int8 FROM partitions)
        SELECT id FROM gone",
    types: &[Type::UUID, Type::TEXT],
};
/// Never shortens a lease. Locks in the order of [`super::commit`].
const EXTEND: Sql = Sql {
    text: concat!(
        "WITH now AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS us),
        held AS MATERIALIZED (
            SELECT c.partition_id, c.group_name FROM queen.cursor c, now
            WHERE c.lease_id = $2 AND c.lease_until_us > now.us
            ORDER BY c.partition_id, c.group_name FOR UPDATE OF c),
        extended AS (
            UPDATE queen.cursor c SET lease_until_us = greatest(c.lease_until_us, now.us + $3), version = $4
            FROM now, held h JOIN queen.partition p ON p.id = h.partition_id JOIN queen.queue q ON q.id = p.queue_id
            WHERE q.tenant = $1 AND c.partition_id = h.partition_id AND c.group_name = h.group_name
            RETURNING ",
        cursor_columns!(),
        ")
        SELECT c.*, now.us FROM now LEFT JOIN extended c ON true ORDER BY c.partition_id, c.group_name"
    ),
    types: &[Type::UUID, Type::UUID, Type::INT8, Type::INT8],
};

/// Does one.
pub(super) async fn admin(session: &Session, admin: &Admin) -> Result<AdminDone, Trouble> {
    match admin {
        Admin::Configure { id, tenant, name, patch } => configure(session, *id, *tenant, name, patch).await,
        Admin::Delete { tenant, name } => {
            let rows = session.query(&DELETE, &[&Id(*tenant), &&**name]).await?;
            Ok(AdminDone::Deleted(rows.first().map(|row| id(row, 0)).transpose()?))
        }
        Admin::Extend { tenant, lease, for_us } => extend(session, *tenant, *lease, *for_us).await,
        Admin::Retain(step) => retain::retain(session, step).await,
    }
}

/// Makes the queue, or changes the row that it has read; another's change in between is read again.
async fn configure(
    session: &Session,
    id: QueueId,
    tenant: TenantId,
    name: &str,
    patch: &OptionsPatch,
) -> Result<AdminDone, Trouble> {
    loop {
        let rows = session.query(&REVISION, &[&Id(tenant), &name]).await?;
        let changed = match rows.first() {
            None => {
                let (options, namespace, task) = patch.clone().apply(&QueueOptions::default(), "", "");
                let new = NewQueue { id, tenant, name, namespace: &namespace, task: &task, options: &options };
                create::make_queues(session, &[new]).await? > 0
            }
            Some(row) => {
                let (old, revision): (_, i64) = (values::queue(row, 0)?, get(row, 7)?);
                let (options, namespace, task) = patch.clone().apply(&old.options, &old.namespace, &old.task);
                let (retains, options) = (options_text::retains(&options), options_text::write(&options));
                let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                    [&Id(old.id), &revision, &namespace, &task, &retains, &options];
                !session.query(&CHANGE, &parameters).await?.is_empty()
            }
        };
        if changed && let Some(queue) = load::queue_named(session, tenant, name).await? {
            let with_groups = load::with_groups(session, vec![queue]).await?.pop();
            let (queue, groups) = with_groups.expect("one in, one out");
            return Ok(AdminDone::Configured(queue, groups));
        }
    }
}

async fn extend(session: &Session, tenant: TenantId, lease: LeaseId, for_us: i64) -> Result<AdminDone, Trouble> {
    let rows = session.query(&EXTEND, &[&Id(tenant), &Id(lease), &for_us, &random::number()]).await?;
    let now_us = rows.first().map_or(Ok(0), |row| get(row, 9))?;
    let mut cursors = Vec::with_capacity(rows.len());
    for row in &rows {
        // One row without a cursor tells the time.
        if get::<Option<Id>>(row, 0)?.is_some() {
            cursors.push(values::cursor(row, 0)?);
        }
    }
    Ok(AdminDone::Extended { now_us, cursors })
}
