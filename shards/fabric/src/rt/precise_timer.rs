//! Waiting for a time on the monotonic clock, in nanoseconds, which other processes share.
//!
//! A `timerfd` that the executor polls like a socket: the kernel's high-resolution clock wakes it, late by the wake-up of
//! the thread and by what the executor has in hand. Each change of the time is a system call, and each wake a few more:
//! have one per executor for all that is due there, not one per task. For what a millisecond does not hurt there is
//! [`Deadline`](super::Deadline).

use std::{
    io,
    os::fd::AsFd,
    task::{Context, Poll, ready},
};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

use super::source::Source;

const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds on `CLOCK_MONOTONIC`, the clock of [`PreciseTimer`]: the same in every process of the machine.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative on this clock.
    now.tv_sec.unsigned_abs() * NS_PER_S + now.tv_nsec.unsigned_abs()
}

/// A point in time on [`monotonic_ns`] that one task waits for, and moves at will. It is never early.
pub struct PreciseTimer {
    fd: Source,
    at_ns: Option<u64>,
}

impl PreciseTimer {
    /// Never, until it is set.
    ///
    /// # Errors
    ///
    /// Of `timerfd_create`: no descriptor is left.
    ///
    /// # Panics
    ///
    /// When called outside an executor.
    pub fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self { fd: Source::new(fd)?, at_ns: None })
    }

    /// Moves the time, earlier or later, or to never. A time that is past is ready at the next poll.
    ///
    /// # Errors
    ///
    /// Of `timerfd_settime`; none is known for a timer that could be made.
    pub fn set(&mut self, at_ns: Option<u64>) -> io::Result<()> {
        if self.at_ns == at_ns {
            return Ok(());
        }
        self.at_ns = at_ns;
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The kernel reads zero as never, so that a time of zero becomes the next nanosecond.
        let value = at_ns.map_or(never, |ns| {
            let ns = ns.max(1);
            let seconds = i64::try_from(ns / NS_PER_S).unwrap_or(i64::MAX);
            Timespec { tv_sec: seconds, tv_nsec: (ns % NS_PER_S).cast_signed() }
        });
        let spec = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(self.fd.as_fd(), TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    /// Ready once the time has come; the timer is at never then. Until it has, the task is woken when it comes.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A time that was moved after the descriptor had become readable leaves nothing to read: the poll goes on.
        ready!(self.fd.poll_read(cx, usize::MAX, |fd| rustix::io::read(fd, &mut [0_u8; 8])))?;
        self.at_ns = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;
    use crate::rt::Executor;

    const MS: u64 = 1_000_000;
    const NEVER_NS: u64 = 3_600_000 * MS;

    /// Runs on an executor, where alone a timer can be made.
    fn run<T: Send + 'static>(body: impl AsyncFnOnce() -> T + Send + 'static) -> T {
        Executor::spawn("test", None, Duration::ZERO, move || body()).unwrap().join().unwrap()
    }

    async fn wait(timer: &mut PreciseTimer) {
        poll_fn(|cx| timer.poll(cx)).await.unwrap();
    }

    #[test]
    fn it_is_never_early_and_serves_again() {
        run(async || {
            let mut timer = PreciseTimer::new().unwrap();
            for delay_ns in [0, 1_000, 50_000, 300_000, 2 * MS] {
                let at_ns = monotonic_ns() + delay_ns;
                timer.set(Some(at_ns)).unwrap();
                wait(&mut timer).await;
                assert!(monotonic_ns() >= at_ns, "a delay of {delay_ns} ns");
            }
        });
    }

    #[test]
    fn it_is_finer_than_a_millisecond() {
        let shortest_ns = run(async || {
            let mut timer = PreciseTimer::new().unwrap();
            let mut shortest_ns = u64::MAX;
            // A busy machine delays most of them; one that comes in time shows that it can.
            for _ in 0..1_000 {
                let begin_ns = monotonic_ns();
                timer.set(Some(begin_ns + 100_000)).unwrap();
                wait(&mut timer).await;
                shortest_ns = shortest_ns.min(monotonic_ns() - begin_ns);
            }
            shortest_ns
        });
        assert!(shortest_ns < MS, "{shortest_ns} ns");
    }

    #[test]
    fn it_may_be_moved_while_it_is_waited_for() {
        run(async || {
            let mut timer = PreciseTimer::new().unwrap();
            let at_ns = monotonic_ns() + 20 * MS;
            for moved_ns in [NEVER_NS, MS, NEVER_NS] {
                timer.set(Some(monotonic_ns() + moved_ns)).unwrap();
                let is_pending = poll_fn(|cx| Poll::Ready(timer.poll(cx).is_pending())).await;
                assert!(is_pending || moved_ns == MS);
            }
            timer.set(Some(at_ns)).unwrap();
            wait(&mut timer).await;
            assert!(monotonic_ns() >= at_ns);
        });
    }

    #[test]
    fn a_time_that_is_past_is_ready_and_no_time_is_not() {
        run(async || {
            let mut timer = PreciseTimer::new().unwrap();
            timer.set(Some(0)).unwrap();
            wait(&mut timer).await;
            assert!(poll_fn(|cx| Poll::Ready(timer.poll(cx).is_pending())).await);
        });
    }
}
