//! Executors and the tasks on them.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use glommio::{GlommioError, Latency, LocalExecutorBuilder, Placement, Shares, TaskQueueHandle};

/// How long ready tasks run before the executor looks at its sockets again, at the latest; the runtime's own default of
/// 100 ms would let one task that keeps yielding hold up every connection for as long. Idle executors look at once.
const IO_LOOK_EVERY: Duration = Duration::from_millis(1);

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
            .preempt_timer(IO_LOOK_EVERY)
            .spawn(make_future)
            .map(JoinHandle)
            .map_err(|error| ExecutorError::Start(error.into()))
    }
}

/// An executor that runs.
#[must_use = "join it, or its failure is never seen"]
pub struct JoinHandle<T: Send + 'static>(glommio::ExecutorJoinHandle<T>);

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
        })
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

/// Spawns a task on this executor, in the task queue of the task that spawns it.
///
/// # Panics
///
/// When called outside an executor, here and in everything else of this module that needs one.
pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    Task(glommio::spawn_local(future))
}

/// Lets every other task that is ready run first. Sockets are looked at within a millisecond, not at each call.
pub async fn yield_now() {
    glommio::executor().yield_now().await;
}

/// Yields if this task's queue has used up its time.
pub async fn yield_if_needed() {
    glommio::yield_if_needed().await;
}

/// A queue of tasks with its own share of its executor: what a role is that has no executor of its own.
#[derive(Clone, Copy, Debug)]
pub struct TaskQueue(TaskQueueHandle);

impl TaskQueue {
    /// Makes a queue on this executor. Queues get time in proportion to their `shares` (the executor's first queue has
    /// 1000). When `latency` is given, the running queue is asked to yield within it if this one has work.
    #[must_use]
    pub fn create(name: &str, shares: usize, latency: Option<Duration>) -> Self {
        let latency = latency.map_or(Latency::NotImportant, Latency::Matters);
        Self(glommio::executor().create_task_queue(Shares::Static(shares), latency, name))
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
