//! Executors and the tasks on them.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::mpsc,
    task::{Context, Poll},
    thread,
    time::Duration,
};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::local::Local;

/// Why an executor gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The thread, its ring or its pinning could not be had. Check io_uring, the memlock limit and the local.
    #[error("the executor could not start: {0}")]
    Start(#[source] io::Error),
    /// The ring failed under the executor.
    #[error("the executor's ring failed: {0}")]
    Ring(#[source] io::Error),
    /// A task panicked; the panic's message is on standard error.
    #[error("the executor panicked")]
    Panicked,
}

/// Starts executors.
pub struct Executor;

impl Executor {
    /// Starts an executor on a thread of its own and runs what `make_future` makes there until it ends. Tasks that are
    /// left then are dropped.
    ///
    /// The thread is called `name`, is pinned to `cpu` when one is given, and looks for work for `spin` before it
    /// sleeps.
    ///
    /// # Errors
    ///
    /// [`ExecutorError::Start`] when the thread or its ring can't be had, or `cpu` does not exist. What goes wrong
    /// later comes from [`JoinHandle::join`].
    pub fn spawn<G, F, T>(
        name: &str,
        cpu: Option<usize>,
        spin: Duration,
        make_future: G,
    ) -> Result<JoinHandle<T>, ExecutorError>
    where
        G: FnOnce() -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (say, started) = mpsc::sync_channel(1);
        let body = move || {
            let local = pin_to(cpu).and_then(|()| Local::install()).map_err(ExecutorError::Start)?;
            say.send(()).expect("the spawner waits to hear this");
            let output = local.run(async move { make_future().await }, spin).map_err(ExecutorError::Ring);
            local.shut_down();
            output
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body).map_err(ExecutorError::Start)?;
        let handle = JoinHandle(thread);
        if started.recv().is_ok() {
            return Ok(handle);
        }
        Err(handle.join().err().unwrap_or(ExecutorError::Panicked))
    }
}

fn pin_to(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(None, &cpus)?)
}

/// An executor that runs.
#[must_use = "join it, or its failure is never seen"]
pub struct JoinHandle<T: Send + 'static>(thread::JoinHandle<Result<T, ExecutorError>>);

impl<T: Send + 'static> JoinHandle<T> {
    /// Waits until the executor's future ends. Blocks the thread.
    ///
    /// # Errors
    ///
    /// [`ExecutorError`], when there is no result.
    pub fn join(self) -> Result<T, ExecutorError> {
        self.0.join().map_err(|_| ExecutorError::Panicked)?
    }
}

/// A task of the executor that it was spawned on: a future of its output. Dropped, it is cancelled.
#[must_use = "dropping a task cancels it: detach() lets it run"]
pub struct Task<T>(async_task::Task<T>);

impl<T> Task<T> {
    /// Lets the task run to its end on its own.
    pub fn detach(self) {
        self.0.detach();
    }

    /// Cancels the task and waits until its future is dropped. Returns the output if it had ended before.
    pub async fn cancel(self) -> Option<T> {
        self.0.cancel().await
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Spawns a task on this executor. It first runs after this one has returned to the executor, so a borrow may be held
/// while spawning.
///
/// # Panics
///
/// When called outside an executor, here and in everything else of this module that needs one.
pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    Task(Local::here().spawn(future))
}
