//! Signals become one stop flag that executors can await.
//!
//! The first SIGTERM or SIGINT sets the flag and wakes whoever awaits it; the second ends the
//! process at once, from within the signal handler, so that it works however stuck the rest is.
//! SIGHUP has what can be read again read again; SIGXFSZ would kill where a write error serves.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// The exit code of a process that a second signal ended.
const EXIT_AT_ONCE: i32 = 1;

/// Set once, when the process is to stop. Clones share it; no runtime is involved.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    set: AtomicBool,
    /// One per pending [`Stopped`], at the index it holds; taken by the one call that sets.
    waiting: Mutex<Vec<Option<Waker>>>,
}

impl Stop {
    /// Sets the flag and wakes all who wait; again, it does nothing.
    pub fn set(&self) {
        let waiting = {
            let mut waiting = self.shared.waiting();
            self.shared.set.store(true, Ordering::Release);
            std::mem::take(&mut *waiting)
        };
        // Outside the lock: a waker may run code of any runtime.
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// Resolves when it is set, on any executor or thread.
    #[must_use]
    pub fn wait(&self) -> Stopped {
        Stopped { shared: Arc::clone(&self.shared), place: None }
    }
}

impl Shared {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Option<Waker>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves when the [`Stop`] it came from is set.
#[derive(Debug)]
pub struct Stopped {
    shared: Arc<Shared>,
    /// Its place among the waiting, from the first poll on.
    place: Option<usize>,
}

impl Future for Stopped {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut waiting = this.shared.waiting();
        // Under the lock: `set` stores under it too, so a waker left here is never missed.
        if this.shared.set.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let place = *this.place.get_or_insert_with(|| {
            let free = waiting.iter().position(Option::is_none);
            free.unwrap_or_else(|| {
                waiting.push(None);
                waiting.len() - 1
            })
        });
        let waker = waiting[place].get_or_insert_with(|| cx.waker().clone());
        waker.clone_from(cx.waker());
        Poll::Pending
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(place) = self.place
            // Setting takes the whole list, so the place may be gone.
            && let Some(waker) = self.shared.waiting().get_mut(place)
        {
            *waker = None;
        }
    }
}

/// Installs the handlers and returns the flag that they set. Once per process. `hang_up` is called at every SIGHUP, on
/// the signals' own thread.
///
/// # Errors
/// The system's, when a handler or the thread cannot be had.
pub fn install(hang_up: impl Fn() + Send + 'static) -> io::Result<Stop> {
    let stop = Stop::default();
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order, so that the first signal passes the exit before it arms it.
        signal_hook::flag::register_conditional_shutdown(signal, EXIT_AT_ONCE, Arc::clone(&stopping))?;
        signal_hook::flag::register(signal, Arc::clone(&stopping))?;
    }
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGXFSZ])?;
    let setter = stop.clone();
    thread::Builder::new().name("queen-signals".into()).spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGTERM | SIGINT => {
                    let signal = if signal == SIGTERM { "SIGTERM" } else { "SIGINT" };
                    tracing::info!(signal, "stopping; a second signal ends it at once");
                    setter.set();
                }
                SIGXFSZ => tracing::error!("a file reached the size limit (ulimit -f)"),
                _ => hang_up(),
            }
        }
    })?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(stopped: &mut Stopped, count: &Arc<Count>) -> Poll<()> {
        let waker = Waker::from(Arc::clone(count));
        Pin::new(stopped).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn setting_wakes_everybody_who_waits_once() {
        let stop = Stop::default();
        let counts: Vec<_> = (0..3).map(|_| Arc::new(Count::default())).collect();
        let mut waits: Vec<_> = counts.iter().map(|_| stop.wait()).collect();
        for (wait, count) in waits.iter_mut().zip(&counts) {
            assert!(poll(wait, count).is_pending());
            assert!(poll(wait, count).is_pending());
        }
        stop.set();
        stop.set();
        for (wait, count) in waits.iter_mut().zip(&counts) {
            assert_eq!(count.0.load(Ordering::SeqCst), 1);
            assert!(poll(wait, count).is_ready());
        }
    }

    #[test]
    fn a_wait_that_begins_after_the_stop_is_over_at_once() {
        let stop = Stop::default();
        stop.set();
        assert!(poll(&mut stop.wait(), &Arc::new(Count::default())).is_ready());
    }

    #[test]
    fn a_wait_that_moved_to_another_task_wakes_that_one() {
        let stop = Stop::default();
        let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let mut wait = stop.wait();
        assert!(poll(&mut wait, &first).is_pending());
        assert!(poll(&mut wait, &second).is_pending());
        stop.set();
        assert_eq!(first.0.load(Ordering::SeqCst), 0);
        assert_eq!(second.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_wait_that_was_dropped_is_not_woken() {
        let stop = Stop::default();
        let count = Arc::new(Count::default());
        let mut wait = stop.wait();
        assert!(poll(&mut wait, &count).is_pending());
        drop(wait);
        stop.set();
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }
}
