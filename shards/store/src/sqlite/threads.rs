//! The threads that work on the file: one writes, one loads, one reads lists and counts.
//!
//! Jobs that arrive while a commit runs form the next one: one transaction, each job with an outcome of its own in it.
//! Under load the commit's cost is shared; alone, a job waits for nobody. The other two have connections of their own
//! and see what is committed, so that nothing long holds up a commit.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

use queen_fabric::protocol::ControlAsk;
use queen_log::store::{Done, Load, Loaded, StoreFailure, Work};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use super::{Sqlite, admin, clock::Clock, commit, control, create, declarations, load, read};
use crate::{
    StoreError,
    database::{Health, Job, JobDone, Outcome},
    outcomes::Outcomes,
};

/// Jobs in one transaction: enough to share a commit, few enough to keep it short.
const JOBS_MAX: usize = 256;

/// Statements that a connection keeps prepared.
const STATEMENTS: usize = 64;

/// The handles of the threads. Dropped, it lets them finish what they have and waits for that.
#[derive(Debug)]
pub(crate) struct Threads {
    writer: Worker,
    loader: Worker,
    reader: Worker,
    outcomes: Arc<Outcomes>,
}

/// A thread and the way to it.
#[derive(Debug)]
struct Worker {
    /// `None` only while dropping: without it the thread ends.
    jobs: Option<Sender<(u64, Job)>>,
    thread: Option<JoinHandle<()>>,
}

impl Threads {
    /// Starts them on an open file.
    ///
    /// # Errors
    /// When the file does not open twice more, or there are no threads to be had.
    pub(crate) fn start(file: Sqlite) -> Result<Self, StoreError> {
        let outcomes = Arc::new(Outcomes::new(Health::Connected));
        let clock = Arc::new(Clock::new());
        let path = file.path.clone();
        let (for_loads, for_reads) = (beside(&path)?, beside(&path)?);
        file.connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let loader = Worker::start("queen-load", {
            let (outcomes, clock) = (Arc::clone(&outcomes), Arc::clone(&clock));
            move |jobs| look(&for_loads, &jobs, &outcomes, &clock)
        })?;
        let reader = Worker::start("queen-read", {
            let (outcomes, clock) = (Arc::clone(&outcomes), Arc::clone(&clock));
            move |jobs| look(&for_reads, &jobs, &outcomes, &clock)
        })?;
        let writer = Worker::start("queen-write", {
            let outcomes = Arc::clone(&outcomes);
            move |jobs| write(file.connection, &jobs, &outcomes, &clock)
        })?;
        Ok(Self { writer, loader, reader, outcomes })
    }

    /// Hands a job to the thread that does its kind.
    pub(crate) fn start_job(&self, number: u64, job: Job) {
        let worker = match &job {
            Job::Log(Work::Load(_)) | Job::Declarations | Job::Control(ControlAsk::Load) => &self.loader,
            Job::Log(Work::Read(_)) => &self.reader,
            Job::Log(Work::Commit(_) | Work::Create(_) | Work::Admin(_))
            | Job::Declare(_)
            | Job::Remove(_)
            | Job::Control(_) => &self.writer,
        };
        let jobs = worker.jobs.as_ref().expect("only drop takes it");
        // A thread that is gone has panicked, and a panic ends the process.
        let _sent = jobs.send((number, job));
    }

    /// Where outcomes come out.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }
}

impl Worker {
    fn start(name: &str, body: impl FnOnce(Receiver<(u64, Job)>) + Send + 'static) -> io::Result<Self> {
        let (jobs, incoming) = channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || body(incoming))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// One more connection to an open file, for looking only.
fn beside(path: &Path) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::of(path, source);
    let connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(super::BUSY_TIMEOUT).map_err(failed)?;
    connection.pragma_update(None, "query_only", true).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// A looking thread: a job at a time, until the handle is dropped.
fn look(connection: &Connection, jobs: &Receiver<(u64, Job)>, outcomes: &Outcomes, clock: &Clock) {
    while let Ok((number, job)) = jobs.recv() {
        // Before the look, so that nothing that is stamped below can be missed by it.
        let safe_us = clock.safe_us();
        let looked = match &job {
            Job::Log(Work::Load(Load::Clock)) => Ok(log(Done::Loaded(Loaded::Clock(clock.now_us())))),
            Job::Log(Work::Load(load)) => load::load(connection, load, safe_us).map(|loaded| log(Done::Loaded(loaded))),
            Job::Log(Work::Read(read)) => {
                read::read(connection, read, clock.now_us(), safe_us).map(|answer| log(Done::Read(answer)))
            }
            Job::Declarations => declarations::load(connection).map(JobDone::Declarations),
            Job::Control(ask) => control::control(connection, ask),
            _ => unreachable!("the writer does the others"),
        };
        outcomes.deliver([(number, looked.map_err(|error| failure(&error)))]);
    }
}

/// The writing thread: until the handle is dropped and everything that was started is done.
fn write(mut connection: Connection, jobs: &Receiver<(u64, Job)>, outcomes: &Outcomes, clock: &Clock) {
    while let Ok(first) = jobs.recv() {
        let together: Vec<_> = std::iter::once(first).chain(jobs.try_iter().take(JOBS_MAX - 1)).collect();
        clock.open();
        let written = write_all(&mut connection, &together, clock);
        clock.close();
        match written {
            Ok(done) => {
                outcomes.set_health(Health::Connected);
                outcomes.deliver(done);
            }
            Err(error) => {
                tracing::error!(jobs = together.len(), "the store wrote nothing: {error}");
                outcomes.set_health(Health::Disconnected(error.to_string().into()));
                outcomes.deliver(together.iter().map(|(number, _)| (*number, Err(failure(&error)))));
            }
        }
    }
    // The last connection to close writes the WAL back and removes it.
    if let Err((_, error)) = connection.close() {
        tracing::warn!("the database was not closed cleanly: {error}; the next start repairs it");
    }
}

/// All jobs in one transaction. One that fails changes nothing and leaves the others.
fn write_all(connection: &mut Connection, jobs: &[(u64, Job)], clock: &Clock) -> rusqlite::Result<Vec<Outcome>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut done = Vec::with_capacity(jobs.len());
    for (number, job) in jobs {
        let outcome = write_one(&mut transaction, job, clock.now_us());
        if let Err(error) = &outcome
            && is_away(error)
        {
            // SQLite may have rolled everything back itself.
            return Err(outcome.expect_err("just seen"));
        }
        done.push((*number, outcome.map_err(|error| failure(&error))));
    }
    transaction.commit()?;
    Ok(done)
}

fn write_one(transaction: &mut Transaction<'_>, job: &Job, now_us: i64) -> rusqlite::Result<JobDone> {
    let savepoint = transaction.savepoint()?;
    let done = match job {
        Job::Log(Work::Commit(batch)) => log(Done::Committed(commit::commit(&savepoint, batch, now_us)?)),
        Job::Log(Work::Create(creates)) => {
            let created = creates.iter().map(|create| create::create(&savepoint, create, now_us));
            log(Done::Created(created.collect::<rusqlite::Result<_>>()?))
        }
        Job::Log(Work::Admin(admin)) => log(Done::Admin(admin::admin(&savepoint, admin, now_us)?)),
        Job::Declare(declaration) => declarations::declare(&savepoint, declaration, now_us)?,
        Job::Remove(key) => declarations::remove(&savepoint, key, now_us)?,
        Job::Control(ask) => control::control(&savepoint, ask)?,
        Job::Log(Work::Load(_) | Work::Read(_)) | Job::Declarations => unreachable!("the looking threads do these"),
    };
    savepoint.commit()?;
    Ok(done)
}

fn log(done: Done) -> JobDone {
    JobDone::Log(Box::new(done))
}

/// Whether it is the disk that fails, rather than what was asked.
fn is_away(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        None | Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig)
    )
}

fn failure(error: &rusqlite::Error) -> StoreFailure {
    let reason = error.to_string().into();
    if is_away(error) { StoreFailure::Unavailable(reason) } else { StoreFailure::Refused(reason) }
}
