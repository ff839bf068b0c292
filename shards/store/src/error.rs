//! Why the store cannot open.

use std::{
    io,
    path::{Path, PathBuf},
};

use queen_fabric::rt::ExecutorError;
use rusqlite::ErrorCode;

use crate::postgres::TlsError;

/// Why the store cannot open.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened, read or written.
    #[error("{path:?} cannot be used: {source}: check its permissions and the room on its disk")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// SQLite's reason.
        source: rusqlite::Error,
    },
    /// The file's contents are not what was written.
    #[error("{path:?} is damaged ({source}): restore a copy, or move it away to start without the declarations in it")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's reason.
        source: rusqlite::Error,
    },
    /// The file is another program's.
    #[error("{path:?} is the database of another program: name another QUEEN_DATA_DIR")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer broker wrote the file.
    #[error(
        "{path:?} has version {version}, this broker knows {known}: start the newer broker again, or restore an older copy"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// This broker's.
        known: u32,
    },
    /// There is no thread to be had.
    #[error("the store's threads do not start: {0}")]
    Thread(#[from] io::Error),
    /// There is no executor to connect on.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// Encrypted connections cannot be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A newer broker made the schema in PostgreSQL.
    #[error(
        "the schema queen at {server} has version {version}, this broker knows {known}: start the newer broker again"
    )]
    NewerSchema {
        /// Where.
        server: String,
        /// Its version.
        version: usize,
        /// This broker's.
        known: usize,
    },
    /// The schema in PostgreSQL is missing or older and may not be changed.
    #[error(
        "the schema queen at {server} has version {version}, this broker needs {known}: \
         start it once with QUEEN_APPLY_SCHEMA=true and a role that may change it"
    )]
    OlderSchema {
        /// Where.
        server: String,
        /// Its version; 0 where there is none.
        version: usize,
        /// This broker's.
        known: usize,
    },
}

impl StoreError {
    /// Whether another configuration would help, rather than a repair.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::Tls(_)
            | Self::NewerSchema { .. }
            | Self::OlderSchema { .. } => true,
            Self::Unusable { .. } | Self::Damaged { .. } | Self::Thread(_) | Self::Executor(_) => false,
        }
    }

    pub(crate) fn of(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged { path, source },
            _ => Self::Unusable { path, source },
        }
    }
}
