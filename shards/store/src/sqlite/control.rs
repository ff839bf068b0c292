//! What operators have switched and granted.

use queen_fabric::protocol::{Control, ControlAsk, Grant, Switch};
use rusqlite::{Connection, Result, Row, params};

use crate::{database::JobDone, limit};

/// All of it.
pub(super) fn load(connection: &Connection) -> Result<Control> {
    let mut control = Control::default();
    let mut switches = connection.prepare_cached("SELECT name, enabled FROM switch")?;
    let mut rows = switches.query([])?;
    while let Some(row) = rows.next()? {
        // One that is not known is a newer broker's.
        if let Some(switch) = Switch::of_name(row.get_ref(0)?.as_str()?) {
            control.set(switch, row.get(1)?);
        }
    }
    control.grants = connection
        .prepare_cached("SELECT tenant_id, enabled, max_bytes, max_queues, max_msgs_per_sec FROM ephemeral_quota")?
        .query_map([], grant)?
        .collect::<Result<_>>()?;
    Ok(control)
}

fn grant(row: &Row<'_>) -> Result<([u8; 16], Grant)> {
    let grant = Grant {
        enabled: row.get(1)?,
        max_bytes: row.get(2).map(limit::of_stored)?,
        max_queues: row.get(3).map(limit::of_stored)?,
        max_msgs_per_sec: row.get(4).map(limit::of_stored)?,
    };
    Ok((row.get(0)?, grant))
}

/// Does what is asked, and loads all of it.
pub(super) fn control(connection: &Connection, ask: &ControlAsk) -> Result<JobDone> {
    let changed = match ask {
        ControlAsk::Load => 0,
        ControlAsk::Set(switch, on) => set(connection, *switch, *on)?,
        ControlAsk::PutGrant(tenant, grant) => put_grant(connection, *tenant, grant)?,
        ControlAsk::RemoveGrant(tenant) => {
            connection.prepare_cached("DELETE FROM ephemeral_quota WHERE tenant_id = ?1")?.execute(params![tenant])?
        }
    };
    Ok(JobDone::Control { control: load(connection)?, changed: changed > 0 })
}

/// Where there is no row it is at its default: putting it there changes nothing then.
fn set(connection: &Connection, switch: Switch, on: bool) -> Result<usize> {
    connection
        .prepare_cached(
            "INSERT INTO switch (name, enabled) SELECT ?1, ?2
             WHERE ?2 <> ?3 OR EXISTS (SELECT 1 FROM switch WHERE name = ?1)
             ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled WHERE enabled <> excluded.enabled",
        )?
        .execute(params![switch.name(), on, switch.default_on()])
}

fn put_grant(connection: &Connection, tenant: [u8; 16], grant: &Grant) -> Result<usize> {
    connection
        .prepare_cached(
            "INSERT INTO ephemeral_quota AS q (tenant_id, enabled, max_bytes, max_queues, max_msgs_per_sec)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (tenant_id) DO UPDATE SET enabled = excluded.enabled, max_bytes = excluded.max_bytes,
                 max_queues = excluded.max_queues, max_msgs_per_sec = excluded.max_msgs_per_sec
             WHERE (q.enabled, q.max_bytes, q.max_queues, q.max_msgs_per_sec)
                 IS NOT (excluded.enabled, excluded.max_bytes, excluded.max_queues, excluded.max_msgs_per_sec)",
        )?
        .execute(params![
            tenant,
            grant.enabled,
            grant.max_bytes.map(limit::to_stored),
            grant.max_queues.map(limit::to_stored),
            grant.max_msgs_per_sec.map(limit::to_stored)
        ])
}
