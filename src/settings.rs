//! Every setting of the broker: read from the environment, checked together, typed.
//!
//! [`table`] is the one list: `--help`, the README's table, `--check-config` and the boot log are
//! made from it. This file owns the typed result and the checks that need more than one setting.
//! Pure: the environment comes in as a function, so a test is a closure. Called by `boot` alone.

pub mod jwt;
mod kind;
mod mesh;
mod render;
mod storage;
mod table;
mod unknown;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use queen_fabric::placement::CpuList;

use jwt::Jwt;
pub use mesh::Mesh;
pub use render::{effective, help, markdown, non_default};
pub use storage::Storage;
pub use unknown::unknown_names;

/// The settings in force, every value within its range and all of them agreeing.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients connect.
    pub listen: Listen,
    /// Limits of the HTTP edge.
    pub http: Http,
    /// Which cores do what.
    pub cores: Cores,
    /// The data directory and how the process ends.
    pub process: Process,
    /// Where durable queues are kept.
    pub storage: Storage,
    /// Limits and defaults of ephemeral queues.
    pub ephemeral: Ephemeral,
    /// The other brokers.
    pub mesh: Mesh,
    /// Who may do what.
    pub jwt: Jwt,
    /// What is logged, and how.
    pub log: Log,
}

/// Where clients connect.
#[derive(Clone, Debug)]
pub struct Listen {
    /// `QUEEN_BIND_ADDR`.
    pub bind_addr: IpAddr,
    /// `PORT`; 0 lets the kernel choose.
    pub port: u16,
    /// `QUEEN_TLS_CERT`: set with the key or not at all.
    pub tls_certificate: Option<String>,
    /// `QUEEN_TLS_KEY`
    pub tls_key: Option<String>,
}

impl Listen {
    /// The files of certificate and key, if the port speaks TLS.
    #[must_use]
    pub fn tls(&self) -> Option<(PathBuf, PathBuf)> {
        Some((self.tls_certificate.as_ref()?.into(), self.tls_key.as_ref()?.into()))
    }
}

/// Limits of the HTTP edge.
#[derive(Clone, Debug, Default)]
pub struct Http {
    /// `QUEEN_MAX_BODY_BYTES`: the largest request body.
    pub max_body_bytes: u64,
    /// `QUEEN_HTTP_MAX_BUFFERED_BYTES`: unfinished request bodies, all together.
    pub max_buffered_bytes: u64,
    /// `QUEEN_HTTP_MAX_CONNECTIONS`; `None` is worked out from the open-file limit.
    pub max_connections: Option<u64>,
    /// `QUEEN_HTTP_HEADER_TIMEOUT_MS`: from a request's first byte to the end of its head.
    pub header_timeout_ms: u64,
    /// `QUEEN_HTTP_IDLE_TIMEOUT_MS`: between requests, and between two reads of a body.
    pub idle_timeout_ms: u64,
    /// `QUEEN_JSON_DEPTH_MAX`: the deepest nesting of a payload.
    pub json_depth_max: u64,
    /// `QUEEN_TENANCY_HEADER`: whether `x-queen-tenant` names the tenant.
    pub tenancy_header: bool,
}

/// Which cores do what; `None` is worked out from the cores the process may use.
#[derive(Clone, Debug, Default)]
pub struct Cores {
    /// `QUEEN_DATA_CPUS`.
    pub data: Option<CpuList>,
    /// `QUEEN_MESH_CPU`.
    pub mesh: Option<usize>,
    /// `QUEEN_STORE_CPU`.
    pub store: Option<usize>,
    /// `QUEEN_SPIN_US`: how long an idle executor polls before it sleeps.
    pub spin_us: Option<u64>,
}

/// The data directory and how the process ends.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// `QUEEN_DATA_DIR`.
    pub data_dir: PathBuf,
    /// `QUEEN_SHUTDOWN_GRACE_MS`: how long a stop waits for requests in flight.
    pub shutdown_grace_ms: u64,
}

/// Limits and defaults of ephemeral queues.
#[derive(Clone, Debug, Default)]
pub struct Ephemeral {
    /// `QUEEN_EPHEMERAL_MAX_BYTES`: what the node holds, payloads and records.
    pub max_bytes: u64,
    /// `QUEEN_EPHEMERAL_QUEUE_MAX_BYTES`: ceiling and default of `maxBytes`.
    pub queue_max_bytes: u64,
    /// `QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH`: ceiling and default of `maxLength`.
    pub queue_max_length: u64,
    /// `QUEEN_EPHEMERAL_LEASE_S`: default of `leaseSeconds`.
    pub lease_s: u64,
    /// `QUEEN_EPHEMERAL_RETRY_LIMIT`: default of `retryLimit`.
    pub retry_limit: u64,
    /// `QUEEN_EPHEMERAL_IMPLICIT_IDLE_S`: after it an empty, undeclared queue is collected.
    pub implicit_idle_s: u64,
    /// `QUEEN_EPHEMERAL_GROUP_IDLE_S`: after it a group nobody pops is forgotten; 0 keeps it.
    pub group_idle_s: u64,
    /// `QUEEN_EPHEMERAL_MEMBER_TTL_MS`: after it a silent node's partitions are placed anew.
    pub member_ttl_ms: u64,
    /// `QUEEN_EPHEMERAL_MAX_QUEUES`: on this node.
    pub max_queues: u64,
    /// `QUEEN_EPHEMERAL_MAX_PARTITIONS_PER_QUEUE`.
    pub max_partitions_per_queue: u64,
    /// `QUEEN_EPHEMERAL_MAX_GROUPS_PER_QUEUE`.
    pub max_groups_per_queue: u64,
    /// `QUEEN_EPHEMERAL_MAX_PARKED`: pops that wait, on this node.
    pub max_parked: u64,
    /// `QUEEN_EPHEMERAL_RATE`: messages a second and tenant; 0 is no limit.
    pub rate: u64,
    /// `QUEEN_EPHEMERAL_REQUIRE_GRANT`; `None` is wherever there are tenants, see [`Settings::requires_grant`].
    pub require_grant: Option<bool>,
    /// `QUEEN_EPHEMERAL_BURST`; `None` is twice the rate, see [`Ephemeral::burst`].
    pub burst: Option<u64>,
}

impl Ephemeral {
    /// How many messages a tenant may push at once, on top of a quiet second: what was set, or
    /// twice the rate.
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst.unwrap_or(self.rate.saturating_mul(2))
    }
}

/// What is logged, and how.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// `LOG_LEVEL`.
    pub level: LogLevel,
    /// `RUST_LOG`: a filter in the form of `tracing-subscriber`; wins over the level.
    pub filter: Option<String>,
    /// `QUEEN_LOG_JSON`: a JSON object a line instead of text.
    pub json: bool,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Only what failed.
    Error,
    /// And what may fail soon.
    Warn,
    /// And what an operator wants to see once.
    #[default]
    Info,
    /// And decisions on the way.
    Debug,
    /// And everything that debug builds know.
    Trace,
}

impl LogLevel {
    /// Every level with the word that names it.
    const WORDS: [(&'static str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, level)| level == self);
        f.write_str(word.expect("every level has a word").0)
    }
}

/// One setting that stops the boot: which, what it said, what would be right.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?}: must be {right}")]
pub struct SettingError {
    /// The variable as it was set (an alias when that was set).
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What would be right, to be read after "must be".
    pub right: String,
}

impl Settings {
    /// Whether a tenant needs a grant to use ephemeral queues: what was set, or whether there are tenants at all.
    #[must_use]
    pub fn requires_grant(&self) -> bool {
        self.ephemeral.require_grant.unwrap_or(self.http.tenancy_header)
    }

    /// Reads every setting through `lookup`; one that is unset or empty takes its default.
    ///
    /// # Errors
    /// Everything that is wrong, in the table's order: values that do not parse or are out of
    /// range, aliases that contradict each other, and, once each value stands alone, settings
    /// that contradict each other.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Settings, Vec<SettingError>> {
        let mut settings = Settings {
            listen: Listen { bind_addr: IpAddr::from([0, 0, 0, 0]), port: 0, tls_certificate: None, tls_key: None },
            http: Http::default(),
            cores: Cores::default(),
            process: Process::default(),
            storage: Storage::default(),
            ephemeral: Ephemeral::default(),
            mesh: Mesh::default(),
            jwt: Jwt::default(),
            log: Log::default(),
        };
        let mut errors = Vec::new();
        for row in table::TABLE {
            if let Err(error) = row.read(&lookup, &mut settings) {
                errors.push(error);
            }
        }
        // A range that failed leaves no value to compare others with.
        errors.extend(
            contradictions(&settings)
                .into_iter()
                .filter(|found| !found.involves_any(&errors))
                .map(|found| found.error)
                .collect::<Vec<_>>(),
        );
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }
}

impl Default for Settings {
    /// The settings of an empty environment.
    fn default() -> Self {
        Self::from_env(|_| None).expect("the table's defaults are valid and agree")
    }
}

/// Settings that are each in range and do not go together.
struct Contradiction {
    error: SettingError,
    others: Vec<&'static str>,
}

impl Contradiction {
    fn involves_any(&self, errors: &[SettingError]) -> bool {
        errors.iter().any(|error| error.name == self.error.name || self.others.contains(&error.name))
    }
}

/// The checks that need two settings or more: each names the one to change and those it must fit.
fn contradictions(settings: &Settings) -> Vec<Contradiction> {
    let mut found = Vec::new();
    let mut must = |holds: bool, name, value: String, relation: &str, other, limit: u64| {
        if !holds {
            let right = format!("{relation} {other} ({limit})");
            found.push(Contradiction { error: SettingError { name, value, right }, others: vec![other] });
        }
    };
    let (http, ephemeral) = (&settings.http, &settings.ephemeral);
    must(
        http.max_buffered_bytes >= http.max_body_bytes,
        "QUEEN_HTTP_MAX_BUFFERED_BYTES",
        http.max_buffered_bytes.to_string(),
        "at least",
        "QUEEN_MAX_BODY_BYTES",
        http.max_body_bytes,
    );
    must(
        ephemeral.queue_max_bytes <= ephemeral.max_bytes,
        "QUEEN_EPHEMERAL_QUEUE_MAX_BYTES",
        ephemeral.queue_max_bytes.to_string(),
        "at most",
        "QUEEN_EPHEMERAL_MAX_BYTES",
        ephemeral.max_bytes,
    );
    must(
        ephemeral.burst() >= ephemeral.rate,
        "QUEEN_EPHEMERAL_BURST",
        ephemeral.burst().to_string(),
        "at least",
        "QUEEN_EPHEMERAL_RATE",
        ephemeral.rate,
    );
    let mesh = &settings.mesh;
    for (name, value) in [
        ("QUEEN_SYNC_DEAD_THRESHOLD_MS", mesh.dead_threshold_ms),
        ("QUEEN_EPHEMERAL_MEMBER_TTL_MS", ephemeral.member_ttl_ms),
    ] {
        // A peer that is well is heard of once an interval.
        must(
            value >= mesh.heartbeat_ms.saturating_mul(2),
            name,
            value.to_string(),
            "at least twice",
            "QUEEN_SYNC_HEARTBEAT_MS",
            mesh.heartbeat_ms,
        );
    }
    if mesh.enabled && mesh.peers.is_some() {
        must(
            mesh.port != settings.listen.port || mesh.port == 0,
            "QUEEN_MESH_PORT",
            mesh.port.to_string(),
            "another than",
            "PORT",
            settings.listen.port.into(),
        );
        if mesh.port == 0 {
            let right = "a port from 1 to 65535 where QUEEN_MESH_PEERS is set: peers have to know it".to_owned();
            let error = SettingError { name: "QUEEN_MESH_PORT", value: "0".to_owned(), right };
            found.push(Contradiction { error, others: vec!["QUEEN_MESH_PEERS"] });
        }
    }
    let half = match (&settings.listen.tls_certificate, &settings.listen.tls_key) {
        (Some(set), None) => Some(("QUEEN_TLS_CERT", set, "QUEEN_TLS_KEY")),
        (None, Some(set)) => Some(("QUEEN_TLS_KEY", set, "QUEEN_TLS_CERT")),
        _ => None,
    };
    if let Some((name, value, other)) = half {
        let right = format!("unset, or {other} set too: a port that speaks TLS needs both");
        found.push(Contradiction { error: SettingError { name, value: value.clone(), right }, others: vec![other] });
    }
    let storage = &settings.storage;
    if let (Some(url), Some(_)) = (&storage.url, &storage.host) {
        let right = "unset where PG_HOST is set: each of them names the PostgreSQL to use".to_owned();
        let error = SettingError { name: "DATABASE_URL", value: url.to_string(), right };
        found.push(Contradiction { error, others: vec!["PG_HOST"] });
    }
    if let (None, None) = (&storage.url, &storage.host) {
        // Whoever sets these means a PostgreSQL: to keep messages in a file instead would be noticed too late.
        let parts = [
            ("PG_USER", storage.user.clone()),
            ("PG_PASSWORD", storage.password.as_ref().map(ToString::to_string)),
            ("PG_DATABASE", storage.database.clone()),
        ];
        for (name, value) in parts {
            let Some(value) = value else { continue };
            let right = "unset, or PG_HOST set: nothing names the PostgreSQL that it is for".to_owned();
            found.push(Contradiction { error: SettingError { name, value, right }, others: vec!["PG_HOST"] });
        }
    }
    if settings.jwt.enabled && !settings.jwt.has_key() {
        let others = vec!["JWT_SECRET", "JWT_PUBLIC_KEY", "JWT_JWKS_URL"];
        let right = "false, or JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL set".to_owned();
        let error = SettingError { name: "JWT_ENABLED", value: settings.jwt.enabled.to_string(), right };
        found.push(Contradiction { error, others });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::jwt::PublicKeySource;
    use super::*;
    use queen_store::DatabaseConfig;

    fn read(vars: &[(&str, &str)]) -> Result<Settings, Vec<SettingError>> {
        Settings::from_env(|name| vars.iter().find(|(var, _)| *var == name).map(|(_, value)| (*value).to_owned()))
    }

    fn errors(vars: &[(&str, &str)]) -> Vec<String> {
        read(vars).expect_err("these settings are wrong").iter().map(SettingError::to_string).collect()
    }

    #[test]
    fn an_empty_environment_gives_the_documented_defaults() {
        let settings = Settings::default();
        assert_eq!(settings.listen.port, 6632);
        assert_eq!(settings.listen.bind_addr, IpAddr::from([0, 0, 0, 0]));
        assert_eq!(settings.http.max_body_bytes, 67_108_864);
        assert_eq!(settings.http.max_buffered_bytes, 268_435_456);
        assert_eq!(settings.http.max_connections, None);
        assert_eq!(settings.http.json_depth_max, 128);
        assert!(!settings.http.tenancy_header);
        assert_eq!(settings.process.data_dir, PathBuf::from("./queen-data"));
        assert_eq!(settings.process.shutdown_grace_ms, 10_000);
        assert_eq!(settings.storage.port, 5432);
        assert_eq!(settings.storage.pool_size, 16);
        assert!(settings.storage.named_statements && settings.storage.apply_schema);
        assert_eq!(settings.storage.cache_bytes, 268_435_456);
        assert_eq!(settings.ephemeral.max_bytes, 268_435_456);
        assert_eq!(settings.ephemeral.queue_max_length, 10_000);
        assert_eq!(settings.ephemeral.group_idle_s, 3600);
        assert_eq!(settings.ephemeral.rate, 0);
        assert_eq!(settings.ephemeral.burst(), 0);
        assert!(!settings.jwt.enabled && !settings.jwt.has_key());
        assert_eq!(settings.jwt.tenant_claim, "tenant_id");
        assert_eq!(settings.jwt.skip_paths, ["/health", "/metrics/prometheus", "/metrics", "/"]);
        assert_eq!(settings.log.level, LogLevel::Info);
        assert_eq!(settings.log.filter, None);
    }

    #[test]
    fn every_bad_setting_is_named_with_its_value_and_what_would_be_right() {
        assert_eq!(
            errors(&[
                ("PORT", "66320"),
                ("QUEEN_BIND_ADDR", "everywhere"),
                ("QUEEN_LOG_JSON", "maybe"),
                ("QUEEN_EPHEMERAL_LEASE_S", "1.5"),
            ]),
            [
                "PORT=\"66320\": must be a whole number from 0 to 65535",
                "QUEEN_BIND_ADDR=\"everywhere\": must be an IPv4 or IPv6 address such as 0.0.0.0 or ::",
                "QUEEN_EPHEMERAL_LEASE_S=\"1.5\": must be a whole number from 1 to 86400",
                "QUEEN_LOG_JSON=\"maybe\": must be one of true, false, 1, 0, yes, no, on, off",
            ]
        );
    }

    #[test]
    fn an_empty_value_counts_as_unset() {
        let settings = read(&[("PORT", ""), ("QUEEN_LOG_JSON", ""), ("RUST_LOG", "")]).unwrap();
        assert_eq!(settings.listen.port, 6632);
        assert!(!settings.log.json);
        assert_eq!(settings.log.filter, None);
    }

    #[test]
    fn a_boolean_takes_eight_words_in_any_case() {
        for word in ["true", "1", "yes", "on", "TRUE", "Yes", "oN"] {
            assert!(read(&[("QUEEN_TENANCY_HEADER", word)]).unwrap().http.tenancy_header);
        }
        for word in ["false", "0", "no", "off", "False", "NO"] {
            assert!(!read(&[("QUEEN_TENANCY_HEADER", word)]).unwrap().http.tenancy_header);
        }
    }

    #[test]
    fn a_host_or_a_url_chooses_postgresql_and_both_are_refused() {
        assert!(matches!(Settings::default().storage.config(), DatabaseConfig::Sqlite));
        let shown = |vars| format!("{:?}", read(vars).unwrap().storage.config());
        let parts = shown(&[("PG_HOST", "db"), ("PG_PORT", "6000"), ("PG_USER", "ann"), ("PG_PASSWORD", "s3cret")]);
        assert!(parts.contains("db:6000/ann as ann"), "{parts}");
        let url = "postgres://ann:s3cret@db/queues?sslmode=verify-full";
        assert!(shown(&[("DATABASE_URL", url)]).contains("db:5432/queues as ann"));
        assert_eq!(
            errors(&[("DATABASE_URL", url), ("PG_HOST", "db")]),
            [
                "DATABASE_URL=\"(not shown)\": must be unset where PG_HOST is set: each of them names the PostgreSQL to use"
            ]
        );
        assert_eq!(
            errors(&[("PG_PASSWORD", "s3cret")]),
            ["PG_PASSWORD=\"(not shown)\": must be unset, or PG_HOST set: nothing names the PostgreSQL that it is for"]
        );
        assert!(errors(&[("PG_SSLMODE", "maybe")])[0].contains("verify-ca"));
    }

    #[test]
    fn a_certificate_needs_its_key_and_a_key_its_certificate() {
        let both = read(&[("QUEEN_TLS_CERT", "c.pem"), ("QUEEN_TLS_KEY", "k.pem")]).unwrap();
        assert_eq!(both.listen.tls(), Some(("c.pem".into(), "k.pem".into())));
        assert_eq!(
            errors(&[("QUEEN_TLS_CERT", "c.pem")]),
            ["QUEEN_TLS_CERT=\"c.pem\": must be unset, or QUEEN_TLS_KEY set too: a port that speaks TLS needs both"]
        );
        assert_eq!(
            errors(&[("QUEEN_TLS_KEY", "k.pem")]),
            ["QUEEN_TLS_KEY=\"k.pem\": must be unset, or QUEEN_TLS_CERT set too: a port that speaks TLS needs both"]
        );
    }

    #[test]
    fn a_password_is_never_shown() {
        let url = "postgres://ann:s3cret@db/queues";
        for vars in
            [&[("DATABASE_URL", url)][..], &[("PG_HOST", "db"), ("PG_PASSWORD", "s3cret")], &[("JWT_SECRET", "s3cret")]]
        {
            let settings = read(vars).unwrap();
            let shown = format!("{settings:?} {} {:?}", effective(&settings), non_default(&settings));
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains("(not shown)"));
        }
        let said = errors(&[("DATABASE_URL", "postgres://ann:s3cret@db:port/queues")]);
        assert!(!said[0].contains("s3cret") && said[0].contains("postgres://user:password@host"), "{said:?}");
    }

    const P256_PUBLIC: &str = include_str!("../shards/auth/tests/keys/p256-public.pem");
    const P256_PRIVATE: &str = include_str!("../shards/auth/tests/keys/p256.pem");

    #[test]
    fn tokens_are_not_asked_for_without_a_key_to_verify_them() {
        let said = ["JWT_ENABLED=\"true\": must be false, or JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL set"];
        assert_eq!(errors(&[("JWT_ENABLED", "yes")]), said);
        assert_eq!(errors(&[("JWT_ENABLED", "yes"), ("JWT_SECRET", "")]), said);
        for key in [("JWT_SECRET", "s3cret"), ("JWT_PUBLIC_KEY", P256_PUBLIC), ("JWT_JWKS_URL", "http://[::1]:1/k")] {
            assert!(read(&[("JWT_ENABLED", "yes"), key]).expect("a key is set").jwt.enabled);
        }
        let alone = errors(&[("JWT_ENABLED", "yes"), ("JWT_JWKS_URL", "issuer")]);
        assert_eq!(alone.len(), 1, "a key that is wrong is not missing besides: {alone:?}");
    }

    #[test]
    fn a_public_key_is_read_as_pem_or_taken_as_a_path_and_never_shown() {
        let escaped = P256_PUBLIC.replace('\n', "\\n");
        for pem in [P256_PUBLIC, escaped.as_str()] {
            let settings = read(&[("JWT_PUBLIC_KEY", pem)]).expect("a public key");
            assert!(matches!(settings.jwt.public_key, Some(PublicKeySource::Pem(_))));
            assert!(effective(&settings).contains("# JWT_PUBLIC_KEY: set (not shown)"));
        }
        let path = read(&[("JWT_PUBLIC_KEY", "/keys/public.pem")]).expect("a path").jwt.public_key;
        assert_eq!(path, Some(PublicKeySource::File("/keys/public.pem".into())));
        let said = errors(&[("JWT_PUBLIC_KEY", P256_PRIVATE)]);
        assert!(
            said[0].starts_with("JWT_PUBLIC_KEY=\"(not shown)\": must be an RSA public key of 2048 bits"),
            "{said:?}"
        );
    }

    #[test]
    fn a_url_of_keys_holds_no_password_and_one_that_does_is_not_shown() {
        let shown = |url| effective(&read(&[("JWT_JWKS_URL", url)]).expect("a URL"));
        let url = "https://issuer.example:8443/keys";
        assert!(shown(url).contains(&format!("JWT_JWKS_URL={url}\n")));
        let shown = shown("https://issuer.example:8443/keys?key=s3cret");
        assert!(shown.contains(&format!("JWT_JWKS_URL={url}?(not shown)\n")), "{shown}");
        for url in [
            "issuer",
            "/keys",
            "ftp://issuer/keys",
            "https://",
            "https:///keys",
            "http://a b/",
            "https://ann:s3cret@issuer/keys",
        ] {
            let said = errors(&[("JWT_JWKS_URL", url)]);
            assert!(said[0].contains("must be an http or https URL"), "{said:?}");
            assert!(!said[0].contains("s3cret"), "{said:?}");
        }
    }

    #[test]
    fn paths_that_need_no_token_begin_with_a_slash() {
        let paths = |text| read(&[("JWT_SKIP_PATHS", text)]).map(|settings| settings.jwt.skip_paths);
        assert_eq!(paths("/health, /a/b").expect("two paths"), ["/health", "/a/b"]);
        for text in ["health", "/health,", "/health,,/", ","] {
            assert!(paths(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_alias_stands_for_its_setting() {
        let settings = read(&[("HOST", "127.0.0.1")]).unwrap();
        assert_eq!(settings.listen.bind_addr, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(
            errors(&[("HOST", "here")]),
            ["HOST=\"here\": must be an IPv4 or IPv6 address such as 0.0.0.0 or ::"]
        );
    }

    #[test]
    fn an_alias_that_says_the_same_is_no_error_and_one_that_differs_is() {
        assert!(read(&[("HOST", "::1"), ("QUEEN_BIND_ADDR", "::1")]).is_ok());
        assert_eq!(
            errors(&[("HOST", "::1"), ("QUEEN_BIND_ADDR", "::")]),
            ["HOST=\"::1\": must be unset or the same as QUEEN_BIND_ADDR (\"::\")"]
        );
    }

    #[test]
    fn settings_that_contradict_each_other_are_named_together_with_values_out_of_range() {
        assert_eq!(
            errors(&[
                ("PORT", "-1"),
                ("QUEEN_EPHEMERAL_MAX_BYTES", "1048576"),
                ("QUEEN_EPHEMERAL_QUEUE_MAX_BYTES", "2097152"),
                ("QUEEN_HTTP_MAX_BUFFERED_BYTES", "65536"),
                ("QUEEN_EPHEMERAL_RATE", "100"),
                ("QUEEN_EPHEMERAL_BURST", "99"),
            ]),
            [
                "PORT=\"-1\": must be a whole number from 0 to 65535",
                "QUEEN_HTTP_MAX_BUFFERED_BYTES=\"65536\": must be at least QUEEN_MAX_BODY_BYTES (67108864)",
                "QUEEN_EPHEMERAL_QUEUE_MAX_BYTES=\"2097152\": must be at most QUEEN_EPHEMERAL_MAX_BYTES (1048576)",
                "QUEEN_EPHEMERAL_BURST=\"99\": must be at least QUEEN_EPHEMERAL_RATE (100)",
            ]
        );
    }

    #[test]
    fn peers_have_to_know_the_port_of_the_mesh() {
        let peers = ("QUEEN_MESH_PEERS", "queen-2");
        assert_eq!(
            errors(&[peers, ("PORT", "7000"), ("QUEEN_MESH_PORT", "7000")]),
            ["QUEEN_MESH_PORT=\"7000\": must be another than PORT (7000)"]
        );
        assert_eq!(
            errors(&[peers, ("PORT", "0"), ("QUEEN_MESH_PORT", "0")]),
            [
                "QUEEN_MESH_PORT=\"0\": must be a port from 1 to 65535 where QUEEN_MESH_PEERS is set: peers have to know it"
            ]
        );
        assert!(read(&[("PORT", "7000"), ("QUEEN_MESH_PORT", "7000")]).is_ok(), "nothing is listened for");
    }

    #[test]
    fn a_setting_that_does_not_parse_contradicts_nothing() {
        assert_eq!(errors(&[("QUEEN_HTTP_MAX_BUFFERED_BYTES", "much")]).len(), 1);
    }

    #[test]
    fn the_burst_is_twice_the_rate_unless_set() {
        let burst = |vars| read(vars).unwrap().ephemeral.burst();
        assert_eq!(burst(&[("QUEEN_EPHEMERAL_RATE", "50")]), 100);
        assert_eq!(burst(&[("QUEEN_EPHEMERAL_RATE", "50"), ("QUEEN_EPHEMERAL_BURST", "60")]), 60);
    }

    #[test]
    fn cores_are_lists_and_numbers() {
        let settings =
            read(&[("QUEEN_DATA_CPUS", "0-3,6"), ("QUEEN_MESH_CPU", "4"), ("QUEEN_STORE_CPU", "5")]).unwrap();
        assert_eq!(settings.cores.data, CpuList::parse("0-3,6").ok());
        assert_eq!(settings.cores.mesh, Some(4));
        assert_eq!(settings.cores.store, Some(5));
        assert_eq!(
            errors(&[("QUEEN_DATA_CPUS", "3-1"), ("QUEEN_MESH_CPU", "first")]),
            [
                "QUEEN_DATA_CPUS=\"3-1\": must be a list of cores such as 0-3,6",
                "QUEEN_MESH_CPU=\"first\": must be the number of a core, from 0 to 8191",
            ]
        );
    }

    #[test]
    fn a_log_filter_that_does_not_parse_is_refused() {
        assert!(read(&[("RUST_LOG", "info,queen_data=debug")]).is_ok());
        assert_eq!(
            errors(&[("RUST_LOG", "queen=loud")]),
            ["RUST_LOG=\"queen=loud\": must be a log filter such as info,queen_data=debug"]
        );
    }
}
