//! Executors and the tasks on them.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use super::alarm;
use glommio::{GlommioError, Latency, LocalExecutorBuilder, Placement, Shares, TaskQueueHandle};

/// After this time the runtime interrupts ready tasks to look at its rings. It must not: a timer that fires before the
/// first task of a turn makes the executor skip all of them and sleep (see `alarm`). A task that works for long calls
/// [`yield_now`] instead.
const NEVER_INTERRUPTED: Duration = Duration::from_secs(3_600);

/// Why an executor gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The thread, its ring or its pinning could not be had. Check io_uring, the memlock limit and the core.
    #[error("the executor could not start: {0}")]
    Start(#[source] io::Error),
    /// The executor's future panicked; the panic's message is on standard error.
    #[error("the executor panicked")]
    Panicked,
}

/// Starts executors.
pub struct Executor;

impl Executor {
    /// Starts an executor on a thread of its own and runs what `make_future` makes there until it ends.
    ///
    /// The thread is called `name` with a number behind it, is pinned to `cpu` when one is given, and looks for work
    /// for `spin` before it sleeps.
    ///
    /// # Errors
    ///
    /// [`ExecutorError::Start`] when the thread can't be had or `cpu` does not exist. What goes wrong on the thread
    /// itself comes from [`JoinHandle::join`].
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
        let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
        LocalExecutorBuilder::new(placement)
            .name(name)
            .spin_before_park(spin)
            .preempt_timer(NEVER_INTERRUPTED)
            .spawn(|| async {
                alarm::install()?;
                Ok(make_future().await)
            })
            .map(JoinHandle)
            .map_err(|error| ExecutorError::Start(error.into()))
    }
}

/// An executor that runs.
#[must_use = "join it, or its failure is never seen"]
pub struct JoinHandle<T: Send + 'static>(glommio::ExecutorJoinHandle<Result<T, ExecutorError>>);

impl<T: Send + 'static> JoinHandle<T> {
    /// Waits until the executor's future ends. Blocks the thread.
    ///
    /// # Errors
    ///
    /// [`ExecutorError`], when there is no result.
    pub fn join(self) -> Result<T, ExecutorError> {
        self.0.join().map_err(|error| match error {
            GlommioError::BuilderError(glommio::BuilderErrorKind::ThreadPanic(_)) => ExecutorError::Panicked,
            other => ExecutorError::Start(other.into()),
        })?
    }
}

/// A task of the executor that it was spawned on: a future of its output. Dropped, it is cancelled.
#[must_use = "dropping a task cancels it: detach() lets it run"]
pub struct Task<T>(glommio::Task<T>);

impl<T> Task<T> {
    /// Lets the task run to its end on its own.
    pub fn detach(self) {
        let _runs_on = self.0.detach();
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

/// Spawns a task on this executor, in the task queue of the task that spawns it. It first runs after this one has
/// returned to the executor, so a borrow may be held while spawning.
///
/// # Panics
///
/// When called outside an executor, here and in everything else of this module that needs one.
pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    // The runtime's own spawn_local polls the future within the call.
    TaskQueue(glommio::executor().current_task_queue()).spawn(future)
}

/// Lets every other task that is ready run first, and the executor look at its sockets, timers and lanes once. What works
/// for long calls it every now and then: nothing else interrupts a task, or tasks that keep each other busy.
///
/// # Panics
///
/// When the executor was not started by [`Executor::spawn`].
pub async fn yield_now() {
    assert!(alarm::look_at_rings().await, "yield_now is called on an executor");
}

/// A queue of tasks with its own share of its executor: what a role is that has no executor of its own.
#[derive(Clone, Copy, Debug)]
pub struct TaskQueue(TaskQueueHandle);

impl TaskQueue {
    /// Makes a queue on this executor. Queues get time in proportion to their `shares`; the executor's first queue has
    /// 1000. None has a latency of its own: the runtime would arm a preemption timer for it (see `NEVER_INTERRUPTED`).
    #[must_use]
    pub fn create(name: &str, shares: usize) -> Self {
        Self(glommio::executor().create_task_queue(Shares::Static(shares), Latency::NotImportant, name))
    }

    /// Spawns a task in this queue.
    ///
    /// # Panics
    ///
    /// When the queue was made on another executor.
    pub fn spawn<T: 'static>(self, future: impl Future<Output = T> + 'static) -> Task<T> {
        Task(glommio::spawn_local_into(future, self.0).expect("a task queue is never removed from its executor"))
    }
}
