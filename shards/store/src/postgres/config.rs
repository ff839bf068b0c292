//! Where PostgreSQL is and how it is spoken to.

use std::{fmt, path::PathBuf, str::FromStr};

use tokio_postgres::{Config, config::Host};

/// How a connection is encrypted, and whether the server has to prove who it is. Never on unix-domain sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SslMode {
    /// Not at all.
    Disable,
    /// If the server can; its certificate is not looked at.
    #[default]
    Prefer,
    /// Always; its certificate is not looked at.
    Require,
    /// Always, with a certificate from somebody who is trusted.
    VerifyCa,
    /// That, and it is for the name that was connected to.
    VerifyFull,
}

impl SslMode {
    /// Every mode with the word for it.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("disable", Self::Disable),
        ("prefer", Self::Prefer),
        ("require", Self::Require),
        ("verify-ca", Self::VerifyCa),
        ("verify-full", Self::VerifyFull),
    ];
}

impl FromStr for SslMode {
    type Err = UnknownSslMode;

    fn from_str(word: &str) -> Result<Self, UnknownSslMode> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, mode)| *mode).ok_or(UnknownSslMode)
    }
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, mode)| mode == self);
        f.write_str(word.expect("every mode has a word").0)
    }
}

/// A word that is no mode.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of disable, prefer, require, verify-ca, verify-full")]
pub struct UnknownSslMode;

/// Why a text names no database.
#[derive(Debug, thiserror::Error)]
pub enum PostgresConfigError {
    /// It cannot be read.
    #[error("a PostgreSQL URL such as postgres://user:password@host:5432/database: {0}")]
    Unreadable(#[source] tokio_postgres::Error),
    /// Its `sslmode` is unknown.
    #[error("a PostgreSQL URL whose sslmode is one of disable, prefer, require, verify-ca, verify-full")]
    SslMode(#[from] UnknownSslMode),
    /// It names no host.
    #[error("a PostgreSQL URL that names a host")]
    NoHost,
}

/// Where PostgreSQL is and how it is spoken to. Shown without its password.
#[derive(Clone)]
pub struct PostgresConfig {
    /// Hosts, ports, user, password and database.
    pub(super) server: Config,
    pub(super) ssl_mode: SslMode,
    /// Whom to trust; the system's certificates when none is named.
    pub(super) ssl_root_cert: Option<PathBuf>,
    pub(super) pool_size: usize,
    pub(super) named_statements: bool,
    pub(super) apply_schema: bool,
}

/// What stands in settings of their own rather than in a URL.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// How connections are encrypted; a URL's `sslmode` wins.
    pub ssl_mode: SslMode,
    /// A file of PEM certificates to trust in place of the system's; a URL's `sslrootcert` wins.
    pub ssl_root_cert: Option<PathBuf>,
    /// Connections that commit, at most.
    pub pool_size: usize,
    /// Whether statements are prepared by name: not behind a pooler that hands out connections by transaction.
    pub named_statements: bool,
    /// Whether the schema is made and migrated, or only checked.
    pub apply_schema: bool,
}

/// A server, in parts.
#[derive(Clone)]
pub struct PostgresServer {
    /// A name, an address, or the directory of a unix-domain socket.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who to be; `postgres` when empty.
    pub user: String,
    /// None when empty.
    pub password: String,
    /// The database; named like the user when empty.
    pub database: String,
}

impl PostgresConfig {
    /// Of a server in parts.
    #[must_use]
    pub fn of_server(server: &PostgresServer, options: PostgresOptions) -> Self {
        let mut config = Config::new();
        let user = if server.user.is_empty() { "postgres" } else { &server.user };
        config.host(&server.host).port(server.port).user(user);
        if !server.password.is_empty() {
            config.password(&server.password);
        }
        config.dbname(if server.database.is_empty() { user } else { &server.database });
        Self::new(config, options)
    }

    /// Of a URL, or of `key=value` pairs.
    ///
    /// # Errors
    /// See [`PostgresConfigError`]: each reads on from "must be".
    pub fn of_url(url: &str, mut options: PostgresOptions) -> Result<Self, PostgresConfigError> {
        let (url, taken) = without_tls_parameters(url);
        for (name, value) in taken {
            match name {
                "sslmode" => options.ssl_mode = value.parse()?,
                _ => options.ssl_root_cert = Some(PathBuf::from(percent_decoded(&value))),
            }
        }
        let mut config: Config = url.parse().map_err(PostgresConfigError::Unreadable)?;
        if config.get_hosts().is_empty() {
            return Err(PostgresConfigError::NoHost);
        }
        if config.get_user().is_none() {
            config.user("postgres");
        }
        Ok(Self::new(config, options))
    }

    fn new(server: Config, options: PostgresOptions) -> Self {
        let PostgresOptions { ssl_mode, ssl_root_cert, pool_size, named_statements, apply_schema } = options;
        Self { server, ssl_mode, ssl_root_cert, pool_size: pool_size.max(1), named_statements, apply_schema }
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("server", &self.to_string())
            .field("ssl_mode", &self.ssl_mode)
            .field("pool_size", &self.pool_size)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for PostgresConfig {
    /// Hosts, database and user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, host) in self.server.get_hosts().iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match host {
                Host::Tcp(name) => write!(f, "{comma}{name}:{}", port(&self.server, at))?,
                Host::Unix(path) => write!(f, "{comma}{}", path.display())?,
            }
        }
        let user = self.server.get_user().unwrap_or_default();
        write!(f, "/{} as {user}", self.server.get_dbname().unwrap_or(user))
    }
}

/// The port of the host at a place in the list.
pub(super) fn port(server: &Config, at: usize) -> u16 {
    match server.get_ports() {
        [] => 5432,
        [only] => *only,
        ports => ports.get(at).copied().unwrap_or(5432),
    }
}

/// A URL without the parameters that say how to encrypt, and those: the parser knows fewer modes than there are.
fn without_tls_parameters(url: &str) -> (String, Vec<(&str, String)>) {
    const OURS: [&str; 2] = ["sslmode", "sslrootcert"];
    let split = |text: &str, separator: char| {
        let mut kept: Vec<String> = Vec::new();
        let mut taken = Vec::new();
        for pair in text.split(separator) {
            match pair.split_once('=') {
                Some((name, value)) if OURS.contains(&name) => {
                    let name = OURS[usize::from(name == OURS[1])];
                    taken.push((name, value.to_owned()));
                }
                _ => kept.push(pair.to_owned()),
            }
        }
        (kept.join(&separator.to_string()), taken)
    };
    if !url.contains("://") {
        return split(url, ' ');
    }
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), Vec::new()) };
    let (query, taken) = split(query, '&');
    let url = if query.is_empty() { base.to_owned() } else { format!("{base}?{query}") };
    (url, taken)
}

/// A value of a URL's query.
fn percent_decoded(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| value.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> PostgresOptions {
        PostgresOptions {
            ssl_mode: SslMode::Prefer,
            ssl_root_cert: None,
            pool_size: 4,
            named_statements: true,
            apply_schema: true,
        }
    }

    #[test]
    fn a_url_says_everything_and_is_shown_without_its_password() {
        let url = "postgres://ann:s%23cret@db.example:6000/queues?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&connect_timeout=3";
        let config = PostgresConfig::of_url(url, options()).expect("a URL");
        assert_eq!(config.ssl_mode, SslMode::VerifyFull);
        assert_eq!(config.ssl_root_cert, Some(PathBuf::from("/etc/ca.pem")));
        assert_eq!(config.server.get_password(), Some(&b"s#cret"[..]));
        assert_eq!(config.to_string(), "db.example:6000/queues as ann");
        assert!(!format!("{config:?}").contains("cret"));
    }

    #[test]
    fn a_socket_directory_is_a_host() {
        let config = PostgresConfig::of_url("postgres://ann@%2Frun%2Fpg:6001/q", options()).expect("a URL");
        assert_eq!(config.to_string(), "/run/pg/q as ann");
        let server = PostgresServer {
            host: "/run/pg".into(),
            port: 6001,
            user: String::new(),
            password: String::new(),
            database: String::new(),
        };
        assert_eq!(PostgresConfig::of_server(&server, options()).to_string(), "/run/pg/postgres as postgres");
    }

    #[test]
    fn what_names_no_database_is_refused() {
        let refused = |url| PostgresConfig::of_url(url, options()).expect_err("no database").to_string();
        assert!(refused("postgres://h/d?sslmode=maybe").contains("verify-full"));
        assert!(refused("postgres:///d").contains("host"));
        assert!(refused("postgres://h:port/d").contains("PostgreSQL URL"));
    }
}
