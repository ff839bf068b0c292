//! Rows that are made if they are not there.

use queen_log::{
    id::{QueueId, TenantId, Uuid},
    options::QueueOptions,
    store::{Create, Created},
};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::columns::{self, GROUP, PARTITION, PARTITION_FROM};
use crate::options_text;

/// Makes one.
pub(super) fn create(connection: &Connection, create: &Create, now_us: i64) -> Result<Created> {
    match create {
        Create::Queue { id, tenant, name, namespace, task, options } => {
            queue(connection, NewQueue { id: *id, tenant: *tenant, name, namespace, task, options }, now_us)?;
            let row = columns::queue_named(connection, *tenant, name)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
            let groups = columns::groups_of(connection, row.id)?;
            Ok(Created::Queue(row, groups))
        }
        Create::Partition { id, queue, name } => {
            connection
                .prepare_cached(
                    "INSERT OR IGNORE INTO partition (id, queue_id, name, created_us)
                     SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM queue WHERE id = ?2)
                     AND NOT EXISTS (SELECT 1 FROM partition WHERE queue_id = ?2 AND name = ?3)",
                )?
                .execute(params![id.0, queue.0, name, now_us])?;
            let row = connection
                .prepare_cached(&format!(
                    "SELECT {PARTITION} FROM {PARTITION_FROM} WHERE p.queue_id = ?1 AND p.name = ?2"
                ))?
                .query_row(params![queue.0, name], columns::partition)
                .optional()?;
            Ok(row.map_or(Created::Gone, Created::Partition))
        }
        Create::Group { queue, group, mode, from_us, conflation } => {
            connection
                .prepare_cached(
                    "INSERT OR IGNORE INTO queue_group (queue_id, group_name, mode, from_us, created_us, conflation)
                     SELECT ?1, ?2, ?3, coalesce(?4, ?5), ?5, ?6 WHERE EXISTS (SELECT 1 FROM queue WHERE id = ?1)",
                )?
                .execute(params![queue.0, group, mode, from_us, now_us, conflation])?;
            let row = connection
                .prepare_cached(&format!(
                    "SELECT {GROUP} FROM queue_group g WHERE g.queue_id = ?1 AND g.group_name = ?2"
                ))?
                .query_row(params![queue.0, group], columns::group)
                .optional()?;
            Ok(row.map_or(Created::Gone, Created::Group))
        }
    }
}

/// A queue to be made.
pub(super) struct NewQueue<'a> {
    pub(super) id: QueueId,
    pub(super) tenant: TenantId,
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) task: &'a str,
    pub(super) options: &'a QueueOptions,
}

/// Makes a queue if there is none of its name: whether it did.
pub(super) fn queue(connection: &Connection, new: NewQueue<'_>, now_us: i64) -> Result<bool> {
    let NewQueue { id: Uuid(id), tenant: Uuid(tenant), name, namespace, task, options } = new;
    let made = connection
        .prepare_cached(
            "INSERT INTO queue (id, tenant, name, namespace, task, created_us, changed_us, retains, options)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8) ON CONFLICT (tenant, name) DO NOTHING",
        )?
        .execute(params![
            id,
            tenant,
            name,
            namespace,
            task,
            now_us,
            options_text::retains(options),
            options_text::write(options)
        ])?;
    Ok(made == 1)
}
