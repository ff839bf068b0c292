//! Processes that this one starts and never leaves behind.
//!
//! Each runs below `setpriv`, which has the kernel kill it when this process ends in whatever way. Start them on the main
//! thread: it is the end of the thread that started one that counts.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::Failed;

/// A running process, with its output at the end of a file.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` as `user`, or as who this is, with these words and settings and nothing of the broker's or
    /// PostgreSQL's from this process's own environment.
    pub fn start(
        program: &Path,
        user: Option<&str>,
        words: &[String],
        settings: &[(String, String)],
        log: &Path,
    ) -> Result<Self, Failed> {
        let failed = |error: io::Error| Failed(format!("{} does not start: {error}", program.display()));
        let output = File::options().create(true).append(true).open(log).map_err(failed)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(user) = user {
            command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
        }
        command.arg("--").arg(program).args(words).current_dir("/");
        for (name, _) in std::env::vars() {
            if ["QUEEN_", "PG", "DATABASE_URL", "PORT"].iter().any(|known| name.starts_with(known)) {
                command.env_remove(name);
            }
        }
        let child = command
            .envs(settings.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself, which its log and its exit code tell.
            let _ = kill_process(pid, signal);
        }
    }

    /// Sends it a signal and waits until it is gone.
    pub fn end(&mut self, signal: Signal) {
        self.signal(signal);
        let _ = self.child.wait();
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// All that it and its forerunners at the same file have said.
    pub fn said(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The last lines of it.
    pub fn said_last(&self) -> String {
        let said = self.said();
        let lines: Vec<_> = said.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(Signal::KILL);
    }
}
