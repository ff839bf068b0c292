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
    key: usize,
    first: u64,
    pub(super) count: u64,
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
        let first = self.next[key];
        self.batch.clear();
        for sequence in first..first + count as u64 {
            let bytes = self.sizes.next(&mut self.random);
            let header = Header { run: flow.run, producer: self.producer as u32, key: key as u32, sequence, due_ns };
            self.batch.add(|batch| core.maker.append(&header, bytes, batch));
        }
        let count = count as u64;
        self.next[key] = first + count;
        flow.ledger.sent(self.producer, key, first + count);
        if driver.push(to, &self.batch, out) == Owed::Answer {
            self.in_flight.push_back(Push { due_ns, sent_ns: core.now_ns, key, first, count });
        }
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
        flow.ledger.excuse(self.producer, push.key, push.first, push.count);
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
}

/// Where the next push goes.
enum Targets {
    /// To any partition of any queue.
    Chosen(Chooser),
    /// Once to each of its own share of the queues.
    Each { next: usize, step: usize },
}

impl Pusher {
    pub(super) fn new(pacer: usize, seat: usize, producer: usize, sizes: Sizes, core: &Core) -> Self {
        let flow = Arc::clone(&core.flows[pacer]);
        let (keys, targets) = if flow.kind == FlowKind::Parked {
            (1, Targets::Each { next: producer, step: core.plan.connections.min(flow.queues.len()) })
        } else {
            let keys = flow.queues.len() * flow.partitions;
            (keys, Targets::Chosen(Chooser::new(core.plan.spread, keys)))
        };
        Self { flow, pacer, seat, outgoing: Outgoing::new(producer, keys, sizes, core), targets }
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
                if self.flow.kind == FlowKind::Push {
                    core.recorder.received(push.due_ns, core.now_ns, pushed);
                }
            }
            Event::Refused { code } => {
                let Some(push) = self.outgoing.on_answer() else { return };
                self.outgoing.excuse(&push, &self.flow);
                core.recorder.failed(code, core.now_ns, 1);
            }
            Event::PartRefused { code } => core.recorder.failed(code, core.now_ns, 1),
            Event::Message { .. } => core.recorder.failed("unexpected_message", core.now_ns, 1),
        }
    }

    fn send(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core) {
        let flow = &*self.flow;
        while self.outgoing.in_flight() < core.plan.depth && !self.targets.are_exhausted(flow) {
            let Some(due_ns) = core.take(self.pacer, self.seat) else { return };
            let (queue, partition, key) = match &mut self.targets {
                Targets::Chosen(chooser) => {
                    let key = chooser.choose(&mut self.outgoing.random);
                    (key / flow.partitions, flow.partition(key % flow.partitions), key)
                }
                Targets::Each { next, step } => {
                    let queue = *next;
                    *next += *step;
                    (queue, None, 0)
                }
            };
            let to = Place { queue: &flow.queues[queue], partition };
            let count = flow.messages_per_request(&core.plan);
            self.outgoing.push(flow, Order { to, key, count, due_ns }, driver, out, core);
            core.recorder.sent(due_ns, count as u64);
        }
    }

    fn on_loss(&mut self, _loss: Loss, _core: &mut Core) -> u64 {
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
            Self::Chosen(_) => false,
            Self::Each { next, .. } => *next >= flow.queues.len(),
        }
    }
}
