//! The broker that is tried: started on a port that it keeps over all its starts, killed, started again.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{Failed, http::Connection, process::Process};

/// How long a broker may take until it is healthy: far beyond what it needs, so that only one that never is fails.
const HEALTHY_MAX: Duration = Duration::from_secs(60);

/// A broker with a directory of its own.
pub struct Broker {
    program: PathBuf,
    settings: Vec<(String, String)>,
    log: PathBuf,
    address: SocketAddr,
    process: Process,
}

impl Broker {
    /// Starts a broker that keeps its files in `directory`, and its queues there unless further `settings` say otherwise,
    /// and waits until it is healthy.
    pub fn start(program: &Path, directory: &Path, further: Vec<(String, String)>) -> Result<Self, Failed> {
        let program = fs::canonicalize(program).map_err(|error| Failed(format!("{}: {error}", program.display())))?;
        for part in ["data", "spool"] {
            fs::create_dir_all(directory.join(part)).map_err(|error| Failed(error.to_string()))?;
        }
        let address = free_address()?;
        let path = |part: &str| directory.join(part).display().to_string();
        let mut settings: Vec<(String, String)> = [
            ("PORT", address.port().to_string()),
            ("QUEEN_BIND_ADDR", Ipv4Addr::LOCALHOST.to_string()),
            ("QUEEN_DATA_DIR", path("data")),
            ("FILE_BUFFER_DIR", path("spool")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
        settings.extend(further);
        let log = directory.join("broker.log");
        let process = Process::start(&program, None, &[], &settings, &log)?;
        let mut broker = Self { program, settings, log, address, process };
        broker.wait_until_healthy()?;
        Ok(broker)
    }

    /// Where it listens, also after it was started again.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it without a chance to clean up, and starts it again.
    pub fn kill_and_start(&mut self) -> Result<(), Failed> {
        if self.process.has_ended() {
            return Err(Failed(format!("the broker ended by itself:\n{}", self.process.said_last())));
        }
        self.process.end(Signal::KILL);
        self.process = Process::start(&self.program, None, &[], &self.settings, &self.log)?;
        self.wait_until_healthy()
    }

    /// Fails when it has ended by itself.
    pub fn must_run(&mut self) -> Result<(), Failed> {
        match self.process.has_ended() {
            true => Err(Failed(format!("the broker ended by itself:\n{}", self.process.said_last()))),
            false => Ok(()),
        }
    }

    fn wait_until_healthy(&mut self) -> Result<(), Failed> {
        let started = Instant::now();
        while started.elapsed() < HEALTHY_MAX {
            self.must_run()?;
            let health = Connection::new(self.address).request("GET", "/health", None);
            if health.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(Failed(format!("the broker was not healthy in {HEALTHY_MAX:?}:\n{}", self.process.said_last())))
    }
}

/// An address that nobody listened at a moment ago.
pub fn free_address() -> Result<SocketAddr, Failed> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Failed(format!("there is no free port: {error}")))
}
