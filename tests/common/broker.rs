//! The broker as a child process: started on a port that the kernel chooses and in a directory of
//! its own, watched through its log and `/proc`, stopped by signals, killed when it is dropped.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::Value;
use tempfile::TempDir;

use super::{Certificates, Connection, PATIENCE, eventually};

/// A running broker with two data shards (one, where the machine has one core).
pub struct Broker {
    child: Child,
    address: SocketAddr,
    settings: Vec<(String, String)>,
    data_dir: TempDir,
    /// What it speaks TLS with, if it does.
    certificates: Option<Arc<Certificates>>,
    log: Arc<Mutex<String>>,
}

impl Broker {
    /// Starts a broker with `settings` on top of the harness's own and waits until it is healthy.
    pub fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_as(settings, None)
    }

    /// Starts one that speaks TLS.
    pub fn start_tls(settings: &[(&str, &str)]) -> Self {
        Self::start_tls_with(&Arc::new(Certificates::new()), settings)
    }

    /// Starts one that speaks TLS with certificates that others use too.
    pub fn start_tls_with(certificates: &Arc<Certificates>, settings: &[(&str, &str)]) -> Self {
        let files = certificates.settings();
        let files = files.iter().map(|(name, value)| (*name, value.as_str()));
        let settings: Vec<_> = settings.iter().copied().chain(files).collect();
        Self::start_as(&settings, Some(Arc::clone(certificates)))
    }

    fn start_as(settings: &[(&str, &str)], certificates: Option<Arc<Certificates>>) -> Self {
        let data_dir = TempDir::with_prefix("queen-test-").expect("a temporary directory");
        let settings: Vec<(String, String)> =
            settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let log = Arc::new(Mutex::new(String::new()));
        let (child, address) = launch(&settings, &data_dir, &log);
        let broker = Self { child, address, settings, data_dir, certificates, log };
        broker.wait_until_healthy();
        broker
    }

    /// Starts it again with the same settings and directory, on another port, after it has ended.
    pub fn start_again(&mut self) {
        assert!(self.exited().is_some(), "the broker still runs");
        let (child, address) = launch(&self.settings, &self.data_dir, &self.log);
        self.child = child;
        self.address = address;
        self.wait_until_healthy();
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its base URL, as the published clients take it.
    pub fn url(&self) -> String {
        match &self.certificates {
            None => format!("http://127.0.0.1:{}", self.address.port()),
            Some(_) => format!("https://localhost:{}", self.address.port()),
        }
    }

    /// A new connection to it.
    pub fn connect(&self) -> Connection {
        self.try_connect().expect("the broker accepts connections")
    }

    fn try_connect(&self) -> io::Result<Connection> {
        match &self.certificates {
            None => Connection::try_open(self.address),
            Some(certificates) => Connection::open_tls(self.address, certificates.client()),
        }
    }

    /// What it speaks TLS with.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("a broker that speaks TLS")
    }

    /// What it has logged so far, over all its starts.
    pub fn log(&self) -> String {
        self.log.lock().expect("the log").clone()
    }

    /// Asks it to stop, as an operator does, and waits until it has.
    pub fn sigterm(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills it without a chance to clean up, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("the broker takes signals");
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the end of the broker", || self.exited())
    }

    /// How it ended, if it did.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child can be waited for")
    }

    /// Fails unless it runs and answers a new connection.
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.exited() {
            panic!("the broker ended: {status}");
        }
        let health = self.connect().get("/health");
        assert_eq!(health.status, 200, "{health:?}");
    }

    /// Lowers (or raises) its open-file limit while it runs.
    pub fn limit_open_files(&self, limit: u64) {
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        rustix::process::prlimit(Some(self.pid()), Resource::Nofile, limit).expect("the limit of a child can be set");
    }

    /// Its resident memory, bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("kB");
        kib * 1024
    }

    /// How many files and sockets it holds open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("its fd table").count()
    }

    /// Processor time it has used, user and system together.
    pub fn cpu_time(&self) -> Duration {
        let stat = self.proc("stat");
        // The command name is in parentheses and may hold spaces: fields count from after it.
        let fields: Vec<&str> = stat[stat.rfind(')').expect("a command") + 1..].split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// Pops that wait, by `/status`, over all shards.
    pub fn parked(&self) -> u64 {
        self.gauge("parked")
    }

    /// Requests that wait for their reply, by `/status`, over all shards.
    pub fn open_requests(&self) -> u64 {
        self.gauge("openRequests")
    }

    /// A counter of `/metrics/prometheus`, by its name there with its labels.
    pub fn counter(&self, name: &str) -> u64 {
        let page = self.connect().get("/metrics/prometheus");
        let line = page.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        line.unwrap_or_else(|| panic!("{name} in {}", page.text()))
    }

    /// Open connections, by `/status`, over all shards; the one that asks is among them.
    pub fn connections(&self) -> u64 {
        self.gauge("connections")
    }

    fn gauge(&self, name: &str) -> u64 {
        let status = self.connect().get("/status").json();
        status[name].as_u64().unwrap_or_else(|| panic!("{name} in {status}"))
    }

    /// The rows of the queue listing, in the default tenant.
    pub fn listing(&self) -> Vec<Value> {
        let listing = self.connect().get("/api/v1/ephemeral/queues").json();
        listing["queues"].as_array().expect("queues").clone()
    }

    /// The listing's row of one queue.
    pub fn row(&self, queue: &str) -> Option<Value> {
        self.listing().into_iter().find(|row| row["queue"] == queue)
    }

    fn wait_until_healthy(&self) {
        eventually("a healthy broker", || {
            self.try_connect().ok().and_then(|mut connection| (connection.get("/health").status == 200).then_some(()))
        });
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("its /proc")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the broker ---\n{}--- end of log ---", self.log());
        }
    }
}

/// Starts the binary and reads the port from the line of its log that names it.
fn launch(settings: &[(String, String)], data_dir: &TempDir, log: &Arc<Mutex<String>>) -> (Child, SocketAddr) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_queen"))
        .env_clear()
        .env("NO_COLOR", "1")
        .env("RUST_BACKTRACE", "1")
        .env("PORT", "0")
        .env("QUEEN_BIND_ADDR", "127.0.0.1")
        .env("QUEEN_DATA_DIR", data_dir.path())
        .env("QUEEN_DATA_CPUS", cpus(2))
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the broker starts");

    let lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let (announce, announced) = mpsc::channel();
    let log_writer = Arc::clone(log);
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some(address) = listening_address(&line) {
                let _ = announce.send(address);
            }
            let mut log = log_writer.lock().expect("the log");
            log.push_str(&line);
            log.push('\n');
        }
    });

    match announced.recv_timeout(PATIENCE) {
        Ok(address) => (child, address),
        Err(why) => {
            if why == RecvTimeoutError::Timeout {
                let _ = child.kill();
            }
            let status = child.wait();
            panic!("the broker does not listen ({status:?}):\n{}", log.lock().expect("the log"));
        }
    }
}

/// The address in a log line that says `listening on ADDRESS:PORT`.
fn listening_address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on ")?;
    let address = rest.split(|c: char| c.is_whitespace() || c == '"' || c == ',').next()?;
    let mut address: SocketAddr = address.parse().ok()?;
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    Some(address)
}

/// The first `count` cores that this process may use, or as many as there are, as
/// `QUEEN_DATA_CPUS` takes them.
pub fn cpus(count: usize) -> String {
    let allowed = rustix::thread::sched_getaffinity(None).expect("the cores of this process");
    let cores: Vec<String> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&core| allowed.is_set(core))
        .take(count)
        .map(|core| core.to_string())
        .collect();
    cores.join(",")
}
