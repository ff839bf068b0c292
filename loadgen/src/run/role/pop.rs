//! Pops, checks what comes, and measures it.

use std::{collections::VecDeque, sync::Arc};

use super::{Loss, PATIENCE_NS, POP_WAIT_MS, Role};
use crate::{
    check::{Arrival, ReaderOrder},
    driver::{Driver, Event, Owed, Source},
    payload,
    run::{
        core::Core,
        flow::{Flow, FlowKind},
    },
};

/// How long a parked pop waits in the broker, in milliseconds: as long as brokers let it.
const PARKED_WAIT_MS: u64 = 300_000;

const NS_PER_MS: u64 = 1_000_000;

/// Pops from one queue.
pub(super) struct Popper {
    flow: Arc<Flow>,
    pacer: usize,
    seat: usize,
    queue: usize,
    group: Option<usize>,
    /// Whether it pops when a pop is due, or all the time.
    is_paced: bool,
    wait_ms: u64,
    /// Messages come on their own.
    is_streaming: bool,
    /// The last pop was refused: it waits a moment before the next.
    is_paused: bool,
    in_flight: VecDeque<Pop>,
    /// Messages of the pop that is being answered.
    popped: u64,
    /// The order of what came, where several pop from a queue whose broker keeps it for each of them.
    order: Option<ReaderOrder>,
}

struct Pop {
    due_ns: u64,
    sent_ns: u64,
}

impl Popper {
    pub(super) fn new(pacer: usize, seat: usize, queue: usize, group: Option<usize>, core: &Core) -> Self {
        let flow = Arc::clone(&core.flows[pacer]);
        let kind = flow.kind;
        Self {
            flow,
            pacer,
            seat,
            queue,
            group,
            is_paced: matches!(kind, FlowKind::Pop | FlowKind::Backlog),
            wait_ms: match kind {
                FlowKind::Parked => PARKED_WAIT_MS,
                // All there will ever be is there.
                FlowKind::Backlog => 0,
                _ => POP_WAIT_MS,
            },
            is_streaming: false,
            is_paused: false,
            in_flight: VecDeque::new(),
            popped: 0,
            order: (kind == FlowKind::Backlog).then(ReaderOrder::default),
        }
    }

    fn on_message(&mut self, message: &[u8], core: &mut Core) {
        self.popped += 1;
        let Some(header) = checked(message, &self.flow) else { return };
        let (producer, key) = (header.producer as usize, header.key as usize);
        let arrival = self.flow.ledger.arrived(self.group.unwrap_or(0), producer, key, header.sequence);
        if let Some(order) = &mut self.order
            && !order.holds(producer, key, header.sequence)
            && arrival != Ok(Arrival::Again)
        {
            self.flow.ledger.misordered();
        }
        self.flow.note_arrived(producer, header.sequence);
        // What is popped was put there beforehand: there, the pop itself is measured.
        if !self.is_paced && matches!(arrival, Ok(Arrival::InOrder | Arrival::Late)) {
            core.recorder.received(header.due_ns, core.now_ns, 1);
        }
    }

    fn on_answer(&mut self, core: &mut Core) -> Option<Pop> {
        let pop = self.in_flight.pop_front();
        let popped = std::mem::take(&mut self.popped);
        if let Some(pop) = pop.as_ref().filter(|_| self.is_paced) {
            self.flow.note_popped(popped);
            if self.flow.kind == FlowKind::Backlog && self.flow.is_used_up() {
                core.shared.end_at(core.now_ns);
            }
            if popped > 0 {
                core.recorder.sent(pop.due_ns, popped);
                core.recorder.received(pop.due_ns, core.now_ns, popped);
            }
        }
        pop
    }
}

/// The header of a message that is as it was sent, and by this run.
pub(super) fn checked(message: &[u8], flow: &Flow) -> Option<payload::Header> {
    match payload::parse(message) {
        Ok(header) if header.run == flow.run => Some(header),
        Ok(_) | Err(payload::Corrupted) => {
            flow.ledger.corrupted();
            None
        }
    }
}

impl Role for Popper {
    fn on_event(&mut self, event: Event<'_>, core: &mut Core) {
        match event {
            Event::Message { payload, .. } => self.on_message(payload, core),
            Event::Answered { .. } => {
                let is_empty = self.popped == 0;
                let is_pop = self.on_answer(core).is_some();
                if is_pop && is_empty && self.flow.kind == FlowKind::Backlog {
                    // Others have what is left, or the broker does not see it yet.
                    self.is_paused = true;
                } else if is_pop && is_empty && self.is_paced {
                    core.recorder.failed("empty", core.now_ns, 1);
                }
            }
            Event::Refused { code } => {
                core.recorder.failed(code, core.now_ns, 1);
                self.on_answer(core);
                self.is_paused = !self.is_paced;
            }
            Event::PartRefused { code } => core.recorder.failed(code, core.now_ns, 1),
        }
    }

    fn send(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core) {
        if self.is_streaming {
            return;
        }
        if std::mem::take(&mut self.is_paused) {
            core.poll_later(self.seat);
            return;
        }
        let flow = &*self.flow;
        let source = Source {
            queue: &flow.queues[self.queue],
            partitions: flow.partitions,
            claims: flow.claims(),
            group: self.group,
        };
        // A second pop of a parked connection would only wait behind the first.
        let depth = if flow.kind == FlowKind::Parked { 1 } else { core.plan.depth };
        while self.in_flight.len() < depth {
            let due_ns = match self.is_paced {
                true => match core.take(self.pacer, self.seat) {
                    Some(due_ns) => due_ns,
                    None => return,
                },
                false => core.now_ns,
            };
            match driver.pop(source, core.plan.batch, self.wait_ms, out) {
                Owed::Answer => self.in_flight.push_back(Pop { due_ns, sent_ns: core.now_ns }),
                Owed::Nothing => {
                    self.is_streaming = true;
                    return;
                }
            }
        }
    }

    fn on_loss(&mut self, _loss: Loss, _core: &mut Core) -> u64 {
        self.popped = 0;
        let lost = self.in_flight.len() as u64;
        self.in_flight.clear();
        lost
    }

    fn gives_up_at_ns(&self) -> Option<u64> {
        let oldest = self.in_flight.front()?;
        let beyond_usual_ms = self.wait_ms.saturating_sub(POP_WAIT_MS);
        // Pops that wait one behind the other on one connection each have their own wait.
        let waits = self.in_flight.len() as u64;
        Some(oldest.sent_ns + waits * PATIENCE_NS + beyond_usual_ms * NS_PER_MS)
    }
}
