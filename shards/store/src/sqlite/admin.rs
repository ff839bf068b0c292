//! What is rare: configuring and deleting queues, extending leases. Retention stands in its own file.

use queen_log::{
    id::{LeaseId, QueueId, TenantId},
    options::{OptionsPatch, QueueOptions},
    store::{Admin, AdminDone},
};
use rusqlite::{Connection, Error, OptionalExtension, Result, params};

use super::{
    columns::{self, CURSOR},
    create::{self, NewQueue},
    retain,
};
use crate::{options_text, random};

/// Does one.
pub(super) fn admin(connection: &Connection, admin: &Admin, now_us: i64) -> Result<AdminDone> {
    match admin {
        Admin::Configure { id, tenant, name, patch } => configure(connection, *id, *tenant, name, patch, now_us),
        Admin::Delete { tenant, name } => Ok(AdminDone::Deleted(delete(connection, *tenant, name)?)),
        Admin::Extend { tenant, lease, for_us } => extend(connection, *tenant, *lease, *for_us, now_us),
        Admin::Retain(step) => retain::retain(connection, step, now_us),
    }
}

fn configure(
    connection: &Connection,
    id: QueueId,
    tenant: TenantId,
    name: &str,
    patch: &OptionsPatch,
    now_us: i64,
) -> Result<AdminDone> {
    let (options, namespace, task) = patch.clone().apply(&QueueOptions::default(), "", "");
    let new = NewQueue { id, tenant, name, namespace: &namespace, task: &task, options: &options };
    if !create::queue(connection, new, now_us)? {
        let old = columns::queue_named(connection, tenant, name)?.ok_or(Error::QueryReturnedNoRows)?;
        let (options, namespace, task) = patch.clone().apply(&old.options, &old.namespace, &old.task);
        connection
            .prepare_cached(
                "UPDATE queue SET namespace = ?2, task = ?3, changed_us = ?4, retains = ?5, options = ?6 WHERE id = ?1",
            )?
            .execute(params![
                old.id.0,
                namespace,
                task,
                now_us,
                options_text::retains(&options),
                options_text::write(&options)
            ])?;
    }
    let row = columns::queue_named(connection, tenant, name)?.ok_or(Error::QueryReturnedNoRows)?;
    let groups = columns::groups_of(connection, row.id)?;
    Ok(AdminDone::Configured(row, groups))
}

fn delete(connection: &Connection, tenant: TenantId, name: &str) -> Result<Option<QueueId>> {
    let id: Option<[u8; 16]> = connection
        .prepare_cached("DELETE FROM queue WHERE tenant = ?1 AND name = ?2 RETURNING id")?
        .query_row(params![tenant.0, name], |row| row.get(0))
        .optional()?;
    let Some(id) = id else { return Ok(None) };
    for table in ["segment", "cursor", "dead_letter"] {
        connection
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE partition_id IN (SELECT id FROM partition WHERE queue_id = ?1)"
            ))?
            .execute(params![id])?;
    }
    for table in ["queue_group", "partition"] {
        connection.prepare_cached(&format!("DELETE FROM {table} WHERE queue_id = ?1"))?.execute(params![id])?;
    }
    Ok(Some(queen_log::id::Uuid(id)))
}

/// Never shortens a lease.
fn extend(connection: &Connection, tenant: TenantId, lease: LeaseId, for_us: i64, now_us: i64) -> Result<AdminDone> {
    let cursors = connection
        .prepare_cached(&format!(
            "UPDATE cursor AS c SET lease_until_us = max(c.lease_until_us, ?3), version = ?4
             WHERE c.lease_id = ?1 AND c.lease_until_us > ?5 AND EXISTS (
                 SELECT 1 FROM partition p JOIN queue q ON q.id = p.queue_id
                 WHERE p.id = c.partition_id AND q.tenant = ?2)
             RETURNING {}",
            CURSOR.replace("c.", "")
        ))?
        .query_map(
            params![lease.0, tenant.0, now_us.saturating_add(for_us), random::number(), now_us],
            columns::cursor,
        )?
        .collect::<Result<_>>()?;
    Ok(AdminDone::Extended { now_us, cursors })
}
