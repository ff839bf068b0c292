//! A database behind the store: work in, outcomes out.
//!
//! Two kinds do the same: SQLite on threads of its own, and PostgreSQL on the executor of the store's role. The role
//! opens one at boot, [starts](DatabaseSeed::start) it on its executor, hands it [jobs](Job) by number and takes what
//! came of them. Nothing here knows what the log makes of rows; what is asked and promised stands in
//! [`queen_log::store`].

use std::{
    fmt,
    path::Path,
    task::{Context, Poll},
};

use queen_fabric::protocol::{Control, ControlAsk, store::Declaration};
use queen_log::store::{Done, StoreFailure, Work};

use crate::{
    StoreError,
    postgres::{self, Postgres, PostgresConfig},
    sqlite::{DATABASE_FILE, Sqlite, threads::Threads},
};

/// Which database, and how it is reached.
#[derive(Clone, Debug)]
pub enum DatabaseConfig {
    /// The file in the data directory.
    Sqlite,
    /// A server.
    Postgres(Box<PostgresConfig>),
}

/// A piece of work.
#[derive(Debug)]
pub enum Job {
    /// Of the log: [`JobDone::Log`].
    Log(Work),
    /// Keep this declaration, in place of an earlier one of the same queue: [`JobDone::Declared`].
    Declare(Box<Declaration>),
    /// Forget the declaration of this tenant's queue: [`JobDone::Removed`].
    Remove(Box<([u8; 16], String)>),
    /// Load all declarations: [`JobDone::Declarations`].
    Declarations,
    /// Change what operators have switched and granted, if that is asked, and load all of it: [`JobDone::Control`].
    Control(ControlAsk),
}

/// What came of a [`Job`], once it is durable.
#[derive(Debug, PartialEq, Eq)]
pub enum JobDone {
    /// What the log asked for.
    Log(Box<Done>),
    /// The declaration is kept.
    Declared {
        /// The time it is kept under, in milliseconds since 1970.
        updated_at_ms: u64,
    },
    /// The declaration is gone.
    Removed {
        /// Whether there was one.
        declared: bool,
        /// The time, by the store's clock, in milliseconds since 1970.
        updated_at_ms: u64,
    },
    /// All declarations.
    Declarations(Vec<Declaration>),
    /// What operators have switched and granted.
    Control {
        /// All of it, as it is after the change.
        control: Control,
        /// Whether anything was changed.
        changed: bool,
    },
}

/// The number of a job and what came of it.
pub type Outcome = (u64, Result<JobDone, StoreFailure>);

/// Whether the last thing that was tried worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It did.
    Connected,
    /// It did not, and this is why.
    Disconnected(Box<str>),
}

/// A database that is open, on its way to the executor that uses it.
#[derive(Debug)]
pub struct DatabaseSeed(SeedKind);

#[derive(Debug)]
enum SeedKind {
    Sqlite(Threads),
    Postgres(Box<postgres::Seed>),
}

/// What [`DatabaseSeed::open`] gives.
#[derive(Debug)]
pub struct Opened {
    /// The database.
    pub seed: DatabaseSeed,
    /// The declarations that it holds; `None` when it cannot be reached yet: [`Job::Declarations`] loads them later.
    pub declarations: Option<Vec<Declaration>>,
    /// What operators have switched and granted; `None` as for the declarations: [`Job::Control`] loads it later.
    pub control: Option<Control>,
}

impl DatabaseSeed {
    /// Opens a database; `dir` is the data directory. Blocks on the disk and the network, a few seconds at most. Call it
    /// from a thread that is not pinned to a core: threads that it starts inherit that.
    ///
    /// # Errors
    /// See [`StoreError`]. That PostgreSQL cannot be reached is none: it is tried again for as long as it takes.
    pub fn open(config: &DatabaseConfig, dir: &Path) -> Result<Opened, StoreError> {
        match config {
            DatabaseConfig::Sqlite => {
                let (file, declarations) = Sqlite::open(dir)?;
                let control = file.control()?;
                let seed = Self(SeedKind::Sqlite(Threads::start(file)?));
                Ok(Opened { seed, declarations: Some(declarations), control: Some(control) })
            }
            DatabaseConfig::Postgres(config) => {
                let mut in_file = if dir.join(DATABASE_FILE).exists() { Sqlite::open(dir)?.1 } else { Vec::new() };
                // Tombstones are for nodes without a common store.
                in_file.retain(|declared| declared.options_json.is_some());
                let (seed, held) = postgres::Seed::open(config, in_file)?;
                let (declarations, control) = held.unzip();
                Ok(Opened { seed: Self(SeedKind::Postgres(Box::new(seed))), declarations, control })
            }
        }
    }

    /// Starts it on this executor.
    #[must_use]
    pub fn start(self) -> Database {
        match self.0 {
            SeedKind::Sqlite(threads) => Database(Kind::Sqlite(threads)),
            SeedKind::Postgres(seed) => Database(Kind::Postgres(Postgres::start(*seed))),
        }
    }
}

/// A database at work. Dropped, SQLite finishes what was started, closes, and waits for that; with PostgreSQL, what was
/// started ends with the executor at the latest.
pub struct Database(Kind);

enum Kind {
    Sqlite(Threads),
    Postgres(Postgres),
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Database {
    /// Batches that may be in commit at a time.
    #[must_use]
    pub fn commits_in_parallel(&self) -> usize {
        match &self.0 {
            Kind::Sqlite(_) => 1,
            Kind::Postgres(postgres) => postgres.commits_in_parallel(),
        }
    }

    /// Whether other brokers may write to it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        match &self.0 {
            Kind::Sqlite(_) => false,
            Kind::Postgres(_) => true,
        }
    }

    /// Starts a piece of work; never blocks. Its outcome comes out of [`poll_done`](Self::poll_done) under `job`. How
    /// many wait is for the caller to bound.
    pub fn start(&self, job: u64, work: Job) {
        match &self.0 {
            Kind::Sqlite(threads) => threads.start_job(job, work),
            Kind::Postgres(postgres) => postgres.start_job(job, work),
        }
    }

    /// Outcomes that are there, at least one. Pending, it wakes `cx` when some are, and when the
    /// [health](Self::health) changes: look at that too whenever woken.
    pub fn poll_done(&self, cx: &mut Context<'_>) -> Poll<Vec<Outcome>> {
        match &self.0 {
            Kind::Sqlite(threads) => threads.outcomes().poll(cx),
            Kind::Postgres(postgres) => postgres.outcomes().poll(cx),
        }
    }

    /// Whether the last thing that was tried worked.
    #[must_use]
    pub fn health(&self) -> Health {
        match &self.0 {
            Kind::Sqlite(threads) => threads.outcomes().health(),
            Kind::Postgres(postgres) => postgres.outcomes().health(),
        }
    }
}
