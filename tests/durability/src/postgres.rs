//! A private PostgreSQL cluster with fsync on, in a directory of its own, and its backends ended one by one.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{Failed, broker::free_address, process::Process};

const READY_MAX: Duration = Duration::from_secs(60);
const USER: &str = "postgres";

/// The connections that could be cut: those that commit at this moment before those that are busy otherwise, and idle
/// ones last.
const CANDIDATES: &str = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' \
    AND pid <> pg_backend_pid() \
    ORDER BY query ILIKE 'commit%' AND state = 'active' DESC, state = 'active' DESC, \
    state LIKE 'idle in transaction%' DESC, pid";

/// A running cluster. It ends when it is dropped.
pub struct Postgres {
    process: Process,
    port: u16,
}

impl Postgres {
    /// Makes a cluster below `directory` and starts it.
    pub fn start(directory: &Path) -> Result<Self, Failed> {
        let programs = programs()?;
        let data = directory.join("postgres");
        fs::create_dir(&data).map_err(|error| Failed(format!("{}: {error}", data.display())))?;
        // It refuses to run as root: there it runs as the user that distributions make for it.
        let user = rustix::process::geteuid().is_root().then_some(USER);
        if let Some(user) = user {
            run(Command::new("chown").arg(user).arg(&data))?;
        }
        let mut initdb = Command::new(if user.is_some() { "setpriv".into() } else { programs.join("initdb") });
        if let Some(user) = user {
            initdb.args(["--reuid", user, "--regid", user, "--clear-groups", "--"]).arg(programs.join("initdb"));
        }
        run(initdb
            .args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D"])
            .arg(&data)
            .current_dir("/"))?;
        let port = free_address()?.port();
        let words = [
            "-D".into(),
            data.display().to_string(),
            "-c".into(),
            "listen_addresses=127.0.0.1".into(),
            "-c".into(),
            format!("port={port}"),
            "-c".into(),
            "unix_socket_directories=".into(),
            "-c".into(),
            "max_connections=300".into(),
        ];
        let process = Process::start(&programs.join("postgres"), user, &words, &[], &directory.join("postgres.log"))?;
        let mut postgres = Self { process, port };
        let started = Instant::now();
        while !postgres.process.said().contains("ready to accept connections") {
            if postgres.process.has_ended() || started.elapsed() > READY_MAX {
                return Err(Failed(format!("PostgreSQL does not start:\n{}", postgres.process.said_last())));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(postgres)
    }

    /// What tells a broker where it is.
    pub fn settings(&self) -> Vec<(String, String)> {
        [
            ("PG_HOST", "127.0.0.1".to_owned()),
            ("PG_PORT", self.port.to_string()),
            ("PG_USER", USER.to_owned()),
            ("PG_DATABASE", USER.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// How many deadlocks it has written to its log.
    pub fn deadlocks(&self) -> usize {
        self.process.said().lines().filter(|line| line.contains("deadlock detected")).count()
    }

    /// A session that ends those of others.
    pub fn cutter(&self) -> Result<Cutter, Failed> {
        let mut psql = Command::new("psql");
        psql.args(["-h", "127.0.0.1", "-U", USER, "-d", USER, "-qAtX", "-p"]).arg(self.port.to_string());
        let mut child = psql
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failed(format!("psql does not start: {error}")))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Cutter { child, input, output: BufReader::new(output) }),
            _ => Err(Failed("psql has no input or no output".into())),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A fast shutdown: without one its shared memory would stay behind.
        self.process.end(Signal::INT);
    }
}

/// A session that ends those of others.
pub struct Cutter {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Cutter {
    /// Ends one of the first sessions that commit, or of those that are busy; `pick` says which. False when there is
    /// none at all.
    pub fn cut(&mut self, pick: u64) -> Result<bool, Failed> {
        let statement = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM ({CANDIDATES} LIMIT 4) AS busy \
             OFFSET {} LIMIT 1) AS one;\n",
            pick % 4
        );
        let failed = |error: std::io::Error| Failed(format!("psql is gone: {error}"));
        self.input.write_all(statement.as_bytes()).map_err(failed)?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(failed)?;
        match line.trim() {
            "1" => Ok(true),
            "0" => Ok(false),
            other => Err(Failed(format!("psql answered {other:?} to a cut"))),
        }
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the newest server programs are.
fn programs() -> Result<PathBuf, Failed> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> =
        versions.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("initdb").exists()).collect();
    found.sort();
    let on_path = std::env::var_os("PATH")
        .and_then(|path| std::env::split_paths(&path).find(|directory| directory.join("initdb").exists()));
    found.pop().or(on_path).ok_or_else(|| Failed("PostgreSQL's initdb is nowhere: install postgresql".into()))
}

fn run(command: &mut Command) -> Result<(), Failed> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| Failed(format!("{command:?}: {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Failed(format!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr)))),
    }
}
