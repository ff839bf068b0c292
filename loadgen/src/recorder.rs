//! Counts and latencies of one executor, and how those of all come together.
//!
//! A message counts in the measured part if it was due there, whenever it came: what a stall delays past the end is not
//! left out. The seconds show when things were seen instead; what comes after the end is in the last one.

use std::{collections::BTreeMap, ops::Range};

use hdrhistogram::Histogram;

use crate::outcome::Second;

/// Latencies outside are counted as these: 1 µs to 10 minutes.
const LATENCY_NS: Range<u64> = 1_000..600_000_000_000;

/// Digits of the whole run's percentiles, and of a second's, of which there may be many.
const DIGITS: u8 = 3;
const SECOND_DIGITS: u8 = 2;

const NS_PER_S: u64 = 1_000_000_000;

/// An empty histogram of the whole run.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    with_digits(DIGITS)
}

fn with_digits(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(LATENCY_NS.start, LATENCY_NS.end, digits).expect("the bounds are in order")
}

/// Counts and latencies of one second.
#[derive(Clone, Debug)]
pub struct Slice {
    sent: u64,
    received: u64,
    errors: u64,
    latency_ns: Histogram<u64>,
}

impl Default for Slice {
    fn default() -> Self {
        Self { sent: 0, received: 0, errors: 0, latency_ns: with_digits(SECOND_DIGITS) }
    }
}

impl Slice {
    /// Adds what another executor saw in the same second.
    pub fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.errors += other.errors;
        self.latency_ns.add(&other.latency_ns).expect("both have the same bounds");
    }

    /// What is told of it.
    #[must_use]
    pub fn second(&self) -> Second {
        let quantile = |q| if self.latency_ns.is_empty() { 0 } else { self.latency_ns.value_at_quantile(q) };
        Second {
            sent: self.sent,
            received: self.received,
            errors: self.errors,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: if self.latency_ns.is_empty() { 0 } else { self.latency_ns.max() },
        }
    }

    fn clear(&mut self) {
        (self.sent, self.received, self.errors) = (0, 0, 0);
        self.latency_ns.reset();
    }
}

/// What the measured part has come to so far.
#[derive(Clone, Debug)]
pub struct Totals {
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Failures by what went wrong.
    pub errors: BTreeMap<String, u64>,
    /// Latencies in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl Default for Totals {
    fn default() -> Self {
        Self { sent: 0, received: 0, errors: BTreeMap::new(), latency_ns: histogram() }
    }
}

impl Totals {
    /// Adds another executor's.
    pub fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        for (code, count) in &other.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
        self.latency_ns.add(&other.latency_ns).expect("both have the same bounds");
    }

    /// Becomes the other one, in the memory that it has.
    pub fn set_to(&mut self, other: &Self) {
        (self.sent, self.received) = (other.sent, other.received);
        self.errors.clone_from(&other.errors);
        self.latency_ns.set_to(&other.latency_ns).expect("both have the same bounds");
    }
}

/// One executor's counts and latencies.
#[derive(Debug)]
pub struct Recorder {
    totals: Totals,
    /// The second under way and its number.
    slice: Slice,
    second: u64,
    /// The measured part.
    measured_ns: Range<u64>,
}

impl Recorder {
    /// A recorder of what is due in `measured_ns`.
    #[must_use]
    pub fn new(measured_ns: Range<u64>) -> Self {
        Self { totals: Totals::default(), slice: Slice::default(), second: 0, measured_ns }
    }

    /// Ends the measured part at `end_ns`, if that is sooner.
    pub fn end_at(&mut self, end_ns: u64) {
        self.measured_ns.end = self.measured_ns.end.min(end_ns);
    }

    /// The number of the second under way, if `now_ns` is in a later one: then [`take_second`](Self::take_second) is to
    /// be called before anything else is recorded.
    #[must_use]
    pub fn ended_second(&self, now_ns: u64) -> Option<u64> {
        (self.second_at(now_ns) > self.second).then_some(self.second)
    }

    /// The number of the second under way.
    #[must_use]
    pub fn current_second(&self) -> u64 {
        self.second
    }

    /// Hands the ended second to `keep`, and begins the one that `now_ns` is in.
    pub fn take_second(&mut self, now_ns: u64, keep: impl FnOnce(&Slice)) {
        keep(&self.slice);
        self.slice.clear();
        self.second = self.second_at(now_ns);
    }

    fn second_at(&self, now_ns: u64) -> u64 {
        let last_ns = self.measured_ns.end.saturating_sub(1);
        now_ns.min(last_ns).saturating_sub(self.measured_ns.start) / NS_PER_S
    }

    /// `count` messages that were due at `due_ns` have been sent.
    pub fn sent(&mut self, due_ns: u64, count: u64) {
        if self.measured_ns.contains(&due_ns) {
            self.totals.sent += count;
            self.slice.sent += count;
        }
    }

    /// `count` messages that were due at `due_ns` have come at `now_ns`.
    pub fn received(&mut self, due_ns: u64, now_ns: u64, count: u64) {
        if self.measured_ns.contains(&due_ns) {
            let latency_ns = now_ns.saturating_sub(due_ns);
            self.totals.received += count;
            self.totals.latency_ns.saturating_record_n(latency_ns, count);
            self.slice.received += count;
            self.slice.latency_ns.saturating_record_n(latency_ns, count);
        }
    }

    /// `count` requests failed at `now_ns`.
    pub fn failed(&mut self, code: &str, now_ns: u64, count: u64) {
        if now_ns < self.measured_ns.start || count == 0 {
            return;
        }
        self.slice.errors += count;
        match self.totals.errors.get_mut(code) {
            Some(known) => *known += count,
            None => {
                self.totals.errors.insert(code.to_owned(), count);
            }
        }
    }

    /// What it has come to so far.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MEASURED: Range<u64> = 1_000 * MS..4_000 * MS;

    #[test]
    fn what_is_due_outside_of_the_measured_part_does_not_count_and_what_is_late_does() {
        let mut recorder = Recorder::new(MEASURED);
        recorder.received(999 * MS, 1_500 * MS, 1);
        recorder.received(4_000 * MS, 4_001 * MS, 1);
        recorder.received(3_999 * MS, 9_999 * MS, 1);
        assert_eq!(recorder.totals().received, 1);
        assert!(recorder.totals().latency_ns.max() >= 6_000 * MS);
    }

    #[test]
    fn seconds_end_one_after_the_other_and_the_last_takes_what_comes_later() {
        let mut recorder = Recorder::new(MEASURED);
        assert_eq!(recorder.ended_second(1_999 * MS), None);
        recorder.received(1_500 * MS, 1_600 * MS, 3);
        assert_eq!(recorder.ended_second(2_000 * MS), Some(0));
        let mut kept = None;
        recorder.take_second(2_000 * MS, |slice| kept = Some(slice.second()));
        let kept = kept.unwrap();
        assert_eq!(kept.received, 3);
        assert!((99 * MS..102 * MS).contains(&kept.p50_ns), "{}", kept.p50_ns);
        recorder.take_second(3_000 * MS, |slice| assert_eq!(slice.second(), Second::default()));
        assert_eq!(recorder.ended_second(60_000 * MS), None);
    }

    #[test]
    fn errors_are_counted_by_their_code() {
        let mut recorder = Recorder::new(MEASURED);
        recorder.failed("early", 0, 1);
        recorder.failed("queue_full", 2_000 * MS, 1);
        recorder.failed("queue_full", 2_000 * MS, 2);
        assert_eq!(recorder.totals().errors, BTreeMap::from([("queue_full".to_owned(), 3)]));
    }
}
