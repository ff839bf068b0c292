//! Keeps queues filled for the pops that are measured.
//!
//! It pushes in large batches, one after the other, as long as its flow's queues hold less than they should, and looks
//! again each time that the executor's timer or an answer wakes it. If pops are faster than one such connection on each
//! executor, what is measured is the pushing: a pop then waits for it, which its latency shows.
//!
//! Where so many messages are to be there before the run begins, it takes its share of them, and is done. Those of a log
//! go to as many partitions as a push has messages, so that all partitions are there soon.

use std::{ops::Range, sync::Arc};

use super::{
    Loss, Role,
    push::{Order, Outgoing},
};
use crate::{
    driver::{Driver, Event, Place},
    run::{
        core::Core,
        flow::{Flow, FlowKind},
        sizes::Sizes,
    },
};

/// Messages in a push, at least.
const BATCH_MIN: usize = 100;

/// Fills some of a flow's queues in turns.
pub(super) struct Filler {
    flow: Arc<Flow>,
    seat: usize,
    outgoing: Outgoing,
    queues: Vec<usize>,
    /// Pushes made, which says whose turn it is.
    turns: usize,
    /// The last push was refused: it waits to be woken before the next.
    is_paused: bool,
}

impl Filler {
    pub(super) fn new(
        flow: usize,
        seat: usize,
        producer: usize,
        queues: Vec<usize>,
        sizes: Sizes,
        core: &Core,
    ) -> Self {
        let flow = Arc::clone(&core.flows[flow]);
        let keys = flow.queues.len() * flow.partitions;
        let outgoing = Outgoing::new(producer, keys, sizes, core);
        Self { flow, seat, outgoing, queues, turns: 0, is_paused: false }
    }

    /// Puts messages there that were claimed, in a push of up to `most`: evenly to all queues and partitions, whoever
    /// claims which.
    fn put(&mut self, claimed: Range<u64>, most: usize, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core) {
        let flow = &*self.flow;
        let count = (claimed.end - claimed.start) as usize;
        let across = if flow.kind == FlowKind::Log { count.min(flow.partitions) } else { 1 };
        let turn = claimed.start as usize / most;
        let queue = self.queues[turn % self.queues.len()];
        let partition = turn / self.queues.len() * across % flow.partitions;
        let to = Place { queue: &flow.queues[queue], partition: flow.partition(partition) };
        let order = Order { to, key: queue * flow.partitions + partition, count, due_ns: core.now_ns };
        if across > 1 {
            self.outgoing.push_across(flow, order, across, driver, out, core);
        } else {
            self.outgoing.push(flow, order, driver, out, core);
        }
    }

    /// What was set aside for a push that failed is for somebody to push again.
    fn unclaim(&self, count: u64) {
        if self.flow.is_prefilled() {
            self.flow.unclaim(count);
        }
    }
}

impl Role for Filler {
    fn on_event(&mut self, event: Event<'_>, core: &mut Core) {
        match event {
            Event::Answered { pushed } => {
                let _ = self.outgoing.on_answer();
                self.flow.note_filled(pushed);
            }
            Event::Refused { code } => {
                if let Some(push) = self.outgoing.on_answer() {
                    self.outgoing.excuse(&push, &self.flow);
                    self.unclaim(push.count);
                }
                // A queue that is full needs no more; what else is wrong is wrong with the run.
                if code != "queue_full" {
                    core.recorder.failed(code, core.now_ns, 1);
                }
                self.is_paused = true;
            }
            Event::PartRefused { code } => core.recorder.failed(code, core.now_ns, 1),
            Event::Message { .. } => core.recorder.failed("unexpected_message", core.now_ns, 1),
        }
    }

    fn send(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core) {
        let flow = &*self.flow;
        if std::mem::take(&mut self.is_paused) || (flow.is_full() && !flow.is_prefilled()) {
            core.poll_later(self.seat);
            return;
        }
        if self.outgoing.in_flight() > 0 {
            return;
        }
        let most = core.plan.batch.max(BATCH_MIN);
        if flow.is_prefilled() {
            let claimed = flow.claim(most as u64);
            if !claimed.is_empty() {
                self.put(claimed, most, driver, out, core);
            }
            return;
        }
        let queue = self.queues[self.turns % self.queues.len()];
        let partition = self.turns / self.queues.len() % flow.partitions;
        self.turns += 1;
        let to = Place { queue: &flow.queues[queue], partition: flow.partition(partition) };
        let key = queue * flow.partitions + partition;
        let order = Order { to, key, count: most, due_ns: core.now_ns };
        self.outgoing.push(flow, order, driver, out, core);
    }

    fn on_loss(&mut self, _loss: Loss, _core: &mut Core) -> u64 {
        self.unclaim(self.outgoing.messages_in_flight());
        self.outgoing.on_loss(&self.flow)
    }

    fn gives_up_at_ns(&self) -> Option<u64> {
        self.outgoing.gives_up_at_ns()
    }
}
