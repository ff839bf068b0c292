//! The timers of an executor, in the order of their times.

use std::{
    collections::BTreeMap,
    task::Waker,
    time::{Duration, Instant},
};

/// Names an armed timer.
pub(super) type TimerKey = (Instant, u64);

/// Who is to be woken when.
#[derive(Default)]
pub(super) struct Timers {
    armed: BTreeMap<TimerKey, Waker>,
    made: u64,
}

impl Timers {
    pub(super) fn arm(&mut self, at: Instant, waker: Waker) -> TimerKey {
        self.made += 1;
        let key = (at, self.made);
        self.armed.insert(key, waker);
        key
    }

    pub(super) fn disarm(&mut self, key: TimerKey) {
        self.armed.remove(&key);
    }

    /// Adds to `woken` who is due.
    pub(super) fn take_due(&mut self, woken: &mut Vec<Waker>) {
        if self.armed.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(first) = self.armed.first_entry() {
            if first.key().0 > now {
                return;
            }
            woken.push(first.remove());
        }
    }

    /// How long it is until the first is due; none while there is none.
    pub(super) fn next_in(&self) -> Option<Duration> {
        let (&(at, _), _) = self.armed.first_key_value()?;
        Some(at.saturating_duration_since(Instant::now()))
    }
}
