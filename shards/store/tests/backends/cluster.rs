//! A private PostgreSQL for this test binary, started by the script that other tests use too.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use queen_store::{PostgresConfig, PostgresOptions, SslMode};

/// Started by the first test that needs it.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

/// Databases made so far.
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A running server.
struct Cluster {
    /// Ends in `/postgres`, the database that is always there.
    url: String,
    dir: PathBuf,
    /// Stops the server when the pipe to it closes: when this process ends, however it does.
    _watcher: Child,
}

impl Cluster {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/postgres");
        let dir = std::env::temp_dir().join(format!("queen-store-test-{}", std::process::id()));
        let started =
            Command::new(script).arg("start").arg(&dir).stderr(Stdio::inherit()).output().expect("the script runs");
        assert!(started.status.success(), "tests/postgres start failed");
        let stop = format!("cat >/dev/null; exec {script} stop {}", dir.display());
        let watcher = Command::new("sh").args(["-c", &stop]).stdin(Stdio::piped()).spawn().expect("sh runs");
        let url = String::from_utf8(started.stdout).expect("a URL").trim().to_owned();
        Self { url, dir, _watcher: watcher }
    }
}

/// A database of the server, empty.
#[derive(Clone, Debug)]
pub struct TestDatabase {
    /// Its URL.
    pub url: String,
    /// The directory of the server's socket and certificate.
    pub dir: PathBuf,
}

impl TestDatabase {
    /// Makes one.
    pub fn new() -> Self {
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        psql(&CLUSTER.url, &format!("CREATE DATABASE {name}"));
        let server = CLUSTER.url.strip_suffix("postgres").expect("the database that is always there");
        Self { url: format!("{server}{name}"), dir: CLUSTER.dir.clone() }
    }

    /// The server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).expect("the server's log")
    }

    /// How a broker would be told of it.
    pub fn config(&self) -> PostgresConfig {
        PostgresConfig::of_url(&self.url, options()).expect("the script's URL")
    }

    /// Runs SQL beside the broker: the values of the rows, a row a line.
    pub fn sql(&self, sql: &str) -> String {
        psql(&self.url, sql)
    }
}

/// The options of most tests.
pub fn options() -> PostgresOptions {
    PostgresOptions {
        ssl_mode: SslMode::Prefer,
        ssl_root_cert: None,
        pool_size: 4,
        named_statements: true,
        apply_schema: true,
    }
}

fn psql(url: &str, sql: &str) -> String {
    let mut psql = Command::new("psql")
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql runs");
    psql.stdin.take().expect("it has one").write_all(sql.as_bytes()).expect("psql reads");
    let output = psql.wait_with_output().expect("psql ends");
    assert!(output.status.success(), "psql refused: {sql}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}
