//! Keeps queues filled for the pops that are measured.
//!
//! It pushes in large batches, one after the other, as long as its flow's queues hold less than they should, and looks
//! again each time that the executor's timer or an answer wakes it. If pops are faster than one such connection on each
//! executor, what is measured is the pushing: a pop then waits for it, which its latency shows.
//!
//! Of a backlog it puts a share there before the run begins, and is done.

use std::sync::Arc;

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
        // Those who fill the same queues begin at different partitions.
        Self { flow, seat, outgoing, queues, turns: producer, is_paused: false }
    }

    fn is_of_backlog(&self) -> bool {
        self.flow.kind == FlowKind::Backlog
    }

    /// What was set aside for a push that failed is for somebody to push again.
    fn unclaim(&self, count: u64) {
        if self.is_of_backlog() {
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
        if std::mem::take(&mut self.is_paused) || (flow.is_full() && !self.is_of_backlog()) {
            core.poll_later(self.seat);
            return;
        }
        if self.outgoing.in_flight() > 0 {
            return;
        }
        let most = core.plan.batch.max(BATCH_MIN);
        let count = if self.is_of_backlog() { flow.claim(most as u64) as usize } else { most };
        if count == 0 {
            return;
        }
        let queue = self.queues[self.turns % self.queues.len()];
        let partition = self.turns / self.queues.len() % flow.partitions;
        self.turns += 1;
        let to = Place { queue: &flow.queues[queue], partition: flow.partition(partition) };
        let key = queue * flow.partitions + partition;
        let order = Order { to, key, count, due_ns: core.now_ns };
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
