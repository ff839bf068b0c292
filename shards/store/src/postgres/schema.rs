//! The schema: made and migrated at boot by whoever is first, checked by the others.

use tokio_postgres::types::Type;

use super::{
    session::{Session, Sql, Trouble},
    values::get,
};

/// Each takes the schema one version further. Never changed, only added to.
const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];

/// The version that this broker writes.
pub(super) const VERSION: usize = MIGRATIONS.len();

/// Taken while migrating: "queen" in letters.
const LOCK: &str = "SELECT pg_advisory_xact_lock(x'717565656e'::int8)";

const FIND: Sql = Sql { text: "SELECT to_regclass('queen.state') IS NOT NULL", types: &[] };
const READ: Sql = Sql { text: "SELECT version FROM queen.state", types: &[] };
const PROBE: Sql = Sql {
    text: "UPDATE queen.state SET probed_us = (extract(epoch FROM now()) * 1000000)::int8 WHERE version >= $1",
    types: &[Type::INT4],
};

/// Why a schema cannot be used.
#[derive(Debug)]
pub(super) enum SchemaTrouble {
    /// The server did not do what was asked.
    Server(Trouble),
    /// A newer broker made it.
    Newer(usize),
    /// It is missing or older, and may not be touched.
    Older(usize),
}

impl From<Trouble> for SchemaTrouble {
    fn from(trouble: Trouble) -> Self {
        Self::Server(trouble)
    }
}

/// Brings the schema to this version, or, unless it may `apply`, checks that it is; then sees whether it can write.
pub(super) async fn prepare(session: &Session, apply: bool) -> Result<(), SchemaTrouble> {
    let mut version = version(session).await?;
    if version < VERSION && apply {
        migrate(session).await?;
        let before = version;
        version = self::version(session).await?;
        if version > before {
            tracing::info!("the schema queen has version {version} now");
        }
    }
    match version {
        _ if version > VERSION => Err(SchemaTrouble::Newer(version)),
        _ if version < VERSION => Err(SchemaTrouble::Older(version)),
        _ => Ok(session.query(&PROBE, &[&i32::try_from(VERSION).expect("few")]).await.map(drop)?),
    }
}

/// 0 when there is none.
async fn version(session: &Session) -> Result<usize, Trouble> {
    let found = session.query(&FIND, &[]).await?;
    if !found.first().map_or(Ok(false), |row| get(row, 0))? {
        return Ok(0);
    }
    let rows = session.query(&READ, &[]).await?;
    let version: i32 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
    Ok(usize::try_from(version).unwrap_or(0))
}

/// All that are missing in one transaction, under the lock: another broker may have been faster up to there.
async fn migrate(session: &Session) -> Result<(), Trouble> {
    session.batch(&format!("BEGIN; {LOCK}; CREATE SCHEMA IF NOT EXISTS queen")).await?;
    let migrated = migrate_locked(session).await;
    let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    session.batch(end).await?;
    migrated
}

async fn migrate_locked(session: &Session) -> Result<(), Trouble> {
    let version = version(session).await?;
    for (at, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        session.batch(migration).await?;
        session.batch(&format!("UPDATE queen.state SET version = {}", at + 1)).await?;
    }
    Ok(())
}
