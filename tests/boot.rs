//! The real binary from its command line to its exit code: what it says and how it ends.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes on a busy machine; reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary with nothing of the caller's environment but what the loader needs.
fn queen() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_queen"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// Runs it to its end with these settings and arguments.
fn ended(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    queen().args(arguments).envs(settings.iter().copied()).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints UTF-8")
}

/// A broker that serves; ended when the value is dropped.
struct Serving {
    child: Child,
    stderr: BufReader<ChildStderr>,
    log: String,
    address: String,
}

impl Serving {
    /// Starts one in `dir` on a port that the kernel chooses, and waits until it listens.
    fn start(dir: &Path, settings: &[(&str, &str)]) -> Self {
        let mut child = queen()
            .env("PORT", "0")
            .env("QUEEN_BIND_ADDR", "127.0.0.1")
            .env("QUEEN_DATA_DIR", dir)
            .envs(settings.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut serving = Self { child, stderr, log: String::new(), address: String::new() };
        let line = serving.wait_for_line("listening on ");
        let address = line.split("listening on ").nth(1).expect("just found");
        serving.address = address.trim_end_matches(['"', '}']).split('"').next().expect("an address").to_owned();
        serving
    }

    /// The first line from here on that holds `what`; the log so far is the failure's message.
    fn wait_for_line(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line).expect("stderr is UTF-8");
            assert!(read > 0, "{what:?} never came, the log was:\n{}", self.log);
            self.log.push_str(&line);
            if line.contains(what) {
                return line.trim_end().to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Its exit and the whole log.
    fn wait(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child);
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("stderr is UTF-8");
        (status, std::mem::take(&mut self.log) + &rest)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Nothing to kill or to wait for when the test has waited for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return status;
        }
        assert!(Instant::now() < until, "the process did not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn help_names_settings_and_exit_codes_and_ends_clean() {
    let output = ended(&["--help"], &[("PORT", "not a port")]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for part in ["Usage: queen", "--check-config", "Exit codes", "QUEEN_EPHEMERAL_MAX_BYTES", "[6632]"] {
        assert!(help.contains(part), "{part} is missing in\n{help}");
    }
}

#[test]
fn version_names_the_package_version() {
    let output = ended(&["--version"], &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), format!("queen {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn an_unknown_argument_is_a_configuration_error_with_a_sentence() {
    let output = ended(&["--port=1"], &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("--port=1") && said.contains("--help"), "{said}");
}

#[test]
fn check_config_prints_the_settings_in_force() {
    let output = ended(&["--check-config"], &[("PORT", "7000"), ("HOST", "127.0.0.1")]);
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output.stdout);
    for line in ["PORT=7000", "QUEEN_BIND_ADDR=127.0.0.1", "QUEEN_EPHEMERAL_LEASE_S=30"] {
        assert!(printed.lines().any(|printed| printed == line), "{line} is missing in\n{printed}");
    }
}

#[test]
fn check_config_touches_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let output = ended(&["--check-config"], &[("QUEEN_DATA_DIR", dir.to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(0));
    assert!(!dir.exists());
}

#[test]
fn check_config_looks_at_the_cores_that_are_named() {
    let output = ended(&["--check-config"], &[("QUEEN_MESH_CPU", "8000")]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("QUEEN_MESH_CPU") && said.contains("8000"), "{said}");
}

#[test]
fn every_bad_setting_is_named_at_once_with_or_without_check_config() {
    let settings = [
        ("PORT", "99999"),
        ("QUEEN_TENANCY_HEADER", "perhaps"),
        ("QUEEN_DATA_CPUS", "2-1"),
        ("QUEEN_EPHEMERAL_MAX_BYTES", "1000000"),
        ("RUST_LOG", "a=b=c"),
    ];
    for arguments in [&["--check-config"][..], &[]] {
        let output = ended(arguments, &settings);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        for (name, value) in settings
            .iter()
            .filter(|(name, _)| *name != "QUEEN_EPHEMERAL_MAX_BYTES")
            .copied()
            .chain([("QUEEN_EPHEMERAL_QUEUE_MAX_BYTES", "16777216")])
        {
            assert!(said.contains(&format!("{name}={value:?}: must be ")), "{name} is missing in\n{said}");
        }
        assert_eq!(said.lines().count(), settings.len(), "{said}");
    }
}

#[test]
fn a_data_directory_that_is_a_file_is_a_configuration_error() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    fs::write(&path, "").unwrap();
    let output = ended(&[], &[("PORT", "0"), ("QUEEN_DATA_DIR", path.to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("QUEEN_DATA_DIR=") && said.contains("file"), "{said}");
}

#[test]
fn a_core_that_is_not_there_is_a_configuration_error() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_str().unwrap();
    let output = ended(&[], &[("PORT", "0"), ("QUEEN_DATA_DIR", dir), ("QUEEN_DATA_CPUS", "8000")]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("QUEEN_DATA_CPUS") && said.contains("8000"), "{said}");
}

#[test]
fn more_connections_than_open_files_is_a_configuration_error_that_names_the_command() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_str().unwrap();
    let settings = [("PORT", "0"), ("QUEEN_DATA_DIR", dir), ("QUEEN_HTTP_MAX_CONNECTIONS", "99999999")];
    let output = ended(&[], &settings);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("ulimit -n") && said.contains("QUEEN_HTTP_MAX_CONNECTIONS"), "{said}");
}

#[test]
fn a_data_directory_that_is_held_names_the_holder_and_the_holder_lives() {
    let root = tempfile::tempdir().unwrap();
    let holder = Serving::start(root.path(), &[]);
    let output = ended(&[], &[("PORT", "0"), ("QUEEN_DATA_DIR", root.path().to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("held by process {}", holder.child.id())), "{said}");
    TcpStream::connect(&holder.address).expect("the holder still serves");
}

#[test]
fn a_port_that_another_program_holds_is_a_configuration_error() {
    let root = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let dir = root.path().to_str().unwrap();
    let output = ended(&[], &[("PORT", &port), ("QUEEN_BIND_ADDR", "127.0.0.1"), ("QUEEN_DATA_DIR", dir)]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
}

#[test]
fn a_port_that_another_broker_holds_is_a_configuration_error() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let holder = Serving::start(one.path(), &[]);
    let (_, port) = holder.address.rsplit_once(':').unwrap();
    let dir = two.path().to_str().unwrap();
    let output = ended(&[], &[("PORT", port), ("QUEEN_BIND_ADDR", "127.0.0.1"), ("QUEEN_DATA_DIR", dir)]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_damaged_database_is_a_failure_that_names_the_file() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("queen.db"), "no database ".repeat(1000)).unwrap();
    let output = ended(&[], &[("PORT", "0"), ("QUEEN_DATA_DIR", root.path().to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("queen.db") && said.contains("restore a copy"), "{said}");
}

#[test]
fn sigterm_and_sigint_end_it_clean() {
    for signal in [Signal::TERM, Signal::INT] {
        let root = tempfile::tempdir().unwrap();
        let serving = Serving::start(root.path(), &[]);
        serving.signal(signal);
        let (status, log) = serving.wait();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains("stopping"), "{log}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let root = tempfile::tempdir().unwrap();
    let grace_ms = (PATIENCE * 10).as_millis().to_string();
    let mut serving = Serving::start(root.path(), &[("QUEEN_SHUTDOWN_GRACE_MS", &grace_ms)]);
    // A push whose body is still to come keeps the stop waiting for as long as the grace. That the broker asks for the
    // body shows that it knows of the push.
    let mut busy = TcpStream::connect(&serving.address).unwrap();
    busy.write_all(
        b"POST /api/v1/ephemeral/push HTTP/1.1\r\nHost: q\r\nContent-Length: 64\r\nExpect: 100-continue\r\n\r\n",
    )
    .unwrap();
    let mut asked = [0; 12];
    busy.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100");
    serving.signal(Signal::TERM);
    serving.wait_for_line("stopping");
    serving.signal(Signal::TERM);
    let (status, log) = serving.wait();
    assert_eq!(status.code(), Some(1), "{log}");
}

#[test]
fn sighup_is_survived() {
    let root = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(root.path(), &[]);
    serving.signal(Signal::HUP);
    serving.wait_for_line("SIGHUP");
    TcpStream::connect(&serving.address).expect("it still serves");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait().0.code(), Some(0));
}

#[test]
fn a_process_that_was_killed_leaves_nothing_that_stops_the_next() {
    let root = tempfile::tempdir().unwrap();
    let killed = Serving::start(root.path(), &[]);
    let (_, port) = killed.address.rsplit_once(':').unwrap();
    let port = port.to_owned();
    killed.signal(Signal::KILL);
    let (status, _) = killed.wait();
    assert_eq!(status.code(), None);
    let next = Serving::start(root.path(), &[("PORT", &port)]);
    TcpStream::connect(&next.address).expect("it serves");
}

#[test]
fn the_log_names_what_was_set_what_was_mistyped_and_every_shard() {
    let root = tempfile::tempdir().unwrap();
    let settings = [("QUEEN_EPHEMERAL_LEASE_S", "7"), ("QUEEN_DATADIR", "x"), ("QUEEN_DATA_CPUS", "0")];
    let serving = Serving::start(root.path(), &settings);
    let log = serving.log.clone();
    for part in [
        "setting QUEEN_EPHEMERAL_LEASE_S=7",
        "QUEEN_DATADIR is no setting: is QUEEN_DATA_DIR meant?",
        "shard role=data cpu=0 owns ",
        "shard role=mesh cpu=0 owns ",
        "shard role=store cpu=0 owns ",
        "connections: at most",
    ] {
        assert!(log.contains(part), "{part} is missing in\n{log}");
    }
    assert!(!log.contains("setting QUEEN_EPHEMERAL_RATE"), "{log}");
}

#[test]
fn the_log_can_be_json_lines() {
    let root = tempfile::tempdir().unwrap();
    let serving = Serving::start(root.path(), &[("QUEEN_LOG_JSON", "on")]);
    for line in serving.log.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).expect("every line is JSON");
        assert!(entry["level"].is_string() && entry["message"].is_string(), "{line}");
    }
    TcpStream::connect(&serving.address).expect("it serves");
}

#[test]
fn rust_log_wins_over_the_level() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_str().unwrap();
    // A wrong core ends it early; what it logged until then shows the filter.
    let log = |settings: &[(&str, &str)]| {
        let settings = [settings, &[("QUEEN_DATA_DIR", dir), ("QUEEN_DATA_CPUS", "8000")]].concat();
        text(&ended(&[], &settings).stderr)
    };
    assert!(log(&[]).contains("queen starts"));
    assert!(!log(&[("LOG_LEVEL", "error")]).contains("queen starts"));
    assert!(log(&[("LOG_LEVEL", "error"), ("RUST_LOG", "info")]).contains("queen starts"));
}
