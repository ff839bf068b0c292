//! Reads a queue back after the measured part, so that what was pushed is checked.
//!
//! One reader a queue takes all partitions, as many messages at a time as a broker gladly answers with: nothing of this
//! is measured, and each message's order is seen.

use std::sync::Arc;

use super::{Loss, PATIENCE_NS, Role, pop::checked};
use crate::{
    driver::{Driver, Event, Source},
    run::{core::Core, flow::Flow},
};

/// Messages in a pop, and the most partitions that they are of.
const BATCH: usize = 1_000;

/// One reader.
pub(super) struct Reader {
    flow: Arc<Flow>,
    seat: usize,
    queue: usize,
    /// When the pop that is not answered was sent.
    sent_ns: Option<u64>,
    /// Messages of the pop that is being answered.
    popped: u64,
    /// Nothing was there, or the pop was refused: it waits a moment before the next.
    is_paused: bool,
}

impl Reader {
    pub(super) fn new(flow: usize, seat: usize, queue: usize, core: &Core) -> Self {
        Self { flow: Arc::clone(&core.flows[flow]), seat, queue, sent_ns: None, popped: 0, is_paused: false }
    }
}

impl Role for Reader {
    fn on_event(&mut self, event: Event<'_>, core: &mut Core) {
        match event {
            Event::Message { payload, .. } => {
                self.popped += 1;
                let Some(header) = checked(payload, &self.flow) else { return };
                // What is not ours is counted by the ledger.
                let _ = self.flow.ledger.arrived(0, header.producer as usize, header.key as usize, header.sequence);
            }
            Event::Answered { .. } => {
                self.sent_ns = None;
                self.is_paused = std::mem::take(&mut self.popped) == 0;
            }
            Event::Refused { code } => {
                core.recorder.failed(code, core.now_ns, 1);
                self.sent_ns = None;
                self.is_paused = true;
            }
            Event::PartRefused { code } => core.recorder.failed(code, core.now_ns, 1),
        }
    }

    fn send(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core) {
        if !core.reads_back || self.sent_ns.is_some() {
            return;
        }
        if std::mem::take(&mut self.is_paused) {
            core.poll_later(self.seat);
            return;
        }
        let flow = &*self.flow;
        let claims = flow.partitions.min(BATCH);
        let source = Source { queue: &flow.queues[self.queue], partitions: flow.partitions, claims, group: None };
        driver.pop(source, BATCH, 0, out);
        self.sent_ns = Some(core.now_ns);
    }

    fn on_loss(&mut self, _loss: Loss, _core: &mut Core) -> u64 {
        self.popped = 0;
        u64::from(self.sent_ns.take().is_some())
    }

    fn gives_up_at_ns(&self) -> Option<u64> {
        self.sent_ns.map(|sent_ns| sent_ns + PATIENCE_NS)
    }
}
