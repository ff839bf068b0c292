//! The certificate of the HTTP port: read at boot, read again at SIGHUP, handed to every new connection.
//!
//! Connections that are open keep what they were made with, so a reload drops none of them.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig, ServerConnection,
    crypto::aws_lc_rs::{self, Ticketer},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::NoServerSessionStorage,
};

/// Why there is no TLS to be had from the two files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The chain of certificates.
    #[error("QUEEN_TLS_CERT: {path:?} holds no chain of PEM certificates: {reason}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The key.
    #[error("QUEEN_TLS_KEY: {path:?} holds no PEM private key: {reason}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Each is well, and they do not belong together; or the key is of no kind that TLS takes.
    #[error("QUEEN_TLS_CERT, QUEEN_TLS_KEY: {certificate:?} and {key:?} cannot be used together: {reason}")]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What rustls says.
        reason: rustls::Error,
    },
}

/// The certificate and key that are in force.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    config: ArcSwap<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.certificate).field("key", &self.key).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads a chain of certificates, the server's first, and its private key, both PEM. Blocks on the disk.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn load(certificate: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let config = ArcSwap::from_pointee(read(&certificate, &key)?);
        Ok(Self { certificate, key, config })
    }

    /// Reads the files again, for the connections that come from here on. Blocks on the disk.
    ///
    /// # Errors
    /// See [`TlsError`]: what was in force stays so.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.config.store(Arc::new(read(&self.certificate, &self.key)?));
        Ok(())
    }

    /// The broker's side of a new connection.
    pub(crate) fn accept(&self) -> io::Result<ServerConnection> {
        ServerConnection::new(self.config.load_full()).map_err(io::Error::other)
    }
}

fn read(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let no_certificate = |reason: String| TlsError::Certificate { path: certificate.to_owned(), reason };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| no_certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(no_certificate("it has no BEGIN CERTIFICATE".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| TlsError::Key { path: key.to_owned(), reason: error.to_string() })?;
    config(chain, private).map_err(|reason| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        reason,
    })
}

/// TLS 1.3 and 1.2 with HTTP/1.1 inside. A client that comes back resumes by a ticket that it holds itself: no session
/// is kept here, so there is nothing for shards to share but the key of the tickets.
fn config(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new()?;
    config.send_tls13_tickets = 1;
    Ok(config)
}
