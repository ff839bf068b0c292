//! Ports driven by hand on one thread: every order of events is the test's.

use std::{
    collections::HashMap,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use queen_fabric::{
    lane::LANE_DEPTH,
    port::{Asked, FollowUp, Incoming, MeshOptions, Overloaded, Port, Protocol, Reply, Ticket, mesh},
};

struct Numbers;

impl Protocol for Numbers {
    type Ask = u64;
    type Tell = u64;
    type Answer = u64;
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn open(shards: usize, credits: u32) -> Vec<Port<Numbers>> {
    mesh::<Numbers>(shards, MeshOptions { credits }).into_iter().map(|seed| seed.open()).collect()
}

fn pump_with(port: &Port<Numbers>, waker: &Waker, mut on_incoming: impl FnMut(Incoming<Numbers>)) {
    let mut cx = Context::from_waker(waker);
    while let Poll::Ready(incoming) = port.poll_incoming(&mut cx) {
        on_incoming(incoming);
    }
}

/// Pumps until the port is pending, and returns what came.
fn pump(port: &Port<Numbers>) -> Vec<Incoming<Numbers>> {
    let mut came = Vec::new();
    pump_with(port, Waker::noop(), |incoming| came.push(incoming));
    came
}

/// Pumps a port that nothing but `expected` questions, in order, may come to. Returns their tickets.
fn pump_asks(port: &Port<Numbers>, expected: impl IntoIterator<Item = u64>) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    let asks: Vec<u64> = pump(port)
        .into_iter()
        .map(|incoming| match incoming {
            Incoming::Ask { ticket, ask } => {
                tickets.push(ticket);
                ask
            }
            other => panic!("a question was expected, not {}", name(&other)),
        })
        .collect();
    assert!(asks.iter().copied().eq(expected), "{asks:?}");
    tickets
}

fn name(incoming: &Incoming<Numbers>) -> &'static str {
    match incoming {
        Incoming::Ask { .. } => "an ask",
        Incoming::Cancel { .. } => "a cancel",
        Incoming::Tell { .. } => "a tell",
        Incoming::Orphan { .. } => "an orphan",
    }
}

fn poll(asked: &mut Asked<Numbers>) -> Option<Reply<Numbers>> {
    match Pin::new(asked).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => Some(reply),
        Poll::Pending => None,
    }
}

fn ask(port: &Port<Numbers>, to: u16, ask: u64) -> Asked<Numbers> {
    port.ask(to, ask).unwrap_or_else(|Overloaded(ask)| panic!("no credit for {ask}"))
}

#[test]
fn a_question_is_answered_and_what_follows_is_told() {
    let ports = open(2, 1);
    let mut asked = ask(&ports[0], 1, 7);
    assert!(pump(&ports[0]).is_empty());

    let tickets = pump_asks(&ports[1], [7]);
    assert_eq!(tickets[0].from, 0);
    ports[1].answer(tickets[0], 49);
    assert!(pump(&ports[1]).is_empty());

    assert!(poll(&mut asked).is_none());
    assert!(pump(&ports[0]).is_empty());
    let reply = poll(&mut asked).unwrap();
    assert_eq!(reply.answer, 49);
    reply.follow.tell(1);
    assert!(pump(&ports[0]).is_empty());
    assert!(matches!(pump(&ports[1])[..], [Incoming::Tell { from: 0, tell: 1 }]));
}

#[test]
fn a_credit_is_held_until_what_follows_is_used_or_dropped() {
    let ports = open(2, 1);
    let settle = |end: fn(FollowUp<Numbers>)| {
        let mut asked = ask(&ports[0], 1, 1);
        assert!(matches!(ports[0].ask(1, 2), Err(Overloaded(2))));
        pump(&ports[0]);
        for ticket in pump(&ports[1]).into_iter().filter_map(|incoming| match incoming {
            Incoming::Ask { ticket, .. } => Some(ticket),
            _ => None,
        }) {
            ports[1].answer(ticket, 0);
        }
        pump(&ports[1]);
        pump(&ports[0]);
        let reply = poll(&mut asked).unwrap();
        assert!(ports[0].ask(1, 2).is_err());
        end(reply.follow);
        assert_eq!(ports[0].counters().peers[1].credits_in_use, 0);
    };
    settle(drop);
    settle(|follow| follow.tell(3));
    assert_eq!(ports[0].counters().peers[1].credits_refused, 4);
}

#[test]
fn parked_questions_take_no_credit() {
    let ports = open(2, 1);
    let parked: Vec<_> = (0..10).map(|n| ports[0].ask_parked(1, n)).collect();
    let _charged = ask(&ports[0], 1, 10);
    pump(&ports[0]);
    pump_asks(&ports[1], 0..=10);
    assert_eq!(ports[0].counters().unanswered, 11);
    drop(parked);
    assert_eq!(ports[0].counters().peers[1].credits_in_use, 1);
}

#[test]
fn a_question_dropped_before_its_answer_is_cancelled_and_the_answer_is_an_orphan() {
    let ports = open(2, 1);
    let asked = ask(&ports[0], 1, 5);
    pump(&ports[0]);
    let ticket = pump_asks(&ports[1], [5])[0];
    drop(asked);
    pump(&ports[0]);
    assert!(matches!(pump(&ports[1])[..], [Incoming::Cancel { ticket: cancelled }] if cancelled == ticket));
    assert!(ports[0].ask(1, 6).is_err(), "the credit covers the answer that is still to come");
    ports[1].answer(ticket, 25);
    pump(&ports[1]);
    let mut came = pump(&ports[0]);
    let Some(Incoming::Orphan { answer: 25, follow }) = came.pop() else { panic!("an orphan was expected") };
    follow.tell(25);
    pump(&ports[0]);
    assert!(matches!(pump(&ports[1])[..], [Incoming::Tell { from: 0, tell: 25 }]));
    assert!(ports[0].ask(1, 6).is_ok());
}

#[test]
fn an_answer_that_came_and_was_not_taken_is_an_orphan_without_a_cancel() {
    let ports = open(2, 1);
    let asked = ask(&ports[0], 1, 5);
    pump(&ports[0]);
    let ticket = pump_asks(&ports[1], [5])[0];
    ports[1].answer(ticket, 25);
    pump(&ports[1]);
    let wakes = Arc::new(Wakes::default());
    pump_with(&ports[0], &Arc::clone(&wakes).into(), |_| panic!("nothing for the pump"));
    drop(asked);
    assert_eq!(wakes.count(), 1, "the pump hears of it");
    assert!(matches!(pump(&ports[0])[..], [Incoming::Orphan { answer: 25, .. }]));
    assert!(pump(&ports[1]).is_empty());
    assert_eq!(ports[0].counters().peers[1].credits_in_use, 0);
}

#[test]
fn a_cancel_that_crosses_its_answer_means_nothing_even_when_the_number_is_used_again() {
    let ports = open(2, 2);
    let asked = ask(&ports[0], 1, 5);
    pump(&ports[0]);
    let first = pump_asks(&ports[1], [5])[0];
    ports[1].answer(first, 25);
    // The answer is on its way when the question is dropped.
    drop(asked);
    pump(&ports[1]);
    assert!(matches!(pump(&ports[0])[..], [Incoming::Orphan { answer: 25, .. }]));
    let _again = ask(&ports[0], 1, 6);
    pump(&ports[0]);
    let came = pump(&ports[1]);
    let [Incoming::Cancel { ticket: cancelled }, Incoming::Ask { ticket: second, ask: 6 }] = came[..] else {
        panic!("the cancel comes before the question that uses its number again")
    };
    assert_eq!((cancelled, second), (first, first));
}

#[test]
fn parcels_of_a_turn_leave_in_one_batch_with_one_wake() {
    let ports = open(2, 100);
    let (asker, answerer) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    pump_with(&ports[0], &Arc::clone(&asker).into(), |_| panic!("nothing yet"));
    pump_with(&ports[1], &Arc::clone(&answerer).into(), |_| panic!("nothing yet"));

    let _asked: Vec<_> = (0..50).map(|n| ask(&ports[0], 1, n)).collect();
    assert_eq!((asker.count(), answerer.count()), (1, 0), "the own pump is woken at the first, and sends them all");
    pump_with(&ports[0], &Arc::clone(&asker).into(), |_| panic!("nothing comes back yet"));
    assert_eq!((asker.count(), answerer.count()), (1, 1));
    pump_asks(&ports[1], 0..50);
    assert_eq!(ports[0].counters().wakes_sent, 1);
}

#[test]
fn a_task_that_waits_is_woken_by_its_answer() {
    let ports = open(2, 1);
    let mut asked = pin!(ask(&ports[0], 1, 5));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    assert!(asked.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    pump(&ports[0]);
    let ticket = pump_asks(&ports[1], [5])[0];
    ports[1].answer(ticket, 25);
    pump(&ports[1]);
    assert_eq!(wakes.count(), 0);
    pump(&ports[0]);
    assert_eq!(wakes.count(), 1);
    assert!(asked.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

#[test]
fn peers_are_served_in_turn() {
    let ports = open(3, 1000);
    let _from_0: Vec<_> = (0..LANE_DEPTH as u64).map(|n| ask(&ports[0], 2, n)).collect();
    let _from_1 = ask(&ports[1], 2, 1_000);
    pump(&ports[0]);
    pump(&ports[1]);
    let came: Vec<u64> = pump(&ports[2])
        .iter()
        .map(|incoming| match incoming {
            Incoming::Ask { ask, .. } => *ask,
            other => panic!("{}", name(other)),
        })
        .collect();
    let waited = came.iter().position(|&ask| ask == 1_000).unwrap();
    assert!(waited < LANE_DEPTH, "a full lane does not hold up the one behind it, but it came after {waited}");
    assert!(came.iter().filter(|&&ask| ask != 1_000).copied().eq(0..LANE_DEPTH as u64));
}

#[test]
fn a_shard_may_ask_itself() {
    let ports = open(1, 1);
    let mut asked = ask(&ports[0], 0, 3);
    let came = pump(&ports[0]);
    let [Incoming::Ask { ticket, ask: 3 }] = came[..] else { panic!("its own question was expected") };
    ports[0].answer(ticket, 9);
    pump(&ports[0]);
    assert_eq!(poll(&mut asked).unwrap().answer, 9);
}

/// Fills every lane, credit and outbox between all ports, in both directions, and then lets them answer.
fn fill_and_drain(shards: usize, credits: u32, parked: u64) {
    let ports = open(shards, credits);
    let mut asked: Vec<Vec<Asked<Numbers>>> = (0..shards).map(|_| Vec::new()).collect();
    for (from, asked) in asked.iter_mut().enumerate() {
        for to in (0..shards).filter(|&to| to != from) {
            let to = u16::try_from(to).unwrap();
            while let Ok(ask) = ports[from].ask(to, 1) {
                asked.push(ask);
            }
            asked.extend((0..parked).map(|_| ports[from].ask_parked(to, 1)));
        }
    }
    // Every lane is full, and nobody has taken anything: pumps send before they receive here, one after the other.
    let per_pair = u64::from(credits) + parked;
    let mut owed: Vec<Vec<Ticket>> = (0..shards).map(|_| Vec::new()).collect();
    let mut cancelled = 0;
    let mut orphans = 0;
    let mut tells = 0;
    let mut rounds = 0;
    let mut expected_orphans = 0;
    loop {
        rounds += 1;
        let mut moved = false;
        for (port, owed) in ports.iter().zip(&mut owed) {
            for incoming in pump(port) {
                moved = true;
                match incoming {
                    Incoming::Ask { ticket, .. } => owed.push(ticket),
                    Incoming::Cancel { .. } => cancelled += 1,
                    Incoming::Tell { .. } => tells += 1,
                    Incoming::Orphan { follow, .. } => {
                        orphans += 1;
                        follow.tell(0);
                    }
                }
            }
            let outboxes = port.counters().peers;
            assert!(outboxes.iter().all(|peer| peer.outbox_length as u64 <= 4 * per_pair));
        }
        if rounds == 2 {
            // A third of the questions is dropped while lanes are full.
            for asked in &mut asked {
                let keep = asked.len() / 3 * 2;
                expected_orphans += asked.len() - keep;
                asked.truncate(keep);
            }
            moved = true;
        }
        if !moved && owed.iter().all(|owed| owed.len() as u64 == (shards as u64 - 1) * per_pair) {
            break;
        }
        assert!(rounds < 100_000, "nothing moves any more");
    }
    // Every answer at once, both ways.
    for (port, owed) in ports.iter().zip(owed) {
        for ticket in owed {
            port.answer(ticket, 2);
        }
    }
    let mut answered = 0;
    let mut quiet = 0;
    while quiet < 3 {
        let mut moved = false;
        for (port, asked) in ports.iter().zip(&mut asked) {
            for incoming in pump(port) {
                moved = true;
                match incoming {
                    Incoming::Orphan { follow, .. } => {
                        orphans += 1;
                        follow.tell(0);
                    }
                    Incoming::Tell { .. } => tells += 1,
                    Incoming::Cancel { .. } => cancelled += 1,
                    Incoming::Ask { .. } => panic!("all questions were taken"),
                }
            }
            asked.retain_mut(|asked| match poll(asked) {
                Some(reply) => {
                    answered += 1;
                    moved = true;
                    reply.follow.tell(0);
                    false
                }
                None => true,
            });
        }
        quiet = if moved { 0 } else { quiet + 1 };
    }
    let total = shards * (shards - 1) * usize::try_from(per_pair).unwrap();
    assert_eq!(answered + orphans, total);
    assert_eq!((orphans, cancelled), (expected_orphans, expected_orphans));
    assert_eq!(tells, total, "each question is followed by one tell");
    for port in &ports {
        let counters = port.counters();
        assert_eq!(counters.unanswered, 0);
        for peer in &counters.peers {
            assert_eq!((peer.credits_in_use, peer.outbox_length, peer.lane_depth), (0, 0, 0));
        }
    }
}

#[test]
fn two_ports_with_everything_full_both_ways_drain() {
    fill_and_drain(2, 1024, 0);
    fill_and_drain(2, 1024, 3_000);
    fill_and_drain(2, 1, 0);
}

#[test]
fn three_ports_with_everything_full_both_ways_drain() {
    fill_and_drain(3, 1024, 0);
    fill_and_drain(3, 200, 500);
}

#[test]
fn a_hundred_thousand_parked_questions_are_answered_at_once() {
    const PARKED: u64 = 100_000;
    let ports = open(2, 1);
    let asked: Vec<_> = (0..PARKED).map(|n| ports[0].ask_parked(1, n)).collect();
    let mut owed = HashMap::new();
    while (owed.len() as u64) < PARKED {
        pump(&ports[0]);
        for incoming in pump(&ports[1]) {
            let Incoming::Ask { ticket, ask } = incoming else { panic!("{}", name(&incoming)) };
            assert!(owed.insert(ticket, ask).is_none(), "a ticket names one question");
        }
    }
    for (ticket, ask) in owed {
        ports[1].answer(ticket, ask * 2);
    }
    for _ in 0..=PARKED as usize / LANE_DEPTH {
        pump(&ports[1]);
        pump(&ports[0]);
    }
    for (n, mut asked) in asked.into_iter().enumerate() {
        assert_eq!(poll(&mut asked).unwrap().answer, n as u64 * 2);
    }
    assert_eq!(ports[1].counters().peers[0].outbox_length, 0);
}
