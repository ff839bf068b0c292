//! Makes requests and waits for their replies, one at a time.

use std::sync::Arc;

use super::{Loss, PATIENCE_NS, POP_WAIT_MS, Role, pop::checked};
use crate::{
    check::Arrival,
    driver::{Batch, Driver, Event, Owed, Place, RoundTrip, Source},
    payload::Header,
    random::{Chooser, Random},
    run::{
        core::Core,
        flow::{self, Flow},
        sizes::Sizes,
    },
};

/// How long a broker that knows requests waits for a reply, in milliseconds: less than the patience.
const REPLY_TIMEOUT_MS: u64 = 25_000;

/// One requester.
pub(super) struct Requester {
    flow: Arc<Flow>,
    pacer: usize,
    seat: usize,
    producer: usize,
    sizes: Sizes,
    random: Random,
    queues: Chooser,
    steps: RoundTrip,
    /// An inbox of its own for each request.
    has_new_inboxes: bool,
    /// The number of the request after this one.
    next: u64,
    /// When the current request was due and sent.
    due_ns: u64,
    sent_ns: u64,
    step: Step,
    inbox: Vec<u8>,
    batch: Batch,
}

/// How far the current request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// There is none.
    Idle,
    /// It is being pushed.
    Pushing,
    /// It was pushed: its reply is to be popped.
    Pushed,
    /// Its reply is being popped.
    Popping,
    /// Its reply came, and the pop's answer is about to end.
    Popped,
    /// The answer will be the reply.
    Asking,
    /// The reply came, and its answer is about to end.
    Told,
    /// The reply will come on its own.
    Awaiting,
}

impl Requester {
    pub(super) fn new(pacer: usize, seat: usize, producer: usize, sizes: Sizes, core: &Core) -> Self {
        let flow = Arc::clone(&core.flows[pacer]);
        let queues = Chooser::new(core.plan.spread, flow.queues.len());
        Self {
            flow,
            pacer,
            seat,
            producer,
            sizes,
            random: Random::new(core.plan.seed, producer as u64),
            queues,
            steps: flow::steps(&core.plan),
            has_new_inboxes: flow::has_new_inboxes(&core.plan),
            next: 0,
            due_ns: 0,
            sent_ns: 0,
            step: Step::Idle,
            inbox: Vec::new(),
            batch: Batch::default(),
        }
    }

    fn number(&self) -> u64 {
        self.next - 1
    }

    fn on_message(&mut self, message: &[u8], core: &mut Core) {
        let is_current = match checked(message, &self.flow) {
            // Which request it answers can't be told: most likely this one, for which nothing else would come.
            None => self.step != Step::Idle,
            Some(header) => {
                let producer = header.producer as usize;
                let arrival = self.flow.ledger.arrived(0, producer, header.key as usize, header.sequence);
                let is_first = matches!(arrival, Ok(Arrival::InOrder | Arrival::Late));
                let is_ours = producer == self.producer && self.next > 0 && header.sequence == self.number();
                if is_first && is_ours && self.step != Step::Idle {
                    core.recorder.received(self.due_ns, core.now_ns, 1);
                }
                is_first && is_ours
            }
        };
        if is_current {
            self.step = match self.step {
                Step::Popping => Step::Popped,
                Step::Asking => Step::Told,
                Step::Awaiting => Step::Idle,
                other => other,
            };
        }
    }

    fn on_answer(&mut self, core: &mut Core) {
        self.step = match self.step {
            Step::Pushing => Step::Pushed,
            Step::Popping => Step::Pushed,
            Step::Popped | Step::Told => Step::Idle,
            Step::Asking => {
                core.recorder.failed("wrong_reply", core.now_ns, 1);
                Step::Idle
            }
            other @ (Step::Idle | Step::Pushed | Step::Awaiting) => other,
        };
    }

    fn excuse(&self) {
        self.flow.ledger.excuse(self.producer, 0, self.number(), 1);
    }

    /// Starts the next request, if one is due.
    fn ask(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core) {
        let Some(due_ns) = core.take(self.pacer, self.seat) else { return };
        let flow = &*self.flow;
        (self.due_ns, self.sent_ns) = (due_ns, core.now_ns);
        let sequence = self.next;
        self.next += 1;
        let header = Header { run: flow.run, producer: self.producer as u32, key: 0, sequence, due_ns };
        let bytes = self.sizes.next(&mut self.random);
        self.batch.clear();
        self.batch.add(|batch| core.maker.append(&header, bytes, batch));
        flow.ledger.sent(self.producer, 0, self.next);
        core.recorder.sent(due_ns, 1);
        let queue = flow.queues[self.queues.choose(&mut self.random)].as_str();
        self.step = match self.steps {
            RoundTrip::PushPop => {
                driver.push(Place { queue, partition: None }, &self.batch, out);
                Step::Pushing
            }
            RoundTrip::OneStep => {
                let payload = self.batch.iter().next().unwrap_or_default();
                match driver.request(queue, payload, REPLY_TIMEOUT_MS, out) {
                    Owed::Answer => Step::Asking,
                    Owed::Nothing => Step::Awaiting,
                }
            }
        };
    }

    fn pop_reply(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>) {
        self.inbox.clear();
        let number = self.has_new_inboxes.then(|| self.number());
        self.flow.append_inbox(self.producer as u64, number, &mut self.inbox);
        let queue = std::str::from_utf8(&self.inbox).expect("names are ASCII");
        driver.pop(Source { queue, partitions: 1, claims: 1, group: None }, 1, POP_WAIT_MS, out);
        self.step = Step::Popping;
    }
}

impl Role for Requester {
    fn on_event(&mut self, event: Event<'_>, core: &mut Core) {
        match event {
            Event::Message { payload, .. } => self.on_message(payload, core),
            Event::Answered { .. } => self.on_answer(core),
            Event::Refused { code } => {
                core.recorder.failed(code, core.now_ns, 1);
                if self.step != Step::Idle {
                    self.excuse();
                    self.step = Step::Idle;
                }
            }
            Event::PartRefused { code } => core.recorder.failed(code, core.now_ns, 1),
        }
    }

    fn send(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core) {
        match self.step {
            Step::Idle => self.ask(driver, out, core),
            Step::Pushed => self.pop_reply(driver, out),
            Step::Pushing | Step::Popping | Step::Popped | Step::Asking | Step::Told | Step::Awaiting => {}
        }
    }

    fn on_loss(&mut self, loss: Loss, _core: &mut Core) -> u64 {
        let step = std::mem::replace(&mut self.step, Step::Idle);
        match (step, loss) {
            (Step::Idle, _) => return 0,
            // The broker took the request and answered everything else: its reply is missing, and counts as lost
            // unless it comes after all.
            (Step::Pushed | Step::Popping | Step::Awaiting, Loss::Timeout) => {}
            // The reply may have left for the connection that is gone, or the request never have arrived.
            _ => self.excuse(),
        }
        1
    }

    fn gives_up_at_ns(&self) -> Option<u64> {
        (self.step != Step::Idle).then_some(self.sent_ns + PATIENCE_NS)
    }
}
