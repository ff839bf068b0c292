//! The certificate of the HTTP port: read at boot, read again at SIGHUP, handed to every new connection.
//!
//! Connections that are open keep what they were made with, so a reload drops none of them.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig, ServerConnection,
    crypto::aws_lc_rs::{self, Ticketer},
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::NoServerSessionStorage,
};

/// A certificate that ends so soon is worth a warning.
const ENDS_SOON_S: i64 = 14 * 24 * 3600;

/// Why there is no TLS to be had from the two files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The chain of certificates.
    #[error("QUEEN_TLS_CERT: {path:?} {reason}; name a file of PEM certificates, the broker's own first")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The key.
    #[error("QUEEN_TLS_KEY: {path:?} {reason}; name a file with the certificate's private key, PEM and not encrypted")]
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
    /// When the certificate ends, in seconds since 1970.
    ends_s: AtomicI64,
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
        let Pair { config, ends_s } = read(&certificate, &key)?;
        Ok(Self { certificate, key, config: ArcSwap::from_pointee(config), ends_s: AtomicI64::new(ends_s) })
    }

    /// Reads the files again, for the connections that come from here on. Blocks on the disk.
    ///
    /// # Errors
    /// See [`TlsError`]: what was in force stays so.
    pub fn reload(&self) -> Result<(), TlsError> {
        let Pair { config, ends_s } = read(&self.certificate, &self.key)?;
        self.config.store(Arc::new(config));
        self.ends_s.store(ends_s, Ordering::Relaxed);
        Ok(())
    }

    /// Says until when the certificate is good, louder when that is soon or over.
    pub fn log_end(&self) {
        let ends_s = self.ends_s();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let left_s = ends_s - i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
        let at = UNIX_EPOCH + Duration::from_secs(u64::try_from(ends_s).unwrap_or(0));
        let at = humantime::format_rfc3339_seconds(at);
        if left_s <= 0 {
            tracing::warn!("the certificate of the HTTP port is over since {at}: clients refuse it");
        } else if left_s < ENDS_SOON_S {
            tracing::warn!("the certificate of the HTTP port ends at {at}");
        } else {
            tracing::info!("the certificate of the HTTP port is good until {at}");
        }
    }

    /// When the certificate ends, in seconds since 1970.
    pub(crate) fn ends_s(&self) -> i64 {
        self.ends_s.load(Ordering::Relaxed)
    }

    /// The broker's side of a new connection.
    pub(crate) fn accept(&self) -> io::Result<ServerConnection> {
        ServerConnection::new(self.config.load_full()).map_err(io::Error::other)
    }
}

/// What was read, and goes together.
struct Pair {
    config: ServerConfig,
    ends_s: i64,
}

fn read(certificate: &Path, key: &Path) -> Result<Pair, TlsError> {
    let no_certificate = |reason: String| TlsError::Certificate { path: certificate.to_owned(), reason };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| no_certificate(fault(&error)))?;
    let Some(own) = chain.first() else {
        return Err(no_certificate("holds no PEM certificate".to_owned()));
    };
    let (_, parsed) = x509_parser::parse_x509_certificate(own)
        .map_err(|_| no_certificate("holds what is no certificate".to_owned()))?;
    let ends_s = parsed.validity().not_after.timestamp();
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| TlsError::Key { path: key.to_owned(), reason: fault(&error) })?;
    let config = config(chain, private).map_err(|reason| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        reason,
    })?;
    Ok(Pair { config, ends_s })
}

/// What is wrong with a file, to be read behind its name.
fn fault(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        pem::Error::NoItemsFound => "holds nothing of the kind in PEM".to_owned(),
        other => format!("is no PEM: {other}"),
    }
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
