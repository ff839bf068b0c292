//! Answers requests: each reply is the request's own bytes.

use std::sync::Arc;

use super::{Loss, PATIENCE_NS, POP_WAIT_MS, Role, pop::checked};
use crate::{
    driver::{Batch, Driver, Event, Owed, Place, Replies, RoundTrip, Source},
    run::{
        core::Core,
        flow::{self, Flow},
    },
};

/// One worker.
pub(super) struct Worker {
    flow: Arc<Flow>,
    seat: usize,
    queue: usize,
    steps: RoundTrip,
    /// An inbox for each request, not for each requester.
    has_new_inboxes: bool,
    step: Step,
    /// Something was refused: it waits a moment before it goes on.
    is_paused: bool,
    sent_ns: u64,
    /// Replies that are to be sent.
    replies: Replies,
    /// One of them, as a push.
    batch: Batch,
}

/// What the worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Idle,
    /// Requests, after whose messages an answer comes.
    Popping,
    /// The answers to so many replies.
    Replying(usize),
    /// Requests, which come on their own.
    Streaming,
}

impl Worker {
    pub(super) fn new(flow: usize, seat: usize, queue: usize, core: &Core) -> Self {
        Self {
            flow: Arc::clone(&core.flows[flow]),
            seat,
            queue,
            steps: flow::steps(&core.plan),
            has_new_inboxes: flow::has_new_inboxes(&core.plan),
            step: Step::Idle,
            is_paused: false,
            sent_ns: 0,
            replies: Replies::default(),
            batch: Batch::default(),
        }
    }

    fn on_message(&mut self, message: &[u8], reply_to: Option<&[u8]>, core: &mut Core) {
        let flow = &*self.flow;
        match self.steps {
            RoundTrip::PushPop => {
                let Some(header) = checked(message, flow) else { return };
                let number = self.has_new_inboxes.then_some(header.sequence);
                self.replies.add(|out| flow.append_inbox(header.producer.into(), number, out), message);
            }
            RoundTrip::OneStep => match reply_to {
                Some(name) => self.replies.add(|out| out.extend_from_slice(name), message),
                None => core.recorder.failed("no_reply_to", core.now_ns, 1),
            },
        }
    }

    fn on_answer(&mut self) {
        self.step = match self.step {
            Step::Replying(left) if left > 1 => Step::Replying(left - 1),
            Step::Replying(_) | Step::Popping | Step::Idle => Step::Idle,
            Step::Streaming => Step::Streaming,
        };
    }
}

impl Role for Worker {
    fn on_event(&mut self, event: Event<'_>, core: &mut Core) {
        match event {
            Event::Message { payload, reply_to } => self.on_message(payload, reply_to, core),
            Event::Answered { .. } => self.on_answer(),
            Event::Refused { code } => {
                core.recorder.failed(code, core.now_ns, 1);
                self.on_answer();
                self.is_paused = true;
            }
            Event::PartRefused { code } => core.recorder.failed(code, core.now_ns, 1),
        }
    }

    fn send(&mut self, driver: &mut dyn Driver, out: &mut Vec<u8>, core: &mut Core) {
        let can_send = match self.step {
            Step::Idle => true,
            Step::Streaming => !self.replies.is_empty(),
            Step::Popping | Step::Replying(_) => false,
        };
        if !can_send {
            return;
        }
        if std::mem::take(&mut self.is_paused) {
            core.poll_later(self.seat);
            return;
        }
        let flow = &*self.flow;
        let source = Source { queue: &flow.queues[self.queue], partitions: 1, claims: 1, group: None };
        let batch = core.plan.batch;
        self.sent_ns = core.now_ns;
        self.step = match self.steps {
            RoundTrip::PushPop if self.replies.is_empty() => {
                driver.pop(source, batch, POP_WAIT_MS, out);
                Step::Popping
            }
            RoundTrip::PushPop => {
                for (name, payload) in self.replies.iter() {
                    let queue = std::str::from_utf8(name).expect("names are ASCII");
                    self.batch.clear();
                    self.batch.add(|out| out.extend_from_slice(payload));
                    driver.push(Place { queue, partition: None }, &self.batch, out);
                }
                Step::Replying(self.replies.len())
            }
            RoundTrip::OneStep => match driver.exchange(&self.replies, source, batch, POP_WAIT_MS, out) {
                Owed::Answer => Step::Popping,
                Owed::Nothing => Step::Streaming,
            },
        };
        self.replies.clear();
    }

    fn on_loss(&mut self, _loss: Loss, _core: &mut Core) -> u64 {
        self.replies.clear();
        u64::from(std::mem::replace(&mut self.step, Step::Idle) != Step::Idle)
    }

    fn gives_up_at_ns(&self) -> Option<u64> {
        match self.step {
            Step::Popping | Step::Replying(_) => Some(self.sent_ns + PATIENCE_NS),
            Step::Idle | Step::Streaming => None,
        }
    }
}
