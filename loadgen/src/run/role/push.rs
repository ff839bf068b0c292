//! Pushes what is due.

use std::{collections::VecDeque, sync::Arc};

use super::{Loss, PATIENCE_NS, Role};
use crate::{
    driver::{Batch, Driver, Event, Owed, Place},
    payload::Header,
    random::{Chooser, Random},
    run::{
        core::Core,
        flow::{Flow, FlowKind},
        sizes::Sizes,
    },
};

/// A producer's messages: numbered for each key, rendered, and pushed in batches.
pub(super) struct Outgoing {
    pub(super) producer: usize,
    sizes: Sizes,
    pub(super) random: Random,
    /// The next number of each key.
    next: Vec<u64>,
    batch: Batch,
    in_flight: VecDeque<Push>,
    /// The partitions of the push that is being made, where it goes to several.
    partitions: Vec<usize>,
}

/// What is to be pushed.
pub(super) struct Order<'a> {
    pub(super) to: Place<'a>,
    /// The number of that place in the producer's sequences.
    pub(super) key: usize,
    /// How many messages.
    pub(super) count: usize,
    pub(super) due_ns: u64,
}

/// A push that is not answered.
pub(super) struct Push {
    pub(super) due_ns: u64,
    sent_ns: u64,
    runs: Vec<Run>,
    /// Messages of all of them.
    pub(super) count: u64,
}

/// Messages of one sequence that are in one push.
struct Run {
    key: usize,
    first: u64,
    count: u64,
}

impl Outgoing {
    pub(super) fn new(producer: usize, keys: usize, sizes: Sizes, core: &Core) -> Self {
        Self {
            producer,
            sizes,
            random: Random::new(core.plan.seed, producer as u64),
            next: vec![0; keys],
            batch: Batch::default(),
            in_flight: VecDeque::new(),
            partitions: Vec::new(),
        }
    }

    /// Appends a push of messages with the numbers that come next in their key.
    pub(super) fn push(
        &mut self,
        flow: &Flow,
        order: Order<'_>,
        driver: &mut dyn Driver,
        out: &mut Vec<u8>,
        core: &mut Core,
    ) {
        let Order { to, key, count, due_ns } = order;
        self.batch.clear();
        let run = Run { key, first: self.next[key], count: count as u64 };
        (0..count).for_each(|_| self.add(flow, key, due_ns, core));
        flow.ledger.sent(self.producer, key, self.next[key]);
        if driver.push(to, &self.batch, out) == Owed::Answer {
            self.in_flight.push_back(Push { due_ns, sent_ns: core.now_ns, runs: vec![run], count: count as u64 });
        }
    }

    /// Appends a push of `order.count` messages that go in turns to `across` partitions of a queue, from the one of
    /// `order.key` on.
    pub(super) fn push_across(
        &mut self,
        flow: &Flow,
        order: Order<'_>,
        across: usize,
        driver: &mut dyn Driver,
        out: &mut Vec<u8>,
        core: &mut Core,
    ) {
        let Order { to, key, count, due_ns } = order;
        let (queue, first_partition) = (key / flow.partitions, key % flow.partitions);
        let across = across.min(count);
        self.partitions.clear();
        self.partitions.extend((0..across).map(|step| (first_partition + step) % flow.partitions));
        let key_of = |partition: usize| queue * flow.partitions + partition;
        let mut runs: Vec<_> = self
            .partitions
            .iter()
            .map(|&partition| Run { key: key_of(partition), first: self.next[key_of(partition)], count: 0 })
            .collect();
        self.batch.clear();
        for number in 0..count {
            let run = &mut runs[number % across];
            run.count += 1;
            self.add(flow, run.key, due_ns, core);
        }
        for run in &runs {
            flow.ledger.sent(self.producer, run.key, self.next[run.key]);
        }
        if driver.push_across(to.queue, &self.partitions, &self.batch, out) == Owed::Answer {
            self.in_flight.push_back(Push { due_ns, sent_ns: core.now_ns, runs, count: count as u64 });
        }
    }

    /// Adds the next message of a sequence to the batch.
    fn add(&mut self, flow: &Flow, key: usize, due_ns: u64, core: &mut Core) {
        let sequence = self.next[key];
        self.next[key] += 1;
        let bytes = self.sizes.next(&mut self.random);
        let header = Header { run: flow.run, producer: self.producer as u32, key: key as u32, sequence, due_ns };
        self.batch.add(|batch| core.maker.append(&header, bytes, batch));
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The oldest push is answered: what it was.
    pub(super) fn on_answer(&mut self) -> Option<Push> {
        self.in_flight.pop_front()
    }

    /// A push was refused, or nobody knows.
    pub(super) fn excuse(&self, push: &Push, flow: &Flow) {
        for run in &push.runs {
            flow.ledger.excuse(self.producer, run.key, run.first, run.count);
        }
    }

    /// Messages of all pushes that are not answered.
    pub(super) fn messages_in_flight(&self) -> u64 {
        self.in_flight.iter().map(|push| push.count).sum()
    }

    /// Gives up all that is not answered, and says how many pushes that were.
    pub(super) fn on_loss(&mut self, flow: &Flow) -> u64 {
        let lost = self.in_flight.len() as u64;
        for push in &self.in_flight {
            self.excuse(push, flow);
        }
        self.in_flight.clear();
        lost
    }

    pub(super) fn gives_up_at_ns(&self) -> Option<u64> {
        self.in_flight.front().map(|push| push.sent_ns + PATIENCE_NS)
    }
}

/// Pushes what is due, up to `depth` pushes at once.
pub(super) struct Pusher {
    flow: Arc<Flow>,
    pacer: usize,
    seat: usize,
    outgoing: Outgoing,
    targets: Targets,
    /// Of a pipe: lets one message after the other through.
    gate: Option<Gate>,
}

/// Where the next push goes.
enum Targets {
    /// To any partition of any queue.
    Chosen(Chooser),
    /// Once to each of its own share of the queues.
    Each { next: usize, step: usize },
    /// To the one queue of its pipe.
    Own { queue: usize },
}

/// What keeps the next message of a pipe back until the one before it has come, and a pop waits for it again.
#[derive(Default)]
struct Gate {
    /// The number of the message that is under way.
    under_way: Option<u64>,
    /// When it was seen that it has come.
    came_at_ns: Option<u64>,
}

/// How long a pipe rests after a message has come, in nanoseconds: enough for a broker to park the pop that follows.
const REST_NS: u64 = 5_000_000;

impl Gate {
    /// Whether the next message may be pushed.
    fn is_open(&mut self, flow: &Flow, producer: usize, now_ns: u64) -> bool {
        let Some(sequence) = self.under_way else { return true };
        if self.came_at_ns.is_none() && flow.has_arrived(producer, sequence) {
            self.came_at_ns = Some(now_ns);
        }
        self.came_at_ns.is_some_and(|came_at_ns| now_ns >= came_at_ns + REST_NS)
    }

    /// A message is pushed.
    fn pass(&mut self, sequence: u64) {
        *self = Self { under_way: Some(sequence), came_at_ns: None };
    }

    /// The message was not taken, or nobody knows: it is not waited for.
    fn open(&mut self) {
        self.under_way = None;
    }
}

impl Pusher {
    pub(super) fn new(pacer: usize, seat: usize, producer: usize, sizes: Sizes, core: &Core) -> Self {
        let flow = Arc::clone(&core.flows[pacer]);
        let keys = flow.queues.len() * flow.partitions;
        let (keys, targets) = match flow.kind {
            FlowKind::Parked => {
                (1, Targets::Each { next: producer, step: core.plan.connections.min(flow.queues.len()) })
            }
            FlowKind::Pipe => (keys, Targets::Own { queue: producer }),
            // Pushes that go to several partitions each begin at every so many of them.
            _ => (keys, Targets::Chosen(Chooser::new(core.plan.spread, keys.div_ceil(core.plan.across)))),
        };
        let gate = (flow.kind == FlowKind::Pipe).then(Gate::default);
        Self { flow, pacer, seat, outgoing: Outgoing::new(producer, keys, sizes, core), targets, gate }
    }
}

impl Role for Pusher {
    fn on_event(&mut self, event: Event<'_>, core: &mut Core) {
        match event {
            Event::Answered { pushed } => {
                let Some(push) = self.outgoing.on_answer() else { return };
                if pushed != push.count {
                    core.recorder.failed("short_push", core.now_ns, 1);
                }
                if matches!(self.flow.kind, FlowKind::Push | FlowKind::Log) {
                    core.recorder.received(push.due_ns, core.now_ns, pushed);
                }
            }
            Event::Refused { code } => {
                let Some(push) = self.outgoing.on_answer() else { return };
                self.outgoing.excuse(&push, &self.flow);
                self.gate.iter_mut().for_each(Gate::open);
                core.recorder.failed(code, core.now_ns, 1);
            }
            Event::PartRefused { code } => core.recorder.failed(code, core.now_ns, 1),
            Event::Message { .. } => core.recorder.failed("unexpected_message", core.now_ns, 1),
        }
    }

    fn send(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core) {
        let flow = &*self.flow;
        while self.outgoing.in_flight() < core.plan.depth && !self.targets.are_exhausted(flow) {
            if let Some(gate) = &mut self.gate
                && !gate.is_open(flow, self.outgoing.producer, core.now_ns)
            {
                core.poll_later(self.seat);
                return;
            }
            let Some(due_ns) = core.take(self.pacer, self.seat) else { return };
            let across = core.plan.across;
            let (queue, partition, key) = match &mut self.targets {
                Targets::Chosen(chooser) => {
                    let key = chooser.choose(&mut self.outgoing.random) * across;
                    (key / flow.partitions, flow.partition(key % flow.partitions), key)
                }
                Targets::Each { next, step } => {
                    let queue = *next;
                    *next += *step;
                    (queue, None, 0)
                }
                Targets::Own { queue } => (*queue, None, *queue),
            };
            let to = Place { queue: &flow.queues[queue], partition };
            let count = flow.messages_per_request(&core.plan);
            let order = Order { to, key, count, due_ns };
            if let Some(gate) = &mut self.gate {
                gate.pass(self.outgoing.next[key]);
            }
            if across > 1 {
                self.outgoing.push_across(flow, order, across, driver, out, core);
            } else {
                self.outgoing.push(flow, order, driver, out, core);
            }
            core.recorder.sent(due_ns, count as u64);
        }
    }

    fn on_loss(&mut self, _loss: Loss, _core: &mut Core) -> u64 {
        self.gate.iter_mut().for_each(Gate::open);
        self.outgoing.on_loss(&self.flow)
    }

    fn gives_up_at_ns(&self) -> Option<u64> {
        self.outgoing.gives_up_at_ns()
    }

    fn is_exhausted(&self) -> bool {
        self.targets.are_exhausted(&self.flow)
    }
}

impl Targets {
    /// Whether each queue was pushed to that was to be pushed to once.
    fn are_exhausted(&self, flow: &Flow) -> bool {
        match self {
            Self::Chosen(_) | Self::Own { .. } => false,
            Self::Each { next, .. } => *next >= flow.queues.len(),
        }
    }
}
