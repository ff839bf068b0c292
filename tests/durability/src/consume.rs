//! A consumer: takes leases on one or more partitions and acknowledges all, some, or nothing of what it got, lets some
//! fail and gives some back; or takes what it gets at once, where its group acknowledges as it pops.

use std::{
    collections::BTreeMap,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use crate::{
    history::{Ack, AckItem, AckWord, Delivery, Group, Lease, MessageNumber, Seen},
    load::{LEASE, Shared},
    random::Random,
    wire::{AckRequest, Client, Pop, Popped},
};

/// Pops until it is told to stop.
pub fn run(shared: &Shared, mut client: Client, group: Group, mut random: Random) {
    while !shared.stops.load(Ordering::Relaxed) {
        let leases = group != Group::AutoAck;
        let name = group_name(group);
        let pop = Pop {
            group: &name,
            batch: random.within(1, 30) as usize,
            partitions: random.within(1, 3) as usize,
            wait_ms: random.within(0, 800),
            lease_s: leases.then_some(LEASE.as_secs()),
        };
        let sent_ns = shared.now_ns();
        let (lease_id, messages) = match client.pop(&pop) {
            Ok(popped) => popped,
            Err(trouble) => {
                if !leases {
                    shared.history().lost_pops.push(pop.batch);
                }
                shared.note_trouble(trouble);
                continue;
            }
        };
        if messages.is_empty() {
            // One that does not wait would ask as fast as it can.
            thread::sleep(Duration::from_millis(random.within(1, 10)));
            continue;
        }
        let answered_ns = shared.now_ns();
        let runs = by_partition(shared, messages);
        // What is none of ours is acknowledged by nobody: as the last of its partition it would come for ever, and the run
        // would not end. That it came is in the history.
        if runs.iter().flat_map(|run| &run.seen).any(|seen| seen.message.is_some()) {
            shared.note_delivery();
        }
        let delivery = |run: &Run| Delivery {
            group,
            partition: run.partition,
            partition_id: run.partition_id.clone(),
            lease: leases.then(|| Lease { id: lease_id.clone(), lasts_ns: LEASE.as_nanos() as u64 }),
            sent_ns,
            answered_ns,
            messages: run.seen.clone(),
        };
        shared.history().deliveries.extend(runs.iter().map(delivery));
        if leases {
            for run in &runs {
                acknowledge(shared, &mut client, group, &lease_id, run, &mut random);
            }
        }
    }
}

/// What a pop brought of one partition.
struct Run {
    partition: usize,
    partition_id: String,
    seen: Vec<Seen>,
    transaction_ids: Vec<String>,
}

/// Takes an answer apart, and finds out which messages they are.
fn by_partition(shared: &Shared, messages: Vec<Popped>) -> Vec<Run> {
    let history = shared.history();
    let mut runs: BTreeMap<String, Run> = BTreeMap::new();
    for popped in messages {
        // What carries another message's number, or came from another partition, is not what was pushed.
        let message = history.identify(&popped);
        let Popped { transaction_id, message_id, partition, partition_id, offset, .. } = popped;
        let number = partition.strip_prefix('p').and_then(|number| number.parse().ok()).unwrap_or(usize::MAX);
        let run = runs.entry(partition).or_insert_with(|| Run {
            partition: number,
            partition_id,
            seen: Vec::new(),
            transaction_ids: Vec::new(),
        });
        run.seen.push(Seen { message, message_id, offset });
        run.transaction_ids.push(transaction_id);
    }
    runs.into_values().collect()
}

/// What a consumer does with what it got of a partition.
enum Conduct {
    /// It completes all in one request.
    All,
    /// It completes the first of them, one by one, and leaves the rest to the lease's end.
    FirstOnes(usize),
    /// It completes what comes before one of them, which fails or is given back, and what comes after.
    AllBut(usize, AckWord),
    /// It does nothing: the lease lapses.
    Nothing,
}

impl Conduct {
    fn choose(count: usize, random: &mut Random) -> Self {
        let one = random.within(0, count as u64 - 1) as usize;
        match random.within(1, 100) {
            1..=75 => Self::All,
            76..=82 => Self::FirstOnes(one + 1),
            83..=90 => Self::AllBut(one, AckWord::Failed),
            91..=97 => Self::AllBut(one, AckWord::Retry),
            _ => Self::Nothing,
        }
    }
}

fn acknowledge(shared: &Shared, client: &mut Client, group: Group, lease_id: &str, run: &Run, random: &mut Random) {
    let conduct = match shared.drains.load(Ordering::Relaxed) {
        true => Conduct::All,
        false => Conduct::choose(run.seen.len(), random),
    };
    if random.percent(20) {
        thread::sleep(Duration::from_millis(random.within(1, 50)));
    }
    let all = 0..run.seen.len();
    match conduct {
        Conduct::Nothing => {}
        Conduct::All => send(shared, client, group, lease_id, run, all.map(|at| (at, AckWord::Completed)).collect()),
        Conduct::FirstOnes(count) => {
            for at in 0..count {
                send(shared, client, group, lease_id, run, vec![(at, AckWord::Completed)]);
            }
        }
        Conduct::AllBut(one, word) => {
            let word_of = |at| if at == one { word } else { AckWord::Completed };
            send(shared, client, group, lease_id, run, all.map(|at| (at, word_of(at))).collect());
        }
    }
}

/// Sends an acknowledgement until it is answered, or its lease is over in any case.
fn send(shared: &Shared, client: &mut Client, group: Group, lease_id: &str, run: &Run, words: Vec<(usize, AckWord)>) {
    let since = Instant::now();
    // What is none of ours is in the history as such, and acknowledged by nobody.
    let words: Vec<(usize, MessageNumber, AckWord)> =
        words.into_iter().filter_map(|(at, word)| Some((at, run.seen[at].message?, word))).collect();
    if words.is_empty() {
        return;
    }
    while since.elapsed() < LEASE {
        let items: Vec<_> = words
            .iter()
            .map(|&(at, _, word)| AckRequest {
                transaction_id: &run.transaction_ids[at],
                partition_id: &run.partition_id,
                word,
            })
            .collect();
        let sent_ns = shared.now_ns();
        let answer = client.ack(&group_name(group), lease_id, &items);
        let taken = answer.as_ref().ok();
        let item = |(number, &(_, message, word)): (usize, &(usize, MessageNumber, AckWord))| AckItem {
            message,
            word,
            success: taken.map(|taken| taken[number]),
        };
        let ack = Ack {
            group,
            partition: run.partition,
            lease_id: lease_id.to_owned(),
            sent_ns,
            answered_ns: taken.map(|_| shared.now_ns()),
            items: words.iter().enumerate().map(item).collect(),
        };
        shared.history().acks.push(ack);
        match answer {
            Ok(_) => return,
            Err(trouble) => shared.note_trouble(trouble),
        }
    }
}

fn group_name(group: Group) -> String {
    match group {
        Group::Leased(number) => format!("leased-{number}"),
        Group::AutoAck => "auto".into(),
    }
}
