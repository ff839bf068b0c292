//! Which promises a history breaks. Pure: a history and the log in, violations out.
//!
//! A client sees when it asked and when it was answered, not when something happened in between. So each rule is stated
//! such that no order of things within these bounds would excuse what was seen: what is reported is wrong for certain.
//!
//! | promise | what is checked |
//! |---|---|
//! | nothing acknowledged is lost | each message of an answered push is in the log and came to every group |
//! | one transaction id is one message | it is in the log once, has one id everywhere, and only a retry is a duplicate |
//! | the log is in order | a producer's messages of a partition, each pushed after the one before was answered, ascend |
//! | deliveries are in order | a delivery is a contiguous run that begins behind what may have been acknowledged at most |
//! | an ack is final | no pop that was sent after an ack was answered brings what that ack completed |
//! | a lease excludes | no two deliveries of a partition to a group while both leases live and neither was given up |
//! | what comes is what was sent | payload, transaction id and partition belong together |

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use crate::history::{Ack, AckWord, Delivery, Group, History, Log, MessageNumber, PushStatus, Seen};

/// A lease may be over for the broker so much sooner than it is long: clocks and their rounding.
const LEASE_MARGIN_NS: u64 = 50_000_000;

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// An acknowledged message is gone, or never came to a group.
    Lost,
    /// A transaction id stands for several messages, or a message has several ids.
    Doubled,
    /// Messages of a producer, or of a delivery, are not in order.
    Reordered,
    /// A delivery left messages out that nobody had acknowledged.
    Skipped,
    /// A message came again after its ack was acknowledged.
    CameAgain,
    /// A partition was leased to two at once.
    TwoHolders,
    /// A message has other bytes, another id or another partition than it was pushed with.
    Corrupted,
    /// A request was refused that there was nothing wrong with.
    Refused,
}

/// A broken promise and where.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub broken: Broken,
    /// Where, for a person.
    pub text: String,
}

/// What a history amounts to.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// All that was found.
    pub violations: Vec<Violation>,
    /// How much there was to look at.
    pub figures: Vec<(&'static str, u64)>,
    /// What was run, to run it again.
    pub run: String,
}

/// How many violations are printed.
const PRINTED: usize = 20;

impl Verdict {
    /// Whether every promise was kept.
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures: Vec<_> = self.figures.iter().map(|(name, count)| format!("{count} {name}")).collect();
        writeln!(f, "{}: {}", self.run, figures.join(", "))?;
        let mut kinds: BTreeMap<Broken, usize> = BTreeMap::new();
        self.violations.iter().for_each(|violation| *kinds.entry(violation.broken).or_default() += 1);
        for (broken, count) in kinds {
            writeln!(f, "{broken:?}: {count}")?;
        }
        for violation in self.violations.iter().take(PRINTED) {
            writeln!(f, "  {:?}: {}", violation.broken, violation.text)?;
        }
        writeln!(f, "{}", if self.holds() { "every promise was kept" } else { "PROMISES WERE BROKEN" })
    }
}

/// Judges a history by the log that it led to.
pub fn judge(history: &History, log: &Log) -> Verdict {
    let mut judge = Judge { history, positions: log.positions(), violations: Vec::new() };
    judge.log(log);
    judge.pushes();
    judge.ids(log);
    for ((group, partition), deliveries) in judge.deliveries_by_reader() {
        judge.reader(group, partition, &deliveries);
    }
    judge.everything_came();
    for refusal in &history.refusals {
        judge.found(Broken::Refused, refusal.clone());
    }
    let delivered: u64 = history.deliveries.iter().map(|delivery| delivery.messages.len() as u64).sum();
    Verdict {
        violations: judge.violations,
        figures: vec![
            ("messages", history.messages.len() as u64),
            ("deliveries", delivered),
            ("redeliveries", delivered.saturating_sub(first_deliveries(history))),
            ("acks", history.acks.len() as u64),
            ("pushes again", history.pushes.iter().filter(|pushed| pushed.is_retry).count() as u64),
            ("requests without an answer", history.unanswered),
        ],
        run: String::new(),
    }
}

fn first_deliveries(history: &History) -> u64 {
    let each = |delivery: &Delivery| {
        let group = delivery.group;
        delivery.messages.iter().map(move |seen| (group, seen.message)).collect::<Vec<_>>()
    };
    history.deliveries.iter().flat_map(each).collect::<HashSet<_>>().len() as u64
}

struct Judge<'a> {
    history: &'a History,
    /// Where each message stands in the log of its partition.
    positions: HashMap<MessageNumber, usize>,
    violations: Vec<Violation>,
}

impl<'a> Judge<'a> {
    fn found(&mut self, broken: Broken, text: String) {
        self.violations.push(Violation { broken, text });
    }

    fn name(&self, message: MessageNumber) -> String {
        let of = &self.history.messages[message];
        format!("message {message} ({:?} in p{})", of.transaction_id, of.partition)
    }

    /// The log holds each message once, and each producer's in order.
    fn log(&mut self, log: &Log) {
        for (number, partition) in log.partitions.iter().enumerate() {
            let mut seen = HashSet::new();
            // The highest sequence so far, of each producer.
            let mut highest: HashMap<usize, u64> = HashMap::new();
            for (position, entry) in partition.iter().enumerate() {
                let Some(message) = entry.message else {
                    self.found(Broken::Corrupted, format!("position {position} of p{number} is no message of ours"));
                    continue;
                };
                if !seen.insert(message) {
                    self.found(Broken::Doubled, format!("{} is in the log twice", self.name(message)));
                    continue;
                }
                let of = &self.history.messages[message];
                let last = highest.entry(of.producer).or_insert(of.sequence);
                if of.sequence < *last {
                    let text = format!("{} stands behind number {last} of its producer", self.name(message));
                    self.violations.push(Violation { broken: Broken::Reordered, text });
                }
                let last = highest.entry(of.producer).or_default();
                *last = (*last).max(of.sequence);
            }
            self.offsets(number, partition);
        }
    }

    /// Offsets, where they are told, are dense from 0.
    fn offsets(&mut self, number: usize, partition: &[Seen]) {
        for (position, entry) in partition.iter().enumerate() {
            if entry.offset.is_some_and(|offset| offset != position as u64) {
                let text = format!("position {position} of p{number} says that its offset is {:?}", entry.offset);
                self.found(Broken::Reordered, text);
                return;
            }
        }
    }

    /// What pushes were answered is there, and only what was pushed before is a duplicate.
    fn pushes(&mut self) {
        for pushed in &self.history.pushes {
            if !self.positions.contains_key(&pushed.message) {
                self.found(
                    Broken::Lost,
                    format!("{} was {:?} and is not in the log", self.name(pushed.message), pushed.status),
                );
            }
            if pushed.status == PushStatus::Duplicate && !pushed.is_retry {
                let text = format!("{} is a duplicate at its first push", self.name(pushed.message));
                self.found(Broken::Doubled, text);
            }
            let position = self.positions.get(&pushed.message).map(|&position| position as u64);
            if pushed.offset.is_some() && position.is_some() && pushed.offset != position {
                let text = format!(
                    "{} was told offset {:?} and stands at {position:?}",
                    self.name(pushed.message),
                    pushed.offset
                );
                self.found(Broken::Doubled, text);
            }
        }
        let mut queued = HashSet::new();
        for pushed in self.history.pushes.iter().filter(|pushed| pushed.status == PushStatus::Queued) {
            if !queued.insert(pushed.message) {
                self.found(Broken::Doubled, format!("{} was queued twice", self.name(pushed.message)));
            }
        }
    }

    /// A message has the same id wherever it is told.
    fn ids(&mut self, log: &Log) {
        let history = self.history;
        let mut ids: HashMap<MessageNumber, &'a str> = HashMap::new();
        let told = history.pushes.iter().filter_map(|pushed| Some((pushed.message, pushed.message_id.as_deref()?)));
        let delivered = history.deliveries.iter().flat_map(|delivery| &delivery.messages);
        let delivered = delivered.filter_map(|seen| Some((seen.message?, seen.message_id.as_str())));
        let mut differing = HashSet::new();
        for (message, id) in told.chain(delivered) {
            if *ids.entry(message).or_insert(id) != id {
                differing.insert(message);
            }
        }
        for seen in log.partitions.iter().flatten() {
            let Some(message) = seen.message else { continue };
            if ids.get(&message).is_some_and(|id| *id != seen.message_id) {
                differing.insert(message);
            }
        }
        for message in differing {
            self.found(Broken::Doubled, format!("{} has more than one id", self.name(message)));
        }
        let mut partition_ids: HashMap<usize, &str> = HashMap::new();
        for delivery in &history.deliveries {
            let id = *partition_ids.entry(delivery.partition).or_insert(&delivery.partition_id);
            if id != delivery.partition_id {
                self.found(
                    Broken::Corrupted,
                    format!("p{} has the ids {id} and {}", delivery.partition, delivery.partition_id),
                );
            }
        }
    }

    /// Deliveries of each partition to each group, in the order of their answers.
    fn deliveries_by_reader(&self) -> BTreeMap<(Group, usize), Vec<&'a Delivery>> {
        let mut readers: BTreeMap<_, Vec<&Delivery>> = BTreeMap::new();
        for delivery in &self.history.deliveries {
            readers.entry((delivery.group, delivery.partition)).or_default().push(delivery);
        }
        readers.values_mut().for_each(|deliveries| deliveries.sort_by_key(|delivery| delivery.answered_ns));
        readers
    }

    /// What one group saw of one partition.
    fn reader(&mut self, group: Group, partition: usize, deliveries: &[&Delivery]) {
        let acks: Vec<_> =
            self.history.acks.iter().filter(|ack| ack.group == group && ack.partition == partition).collect();
        for delivery in deliveries {
            self.run(delivery);
        }
        if group == Group::AutoAck {
            self.taken_once(partition, deliveries);
        } else {
            self.cursor(group, partition, deliveries, &acks);
            self.exclusive(group, partition, deliveries, &acks);
        }
    }

    /// A delivery is a contiguous run of the log.
    fn run(&mut self, delivery: &Delivery) {
        let at = |seen: &Seen| seen.message.and_then(|message| self.positions.get(&message).copied());
        let positions: Vec<_> = delivery.messages.iter().map(at).collect();
        for (seen, position) in delivery.messages.iter().zip(&positions) {
            match seen.message {
                None => {
                    let text =
                        format!("{:?} got a message of p{} that was never pushed", delivery.group, delivery.partition);
                    self.found(Broken::Corrupted, text);
                }
                Some(message) if position.is_none() => {
                    let text = format!("{} was delivered and is not in the log", self.name(message));
                    self.found(Broken::Lost, text);
                }
                Some(_) => {}
            }
        }
        for pair in positions.windows(2) {
            let [Some(first), Some(second)] = *pair else { continue };
            let broken = match second {
                _ if second == first + 1 => continue,
                _ if second <= first => Broken::Reordered,
                _ => Broken::Skipped,
            };
            let text =
                format!("{:?} got position {second} of p{} right behind {first}", delivery.group, delivery.partition);
            self.found(broken, text);
        }
    }

    /// The positions of a delivery that are known.
    fn known(&self, delivery: &Delivery) -> Vec<usize> {
        let at = |seen: &Seen| seen.message.and_then(|message| self.positions.get(&message).copied());
        delivery.messages.iter().filter_map(at).collect()
    }

    /// How far an ack moves the cursor if it is carried out: behind the highest completed position below the first
    /// one that comes again. `None` if it does not.
    fn completes_below(&self, ack: &Ack) -> Option<usize> {
        let at = |message: MessageNumber| self.positions.get(&message).copied();
        let stops = ack.items.iter().filter(|item| item.word != AckWord::Completed);
        let stop = stops.filter_map(|item| at(item.message)).min().unwrap_or(usize::MAX);
        let completed = ack.items.iter().filter(|item| item.word == AckWord::Completed);
        completed.filter_map(|item| at(item.message)).filter(|&position| position < stop).max().map(|last| last + 1)
    }

    /// A delivery begins where acknowledgements have moved the cursor, as far as that can be known.
    fn cursor(&mut self, group: Group, partition: usize, deliveries: &[&Delivery], acks: &[&Ack]) {
        let moves = |ack: &&Ack| self.completes_below(ack);
        // Acks that were answered: from then on the cursor is there at least.
        let took = |ack: &&&Ack| ack.items.iter().all(|item| item.success == Some(true));
        let mut certain: Vec<(u64, usize)> =
            acks.iter().filter(took).filter_map(|ack| Some((ack.answered_ns?, moves(ack)?))).collect();
        // Acks that were sent, and not refused: from then on it may be there.
        let refused = |ack: &Ack| ack.items.iter().all(|item| item.success == Some(false));
        let mut possible: Vec<(u64, usize)> =
            acks.iter().filter(|ack| !refused(ack)).filter_map(|ack| Some((ack.sent_ns, moves(ack)?))).collect();
        let certain = Highest::new(&mut certain);
        let possible = Highest::new(&mut possible);
        for delivery in deliveries {
            let Some(&first) = self.known(delivery).first() else { continue };
            let least = certain.before(delivery.sent_ns);
            if first < least {
                let text = format!(
                    "{group:?} got position {first} of p{partition} although it had completed all below {least}"
                );
                self.found(Broken::CameAgain, text);
            }
            let most = possible.before(delivery.answered_ns);
            if first > most {
                let text = format!(
                    "{group:?} got position {first} of p{partition} when nobody had completed more than those below {most}"
                );
                self.found(Broken::Skipped, text);
            }
        }
    }

    /// No two live leases on a partition for a group.
    fn exclusive(&mut self, group: Group, partition: usize, deliveries: &[&Delivery], acks: &[&Ack]) {
        let mut acks_of: HashMap<&str, Vec<&Ack>> = HashMap::new();
        acks.iter().for_each(|ack| acks_of.entry(&ack.lease_id).or_default().push(ack));
        // When the lease may have been given up by an ack: the first that lets something come again, or reaches the end.
        let given_up_ns = |delivery: &Delivery| {
            let lease = delivery.lease.as_ref()?;
            let end = delivery.messages.last()?.message;
            let frees =
                |ack: &&&Ack| ack.items.iter().any(|item| item.word != AckWord::Completed || Some(item.message) == end);
            acks_of.get(lease.id.as_str())?.iter().filter(frees).map(|ack| ack.sent_ns).min()
        };
        // The first was claimed before the second, and its lease was live and not given up when that was.
        let overlaps = |first: &Delivery, second: &Delivery| {
            let Some(lease) = &first.lease else { return false };
            let lives = second.answered_ns + LEASE_MARGIN_NS < first.sent_ns + lease.lasts_ns;
            lives && given_up_ns(first).is_none_or(|at_ns| at_ns > second.answered_ns)
        };
        let mut found = Vec::new();
        for (at, second) in deliveries.iter().enumerate() {
            let longest_ns = second.lease.as_ref().map_or(0, |lease| lease.lasts_ns);
            let near =
                deliveries[..at].iter().rev().take_while(|first| first.answered_ns + longest_ns >= second.sent_ns);
            for first in near {
                // Whichever of the two was claimed first.
                if overlaps(first, second) && overlaps(second, first) {
                    let begins = self.known(second).first().copied();
                    found.push(format!(
                        "{group:?} got p{partition} from position {begins:?} while another lease on it lived"
                    ));
                }
            }
        }
        found.into_iter().for_each(|text| self.found(Broken::TwoHolders, text));
    }

    /// Where popping acknowledges, by one consumer: nothing comes twice, and nothing comes late.
    fn taken_once(&mut self, partition: usize, deliveries: &[&Delivery]) {
        let mut end = 0;
        for delivery in deliveries {
            let positions = self.known(delivery);
            if let Some(&first) = positions.first().filter(|&&first| first < end) {
                self.found(
                    Broken::CameAgain,
                    format!("the auto-ack group got position {first} of p{partition} behind {end}"),
                );
            }
            end = positions.last().map_or(end, |&last| end.max(last + 1));
        }
    }

    /// Every message of the log came to every group; with auto-ack, but for what pops without an answer took.
    fn everything_came(&mut self) {
        let groups = self.history.groups.iter().map(|&group| (group, HashSet::new()));
        let mut came: HashMap<Group, HashSet<MessageNumber>> = groups.collect();
        for delivery in &self.history.deliveries {
            came.entry(delivery.group).or_default().extend(delivery.messages.iter().filter_map(|seen| seen.message));
        }
        let mut missing = Vec::new();
        for (group, came) in &came {
            let lacks: Vec<_> = self.positions.keys().filter(|message| !came.contains(message)).copied().collect();
            let excused = match group {
                Group::AutoAck => self.history.lost_pops.iter().sum(),
                Group::Leased(_) => 0,
            };
            if lacks.len() > excused {
                missing.extend(lacks.into_iter().map(|message| (*group, message)));
            }
        }
        for (group, message) in missing {
            self.found(Broken::Lost, format!("{} never came to {group:?}", self.name(message)));
        }
    }
}

/// The highest of what happened up to a time.
struct Highest(Vec<(u64, usize)>);

impl Highest {
    fn new(events: &mut [(u64, usize)]) -> Self {
        events.sort_unstable();
        let mut highest = 0;
        let running = events.iter().map(|&(at_ns, value)| {
            highest = highest.max(value);
            (at_ns, highest)
        });
        Self(running.collect())
    }

    /// Of what happened before `at_ns`; 0 if nothing did.
    fn before(&self, at_ns: u64) -> usize {
        let count = self.0.partition_point(|&(event_ns, _)| event_ns < at_ns);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

#[cfg(test)]
mod tests;
