//! What is kept where: the settings of the store, and the database that they name.

use std::fmt;
use std::path::PathBuf;

use queen_store::{DatabaseConfig, PostgresConfig, PostgresOptions, PostgresServer, SslMode};

/// Where durable queues and declarations are kept.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    /// `PG_HOST`: a name, an address, or the directory of a unix-domain socket. Chooses PostgreSQL.
    pub host: Option<String>,
    /// `PG_PORT`
    pub port: u16,
    /// `PG_USER`
    pub user: Option<String>,
    /// `PG_PASSWORD`
    pub password: Option<Secret>,
    /// `PG_DATABASE`
    pub database: Option<String>,
    /// `PG_SSLMODE`
    pub ssl_mode: SslMode,
    /// `PG_SSLROOTCERT`
    pub ssl_root_cert: Option<String>,
    /// `DATABASE_URL`: in place of the parts. Chooses PostgreSQL.
    pub url: Option<Secret>,
    /// `DB_POOL_SIZE`: connections that commit.
    pub pool_size: u64,
    /// `QUEEN_PG_PREPARE`: whether statements are prepared by name.
    pub named_statements: bool,
    /// `QUEEN_APPLY_SCHEMA`: whether the schema is made and migrated, or only checked.
    pub apply_schema: bool,
    /// `POP_WAIT_MAX_INTERVAL_MS`: between two looks at what other brokers have written.
    pub pop_wait_max_interval_ms: u64,
    /// `QUEEN_LOG_CACHE_BYTES`: the newest messages, in memory.
    pub cache_bytes: u64,
    /// `QUEEN_CACHE_REFRESH_INTERVAL_MS`: between two looks at what was switched and granted elsewhere.
    pub cache_refresh_interval_ms: u64,
    /// `RETENTION_INTERVAL_MS`: between two removals of old messages.
    pub retention_interval_ms: u64,
}

impl Storage {
    /// The database that is named, or else the file in the data directory.
    ///
    /// # Panics
    /// Never for settings that were read: their URL was checked.
    #[must_use]
    pub fn config(&self) -> DatabaseConfig {
        let options = PostgresOptions {
            ssl_mode: self.ssl_mode,
            ssl_root_cert: self.ssl_root_cert.as_ref().map(PathBuf::from),
            pool_size: usize::try_from(self.pool_size).unwrap_or(usize::MAX),
            named_statements: self.named_statements,
            apply_schema: self.apply_schema,
        };
        let config = match (&self.url, &self.host) {
            (Some(url), _) => PostgresConfig::of_url(url.reveal(), options).expect("checked when it was read"),
            (None, Some(host)) => {
                let server = PostgresServer {
                    host: host.clone(),
                    port: self.port,
                    user: self.user.clone().unwrap_or_default(),
                    password: self.password.as_ref().map(|secret| secret.reveal().to_owned()).unwrap_or_default(),
                    database: self.database.clone().unwrap_or_default(),
                };
                PostgresConfig::of_server(&server, options)
            }
            (None, None) => return DatabaseConfig::Sqlite,
        };
        DatabaseConfig::Postgres(Box::new(config))
    }
}

/// Whether a text names a PostgreSQL.
pub(super) fn check_url(url: &str) -> Option<()> {
    let options = PostgresOptions {
        ssl_mode: SslMode::default(),
        ssl_root_cert: None,
        pool_size: 1,
        named_statements: true,
        apply_schema: true,
    };
    PostgresConfig::of_url(url, options).ok().map(drop)
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// What stands where it would be shown.
    pub(super) const HIDDEN: &str = "(not shown)";

    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::HIDDEN)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
