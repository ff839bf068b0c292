//! Starting a run, looking at it while it goes, stopping it.

use std::time::Duration;

use crate::{Outcome, Plan};

/// A run that goes on, on executors of its own.
#[must_use = "join it, or its outcome is never seen"]
pub struct Running {}

/// Why a run could not be started, or did not come to its end. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing answers at the target, or not as this driver expects.
    #[error("{0}")]
    Unreachable(String),
    /// The plan asks for what the driver can't do, such as groups with Redis lists.
    #[error("{0}")]
    Unsupported(String),
    /// An executor did not start or panicked.
    #[error("{0}")]
    Executor(String),
}

/// What a run has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Since the start of the measured part; `None` in the warm-up.
    pub measured: Option<Duration>,
    /// Messages sent since then.
    pub sent: u64,
    /// Messages received since then.
    pub received: u64,
    /// Errors since then.
    pub errors: u64,
    /// Percentiles since then, in nanoseconds: median, 99th, 99.9th.
    pub p50_ns: u64,
    /// See `p50_ns`.
    pub p99_ns: u64,
    /// See `p50_ns`.
    pub p999_ns: u64,
}

/// Connects to the target and starts the run. Returns once the first connection has shown that the target speaks the
/// driver's protocol.
///
/// # Errors
///
/// [`RunError`].
pub fn start(plan: Plan) -> Result<Running, RunError> {
    let _ = plan;
    Ok(Running {})
}

impl Running {
    /// What it has done so far. Cheap enough for ten times a second.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }

    /// Ends it early: what is in flight is waited for, as at a run's own end. May be called from a signal handler's thread.
    pub fn stop(&self) {}

    /// Whether its executors have ended, so that [`join`](Self::join) would not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        true
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// [`RunError`].
    pub fn join(self) -> Result<Outcome, RunError> {
        Err(RunError::Executor("not there yet".into()))
    }
}
