//! Producers and consumers, each on a thread with a connection of its own, from the start of a run to the moment when
//! everything has been consumed.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    Failed, consume,
    history::{Group, History},
    produce,
    random::Random,
    wire::{Client, Trouble},
};

/// The queue that all of it goes through.
pub const QUEUE: &str = "durability";

/// How long a lease of a consumer lasts.
pub const LEASE: Duration = Duration::from_secs(2);

/// How long somebody whose request had no answer waits before the next.
pub const PAUSE: Duration = Duration::from_millis(20);

/// How long a declaration is tried again, and how long the end of a run may take.
const DECLARE_MAX: Duration = Duration::from_secs(60);
const DRAIN_MAX: Duration = Duration::from_secs(180);

/// All is consumed when no consumer has got a message for so long: two leases and what a busy machine adds.
const QUIET: Duration = Duration::from_secs(6);

/// How much of what there is.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Partitions of the queue.
    pub partitions: usize,
    /// Threads that push, for each broker.
    pub producers: usize,
    /// Threads of each group that takes leases, for each broker.
    pub consumers: [usize; 2],
    /// Whether there is a group that acknowledges as it pops: one consumer, at the first broker.
    pub has_auto_ack: bool,
}

impl Shape {
    /// Who reads.
    fn groups(&self) -> Vec<Group> {
        let leased = (0..self.consumers.len()).filter(|&group| self.consumers[group] > 0).map(Group::Leased);
        leased.chain(self.has_auto_ack.then_some(Group::AutoAck)).collect()
    }
}

/// What all threads share.
pub struct Shared {
    /// What they note.
    history: Mutex<History>,
    /// The run's clock.
    started: Instant,
    /// The run's seed.
    pub seed: u64,
    /// Its shape.
    pub shape: Shape,
    /// Producers are to end once what they sent is answered.
    pub stops_pushing: AtomicBool,
    /// Consumers are to complete all that they get.
    pub drains: AtomicBool,
    /// Consumers are to end.
    pub stops: AtomicBool,
    /// Producers that have not ended.
    pushing: AtomicUsize,
    /// When a message was delivered last, on the run's clock.
    delivered_ns: AtomicU64,
}

impl Shared {
    /// Nanoseconds since the run's start.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// What was noted so far.
    pub fn history(&self) -> MutexGuard<'_, History> {
        // A thread that panics is told when it is joined.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a message was delivered just now.
    pub fn note_delivery(&self) {
        self.delivered_ns.store(self.now_ns(), Ordering::Relaxed);
    }

    /// Notes what a request came to that brought nothing, and waits for better times.
    pub fn note_trouble(&self, trouble: Trouble) {
        match trouble {
            Trouble::Unanswered => self.history().unanswered += 1,
            Trouble::Refused(text) => self.history().refusals.push(text),
        }
        thread::sleep(PAUSE);
    }
}

/// A load that goes on.
pub struct Load {
    shared: Arc<Shared>,
    producers: Vec<JoinHandle<()>>,
    consumers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Declares the queue and starts everybody, at each of these brokers.
    pub fn start(brokers: &[SocketAddr], seed: u64, shape: Shape) -> Result<Self, Failed> {
        declare(brokers[0])?;
        let shared = Arc::new(Shared {
            history: Mutex::new(History { groups: shape.groups(), ..History::default() }),
            started: Instant::now(),
            seed,
            shape,
            stops_pushing: AtomicBool::new(false),
            drains: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            pushing: AtomicUsize::new(brokers.len() * shape.producers),
            delivered_ns: AtomicU64::new(0),
        });
        let (mut producers, mut consumers) = (Vec::new(), Vec::new());
        for (number, &address) in brokers.iter().enumerate() {
            for (group, &count) in shape.consumers.iter().enumerate() {
                for consumer in 0..count {
                    let name = 1_000 * (number as u64 + 1) + 100 * group as u64 + consumer as u64;
                    consumers.push(consumer_thread(&shared, address, Group::Leased(group), name));
                }
            }
            for producer in number * shape.producers..(number + 1) * shape.producers {
                let shared = Arc::clone(&shared);
                producers.push(thread::spawn(move || {
                    produce::run(&shared, Client::new(address, QUEUE), producer);
                    shared.pushing.fetch_sub(1, Ordering::Relaxed);
                }));
            }
        }
        if shape.has_auto_ack {
            consumers.push(consumer_thread(&shared, brokers[0], Group::AutoAck, 9_999));
        }
        Ok(Self { shared, producers, consumers })
    }

    /// How many messages were pushed and answered so far.
    pub fn pushed(&self) -> usize {
        self.shared.history().pushes.len()
    }

    /// Stops pushing, waits until everything was consumed, and returns all that was noted.
    pub fn finish(self) -> Result<History, Failed> {
        let Self { shared, producers, consumers } = self;
        let since = Instant::now();
        shared.stops_pushing.store(true, Ordering::Relaxed);
        while shared.pushing.load(Ordering::Relaxed) > 0 {
            if since.elapsed() > DRAIN_MAX {
                return Err(Failed(format!("pushes had no answer for {DRAIN_MAX:?} after the last fault")));
            }
            thread::sleep(PAUSE);
        }
        shared.drains.store(true, Ordering::Relaxed);
        shared.note_delivery();
        let quiet_ns = QUIET.as_nanos() as u64;
        while shared.now_ns() < shared.delivered_ns.load(Ordering::Relaxed) + quiet_ns {
            if since.elapsed() > DRAIN_MAX {
                return Err(Failed(format!("messages were still delivered {DRAIN_MAX:?} after the last push")));
            }
            thread::sleep(PAUSE);
        }
        shared.stops.store(true, Ordering::Relaxed);
        for thread in producers.into_iter().chain(consumers) {
            thread.join().map_err(|_| Failed("a client panicked".into()))?;
        }
        Ok(std::mem::take(&mut *shared.history()))
    }
}

fn consumer_thread(shared: &Arc<Shared>, address: SocketAddr, group: Group, name: u64) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    let random = Random::new(shared.seed, name);
    thread::spawn(move || consume::run(&shared, Client::new(address, QUEUE), group, random))
}

fn declare(address: SocketAddr) -> Result<(), Failed> {
    let since = Instant::now();
    loop {
        match Client::new(address, QUEUE).declare() {
            Ok(()) => return Ok(()),
            Err(trouble) if since.elapsed() > DECLARE_MAX => {
                return Err(Failed(format!("the queue could not be declared: {trouble:?}")));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}
