//! What this broker is called among others: the same over restarts, and its own.
//!
//! `QUEEN_SERVER_ID`, or else an id that is made at the first start and kept in the data directory: the host's name, a dash
//! and eight hexadecimal digits, so that brokers of one host have ids of their own.

use std::{
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use queen_wire::mesh::{SERVER_ID_BYTES_MAX, is_server_id};

/// The file in the data directory.
const ID_FILE: &str = "server-id";

/// Why there is no id.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("{path:?} cannot be used: {source}: name this broker by QUEEN_SERVER_ID, or make the file readable")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file holds no id.
    #[error("{path:?} holds no server id: name this broker by QUEEN_SERVER_ID, or remove the file")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

/// The id that was set, or the one that the data directory keeps, made if need be.
///
/// # Errors
/// See [`IdentityError`].
pub fn server_id(set: Option<&str>, data_dir: &Path) -> Result<String, IdentityError> {
    if let Some(id) = set {
        return Ok(id.to_owned());
    }
    let path = data_dir.join(ID_FILE);
    match fs::read_to_string(&path) {
        Ok(text) if is_server_id(text.trim_end()) => Ok(text.trim_end().to_owned()),
        Ok(_) => Err(IdentityError::Malformed { path }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = made(&rustix::system::uname().nodename().to_string_lossy());
            keep(&id, data_dir, &path).map_err(|source| IdentityError::Unusable { path, source })?;
            Ok(id)
        }
        Err(source) => Err(IdentityError::Unusable { path, source }),
    }
}

fn made(host: &str) -> String {
    let digits = format!("-{:08x}", RandomState::new().hash_one(std::process::id()) as u32);
    let fits = |char: &char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
    let host: String = host.chars().filter(fits).take(SERVER_ID_BYTES_MAX - digits.len()).collect();
    format!("{}{digits}", if host.is_empty() { "queen" } else { &host })
}

/// Writes the file whole or not at all.
fn keep(id: &str, data_dir: &Path, path: &Path) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(data_dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let id = server_id(None, dir.path()).unwrap();
        assert!(is_server_id(&id), "{id}");
        assert_eq!(id.rsplit_once('-').unwrap().1.len(), 8);
        assert_eq!(server_id(None, dir.path()).unwrap(), id);
        assert_ne!(server_id(None, tempfile::tempdir().unwrap().path()).unwrap(), id);
    }

    #[test]
    fn an_id_that_was_set_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(server_id(Some("queen-1"), dir.path()).unwrap(), "queen-1");
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    }

    #[test]
    fn whatever_a_host_is_called_its_id_is_one() {
        for host in ["", "a b\"c", "büro", &"x".repeat(500)] {
            assert!(is_server_id(&made(host)), "{host}");
        }
    }

    #[test]
    fn a_file_that_holds_no_id_is_named_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "two words\n"] {
            fs::write(dir.path().join(ID_FILE), text).unwrap();
            let error = server_id(None, dir.path()).unwrap_err().to_string();
            assert!(error.contains(ID_FILE) && error.contains("QUEEN_SERVER_ID"), "{error}");
        }
    }
}
