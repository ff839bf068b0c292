//! Outcomes on their way from whoever did the work to the role's task, and the health of the database.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::database::{Health, Outcome};

/// Shared by a database's workers, on any thread, and the task that takes what they did.
#[derive(Debug)]
pub(crate) struct Outcomes(Mutex<State>);

#[derive(Debug)]
struct State {
    done: Vec<Outcome>,
    health: Health,
    /// Who takes them, while it waits.
    waker: Option<Waker>,
}

impl Outcomes {
    pub(crate) fn new(health: Health) -> Self {
        Self(Mutex::new(State { done: Vec::new(), health, waker: None }))
    }

    /// What is there, at least one; pending, it wakes `cx` when some are or the health changes.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Vec<Outcome>> {
        let mut state = self.lock();
        if state.done.is_empty() {
            state.waker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut state.done))
    }

    /// Whether the last thing that was tried worked.
    pub(crate) fn health(&self) -> Health {
        self.lock().health.clone()
    }

    /// Hands outcomes over.
    pub(crate) fn deliver(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.change(|state| {
            state.done.extend(outcomes);
            true
        });
    }

    /// Says how the last thing that was tried went.
    pub(crate) fn set_health(&self, health: Health) {
        self.change(|state| {
            let changed = state.health != health;
            state.health = health;
            changed
        });
    }

    fn change(&self, change: impl FnOnce(&mut State) -> bool) {
        let waker = {
            let mut state = self.lock();
            if change(&mut state) { state.waker.take() } else { None }
        };
        // Outside the lock: the woken task takes it first thing.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
