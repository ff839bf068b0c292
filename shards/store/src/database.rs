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

use queen_fabric::protocol::store::Declaration;
use queen_log::store::{Done, StoreFailure, Work};

use crate::{
    StoreError,
    sqlite::{Sqlite, threads::Threads},
};

/// Which database, and how it is reached.
#[derive(Clone, Debug)]
pub enum DatabaseConfig {
    /// The file in the data directory.
    Sqlite,
}

/// A piece of work.
#[derive(Debug)]
pub enum Job {
    /// Of the log: [`JobDone::Log`].
    Log(Work),
    /// Keep this declaration, in place of an earlier one of the same queue, under the time at which it is done:
    /// [`JobDone::Declared`].
    Declare(Box<Declaration>),
    /// Forget the declaration of this tenant's queue: [`JobDone::Removed`].
    Remove(Box<([u8; 16], String)>),
    /// Load all declarations: [`JobDone::Declarations`].
    Declarations,
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
    },
    /// All declarations.
    Declarations(Vec<Declaration>),
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
pub struct DatabaseSeed(Kind);

/// What [`DatabaseSeed::open`] gives.
#[derive(Debug)]
pub struct Opened {
    /// The database.
    pub seed: DatabaseSeed,
    /// The declarations that it holds; `None` when it cannot be reached yet: [`Job::Declarations`] loads them later.
    pub declarations: Option<Vec<Declaration>>,
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
                let seed = Self(Kind::Sqlite(Threads::start(file)?));
                Ok(Opened { seed, declarations: Some(declarations) })
            }
        }
    }

    /// Starts it on this executor.
    #[must_use]
    pub fn start(self) -> Database {
        match self.0 {
            Kind::Sqlite(sqlite) => Database(Kind::Sqlite(sqlite)),
        }
    }
}

/// A database at work. Dropped, it finishes what was started, closes, and waits for that.
pub struct Database(Kind);

#[derive(Debug)]
enum Kind {
    Sqlite(Threads),
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
        }
    }

    /// Whether other brokers may write to it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        match &self.0 {
            Kind::Sqlite(_) => false,
        }
    }

    /// Starts a piece of work; never blocks. Its outcome comes out of [`poll_done`](Self::poll_done) under `job`. How
    /// many wait is for the caller to bound.
    pub fn start(&self, job: u64, work: Job) {
        match &self.0 {
            Kind::Sqlite(sqlite) => sqlite.start_job(job, work),
        }
    }

    /// Outcomes that are there, at least one. Pending, it wakes `cx` when some are, and when the
    /// [health](Self::health) changes: look at that too whenever woken.
    pub fn poll_done(&self, cx: &mut Context<'_>) -> Poll<Vec<Outcome>> {
        match &self.0 {
            Kind::Sqlite(sqlite) => sqlite.outcomes().poll(cx),
        }
    }

    /// Whether the last thing that was tried worked.
    #[must_use]
    pub fn health(&self) -> Health {
        match &self.0 {
            Kind::Sqlite(sqlite) => sqlite.outcomes().health(),
        }
    }
}
