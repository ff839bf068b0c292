//! Waking a task of an executor from another thread.
//!
//! Any waker may be woken from any thread, but the runtime's own way of doing it leaves a gap (read in the source of
//! glommio-ng 0.12.0). Its eventfd completes in the ring whose completions also say "let other tasks run". One that comes
//! just before the first task of a turn makes the executor skip all of them; if the wake itself was seen already, it
//! finds no news then and sleeps with tasks that are ready, until the next event, whenever that is. A preemption timer
//! takes the same way: at 1 ms, two busy executors stood still within a second (`tests/executors.rs`), which is why there
//! is none here. The eventfd's gap is a few instructions wide and was not seen to be hit; it is closed all the same,
//! because what falls into it is a request that hangs. The runtime's way also takes a lock of the whole process.
//!
//! So an executor has an eventfd of its own here, read by one of its tasks like a socket. A wake from another thread
//! leaves the task's waker in a queue and writes to the eventfd if the queue was empty; the reading task wakes what is in
//! the queue, on the executor's own thread, where the runtime is sound.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    pin::pin,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Wake, Waker},
};

use glommio::io::PollableFd;
use rustix::event::{EventfdFlags, eventfd};

use super::ExecutorError;

thread_local! {
    /// What this thread's executor wakes and yields with.
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

#[derive(Clone)]
struct Here {
    alarm: Arc<Alarm>,
    /// An eventfd that is always readable: waiting for it lets the executor look at its rings once.
    always_ready: Rc<PollableFd<OwnedFd>>,
}

/// One executor's alarm, shared with whoever may wake its tasks.
struct Alarm {
    eventfd: OwnedFd,
    /// Tasks to wake.
    queue: Mutex<Vec<Waker>>,
}

impl Alarm {
    fn queue(&self) -> impl std::ops::DerefMut<Target = Vec<Waker>> + '_ {
        // A panic while it is locked leaves a whole vector behind.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_of_this_thread(self: &Arc<Self>) -> bool {
        HERE.with_borrow(|here| here.as_ref().is_some_and(|here| Arc::ptr_eq(&here.alarm, self)))
    }
}

/// A task's waker for other threads.
struct Foreign {
    alarm: Arc<Alarm>,
    task: Waker,
}

impl Wake for Foreign {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.alarm.is_of_this_thread() {
            self.task.wake_by_ref();
            return;
        }
        let was_empty = {
            let mut queue = self.alarm.queue();
            queue.push(self.task.clone());
            queue.len() == 1
        };
        if was_empty {
            // It fails only when the counter is full, and then the executor has something to read already.
            let _readable_anyway = rustix::io::write(&self.alarm.eventfd, &1_u64.to_ne_bytes());
        }
    }
}

/// A waker of the same task that other threads may use: hand out this one instead of the task's own wherever a thread
/// that is not this executor's wakes. Outside an executor it is the same waker.
#[must_use]
pub fn foreign_waker(task: &Waker) -> Waker {
    HERE.with_borrow(|here| match here {
        Some(here) => Arc::new(Foreign { alarm: Arc::clone(&here.alarm), task: task.clone() }).into(),
        None => task.clone(),
    })
}

/// Awaits a future that another thread completes: it is polled with a [`foreign_waker`].
pub async fn foreign<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| future.as_mut().poll(&mut Context::from_waker(&foreign_waker(cx.waker())))).await
}

/// Waits for one look at the rings. False outside an executor of this crate.
pub(super) async fn look_at_rings() -> bool {
    let here = HERE.with_borrow(|here| here.as_ref().map(|here| Rc::clone(&here.always_ready)));
    match here {
        Some(always_ready) => always_ready.readable().await.is_ok(),
        None => false,
    }
}

/// Sets the alarm up on this thread's executor, before anything else runs there.
pub(super) fn install() -> Result<(), ExecutorError> {
    let start_error = |error: std::io::Error| ExecutorError::Start(error);
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let alarm = Arc::new(Alarm {
        eventfd: eventfd(0, flags).map_err(|error| start_error(error.into()))?,
        queue: Mutex::new(Vec::new()),
    });
    let always_ready = eventfd(1, flags).map_err(|error| start_error(error.into()))?;
    let always_ready = PollableFd::new(always_ready).map_err(|error| start_error(error.into()))?;
    let reading = PollableFd::new(Reading(Arc::clone(&alarm))).map_err(|error| start_error(error.into()))?;
    HERE.set(Some(Here { alarm, always_ready: Rc::new(always_ready) }));
    super::spawn_local(read(reading)).detach();
    Ok(())
}

/// The eventfd as something to poll that shares ownership of it.
struct Reading(Arc<Alarm>);

impl AsRawFd for Reading {
    fn as_raw_fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }
}

/// Wakes what other threads have queued, for as long as the executor lives.
async fn read(reading: PollableFd<Reading>) {
    let alarm = Arc::clone(&reading.get_ref().0);
    let mut woken = Vec::new();
    while reading.readable().await.is_ok() {
        // The counter first: a wake that comes after the queue is taken finds it empty and writes again.
        let _counter_or_nothing = rustix::io::read(alarm.eventfd.as_fd(), &mut [0_u8; 8]);
        std::mem::swap(&mut *alarm.queue(), &mut woken);
        for task in woken.drain(..) {
            task.wake();
        }
    }
}
