//! The declarations of ephemeral queues.

use queen_fabric::protocol::store::Declaration;
use queen_log::id::Uuid;
use tokio_postgres::types::Type;

use super::{
    session::{Session, Sql, Trouble},
    values::{Id, count, get, id},
};
use crate::database::JobDone;

const LOAD: Sql = Sql { text: "SELECT tenant, queue, options, updated_at_ms FROM queen.ephemeral_queue", types: &[] };
const DECLARE: Sql = Sql {
    text: "INSERT INTO queen.ephemeral_queue (tenant, queue, options, updated_at_ms)
           VALUES ($1, $2, $3, (extract(epoch FROM clock_timestamp()) * 1000)::int8)
           ON CONFLICT (tenant, queue) DO UPDATE SET options = excluded.options, updated_at_ms = excluded.updated_at_ms
           RETURNING updated_at_ms",
    types: &[Type::UUID, Type::TEXT, Type::TEXT],
};
const REMOVE: Sql = Sql {
    text: "WITH gone AS (DELETE FROM queen.ephemeral_queue WHERE tenant = $1 AND queue = $2 RETURNING 1)
           SELECT (SELECT count(*) FROM gone), (extract(epoch FROM clock_timestamp()) * 1000)::int8",
    types: &[Type::UUID, Type::TEXT],
};
/// Once, and only into an empty table.
const TAKE_OVER: Sql = Sql {
    text: "WITH first AS (
               UPDATE queen.state SET declarations_taken = true WHERE NOT declarations_taken RETURNING 1)
           INSERT INTO queen.ephemeral_queue (tenant, queue, options, updated_at_ms)
           SELECT d.* FROM first CROSS JOIN unnest($1::uuid[], $2::text[], $3::text[], $4::int8[]) AS d
           WHERE NOT EXISTS (SELECT FROM queen.ephemeral_queue)
           ON CONFLICT DO NOTHING RETURNING 1",
    types: &[Type::UUID_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY],
};

/// All of them.
pub(super) async fn load(session: &Session) -> Result<Vec<Declaration>, Trouble> {
    let rows = session.query(&LOAD, &[]).await?;
    let declaration = |row: &tokio_postgres::Row| {
        Ok(Declaration {
            tenant: id(row, 0)?.0,
            queue: get(row, 1)?,
            options_json: Some(get(row, 2)?),
            updated_at_ms: count(row, 3)?,
            origin: String::new(),
        })
    };
    rows.iter().map(declaration).collect()
}

/// Keeps one, whatever time it says.
pub(super) async fn declare(session: &Session, declared: &Declaration) -> Result<JobDone, Trouble> {
    let tenant = Id(Uuid(declared.tenant));
    let options = declared.options_json.as_deref().unwrap_or("{}");
    let rows = session.query(&DECLARE, &[&tenant, &declared.queue, &options]).await?;
    let updated_at_ms = rows.first().map_or(Ok(0), |row| count(row, 0))?;
    Ok(JobDone::Declared { updated_at_ms })
}

/// Forgets one.
pub(super) async fn remove(session: &Session, key: &([u8; 16], String)) -> Result<JobDone, Trouble> {
    let rows = session.query(&REMOVE, &[&Id(Uuid(key.0)), &key.1]).await?;
    let row = rows.first();
    Ok(JobDone::Removed {
        declared: row.map_or(Ok(0), |row| count(row, 0))? > 0,
        updated_at_ms: row.map_or(Ok(0), |row| count(row, 1))?,
    })
}

/// Takes over what was declared before there was a server.
pub(super) async fn take_over(session: &Session, declared: &[Declaration]) -> Result<(), Trouble> {
    if declared.is_empty() {
        return Ok(());
    }
    let tenants: Vec<_> = declared.iter().map(|declared| Id(Uuid(declared.tenant))).collect();
    let queues: Vec<_> = declared.iter().map(|declared| &*declared.queue).collect();
    let options: Vec<_> = declared.iter().map(|declared| declared.options_json.as_deref().unwrap_or("{}")).collect();
    let times: Vec<_> = declared.iter().map(|declared| declared.updated_at_ms.cast_signed()).collect();
    let taken = session.query(&TAKE_OVER, &[&tenants, &queues, &options, &times]).await?;
    if !taken.is_empty() {
        tracing::info!("{} declarations of the data directory were taken over", taken.len());
    }
    Ok(())
}
