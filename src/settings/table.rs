//! The table of all settings: one row each, in the order in which `--help` shows them.

use super::kind::{Kind, field};
use super::{SettingError, Settings};

/// What holds when a setting is not set.
pub(super) enum Unset {
    /// This value, in the form in which one would set it.
    Value(&'static str),
    /// Something that depends on the machine or on another setting, said in words.
    Derived(&'static str),
}

/// One setting.
pub(super) struct Setting {
    /// The environment variable.
    pub name: &'static str,
    /// Other variables that mean the same.
    pub aliases: &'static [&'static str],
    /// What it is when it is not set.
    pub unset: Unset,
    /// The unit of its number, or nothing.
    pub unit: &'static str,
    /// What it does, in one sentence.
    pub meaning: &'static str,
    /// What it may be, and the field it fills.
    pub kind: Kind,
}

impl Setting {
    /// Fills the setting's field from its variable, an alias, or the default.
    pub(super) fn read(
        &self,
        lookup: impl Fn(&str) -> Option<String>,
        settings: &mut Settings,
    ) -> Result<(), SettingError> {
        if let Unset::Value(text) = self.unset {
            let filled = self.kind.fill(settings, text);
            assert!(filled.is_some(), "{}: the default is of its kind", self.name);
        }
        let mut first: Option<(&'static str, String)> = None;
        for name in std::iter::once(self.name).chain(self.aliases.iter().copied()) {
            let Some(value) = lookup(name).filter(|value| !value.is_empty()) else {
                continue;
            };
            let shown = |value: &str| self.kind.shown(value);
            if let Some((held_by, held)) = &first {
                if *held != value {
                    let held = shown(held);
                    let value = shown(&value);
                    let right = format!("unset or the same as {held_by} ({held:?})");
                    return Err(SettingError { name, value, right });
                }
                continue;
            }
            if self.kind.fill(settings, &value).is_none() {
                let right = self.kind.right();
                let value = shown(&value);
                return Err(SettingError { name, value, right });
            }
            first = Some((name, value));
        }
        Ok(())
    }

    /// What holds when it is not set, for people.
    pub(super) fn default_text(&self) -> &'static str {
        match self.unset {
            Unset::Value(text) | Unset::Derived(text) => text,
        }
    }
}

/// A row whose value is a whole number of `min..=max`.
macro_rules! integer {
    ($name:literal, $default:literal, $unit:literal, $min:literal..=$max:literal, $($path:ident).+, $meaning:literal) => {
        Setting {
            name: $name,
            aliases: &[],
            unset: Unset::Value($default),
            unit: $unit,
            meaning: $meaning,
            kind: Kind::Integer { min: $min, max: $max, field: field!($($path).+) },
        }
    };
}

/// Every setting. Ranges end where a value would be a mistake, not where the code would break:
/// byte counts at 16 TiB, times at days.
pub(super) const TABLE: &[Setting] = &[
    Setting {
        name: "PORT",
        aliases: &[],
        unset: Unset::Value("6632"),
        unit: "",
        meaning: "The port clients connect to; 0 lets the kernel choose, the log says which.",
        kind: Kind::Port(field!(listen.port)),
    },
    Setting {
        name: "QUEEN_BIND_ADDR",
        aliases: &["HOST"],
        unset: Unset::Value("0.0.0.0"),
        unit: "",
        meaning: "The address it listens on.",
        kind: Kind::Address(field!(listen.bind_addr)),
    },
    Setting {
        name: "QUEEN_TLS_CERT",
        aliases: &[],
        unset: Unset::Derived("none: plain HTTP"),
        unit: "",
        meaning: "A file with the port's certificate and those above it, PEM: with it and the key the port speaks TLS and nothing else. SIGHUP reads both again.",
        kind: Kind::Text(field!(listen.tls_certificate)),
    },
    Setting {
        name: "QUEEN_TLS_KEY",
        aliases: &[],
        unset: Unset::Derived("none: plain HTTP"),
        unit: "",
        meaning: "A file with the private key of that certificate, PEM.",
        kind: Kind::Text(field!(listen.tls_key)),
    },
    integer!(
        "QUEEN_MAX_BODY_BYTES",
        "67108864",
        "bytes",
        1_024..=1_073_741_824,
        http.max_body_bytes,
        "The largest request body; above it 413 `payload_too_large`."
    ),
    integer!(
        "QUEEN_HTTP_MAX_BUFFERED_BYTES",
        "268435456",
        "bytes",
        1_024..=17_592_186_044_416,
        http.max_buffered_bytes,
        "Unfinished request bodies of all connections together; above it 503 `overloaded`."
    ),
    Setting {
        name: "QUEEN_HTTP_MAX_CONNECTIONS",
        aliases: &[],
        unset: Unset::Derived("from the open-file limit"),
        unit: "",
        meaning: "Connections at once; above it new ones get 503 `overloaded`. The log says what was worked out.",
        kind: Kind::OptionalInteger { min: 1, max: 100_000_000, field: field!(http.max_connections) },
    },
    integer!(
        "QUEEN_HTTP_HEADER_TIMEOUT_MS",
        "10000",
        "ms",
        10..=3_600_000,
        http.header_timeout_ms,
        "From a request's first byte to the end of its head; above it 408 `request_timeout`."
    ),
    integer!(
        "QUEEN_HTTP_IDLE_TIMEOUT_MS",
        "75000",
        "ms",
        10..=86_400_000,
        http.idle_timeout_ms,
        "How long a connection may do nothing; a parked pop is not idle."
    ),
    integer!(
        "QUEEN_JSON_DEPTH_MAX",
        "128",
        "",
        1..=1_024,
        http.json_depth_max,
        "The deepest nesting of a payload; above it 400."
    ),
    Setting {
        name: "QUEEN_TENANCY_HEADER",
        aliases: &[],
        unset: Unset::Value("false"),
        unit: "",
        meaning: "There are tenants: by the token where tokens are asked for, else by the header `x-queen-tenant`, a UUID. Else everything is the default tenant's.",
        kind: Kind::Boolean(field!(http.tenancy_header)),
    },
    Setting {
        name: "QUEEN_DATA_CPUS",
        aliases: &[],
        unset: Unset::Derived("from the cores it may use"),
        unit: "",
        meaning: "The cores that get a data shard each, such as `0-3,6`.",
        kind: Kind::Cpus(field!(cores.data)),
    },
    Setting {
        name: "QUEEN_MESH_CPU",
        aliases: &[],
        unset: Unset::Derived("a core of its own from four cores on"),
        unit: "",
        meaning: "The core of the mesh role.",
        kind: Kind::Cpu(field!(cores.mesh)),
    },
    Setting {
        name: "QUEEN_STORE_CPU",
        aliases: &[],
        unset: Unset::Derived("a core of its own from four cores on"),
        unit: "",
        meaning: "The core of the store role.",
        kind: Kind::Cpu(field!(cores.store)),
    },
    Setting {
        name: "QUEEN_SPIN_US",
        aliases: &[],
        unset: Unset::Derived("0 below four cores, 50 from four on"),
        unit: "µs",
        meaning: "How long an idle shard polls before it sleeps: CPU for latency.",
        kind: Kind::OptionalInteger { min: 0, max: 10_000, field: field!(cores.spin_us) },
    },
    Setting {
        name: "QUEEN_DATA_DIR",
        aliases: &[],
        unset: Unset::Value("./queen-data"),
        unit: "",
        meaning: "Where messages and declarations are kept, unless PostgreSQL is named; made when missing, and locked by one process with PostgreSQL too: each broker has its own.",
        kind: Kind::Directory(field!(process.data_dir)),
    },
    integer!(
        "QUEEN_SHUTDOWN_GRACE_MS",
        "10000",
        "ms",
        0..=3_600_000,
        process.shutdown_grace_ms,
        "How long a stop waits for requests in flight."
    ),
    Setting {
        name: "DATABASE_URL",
        aliases: &[],
        unset: Unset::Derived("the file in the data directory"),
        unit: "",
        meaning: "The PostgreSQL that keeps messages and declarations; its `sslmode` and `sslrootcert` win over the settings below.",
        kind: Kind::PostgresUrl(field!(storage.url)),
    },
    Setting {
        name: "PG_HOST",
        aliases: &[],
        unset: Unset::Derived("the file in the data directory"),
        unit: "",
        meaning: "The same in parts: a name, an address, or the directory of a unix-domain socket. Without it the parts below are refused.",
        kind: Kind::Text(field!(storage.host)),
    },
    Setting {
        name: "PG_PORT",
        aliases: &[],
        unset: Unset::Value("5432"),
        unit: "",
        meaning: "PostgreSQL's port.",
        kind: Kind::Port(field!(storage.port)),
    },
    Setting {
        name: "PG_USER",
        aliases: &[],
        unset: Unset::Derived("`postgres`"),
        unit: "",
        meaning: "Who to be there.",
        kind: Kind::Text(field!(storage.user)),
    },
    Setting {
        name: "PG_PASSWORD",
        aliases: &[],
        unset: Unset::Derived("none"),
        unit: "",
        meaning: "The password; never shown.",
        kind: Kind::Secret(field!(storage.password)),
    },
    Setting {
        name: "PG_DATABASE",
        aliases: &[],
        unset: Unset::Derived("named like the user"),
        unit: "",
        meaning: "The database; what the broker keeps there is in the schema `queen`.",
        kind: Kind::Text(field!(storage.database)),
    },
    Setting {
        name: "PG_SSLMODE",
        aliases: &[],
        unset: Unset::Value("prefer"),
        unit: "",
        meaning: "How connections are encrypted: disable, prefer, require, verify-ca or verify-full.",
        kind: Kind::Encryption(field!(storage.ssl_mode)),
    },
    Setting {
        name: "PG_SSLROOTCERT",
        aliases: &[],
        unset: Unset::Derived("the system's"),
        unit: "",
        meaning: "A file of PEM certificates to trust.",
        kind: Kind::Text(field!(storage.ssl_root_cert)),
    },
    integer!(
        "DB_POOL_SIZE",
        "16",
        "connections",
        1..=1_000,
        storage.pool_size,
        "Batches that commit in parallel; four more connections do the rest."
    ),
    Setting {
        name: "QUEEN_PG_PREPARE",
        aliases: &[],
        unset: Unset::Value("true"),
        unit: "",
        meaning: "Prepare statements by name; false behind a pooler that hands out connections by transaction.",
        kind: Kind::Boolean(field!(storage.named_statements)),
    },
    Setting {
        name: "QUEEN_APPLY_SCHEMA",
        aliases: &[],
        unset: Unset::Value("true"),
        unit: "",
        meaning: "Make and migrate the schema; false only checks its version.",
        kind: Kind::Boolean(field!(storage.apply_schema)),
    },
    integer!(
        "POP_WAIT_MAX_INTERVAL_MS",
        "1000",
        "ms",
        1..=3_600_000,
        storage.pop_wait_max_interval_ms,
        "How long, at most, a waiting pop does not see what another broker has stored."
    ),
    integer!(
        "QUEEN_LOG_CACHE_BYTES",
        "268435456",
        "bytes",
        1_048_576..=17_592_186_044_416,
        storage.cache_bytes,
        "Memory for the newest durable messages, which are popped without a read."
    ),
    integer!(
        "RETENTION_INTERVAL_MS",
        "60000",
        "ms",
        100..=86_400_000,
        storage.retention_interval_ms,
        "How often durable messages that retention lets go of are removed."
    ),
    integer!(
        "QUEEN_CACHE_REFRESH_INTERVAL_MS",
        "60000",
        "ms",
        100..=3_600_000,
        storage.cache_refresh_interval_ms,
        "How often PostgreSQL is asked what was switched and granted through other brokers."
    ),
    integer!(
        "QUEEN_EPHEMERAL_MAX_BYTES",
        "268435456",
        "bytes",
        65_536..=17_592_186_044_416,
        ephemeral.max_bytes,
        "What this node holds in memory, payloads and records, approximately; above it 503 `ephemeral_unavailable`."
    ),
    integer!(
        "QUEEN_EPHEMERAL_QUEUE_MAX_BYTES",
        "16777216",
        "bytes",
        1..=17_592_186_044_416,
        ephemeral.queue_max_bytes,
        "Ceiling and default of a queue's `maxBytes`, counted in payload bytes."
    ),
    integer!(
        "QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH",
        "10000",
        "messages",
        1..=1_000_000_000,
        ephemeral.queue_max_length,
        "Ceiling and default of a queue's `maxLength`."
    ),
    integer!(
        "QUEEN_EPHEMERAL_LEASE_S",
        "30",
        "s",
        1..=86_400,
        ephemeral.lease_s,
        "Default of a queue's `leaseSeconds`."
    ),
    integer!(
        "QUEEN_EPHEMERAL_RETRY_LIMIT",
        "5",
        "attempts",
        1..=65_535,
        ephemeral.retry_limit,
        "Default of a queue's `retryLimit`: the last attempt that is not acked drops the message."
    ),
    integer!(
        "QUEEN_EPHEMERAL_IMPLICIT_IDLE_S",
        "300",
        "s",
        1..=31_536_000,
        ephemeral.implicit_idle_s,
        "After so long empty and unpolled, a queue that was never declared is collected."
    ),
    integer!(
        "QUEEN_EPHEMERAL_GROUP_IDLE_S",
        "3600",
        "s",
        0..=31_536_000,
        ephemeral.group_idle_s,
        "A group of an undeclared queue that nobody popped for so long is forgotten; 0 keeps it."
    ),
    integer!(
        "QUEEN_EPHEMERAL_MEMBER_TTL_MS",
        "4000",
        "ms",
        100..=3_600_000,
        ephemeral.member_ttl_ms,
        "A node of the cluster that is silent for so long loses its partitions."
    ),
    integer!(
        "QUEEN_EPHEMERAL_MAX_QUEUES",
        "1000000",
        "queues",
        1..=1_000_000_000,
        ephemeral.max_queues,
        "Queues of this node; above it 429 `queue_limit`."
    ),
    integer!(
        "QUEEN_EPHEMERAL_MAX_PARTITIONS_PER_QUEUE",
        "100000",
        "partitions",
        1..=100_000_000,
        ephemeral.max_partitions_per_queue,
        "Partitions of one queue; above it 429 `partition_limit`."
    ),
    integer!(
        "QUEEN_EPHEMERAL_MAX_GROUPS_PER_QUEUE",
        "1000",
        "groups",
        1..=65_535,
        ephemeral.max_groups_per_queue,
        "Consumer groups of one queue; above it 429 `group_limit`."
    ),
    integer!(
        "QUEEN_EPHEMERAL_MAX_PARKED",
        "1000000",
        "pops",
        1..=1_000_000_000,
        ephemeral.max_parked,
        "Pops and requests that wait on this node; above it 429 `parked_limit`."
    ),
    integer!(
        "QUEEN_EPHEMERAL_RATE",
        "0",
        "messages/s",
        0..=1_000_000_000,
        ephemeral.rate,
        "Messages a tenant may push a second; above it 429 `rate_limited`; 0 is no limit."
    ),
    Setting {
        name: "QUEEN_EPHEMERAL_BURST",
        aliases: &[],
        unset: Unset::Derived("twice the rate"),
        unit: "messages",
        meaning: "Messages a tenant may push at once before the rate counts.",
        kind: Kind::OptionalInteger { min: 1, max: 2_000_000_000, field: field!(ephemeral.burst) },
    },
    Setting {
        name: "QUEEN_EPHEMERAL_REQUIRE_GRANT",
        aliases: &[],
        unset: Unset::Derived("the same as QUEEN_TENANCY_HEADER"),
        unit: "",
        meaning: "Whether a tenant needs a grant to use ephemeral queues, without which it gets 403 `feature_gated`; the default tenant needs none.",
        kind: Kind::OptionalBoolean(field!(ephemeral.require_grant)),
    },
    Setting {
        name: "QUEEN_MESH_PEERS",
        aliases: &["QUEEN_UDP_PEERS"],
        unset: Unset::Derived("none"),
        unit: "",
        meaning: "The other brokers of the cluster: hosts, or host:port where their mesh port is another, with commas between them; without any, nothing is listened for and nobody dialled.",
        kind: Kind::Peers(field!(mesh.peers)),
    },
    Setting {
        name: "QUEEN_MESH_PORT",
        aliases: &["QUEEN_UDP_NOTIFY_PORT"],
        unset: Unset::Value("6633"),
        unit: "",
        meaning: "The port peers connect to; let only them reach it.",
        kind: Kind::Port(field!(mesh.port)),
    },
    Setting {
        name: "QUEEN_MESH_BIND_ADDR",
        aliases: &[],
        unset: Unset::Value("0.0.0.0"),
        unit: "",
        meaning: "The address it listens on for peers.",
        kind: Kind::Address(field!(mesh.bind_addr)),
    },
    Setting {
        name: "QUEEN_MESH_ADVERTISE_HOST",
        aliases: &[],
        unset: Unset::Derived("the address that peers see"),
        unit: "",
        meaning: "The host at which peers reach this broker's HTTP port.",
        kind: Kind::Host(field!(mesh.advertise_host)),
    },
    Setting {
        name: "QUEEN_SERVER_ID",
        aliases: &[],
        unset: Unset::Derived("made once, kept in the data directory"),
        unit: "",
        meaning: "What this broker is called among others: the same over restarts, and its own.",
        kind: Kind::ServerId(field!(mesh.server_id)),
    },
    Setting {
        name: "QUEEN_SYNC_SECRET",
        aliases: &[],
        unset: Unset::Derived("none"),
        unit: "",
        meaning: "What peers prove themselves with, the same on all; without it they are not asked to, and no broker is a member of another's cluster; never shown.",
        kind: Kind::Secret(field!(mesh.secret)),
    },
    Setting {
        name: "QUEEN_MESH_LEGACY_HELLO",
        aliases: &[],
        unset: Unset::Derived("true without QUEEN_SYNC_SECRET, else false"),
        unit: "",
        meaning: "Whether the handshake of older brokers is taken and spoken, which can be replayed; they get hints and are no members.",
        kind: Kind::OptionalBoolean(field!(mesh.legacy_hello)),
    },
    Setting {
        name: "QUEEN_PEER_TLS_CA",
        aliases: &[],
        unset: Unset::Derived("the system's"),
        unit: "",
        meaning: "The file of the authorities, in PEM, by which the HTTP port of a peer is verified that speaks TLS.",
        kind: Kind::Text(field!(mesh.peer_tls_ca)),
    },
    Setting {
        name: "QUEEN_SYNC_ENABLED",
        aliases: &[],
        unset: Unset::Value("true"),
        unit: "",
        meaning: "Whether peers are listened for and dialled at all.",
        kind: Kind::Boolean(field!(mesh.enabled)),
    },
    integer!(
        "QUEEN_SYNC_HEARTBEAT_MS",
        "1000",
        "ms",
        10..=60_000,
        mesh.heartbeat_ms,
        "How long a connection to a peer may be without a frame before a heartbeat is sent."
    ),
    integer!(
        "QUEEN_SYNC_DEAD_THRESHOLD_MS",
        "5000",
        "ms",
        100..=3_600_000,
        mesh.dead_threshold_ms,
        "After so long without a frame a peer is shown as dead, and a connection that takes nothing is closed."
    ),
    Setting {
        name: "JWT_ENABLED",
        aliases: &[],
        unset: Unset::Value("false"),
        unit: "",
        meaning: "Ask for a token; what its roles do not allow is 403 `forbidden`.",
        kind: Kind::Boolean(field!(jwt.enabled)),
    },
    Setting {
        name: "JWT_SECRET",
        aliases: &[],
        unset: Unset::Derived("none"),
        unit: "",
        meaning: "The secret of HS256 tokens; never shown.",
        kind: Kind::Secret(field!(jwt.secret)),
    },
    Setting {
        name: "JWT_JWKS_URL",
        aliases: &[],
        unset: Unset::Derived("none"),
        unit: "",
        meaning: "Where the issuer publishes the keys of RS256 and ES256 tokens; fetched every 5 minutes, and when a token names another key.",
        kind: Kind::WebUrl(field!(jwt.jwks_url)),
    },
    Setting {
        name: "JWT_PUBLIC_KEY",
        aliases: &[],
        unset: Unset::Derived("none"),
        unit: "",
        meaning: "The one key of RS256 or ES256 tokens: PEM, where `\\n` stands for a line's end too, or the path of a file that holds it.",
        kind: Kind::PublicKey(field!(jwt.public_key)),
    },
    Setting {
        name: "JWT_ISSUER",
        aliases: &[],
        unset: Unset::Derived("any"),
        unit: "",
        meaning: "What a token's `iss` must be.",
        kind: Kind::Text(field!(jwt.issuer)),
    },
    Setting {
        name: "JWT_AUDIENCE",
        aliases: &[],
        unset: Unset::Derived("any"),
        unit: "",
        meaning: "What a token's `aud` must be or hold.",
        kind: Kind::Text(field!(jwt.audience)),
    },
    Setting {
        name: "JWT_TENANT_CLAIM",
        aliases: &[],
        unset: Unset::Value("tenant_id"),
        unit: "",
        meaning: "The claim that binds a token to a tenant, where QUEEN_TENANCY_HEADER is set.",
        kind: Kind::Claim(field!(jwt.tenant_claim)),
    },
    Setting {
        name: "JWT_SKIP_PATHS",
        aliases: &[],
        unset: Unset::Value("/health,/metrics/prometheus,/metrics,/"),
        unit: "",
        meaning: "The paths that need no token, exactly as they are, with commas between them.",
        kind: Kind::Paths(field!(jwt.skip_paths)),
    },
    Setting {
        name: "LOG_LEVEL",
        aliases: &[],
        unset: Unset::Value("info"),
        unit: "",
        meaning: "How much is logged: error, warn, info, debug or trace.",
        kind: Kind::Level(field!(log.level)),
    },
    Setting {
        name: "RUST_LOG",
        aliases: &[],
        unset: Unset::Derived("unset"),
        unit: "",
        meaning: "A log filter by module, such as `info,queen_data=debug`; wins over LOG_LEVEL.",
        kind: Kind::Filter(field!(log.filter)),
    },
    Setting {
        name: "QUEEN_LOG_JSON",
        aliases: &[],
        unset: Unset::Value("false"),
        unit: "",
        meaning: "Log a JSON object a line instead of text.",
        kind: Kind::Boolean(field!(log.json)),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_and_no_alias_stands_twice() {
        let mut names: Vec<_> =
            TABLE.iter().flat_map(|row| std::iter::once(row.name).chain(row.aliases.iter().copied())).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn every_meaning_is_a_sentence() {
        for row in TABLE {
            assert!(row.meaning.ends_with('.'), "{}", row.name);
            assert!(row.meaning.starts_with(char::is_uppercase), "{}", row.name);
        }
    }

    #[test]
    fn both_ends_of_every_range_are_taken_and_the_next_numbers_are_not() {
        for row in TABLE {
            let (Kind::Integer { min, max, .. } | Kind::OptionalInteger { min, max, .. }) = row.kind else {
                continue;
            };
            let takes = |number: u64| {
                let mut settings = Settings::default();
                row.kind.fill(&mut settings, &number.to_string()).is_some()
                    && row.kind.show(&settings) == Some(number.to_string())
            };
            assert!(takes(min) && takes(max), "{}", row.name);
            assert!(!takes(max + 1), "{}", row.name);
            assert!(min == 0 || !takes(min - 1), "{}", row.name);
        }
    }
}
