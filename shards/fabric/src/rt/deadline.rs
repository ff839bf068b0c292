//! Waiting for a time.
//!
//! The executor sleeps until the first of its armed times to the resolution of the kernel's clock. A deadline is never
//! early, and late by the wake-up of the thread and by what the executor has in hand. Armed times are kept in a tree:
//! one per shard for all that its connections wait for costs less than one per connection.

use std::{
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use super::{local::Local, timers::TimerKey};

/// A point in time that its owner waits for together with other things, and moves at will.
#[derive(Default)]
pub struct Deadline {
    at: Option<Instant>,
    armed: Option<Armed>,
}

/// A timer of the executor that will wake the task. Disarmed on drop.
struct Armed {
    local: Weak<Local>,
    key: TimerKey,
    waker: Waker,
}

impl Armed {
    fn new(at: Instant, waker: &Waker) -> Self {
        let local = Local::here();
        let key = local.timers.borrow_mut().arm(at, waker.clone());
        Self { local: Rc::downgrade(&local), key, waker: waker.clone() }
    }

    fn is_for(&self, at: Instant, waker: &Waker) -> bool {
        self.key.0 == at && self.waker.will_wake(waker)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let Some(local) = self.local.upgrade() {
            local.timers.borrow_mut().disarm(self.key);
        }
    }
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
        if Instant::now() >= at {
            self.at = None;
            self.armed = None;
            return Poll::Ready(());
        }
        if !self.armed.as_ref().is_some_and(|armed| armed.is_for(at, cx.waker())) {
            self.armed = Some(Armed::new(at, cx.waker()));
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

/// What a future gives, or none when it takes longer than `patience`.
pub async fn within<T>(patience: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut deadline = Deadline::new();
    deadline.set(Some(Instant::now() + patience));
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => deadline.poll(cx).map(|()| None),
    })
    .await
}
