//! Ports on real executors: millions of parcels with cancels, orphans and follow-ups, accounted for one by one.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use queen_fabric::{
    port::{Incoming, MeshOptions, Port, PortSeed, Protocol, Ticket, mesh},
    rt::{Executor, Notify, spawn_local, yield_now},
};

struct Work;

impl Protocol for Work {
    type Ask = Ask;
    type Tell = u64;
    type Answer = u64;
}

enum Ask {
    /// To be answered with twice the number.
    Double(u64),
    /// The asker's last: it is done, and only answers from here on.
    Done,
}

/// What one shard counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    asked: u64,
    replies: u64,
    orphans: u64,
    refused: u64,
    tells_sent: u64,
    questions_taken: u64,
    cancels_taken: u64,
    tells_taken: u64,
}

/// One shard: asks all the others `asks` times in all, drops every seventh question at once and every eleventh reply's
/// follow-up, and answers what it is asked, some of it only later and out of order.
struct Shard {
    port: Port<Work>,
    tally: Cell<Tally>,
    held: RefCell<VecDeque<(Ticket, u64)>>,
    changed: Notify,
    peers_done: Cell<usize>,
}

impl Shard {
    fn count(&self, change: impl FnOnce(&mut Tally)) {
        let mut tally = self.tally.get();
        change(&mut tally);
        self.tally.set(tally);
    }

    fn take(&self, incoming: Incoming<Work>) {
        match incoming {
            Incoming::Ask { ticket, ask: Ask::Double(n) } => {
                self.count(|tally| tally.questions_taken += 1);
                // Every third answer waits behind the next ones.
                if n % 3 == 0 {
                    self.held.borrow_mut().push_back((ticket, n));
                } else {
                    self.port.answer(ticket, n * 2);
                }
                if self.held.borrow().len() > 500 {
                    self.answer_held();
                }
            }
            Incoming::Ask { ticket, ask: Ask::Done } => {
                self.peers_done.set(self.peers_done.get() + 1);
                self.port.answer(ticket, 0);
                self.changed.notify();
            }
            Incoming::Cancel { .. } => self.count(|tally| tally.cancels_taken += 1),
            Incoming::Tell { .. } => {
                self.count(|tally| tally.tells_taken += 1);
                self.changed.notify();
            }
            Incoming::Orphan { answer, follow } => {
                self.count(|tally| {
                    tally.orphans += 1;
                    tally.tells_sent += 1;
                });
                follow.tell(answer);
                self.changed.notify();
            }
        }
    }

    fn answer_held(&self) {
        loop {
            let held = self.held.borrow_mut().pop_front();
            let Some((ticket, n)) = held else { break };
            self.port.answer(ticket, n * 2);
        }
    }

    /// Pumps for ever, and answers what it held back when nothing else comes.
    async fn pump(self: Rc<Self>) {
        poll_fn(|cx| {
            while let Poll::Ready(incoming) = self.port.poll_incoming(cx) {
                self.take(incoming);
            }
            if !self.held.borrow().is_empty() {
                self.answer_held();
            }
            Poll::<()>::Pending
        })
        .await;
    }

    async fn ask_all(self: Rc<Self>, asks: u64) {
        let me = self.port.id();
        let peers: Vec<u16> = (0..u16::try_from(self.port.shards()).unwrap()).filter(|&peer| peer != me).collect();
        let mut n = 0;
        while n < asks {
            let to = peers[usize::try_from(n).unwrap() % peers.len()];
            match self.port.ask(to, Ask::Double(n)) {
                Ok(asked) => {
                    self.count(|tally| tally.asked += 1);
                    if n % 7 == 0 {
                        drop(asked);
                    } else {
                        let shard = Rc::clone(&self);
                        spawn_local(async move {
                            let reply = asked.await;
                            assert_eq!(reply.answer, n * 2);
                            let tells = n % 11 != 0;
                            shard.count(|tally| {
                                tally.replies += 1;
                                tally.tells_sent += u64::from(tells);
                            });
                            if tells {
                                reply.follow.tell(n);
                            }
                            shard.changed.notify();
                        })
                        .detach();
                    }
                    n += 1;
                }
                Err(_) => {
                    self.count(|tally| tally.refused += 1);
                    // Credits come back with replies and orphans.
                    self.changed.wait().await;
                }
            }
            if n % 256 == 0 {
                yield_now().await;
            }
        }
        while self.tally.get().replies + self.tally.get().orphans < asks {
            self.changed.wait().await;
        }
        for &peer in &peers {
            let _done = self.port.ask_parked(peer, Ask::Done).await;
        }
    }
}

async fn run(seed: PortSeed<Work>, asks: u64) -> Tally {
    let port = seed.open();
    let others = port.shards() - 1;
    let shard = Rc::new(Shard {
        port,
        tally: Cell::default(),
        held: RefCell::default(),
        changed: Notify::new(),
        peers_done: Cell::new(0),
    });
    let pump = spawn_local(Rc::clone(&shard).pump());
    Rc::clone(&shard).ask_all(asks).await;
    // A peer's Done comes behind everything else that it sends.
    while shard.peers_done.get() < others {
        shard.changed.wait().await;
    }
    // The answer to the last Done has to leave before the pump ends.
    while shard.port.counters().peers.iter().any(|peer| peer.outbox_length > 0) {
        yield_now().await;
    }
    let counters = shard.port.counters();
    assert!(counters.peers.iter().all(|peer| peer.credits_in_use == 0), "{counters:?}");
    assert_eq!(counters.unanswered, 0);
    pump.cancel().await;
    shard.tally.get()
}

fn check(tallies: &[Tally], asks: u64) {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    for tally in tallies {
        assert_eq!(tally.asked, asks);
        assert_eq!(tally.replies + tally.orphans, asks, "every question got its answer: {tally:?}");
        assert_eq!(tally.orphans, asks.div_ceil(7), "{tally:?}");
    }
    assert_eq!(sum(|tally| tally.questions_taken), sum(|tally| tally.asked));
    assert_eq!(sum(|tally| tally.cancels_taken), sum(|tally| tally.orphans));
    assert_eq!(sum(|tally| tally.tells_taken), sum(|tally| tally.tells_sent));
}

/// A mesh with a shard per executor, each of which asks so many questions; then the books are checked.
fn stress(shards: usize, credits: u32, asks: u64) {
    let handles: Vec<_> = mesh::<Work>(shards, MeshOptions { credits })
        .into_iter()
        .map(|seed| Executor::spawn("stress", None, Duration::ZERO, move || run(seed, asks)).unwrap())
        .collect();
    let tallies: Vec<Tally> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
    check(&tallies, asks);
}

#[test]
fn two_executors_account_for_every_parcel() {
    stress(2, 256, 300_000);
}

#[test]
fn three_executors_with_few_credits_account_for_every_parcel() {
    stress(3, 3, 50_000);
}

#[test]
fn two_ports_on_one_executor_account_for_every_parcel() {
    const ASKS: u64 = 50_000;
    let seeds = mesh::<Work>(2, MeshOptions::default());
    let handle = Executor::spawn("together", None, Duration::ZERO, move || async move {
        let tasks: Vec<_> = seeds.into_iter().map(|seed| spawn_local(run(seed, ASKS))).collect();
        let mut tallies = Vec::new();
        for task in tasks {
            tallies.push(task.await);
        }
        tallies
    });
    check(&handle.unwrap().join().unwrap(), ASKS);
}

#[test]
fn a_hundred_thousand_parked_questions_cross_real_lanes() {
    const PARKED: u64 = 100_000;
    let mut seeds = mesh::<Work>(2, MeshOptions::default()).into_iter();
    let (asker, answerer) = (seeds.next().unwrap(), seeds.next().unwrap());
    let answers = Executor::spawn("answers", None, Duration::ZERO, move || async move {
        let port = answerer.open();
        let mut held = Vec::new();
        let mut answered_all = false;
        poll_fn(|cx| {
            while let Poll::Ready(incoming) = port.poll_incoming(cx) {
                let Incoming::Ask { ticket, ask } = incoming else { panic!("only questions are sent") };
                match ask {
                    Ask::Double(n) => held.push((ticket, n)),
                    Ask::Done => {
                        for (ticket, n) in held.drain(..) {
                            port.answer(ticket, n * 2);
                        }
                        port.answer(ticket, 0);
                        answered_all = true;
                    }
                }
            }
            let sent = port.counters().peers[0];
            if answered_all && sent.outbox_length == 0 && sent.lane_depth == 0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    })
    .unwrap();
    let asks = Executor::spawn("asks", None, Duration::ZERO, move || async move {
        let port = asker.open();
        let pumped = port.clone();
        let pump = spawn_local(poll_fn(move |cx| {
            while pumped.poll_incoming(cx).is_ready() {}
            Poll::<()>::Pending
        }));
        let parked: Vec<_> = (0..PARKED).map(|n| port.ask_parked(1, Ask::Double(n))).collect();
        let done = port.ask_parked(1, Ask::Done);
        for (n, asked) in (0..).zip(parked) {
            assert_eq!(asked.await.answer, n * 2);
        }
        assert_eq!(done.await.answer, 0);
        pump.cancel().await;
    })
    .unwrap();
    asks.join().unwrap();
    // Its last look at the lane may have been before the asker took from it: dropping the executor is all that is left.
    drop(answers);
}
