//! A wake-up from one task to another on the same executor.

use std::{
    cell::{Cell, RefCell},
    task::{Context, Poll, Waker},
};

/// Lets one task wait until another one says that something changed. Notifications before the wait are kept, as one.
///
/// One task waits at a time: the last one that polled is woken.
#[derive(Default)]
pub struct Notify {
    notified: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Notify {
    /// Nothing notified yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes the task that waits, or the next one that does.
    pub fn notify(&self) {
        if self.notified.replace(true) {
            return;
        }
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready once after each notification or several of them.
    pub fn poll_wait(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.notified.replace(false) {
            return Poll::Ready(());
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Waits for a notification.
    pub async fn wait(&self) {
        std::future::poll_fn(|cx| self.poll_wait(cx)).await;
    }
}
