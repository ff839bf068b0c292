//! The writer: one thread that owns the database and commits in groups.
//!
//! Asks that arrive while a commit runs form the next batch: one transaction, answered after it.
//! Under load the commit's cost is shared; alone, an ask waits for nobody. The way in is bounded
//! and never waited for; the way out wakes the role's task. Owned by [`Store`](crate::Store).

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use queen_fabric::protocol::store::{StoreAnswer, StoreAsk};

use crate::backend::Backend;

/// Asks that may wait for the thread. With a commit of some milliseconds and batches of
/// [`BATCH_MAX`], the last of them waits for about four commits.
const QUEUED_MAX: usize = 1024;

/// Asks in one transaction: enough to share a commit, few enough to keep it short.
const BATCH_MAX: usize = 256;

/// An ask with what its answer goes back to.
type Job<T> = (T, StoreAsk);

/// The handle of the thread. Dropping it lets the thread finish what it has and close the
/// database, and waits for that. `T` tells answers apart.
pub(crate) struct Writer<T> {
    /// `None` only while dropping: without it the thread ends.
    jobs: Option<SyncSender<Job<T>>>,
    done: Arc<Done<T>>,
    thread: Option<JoinHandle<()>>,
}

/// Answers on their way back.
struct Done<T>(Mutex<DoneState<T>>);

struct DoneState<T> {
    answers: Vec<(T, StoreAnswer)>,
    /// Who takes them, while it waits.
    waker: Option<Waker>,
}

impl<T: Send + 'static> Writer<T> {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's, when there is no thread to be had.
    pub(crate) fn start(backend: impl Backend) -> io::Result<Self> {
        let (jobs, incoming) = sync_channel(QUEUED_MAX);
        let done = Arc::new(Done(Mutex::new(DoneState { answers: Vec::new(), waker: None })));
        let thread = thread::Builder::new().name("queen-store".into()).spawn({
            let done = Arc::clone(&done);
            move || write(backend, &incoming, &done)
        })?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread) })
    }

    /// Queues an ask; its answer comes out of [`poll_done`](Self::poll_done).
    ///
    /// # Errors
    /// The token, at once, when too many wait already or the thread is gone.
    pub(crate) fn submit(&self, token: T, ask: StoreAsk) -> Result<(), T> {
        let jobs = self.jobs.as_ref().expect("only drop takes it");
        jobs.try_send((token, ask)).map_err(|refused| match refused {
            TrySendError::Full((token, _)) | TrySendError::Disconnected((token, _)) => token,
        })
    }

    /// The answers that are there, at least one; pending, it wakes `cx` when some are.
    pub(crate) fn poll_done(&self, cx: &mut Context<'_>) -> Poll<Vec<(T, StoreAnswer)>> {
        let mut state = self.done.lock();
        if state.answers.is_empty() {
            state.waker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut state.answers))
    }
}

impl<T> Drop for Writer<T> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl<T> Done<T> {
    fn lock(&self) -> MutexGuard<'_, DoneState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, answers: impl Iterator<Item = (T, StoreAnswer)>) {
        let waker = {
            let mut state = self.lock();
            state.answers.extend(answers);
            state.waker.take()
        };
        // Outside the lock: the woken task takes it first thing.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The thread: until the handle is dropped and everything that was queued is answered.
fn write<T>(mut backend: impl Backend, incoming: &Receiver<Job<T>>, done: &Done<T>) {
    while let Ok(first) = incoming.recv() {
        let waiting = incoming.try_iter().take(BATCH_MAX - 1);
        let (tokens, asks): (Vec<T>, Vec<StoreAsk>) = std::iter::once(first).chain(waiting).unzip();
        match backend.apply(&asks) {
            Ok(answers) => {
                assert_eq!(answers.len(), asks.len(), "one answer per ask");
                done.deliver(tokens.into_iter().zip(answers));
            }
            Err(reason) => {
                tracing::error!(asks = asks.len(), "the store applied nothing: {reason}");
                let answer = || StoreAnswer::Unavailable(reason.as_str().into());
                done.deliver(tokens.into_iter().map(|token| (token, answer())));
            }
        }
    }
    backend.close();
}

#[cfg(test)]
mod tests {
    use super::*;
    use queen_fabric::protocol::store::Declaration;
    use std::sync::mpsc;
    use std::task::Wake;

    /// A database that commits when the test says so, and as the test says.
    struct Scripted {
        batches: mpsc::Sender<usize>,
        verdicts: mpsc::Receiver<Result<(), &'static str>>,
        closed: mpsc::Sender<()>,
    }

    impl Backend for Scripted {
        fn apply(&mut self, asks: &[StoreAsk]) -> Result<Vec<StoreAnswer>, String> {
            self.batches.send(asks.len()).unwrap();
            self.verdicts.recv().unwrap()?;
            let answer = |ask: &StoreAsk| match ask {
                StoreAsk::Declare(declared) => StoreAnswer::Done { updated_at_ms: declared.updated_at_ms },
                StoreAsk::Remove(_) | StoreAsk::Log(_) => StoreAnswer::Removed { declared: true },
            };
            Ok(asks.iter().map(answer).collect())
        }

        fn close(self) {
            self.closed.send(()).unwrap();
        }
    }

    struct Script {
        batches: mpsc::Receiver<usize>,
        verdicts: mpsc::Sender<Result<(), &'static str>>,
        closed: mpsc::Receiver<()>,
    }

    fn scripted() -> (Writer<u64>, Script) {
        let (batch, batches) = mpsc::channel();
        let (verdicts, verdict) = mpsc::channel();
        let (close, closed) = mpsc::channel();
        let backend = Scripted { batches: batch, verdicts: verdict, closed: close };
        let script = Script { batches, verdicts, closed };
        (Writer::start(backend).unwrap(), script)
    }

    fn ask(updated_at_ms: u64) -> StoreAsk {
        StoreAsk::Declare(Box::new(Declaration {
            tenant: [0; 16],
            queue: "q".into(),
            options_json: "{}".into(),
            updated_at_ms,
        }))
    }

    /// Wakes a thread that waits on the channel, once per wake.
    struct Bell(mpsc::Sender<()>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
        }
    }

    /// Waits for `count` answers the way a task does: poll, sleep until woken, poll.
    fn answers(writer: &Writer<u64>, count: usize) -> Vec<(u64, StoreAnswer)> {
        let (bell, rings) = mpsc::channel();
        let waker = Waker::from(Arc::new(Bell(bell)));
        let mut answers = Vec::new();
        while answers.len() < count {
            match writer.poll_done(&mut Context::from_waker(&waker)) {
                Poll::Ready(more) => answers.extend(more),
                Poll::Pending => rings.recv().unwrap(),
            }
        }
        answers
    }

    #[test]
    fn asks_that_arrive_during_a_commit_share_the_next_one() {
        let (writer, script) = scripted();
        writer.submit(0, ask(0)).unwrap();
        assert_eq!(script.batches.recv(), Ok(1));
        for token in 1..=10 {
            writer.submit(token, ask(token)).unwrap();
        }
        script.verdicts.send(Ok(())).unwrap();
        assert_eq!(script.batches.recv(), Ok(10));
        script.verdicts.send(Ok(())).unwrap();
        for (at, (token, answer)) in (0..).zip(answers(&writer, 11)) {
            assert_eq!(token, at);
            assert!(matches!(answer, StoreAnswer::Done { updated_at_ms } if updated_at_ms == at));
        }
    }

    #[test]
    fn a_batch_that_fails_is_unavailable_to_all_of_it_and_the_next_is_tried() {
        let (writer, script) = scripted();
        writer.submit(0, ask(0)).unwrap();
        assert_eq!(script.batches.recv(), Ok(1));
        writer.submit(1, ask(1)).unwrap();
        writer.submit(2, ask(2)).unwrap();
        script.verdicts.send(Err("disk full")).unwrap();
        script.verdicts.send(Ok(())).unwrap();
        let answers = answers(&writer, 3);
        assert!(matches!(&answers[0].1, StoreAnswer::Unavailable(why) if &**why == "disk full"));
        assert!(matches!(answers[1].1, StoreAnswer::Done { .. }));
        assert!(matches!(answers[2].1, StoreAnswer::Done { .. }));
    }

    #[test]
    fn with_the_queue_full_an_ask_is_refused_at_once() {
        let (writer, script) = scripted();
        writer.submit(0, ask(0)).unwrap();
        assert_eq!(script.batches.recv(), Ok(1));
        let queued = QUEUED_MAX as u64;
        for token in 1..=queued {
            writer.submit(token, ask(token)).unwrap();
        }
        assert_eq!(writer.submit(queued + 1, ask(0)).err(), Some(queued + 1));
        for _ in 0..=QUEUED_MAX.div_ceil(BATCH_MAX) {
            script.verdicts.send(Ok(())).unwrap();
        }
        assert_eq!(answers(&writer, QUEUED_MAX + 1).len(), QUEUED_MAX + 1);
    }

    #[test]
    fn dropping_the_writer_finishes_what_is_queued_and_closes() {
        let (writer, script) = scripted();
        for token in 0..3 {
            writer.submit(token, ask(token)).unwrap();
        }
        for _ in 0..3 {
            script.verdicts.send(Ok(())).unwrap();
        }
        drop(writer);
        assert_eq!(script.batches.try_iter().sum::<usize>(), 3);
        assert_eq!(script.closed.try_recv(), Ok(()));
    }
}
