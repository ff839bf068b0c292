//! The embedded database: one SQLite file in the data directory.
//!
//! WAL, so that a commit is one sequential write and one fsync; `synchronous = FULL`, so that what
//! was answered survives a power cut. Its version stands in `PRAGMA user_version` and is the
//! number of [`MIGRATIONS`] that were applied.

mod admin;
mod clock;
mod columns;
mod commit;
mod control;
mod create;
mod declarations;
mod load;
mod read;
mod retain;
pub(crate) mod threads;

use std::path::{Path, PathBuf};
use std::time::Duration;

use queen_fabric::protocol::{Control, store::Declaration};
use rusqlite::Connection;

use crate::StoreError;

/// The file's name in the data directory.
pub const DATABASE_FILE: &str = "queen.db";

/// SQLite's mark of whose file it is: "Quee".
const APPLICATION_ID: i32 = 0x5175_6565;

/// How long a commit waits for somebody who looks into the file with another program.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Each takes the file one version further; the first makes it. Never changed, only added to.
const MIGRATIONS: &[&str] = &[
    // 1: declarations of ephemeral queues; `options` is the JSON as the client sent it.
    "CREATE TABLE ephemeral_queue (
        tenant BLOB NOT NULL CHECK (length(tenant) = 16),
        queue TEXT NOT NULL,
        options TEXT NOT NULL,
        updated_at_ms INTEGER NOT NULL,
        PRIMARY KEY (tenant, queue)
    ) STRICT, WITHOUT ROWID",
    // 2: durable queues.
    include_str!("sqlite/schema_2.sql"),
    // 3: which append a segment came from.
    include_str!("sqlite/schema_3.sql"),
    // 4: what operators have switched and granted.
    include_str!("sqlite/schema_4.sql"),
    // 5: which node of a cluster without a common store declared or deleted last.
    include_str!("sqlite/schema_5.sql"),
];

/// The version that this broker writes.
const VERSION: u32 = MIGRATIONS.len() as u32;

/// The open file.
#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    connection: Connection,
}

impl Sqlite {
    /// Opens the file in `dir`, makes it when it is missing, and brings it to this version; with
    /// it, what it holds.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(crate) fn open(dir: &Path) -> Result<(Self, Vec<Declaration>), StoreError> {
        let path = dir.join(DATABASE_FILE);
        let failed = |source| StoreError::of(&path, source);
        let mut connection = Connection::open(&path).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        let (application_id, version, tables) = identity(&connection).map_err(failed)?;
        let empty = version == 0 && tables == 0;
        if !empty && application_id != APPLICATION_ID {
            return Err(StoreError::Foreign { path });
        }
        if version > VERSION {
            return Err(StoreError::Newer { path, version, known: VERSION });
        }
        configure(&connection).map_err(failed)?;
        migrate(&mut connection, version).map_err(failed)?;
        let declarations = declarations::load(&connection).map_err(failed)?;
        Ok((Self { path, connection }, declarations))
    }

    /// What operators have switched and granted.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(crate) fn control(&self) -> Result<Control, StoreError> {
        control::load(&self.connection).map_err(|source| StoreError::of(&self.path, source))
    }
}

/// Application id, version and number of tables.
fn identity(connection: &Connection) -> rusqlite::Result<(i32, u32, u32)> {
    connection.query_row(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
         FROM pragma_application_id, pragma_user_version",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")
}

/// Applies the migrations from `version` on, all or none.
fn migrate(connection: &mut Connection, version: u32) -> rusqlite::Result<()> {
    if version == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    for migration in MIGRATIONS.iter().skip(version as usize) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{Job, JobDone};
    use std::fs;

    fn declaration(queue: &str, options: &str) -> Declaration {
        Declaration {
            tenant: [7; 16],
            queue: queue.into(),
            options_json: Some(options.into()),
            updated_at_ms: 0,
            origin: String::new(),
        }
    }

    fn declare(queue: &str, options: &str) -> Job {
        Job::Declare(Box::new(declaration(queue, options)))
    }

    fn remove(queue: &str) -> Job {
        Job::Remove(Box::new(([7; 16], queue.into())))
    }

    /// Applies all or none.
    fn apply_at(sqlite: &mut Sqlite, jobs: &[Job], now_us: i64) -> rusqlite::Result<Vec<JobDone>> {
        let transaction = sqlite.connection.transaction()?;
        let apply = |job: &Job| match job {
            Job::Declare(declared) => declarations::declare(&transaction, declared, now_us),
            Job::Remove(key) => declarations::remove(&transaction, key, now_us),
            Job::Log(_) | Job::Declarations | Job::Control(_) => unreachable!("these tests do not"),
        };
        let done = jobs.iter().map(apply).collect::<rusqlite::Result<_>>()?;
        transaction.commit()?;
        Ok(done)
    }

    fn apply(sqlite: &mut Sqlite, jobs: &[Job]) -> rusqlite::Result<Vec<JobDone>> {
        apply_at(sqlite, jobs, 0)
    }

    /// Queue and options of everything in `dir`, in the order of the names.
    fn held(dir: &Path) -> Vec<(String, String)> {
        let (_, declarations) = Sqlite::open(dir).unwrap();
        let mut held: Vec<_> = declarations
            .into_iter()
            .map(|declared| (declared.queue, declared.options_json.unwrap_or_default()))
            .collect();
        held.sort();
        held
    }

    fn pair(queue: &str, options: &str) -> (String, String) {
        (queue.into(), options.into())
    }

    #[test]
    fn a_declaration_is_there_after_a_restart_as_it_was_sent() {
        let dir = tempfile::tempdir().unwrap();
        let options = "{ \"maxLength\": 10 }";
        let (mut sqlite, declarations) = Sqlite::open(dir.path()).unwrap();
        assert!(declarations.is_empty());
        apply_at(&mut sqlite, &[declare("näme", options)], 1_700_000_000_000_000).unwrap();
        drop(sqlite);
        let (_, declarations) = Sqlite::open(dir.path()).unwrap();
        let [declared] = &declarations[..] else {
            panic!("one declaration, not {}", declarations.len());
        };
        assert_eq!(declared.tenant, [7; 16]);
        assert_eq!(declared.queue, "näme");
        assert_eq!(declared.options_json.as_deref(), Some(options));
        assert_eq!(declared.updated_at_ms, 1_700_000_000_000);
    }

    #[test]
    fn a_commit_survives_a_process_that_never_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sqlite, _) = Sqlite::open(dir.path()).unwrap();
        apply(&mut sqlite, &[declare("q", "{}")]).unwrap();
        // The files as they lie on the disk while the connection is open: what a kill leaves.
        let left = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, left.path().join(path.file_name().unwrap())).unwrap();
        }
        assert!(left.path().join("queen.db-wal").exists());
        assert_eq!(held(left.path()), [pair("q", "{}")]);
    }

    #[test]
    fn a_later_declaration_replaces_the_whole_of_the_earlier() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sqlite, _) = Sqlite::open(dir.path()).unwrap();
        apply(&mut sqlite, &[declare("q", "{\"ttlSeconds\":1}"), declare("q", "{}")]).unwrap();
        assert_eq!(held(dir.path()), [pair("q", "{}")]);
    }

    #[test]
    fn removing_says_whether_there_was_a_declaration() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sqlite, _) = Sqlite::open(dir.path()).unwrap();
        let asks = [declare("q", "{}"), remove("q"), remove("q")];
        let answers = apply(&mut sqlite, &asks).unwrap();
        assert!(matches!(answers[1], JobDone::Removed { declared: true, .. }));
        assert!(matches!(answers[2], JobDone::Removed { declared: false, .. }));
        assert!(held(dir.path()).is_empty());
    }

    #[test]
    fn the_same_name_is_another_queue_for_another_tenant() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sqlite, _) = Sqlite::open(dir.path()).unwrap();
        let mut other = declaration("q", "{}");
        other.tenant = [8; 16];
        let asks = [declare("q", "{}"), Job::Declare(Box::new(other)), remove("q")];
        apply(&mut sqlite, &asks).unwrap();
        let (_, declarations) = Sqlite::open(dir.path()).unwrap();
        assert_eq!(declarations.len(), 1);
        assert_eq!(declarations[0].tenant, [8; 16]);
    }

    #[test]
    fn a_disk_that_is_full_applies_nothing_and_recovers() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sqlite, _) = Sqlite::open(dir.path()).unwrap();
        let pages: u32 = sqlite.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        let limit = |sqlite: &Sqlite, pages: u32| {
            sqlite.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
        };
        limit(&sqlite, pages);
        let large = "x".repeat(100_000);
        let why = apply(&mut sqlite, &[declare("small", "{}"), declare("large", &large)]).unwrap_err();
        assert!(why.to_string().contains("full"), "{why}");
        assert!(held(dir.path()).is_empty());
        limit(&sqlite, 1000);
        apply(&mut sqlite, &[declare("large", &large)]).unwrap();
        assert_eq!(held(dir.path()), [pair("large", &large)]);
    }

    #[test]
    fn a_file_that_turned_read_only_applies_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sqlite, _) = Sqlite::open(dir.path()).unwrap();
        sqlite.connection.pragma_update(None, "query_only", true).unwrap();
        assert!(apply(&mut sqlite, &[declare("q", "{}")]).is_err());
        assert!(held(dir.path()).is_empty());
    }

    #[test]
    fn a_file_that_is_no_database_is_named_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(DATABASE_FILE), "hello ".repeat(1000)).unwrap();
        let error = Sqlite::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("queen.db") && said.contains("restore a copy"));
    }

    #[test]
    fn a_file_with_a_damaged_page_is_not_served_from() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sqlite, _) = Sqlite::open(dir.path()).unwrap();
        apply(&mut sqlite, &[declare("q", "{}")]).unwrap();
        drop(sqlite);
        let path = dir.path().join(DATABASE_FILE);
        let mut bytes = fs::read(&path).unwrap();
        // The first page stays: the schema reads well, the table's page does not.
        bytes[4096..4196].fill(0xff);
        fs::write(&path, bytes).unwrap();
        let error = Sqlite::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(!error.is_configuration());
    }

    #[test]
    fn a_file_of_another_program_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(DATABASE_FILE);
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE theirs (x)").unwrap();
        drop(other);
        let before = fs::read(&path).unwrap();
        let error = Sqlite::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert!(error.is_configuration());
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_file_of_a_newer_broker_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (sqlite, _) = Sqlite::open(dir.path()).unwrap();
        sqlite.connection.pragma_update(None, "user_version", 99).unwrap();
        drop(sqlite);
        let error = Sqlite::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Newer { version: 99, .. }), "{error}");
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = Sqlite::open(&dir.path().join("none")).unwrap_err();
        assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
    }
}
