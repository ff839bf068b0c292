//! The data directory: made when it is missing, held by one process at a time.
//!
//! The lock is the kernel's (`flock`) on `queen.lock`, so it ends with the process however that
//! ends, and a file that was left behind stops nobody. The file's text, the holder's process id,
//! is for people.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

/// The name of the lock file.
const LOCK_FILE: &str = "queen.lock";

/// A data directory that this process holds until the value is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Held for its lock.
    _lock: File,
}

/// Why a data directory cannot be used. All of them are the configuration's: exit 2.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process has it.
    #[error("QUEEN_DATA_DIR={path:?} is held by process {holder}: stop it, or name another directory")]
    Held {
        /// The directory.
        path: PathBuf,
        /// The holder's process id, or what is known of it.
        holder: String,
    },
    /// It cannot be made or written.
    #[error("QUEEN_DATA_DIR={path:?} cannot be used: {source}: name a directory that this user may write")]
    Unusable {
        /// The directory, or the file in it.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl DataDir {
    /// Makes the directory when it is missing, its parents too, and locks it.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        let unusable = |source| DataDirError::Unusable { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(unusable)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK_FILE))
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DataDirError::Held { path: path.to_owned(), holder: holder(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        sign(&mut lock).map_err(unusable)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Leaves this process's id in the lock file.
fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

/// Who signed the lock file. The holder may be between locking and signing: then it is unknown.
fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    match lock.read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => "(unknown)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_made_with_its_parents() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        let held = DataDir::open(&path).unwrap();
        assert_eq!(held.path(), path);
        assert!(path.join(LOCK_FILE).is_file());
    }

    #[test]
    fn a_directory_that_is_held_names_its_holder() {
        let root = tempfile::tempdir().unwrap();
        let _held = DataDir::open(root.path()).unwrap();
        let error = DataDir::open(root.path()).unwrap_err();
        let DataDirError::Held { holder, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*holder, std::process::id().to_string());
        assert!(error.to_string().contains("QUEEN_DATA_DIR="));
    }

    #[test]
    fn a_directory_that_was_let_go_can_be_held_again() {
        let root = tempfile::tempdir().unwrap();
        drop(DataDir::open(root.path()).unwrap());
        DataDir::open(root.path()).unwrap();
    }

    #[test]
    fn a_lock_file_that_a_dead_process_left_stops_nobody() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(LOCK_FILE), "4194304000\n").unwrap();
        DataDir::open(root.path()).unwrap();
        let text = fs::read_to_string(root.path().join(LOCK_FILE)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_path_that_is_a_file_is_named_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        fs::write(&path, "").unwrap();
        let error = DataDir::open(&path).unwrap_err();
        assert!(matches!(error, DataDirError::Unusable { .. }));
        assert!(error.to_string().contains("file"), "{error}");
    }
}
