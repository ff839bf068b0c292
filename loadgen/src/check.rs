//! Whether what was sent arrived: once, in order, whole.
//!
//! Every producer numbers the messages of each of its keys (partitions) from 0. The [`Ledger`] has a track for each
//! such sequence and each group that reads it, with a window of bits over the numbers that are still open. What a
//! broker refused, or may have lost with a connection, is excused: it may arrive or not. Consumers on several executors
//! report to one ledger; a track has a lock that two of them hardly ever want at once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::outcome::Findings;

/// The longest window of a track in words of 64 numbers: 1,048,576 messages, 256 KiB. One that falls further behind
/// the newest message than this is taken for lost until it comes.
const WORDS_MAX: usize = 16 * 1024;

const WORD_BITS: u64 = 64;

/// How a message's number relates to what came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first time, and after all lower ones that have come.
    InOrder,
    /// The first time, after a higher one.
    Late,
    /// Not for the first time.
    Again,
}

/// What is known of one sequence at one reader.
#[derive(Debug, Default)]
struct Window {
    /// The number of the first bit of the first word. All before it are settled.
    base: u64,
    words: VecDeque<Word>,
    /// One above the highest number that came.
    end: u64,
    /// Numbers that came, or are excused.
    settled: u64,
    /// Numbers that the window left behind before they came.
    overdue: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Word {
    came: u64,
    excused: u64,
}

impl Window {
    fn arrive(&mut self, number: u64) -> Arrival {
        let order = if number >= self.end { Arrival::InOrder } else { Arrival::Late };
        self.end = self.end.max(number + 1);
        if number < self.base {
            // Which ones are overdue is forgotten: this is one of them, or a repetition of an older one.
            if self.overdue == 0 {
                return Arrival::Again;
            }
            self.overdue -= 1;
            self.settled += 1;
            return Arrival::Late;
        }
        let (word, bit) = self.word(number);
        if word.came & bit != 0 {
            return Arrival::Again;
        }
        let was_excused = word.excused & bit != 0;
        word.came |= bit;
        self.settled += u64::from(!was_excused);
        self.slide();
        order
    }

    fn excuse(&mut self, number: u64) {
        if number < self.base {
            if self.overdue > 0 {
                self.overdue -= 1;
                self.settled += 1;
            }
            return;
        }
        let (word, bit) = self.word(number);
        if (word.came | word.excused) & bit == 0 {
            word.excused |= bit;
            self.settled += 1;
        }
    }

    /// The word and bit of a number at or above the base, which moves when the window would grow too long.
    fn word(&mut self, number: u64) -> (&mut Word, u64) {
        while (number - self.base) / WORD_BITS >= WORDS_MAX as u64 {
            let left = self.words.pop_front().unwrap_or_default();
            self.overdue += u64::from((left.came | left.excused).count_zeros());
            self.base += WORD_BITS;
        }
        let offset = number - self.base;
        let at = (offset / WORD_BITS) as usize;
        if at >= self.words.len() {
            self.words.resize(at + 1, Word::default());
        }
        (&mut self.words[at], 1 << (offset % WORD_BITS))
    }

    /// Drops words that are all settled by arrival. Excused ones stay: what comes after all is no repetition.
    fn slide(&mut self) {
        while self.words.front().is_some_and(|word| word.came == u64::MAX) {
            self.words.pop_front();
            self.base += WORD_BITS;
        }
    }
}

/// The order in which one of several readers of a queue sees each sequence. Which of two readers got its message first
/// says nothing, but none of them may see a later message before an earlier one.
#[derive(Debug, Default)]
pub struct ReaderOrder {
    /// One above the highest number that came, of each sequence by its producer and key.
    ends: HashMap<(usize, usize), u64>,
}

impl ReaderOrder {
    /// Whether a message that came is later than all of its sequence that came before it.
    pub fn holds(&mut self, producer: usize, key: usize, number: u64) -> bool {
        let end = self.ends.entry((producer, key)).or_default();
        let holds = number >= *end;
        *end = (*end).max(number + 1);
        holds
    }
}

/// The tracks of one flow of messages: `producers` that send `keys` sequences each, read by `groups` groups.
#[derive(Debug)]
pub struct Ledger {
    keys: usize,
    sequences: usize,
    /// How many were sent, of each sequence.
    sent: Vec<AtomicU64>,
    /// Of each sequence, for each group.
    windows: Vec<Mutex<Window>>,
    /// Whether a message that comes after a later one is a fault.
    ordered: bool,
    duplicated: AtomicU64,
    reordered: AtomicU64,
    corrupted: AtomicU64,
}

impl Ledger {
    /// A ledger with nothing sent. `ordered` says that each sequence is read by one consumer at a time of each group,
    /// and that the broker promises its order.
    #[must_use]
    pub fn new(producers: usize, keys: usize, groups: usize, ordered: bool) -> Self {
        let sequences = producers * keys;
        Self {
            keys,
            sequences,
            sent: (0..sequences).map(|_| AtomicU64::new(0)).collect(),
            windows: (0..sequences * groups).map(|_| Mutex::default()).collect(),
            ordered,
            duplicated: AtomicU64::new(0),
            reordered: AtomicU64::new(0),
            corrupted: AtomicU64::new(0),
        }
    }

    /// Notes that a producer has sent the numbers of a sequence below `sent`. Before they leave, so that none arrives
    /// that was not sent.
    pub fn sent(&self, producer: usize, key: usize, sent: u64) {
        self.sent[producer * self.keys + key].store(sent, Ordering::Release);
    }

    /// Notes that a message came. `Err` when it can't be one of ours, which is counted as corrupted.
    pub fn arrived(&self, group: usize, producer: usize, key: usize, number: u64) -> Result<Arrival, NotOurs> {
        let sequence = producer * self.keys + key;
        let known = key < self.keys
            && sequence < self.sequences
            && number < self.sent[sequence].load(Ordering::Acquire)
            && group * self.sequences + sequence < self.windows.len();
        if !known {
            self.corrupted();
            return Err(NotOurs);
        }
        let arrival = self.window(group * self.sequences + sequence).arrive(number);
        match arrival {
            Arrival::InOrder => {}
            Arrival::Late => {
                self.reordered.fetch_add(u64::from(self.ordered), Ordering::Relaxed);
            }
            Arrival::Again => {
                self.duplicated.fetch_add(1, Ordering::Relaxed);
            }
        };
        Ok(arrival)
    }

    /// Notes that a message came after a later one to the same reader.
    pub fn misordered(&self) {
        self.reordered.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a message came with other bytes than any that was sent.
    pub fn corrupted(&self) {
        self.corrupted.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that `count` messages from `first` on were refused, or that it is not known whether they were taken.
    pub fn excuse(&self, producer: usize, key: usize, first: u64, count: u64) {
        let sequence = producer * self.keys + key;
        for window in (sequence..self.windows.len()).step_by(self.sequences) {
            let mut window = self.window(window);
            (first..first + count).for_each(|number| window.excuse(number));
        }
    }

    /// Messages that were sent and neither came nor are excused, counted once for each group.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let missing = |(at, window): (usize, &Mutex<Window>)| {
            let sent = self.sent[at % self.sequences].load(Ordering::Acquire);
            sent.saturating_sub(window.lock().unwrap_or_else(PoisonError::into_inner).settled)
        };
        self.windows.iter().enumerate().map(missing).sum()
    }

    /// What was found, when nothing is waited for any more: what is missing is lost. A message that came with other
    /// bytes is missing too, and counts only as corrupted.
    #[must_use]
    pub fn findings(&self) -> Findings {
        let corrupted = self.corrupted.load(Ordering::Relaxed);
        Findings {
            lost: self.missing().saturating_sub(corrupted),
            duplicated: self.duplicated.load(Ordering::Relaxed),
            reordered: self.reordered.load(Ordering::Relaxed),
            corrupted,
        }
    }

    fn window(&self, at: usize) -> MutexGuard<'_, Window> {
        // A panic while it is locked leaves counts behind that are still counts.
        self.windows[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message names a producer, key or number that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::random::Random;

    fn ledger_with(sent: u64) -> Ledger {
        let ledger = Ledger::new(1, 1, 1, true);
        ledger.sent(0, 0, sent);
        ledger
    }

    fn findings_of(sent: u64, arrivals: &[u64]) -> Findings {
        let ledger = ledger_with(sent);
        arrivals.iter().for_each(|&number| {
            ledger.arrived(0, 0, 0, number).unwrap();
        });
        ledger.findings()
    }

    #[test]
    fn all_in_order_is_no_finding() {
        assert_eq!(findings_of(200, &(0..200).collect::<Vec<_>>()), Findings::default());
    }

    #[test]
    fn each_fault_is_called_by_its_name() {
        assert_eq!(findings_of(4, &[0, 1, 3]), Findings { lost: 1, ..Findings::default() });
        assert_eq!(findings_of(3, &[0, 1, 1, 2]), Findings { duplicated: 1, ..Findings::default() });
        assert_eq!(findings_of(3, &[0, 2, 1]), Findings { reordered: 1, ..Findings::default() });
    }

    #[test]
    fn any_shuffle_with_drops_and_repetitions_is_counted_as_a_set_would() {
        for seed in 0..200 {
            let mut random = Random::new(seed, 0);
            let sent = 1 + random.below(3_000) as u64;
            let mut arrivals: Vec<u64> = (0..sent).filter(|_| random.below(10) > 0).collect();
            for _ in 0..random.below(50) {
                arrivals.push(random.below(sent as usize) as u64);
            }
            for at in (1..arrivals.len()).rev() {
                // From swaps of neighbours to a whole shuffle.
                let reach = 1 + random.below((seed as usize + 1) * 3).min(at - 1);
                arrivals.swap(at, at - reach.min(at));
            }
            let (mut seen, mut highest, mut wanted) = (HashSet::new(), None, Findings::default());
            for &number in &arrivals {
                if !seen.insert(number) {
                    wanted.duplicated += 1;
                } else if highest.is_some_and(|highest| number < highest) {
                    wanted.reordered += 1;
                }
                highest = highest.max(Some(number));
            }
            wanted.lost = sent - seen.len() as u64;
            assert_eq!(findings_of(sent, &arrivals), wanted, "seed {seed}");
        }
    }

    #[test]
    fn what_was_refused_is_not_lost_and_may_arrive_once() {
        let ledger = ledger_with(10);
        ledger.excuse(0, 0, 4, 3);
        for number in [0, 1, 2, 3, 5, 7, 8, 9] {
            ledger.arrived(0, 0, 0, number).unwrap();
        }
        assert_eq!(ledger.findings(), Findings::default());
        ledger.arrived(0, 0, 0, 5).unwrap();
        assert_eq!(ledger.findings(), Findings { duplicated: 1, ..Findings::default() });
    }

    #[test]
    fn a_reader_sees_each_sequence_in_order_whatever_it_misses() {
        let mut order = ReaderOrder::default();
        let seen = [(0, 0, 5), (0, 1, 3), (0, 0, 9), (1, 0, 2), (0, 0, 8), (0, 0, 10)];
        let holds = seen.map(|(producer, key, number)| order.holds(producer, key, number));
        assert_eq!(holds, [true, true, true, true, false, true]);
    }

    #[test]
    fn every_group_has_to_see_every_message() {
        let ledger = Ledger::new(2, 3, 2, true);
        ledger.sent(1, 2, 1);
        ledger.arrived(0, 1, 2, 0).unwrap();
        assert_eq!(ledger.missing(), 1);
        ledger.arrived(1, 1, 2, 0).unwrap();
        assert_eq!(ledger.missing(), 0);
    }

    #[test]
    fn a_message_that_was_never_sent_is_corrupted() {
        let ledger = ledger_with(1);
        for (producer, key, number) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
            assert_eq!(ledger.arrived(0, producer, key, number), Err(NotOurs));
        }
        assert_eq!(ledger.findings().corrupted, 3);
    }

    #[test]
    fn memory_is_bounded_and_what_comes_after_the_window_is_late_and_not_lost() {
        let far = 3 * WORDS_MAX as u64 * WORD_BITS;
        let ledger = ledger_with(far + 1);
        ledger.arrived(0, 0, 0, far).unwrap();
        assert!(ledger.window(0).words.len() <= WORDS_MAX);
        assert_eq!(ledger.missing(), far);
        assert_eq!(ledger.arrived(0, 0, 0, 0), Ok(Arrival::Late));
        assert_eq!(ledger.missing(), far - 1);
    }
}
