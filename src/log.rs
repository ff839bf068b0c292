//! The log: text or JSON lines on stderr, written by a thread of its own.
//!
//! A data shard that logs must never wait for a slow reader of stderr, so lines pass through a
//! bounded queue; with the queue full they are dropped and counted. `boot` starts it and flushes
//! it on the way out.

use std::io;
use std::sync::Mutex;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::settings::{self, LogLevel};

/// Lines that wait for stderr; at some 200 bytes each, a few megabytes at most.
const QUEUED_LINES_MAX: usize = 16_384;

/// What others' code says of its own at the lower levels is not what an operator asks for with LOG_LEVEL.
const QUIET: &str = "rustls=warn,ureq=warn,ureq_proto=warn,tokio_postgres=warn";

/// The writer thread, until the log ends. Global like the subscriber that feeds it: a panic hook
/// has to reach it from any thread.
static WRITER: Mutex<Option<Writer>> = Mutex::new(None);

struct Writer {
    guard: WorkerGuard,
    dropped: ErrorCounter,
}

/// Starts the log; whatever is traced before goes nowhere. Once per process: a second call
/// changes nothing.
pub fn start(settings: &settings::Log) {
    let (stderr, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(QUEUED_LINES_MAX)
        .thread_name("queen-log")
        .finish(io::stderr());
    let dropped = stderr.error_counter();
    let filter = settings.filter.clone().unwrap_or_else(|| match settings.level {
        level @ (LogLevel::Debug | LogLevel::Trace) => format!("{level},{QUIET}"),
        level => level.to_string(),
    });
    let builder =
        tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_ansi(false).with_writer(stderr);
    let started = if settings.json { builder.json().flatten_event(true).try_init() } else { builder.try_init() };
    if started.is_ok() {
        *writer() = Some(Writer { guard, dropped });
    }
}

/// Lines dropped so far because stderr was slower than the log.
#[must_use]
pub fn dropped_lines() -> usize {
    writer().as_ref().map_or(0, |writer| writer.dropped.dropped_lines())
}

/// Writes out what is queued, waiting up to a second for a slow reader, and ends the log.
pub fn finish() {
    let dropped = dropped_lines();
    if dropped > 0 {
        tracing::warn!(dropped, "log lines dropped: stderr was slower than the log");
    }
    // Taken out first: the guard waits for its thread, and nobody should wait for the lock.
    let ended = writer().take();
    drop(ended.map(|writer| writer.guard));
}

fn writer() -> std::sync::MutexGuard<'static, Option<Writer>> {
    WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
