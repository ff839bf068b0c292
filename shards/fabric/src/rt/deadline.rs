//! Waiting for a time.
//!
//! The runtime's timer wheel has ticks of 1 ms and rounds down: a timer may fire up to a millisecond early, and one that
//! is armed again for what is left of its tick fires at once, so that its task spins. A [`Deadline`] arms a tick later
//! instead. It is never early, and late by at most a tick and the executor's own delay.
//!
//! The wheel also looks at every armed timer on every turn of the executor. Arm few: one per shard for all that its
//! connections wait for, not one per connection.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use glommio::timer::Timer;

/// The resolution of the runtime's timer wheel.
const TICK: Duration = Duration::from_millis(1);

/// A point in time that its owner waits for together with other things, and moves at will.
#[derive(Default)]
pub struct Deadline {
    at: Option<Instant>,
    armed: Option<Armed>,
}

/// A timer of the runtime that will wake the task.
struct Armed {
    /// Held for its drop, which takes it out of the wheel.
    _timer: Timer,
    fires_at: Instant,
    waker: Waker,
}

impl Deadline {
    /// Never, until it is set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the deadline, earlier or later, or to never. Takes effect with the next poll.
    pub fn set(&mut self, at: Option<Instant>) {
        self.at = at;
    }

    /// The time it stands at.
    #[must_use]
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Ready once the time has come; the deadline is at never then. Until it has, the task is woken when it comes.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else {
            self.armed = None;
            return Poll::Pending;
        };
        let now = Instant::now();
        if now >= at {
            self.at = None;
            self.armed = None;
            return Poll::Ready(());
        }
        let fires_at = at + TICK;
        let still_good = |armed: &Armed| armed.fires_at == fires_at && armed.waker.will_wake(cx.waker());
        if !self.armed.as_ref().is_some_and(still_good) {
            let mut timer = Timer::new(fires_at - now);
            // A poll puts it into the wheel; polling it again would put it there twice, so this is the only one.
            let _not_yet = Pin::new(&mut timer).poll(cx);
            self.armed = Some(Armed { _timer: timer, fires_at, waker: cx.waker().clone() });
        }
        Poll::Pending
    }
}

/// Waits until `at`.
pub async fn sleep_until(at: Instant) {
    let mut deadline = Deadline::new();
    deadline.set(Some(at));
    std::future::poll_fn(|cx| deadline.poll(cx)).await;
}

/// Waits for `duration`.
pub async fn sleep(duration: Duration) {
    sleep_until(Instant::now() + duration).await;
}
