//! What the executors of a run share: when it begins and ends, how far it is, and what was seen in each second.
//!
//! Nothing here is touched for each message, but the ledger's tracks.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use queen_fabric::rt::monotonic_ns;

use super::Snapshot;
use crate::{
    outcome::Second,
    recorder::{Slice, Totals},
};

/// From the last executor's word that it is ready to the first request.
const LEAD: Duration = Duration::from_millis(5);

/// The time of a run, on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    /// The first request may be due.
    pub(super) begin_ns: u64,
    /// The warm-up is over.
    pub(super) measured_from_ns: u64,
}

/// One run's state that all of its executors see.
pub(super) struct Shared {
    executors: usize,
    warmup: Duration,
    duration: Duration,
    ready: AtomicUsize,
    exhausted: AtomicUsize,
    sent_all: AtomicUsize,
    ended: AtomicUsize,
    /// 0 until all executors are ready.
    begin_ns: AtomicU64,
    /// The measured part ends here: it only ever moves to sooner.
    end_ns: AtomicU64,
    interrupted: AtomicBool,
    /// Everything came, or it is not waited for any longer.
    finished: AtomicBool,
    /// What each executor has come to.
    progress: Vec<Mutex<Totals>>,
    seconds: Mutex<Seconds>,
}

/// Seconds that some executors have told of, and those that all have.
#[derive(Default)]
struct Seconds {
    open: BTreeMap<u64, (Slice, usize)>,
    closed: BTreeMap<u64, Second>,
}

impl Shared {
    pub(super) fn new(executors: usize, warmup: Duration, duration: Duration) -> Self {
        Self {
            executors,
            warmup,
            duration,
            ready: AtomicUsize::new(0),
            exhausted: AtomicUsize::new(0),
            sent_all: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            begin_ns: AtomicU64::new(0),
            end_ns: AtomicU64::new(u64::MAX),
            interrupted: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            progress: (0..executors).map(|_| Mutex::default()).collect(),
            seconds: Mutex::default(),
        }
    }

    /// An executor is ready. The last one sets the time at which all begin.
    pub(super) fn ready(&self) {
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.executors {
            let begin_ns = monotonic_ns() + nanos(LEAD);
            self.end_ns.fetch_min(begin_ns + nanos(self.warmup) + nanos(self.duration), Ordering::AcqRel);
            self.begin_ns.store(begin_ns, Ordering::Release);
        }
    }

    /// The times, once all executors are ready.
    pub(super) fn timeline(&self) -> Option<Timeline> {
        match self.begin_ns.load(Ordering::Acquire) {
            0 => None,
            begin_ns => Some(Timeline { begin_ns, measured_from_ns: begin_ns + nanos(self.warmup) }),
        }
    }

    /// When the measured part ends; never, as long as it has not begun.
    pub(super) fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Acquire)
    }

    /// Ends the measured part now, before its time.
    pub(super) fn interrupt(&self) {
        if self.end_ns.fetch_min(monotonic_ns(), Ordering::AcqRel) > monotonic_ns() {
            self.interrupted.store(true, Ordering::Release);
        }
    }

    /// Ends the measured part at this moment, before its time: nothing is left to do.
    pub(super) fn end_at(&self, now_ns: u64) {
        self.end_ns.fetch_min(now_ns, Ordering::AcqRel);
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// An executor has nothing more to send, although there is time. When none has, the measured part ends.
    pub(super) fn exhausted(&self) {
        if self.exhausted.fetch_add(1, Ordering::AcqRel) + 1 == self.executors {
            self.end_ns.fetch_min(monotonic_ns(), Ordering::AcqRel);
        }
    }

    /// After the end, an executor has sent all that was due and got its answers.
    pub(super) fn sent_all(&self) {
        self.sent_all.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn all_have_sent(&self) -> bool {
        self.sent_all.load(Ordering::Acquire) == self.executors
    }

    /// Nothing more is waited for.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// An executor's thread is at its end. Whatever its reason, the others must not wait for it.
    pub(super) fn ended(&self) {
        self.finish();
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn all_have_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) == self.executors
    }

    pub(super) fn publish(&self, executor: usize, totals: &Totals) {
        lock(&self.progress[executor]).set_to(totals);
    }

    /// Adds what one executor saw in one second.
    pub(super) fn second(&self, number: u64, slice: &Slice) {
        let mut seconds = lock(&self.seconds);
        let Seconds { open, closed } = &mut *seconds;
        let (merged, told) = open.entry(number).or_default();
        merged.merge(slice);
        *told += 1;
        if *told == self.executors {
            closed.insert(number, merged.second());
            open.remove(&number);
        }
    }

    /// The seconds, when all executors have ended.
    pub(super) fn seconds(&self) -> Vec<Second> {
        let seconds = lock(&self.seconds);
        let mut all = seconds.closed.clone();
        all.extend(seconds.open.iter().map(|(number, (slice, _))| (*number, slice.second())));
        let count = all.last_key_value().map_or(0, |(last, _)| last + 1);
        (0..count).map(|number| all.get(&number).copied().unwrap_or_default()).collect()
    }

    /// All executors' totals, as they were published last.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.progress.iter().for_each(|progress| totals.merge(&lock(progress)));
        totals
    }

    /// How long has been measured so far; `None` in the warm-up and before.
    pub(super) fn measured(&self) -> Option<Duration> {
        let from_ns = self.timeline()?.measured_from_ns;
        let until_ns = monotonic_ns().min(self.end_ns());
        until_ns.checked_sub(from_ns).map(Duration::from_nanos)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let totals = self.totals();
        let quantile = |q| if totals.latency_ns.is_empty() { 0 } else { totals.latency_ns.value_at_quantile(q) };
        Snapshot {
            measured: self.measured(),
            sent: totals.sent,
            received: totals.received,
            errors: totals.errors.values().sum(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it is locked leaves counts behind that are still counts.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}
