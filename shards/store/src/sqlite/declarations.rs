//! The declarations of ephemeral queues.

use queen_fabric::protocol::store::Declaration;
use rusqlite::{Connection, Result, params};

use crate::database::JobDone;

/// All of them.
pub(super) fn load(connection: &Connection) -> Result<Vec<Declaration>> {
    connection
        .prepare("SELECT tenant, queue, options, updated_at_ms, origin, is_deleted FROM ephemeral_queue")?
        .query_map([], |row| {
            Ok(Declaration {
                tenant: row.get(0)?,
                queue: row.get(1)?,
                options_json: if row.get(5)? { None } else { Some(row.get(2)?) },
                updated_at_ms: row.get::<_, i64>(3)?.cast_unsigned(),
                origin: row.get(4)?,
            })
        })?
        .collect()
}

/// Keeps one.
pub(super) fn declare(connection: &Connection, declared: &Declaration, now_us: i64) -> Result<JobDone> {
    let updated_at_ms = match declared.updated_at_ms {
        0 => now_us / 1000,
        said => said.cast_signed(),
    };
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO ephemeral_queue (tenant, queue, options, updated_at_ms, origin, is_deleted)
             VALUES (?1, ?2, coalesce(?3, '{}'), ?4, ?5, ?3 IS NULL)",
        )?
        .execute(params![declared.tenant, declared.queue, declared.options_json, updated_at_ms, declared.origin])?;
    Ok(JobDone::Declared { updated_at_ms: updated_at_ms.cast_unsigned() })
}

/// Forgets one.
pub(super) fn remove(connection: &Connection, key: &([u8; 16], String), now_us: i64) -> Result<JobDone> {
    let (tenant, queue) = key;
    let removed = connection
        .prepare_cached("DELETE FROM ephemeral_queue WHERE tenant = ?1 AND queue = ?2")?
        .execute(params![tenant, queue])?;
    Ok(JobDone::Removed { declared: removed > 0, updated_at_ms: (now_us / 1000).cast_unsigned() })
}
