//! What a scenario consists of: flows of messages, and the connections that make and take them.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use super::RunError;
use crate::{
    check::Ledger,
    driver::{Bound, Listens, RoundTrip, round_trip},
    payload,
    plan::{DriverKind, Plan, Scenario, Size, Style},
};

/// Messages that are kept in a queue for the pops of the `pop` scenario, below what brokers allow by default.
const FILL_LENGTH: u64 = 5_000;

/// Connections that put a backlog there, and the beginning of a log, which may have very many partitions, for each of
/// which a producer has its own sequence.
const BACKLOG_FILLERS: usize = 16;
const LOG_FILLERS: usize = 2;

/// One kind of messages through one set of queues.
pub(super) struct Flow {
    pub(super) kind: FlowKind,
    /// Names of its queues.
    pub(super) queues: Vec<String>,
    /// What the names of its inboxes begin with.
    inbox_prefix: String,
    pub(super) partitions: usize,
    /// The run, as payloads name it.
    pub(super) run: u32,
    pub(super) ledger: Ledger,
    /// Messages that were put into queues to be popped, less those that were popped.
    filled: AtomicU64,
    popped: AtomicU64,
    /// Of what is put there beforehand: messages that were, or are about to be.
    claimed: AtomicU64,
    /// How many there are to be.
    prefill: u64,
    /// Of `Pipe`: one above the number of the last message that came, of each producer.
    arrived: Vec<AtomicU64>,
}

/// What becomes of a flow's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowKind {
    /// They are pushed, and nobody takes them.
    Push,
    /// They are put there to be popped, which is what is measured.
    Pop,
    /// They are pushed and popped.
    PushPop,
    /// They are answered.
    RequestReply,
    /// They are pushed, and each group takes all of them.
    FanOut,
    /// Each is pushed to a pop that waits for it alone.
    Parked,
    /// They are pushed, to where some may be already, and all are read back after the measured part.
    Log,
    /// So many are put there, and then popped, which is what is measured.
    Backlog,
    /// Each is pushed to a pop that waits for it, when the one before it has come.
    Pipe,
}

/// What one connection does.
#[derive(Clone, Debug)]
pub(super) enum Job {
    /// Pushes what is due, as this producer.
    Push { producer: usize },
    /// Puts messages into these queues for the pops.
    Fill { producer: usize, queues: Vec<usize> },
    /// Pops from a queue for a group.
    Pop { queue: usize, group: Option<usize> },
    /// Makes requests, as this producer.
    Request { producer: usize },
    /// Answers the requests of a queue.
    Work { queue: usize },
    /// Reads a queue back when all has been pushed.
    Read { queue: usize },
}

/// A connection, before it is one.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The flow by its number.
    pub(super) flow: usize,
    pub(super) executor: usize,
    pub(super) job: Job,
}

/// What a plan comes to.
pub(super) struct Layout {
    pub(super) flows: Vec<Flow>,
    pub(super) parts: Vec<Part>,
}

impl Flow {
    /// Messages that one request of those that are due carries.
    pub(super) fn messages_per_request(&self, plan: &Plan) -> usize {
        match self.kind {
            FlowKind::RequestReply | FlowKind::Parked | FlowKind::Pipe => 1,
            FlowKind::Push
            | FlowKind::Pop
            | FlowKind::PushPop
            | FlowKind::FanOut
            | FlowKind::Log
            | FlowKind::Backlog => plan.batch,
        }
    }

    /// The partition by its number, where there are several.
    pub(super) fn partition(&self, number: usize) -> Option<usize> {
        (self.partitions > 1).then_some(number)
    }

    /// Whether messages that were sent must all have come when the run is over. Nobody takes those of `Push`, and those
    /// of `Pop` that are left are left.
    pub(super) fn is_drained(&self) -> bool {
        !matches!(self.kind, FlowKind::Push | FlowKind::Pop)
    }

    /// Appends the name of a requester's inbox, of one for each request if there is a number.
    pub(super) fn append_inbox(&self, producer: u64, number: Option<u64>, out: &mut Vec<u8>) {
        use std::io::Write;
        // Writing into a vector does not fail.
        let _ = match number {
            Some(number) => write!(out, "{}{producer}-{number}", self.inbox_prefix),
            None => write!(out, "{}{producer}", self.inbox_prefix),
        };
    }

    /// How a queue of it is to be bounded.
    pub(super) fn bound(&self) -> Bound {
        match self.kind {
            FlowKind::Push => Bound::DropOldest,
            _ => Bound::Reject,
        }
    }

    /// Whether its queues are declared before the run. Those of `Parked` are many, and hold one message each.
    pub(super) fn is_declared(&self) -> bool {
        self.kind != FlowKind::Parked
    }

    pub(super) fn note_filled(&self, messages: u64) {
        self.filled.fetch_add(messages, Ordering::Relaxed);
    }

    pub(super) fn note_popped(&self, messages: u64) {
        self.popped.fetch_add(messages, Ordering::Relaxed);
    }

    /// Sets aside up to `count` of the messages that are still to be put there beforehand, and says which those are, by their
    /// number among all of them.
    pub(super) fn claim(&self, count: u64) -> Range<u64> {
        let before = self.claimed.fetch_add(count, Ordering::Relaxed);
        let claimed = self.prefill.saturating_sub(before).min(count);
        self.unclaim(count - claimed);
        before..before + claimed
    }

    /// Whether so many messages are put there before the run begins, and none later.
    pub(super) fn is_prefilled(&self) -> bool {
        matches!(self.kind, FlowKind::Backlog | FlowKind::Log)
    }

    /// Gives back what was set aside and could not be put there.
    pub(super) fn unclaim(&self, count: u64) {
        self.claimed.fetch_sub(count, Ordering::Relaxed);
    }

    /// Whether every message of a backlog has been popped.
    pub(super) fn is_used_up(&self) -> bool {
        self.popped.load(Ordering::Relaxed) >= self.prefill
    }

    /// The end of a pipe has seen a message.
    pub(super) fn note_arrived(&self, producer: usize, sequence: u64) {
        if let Some(arrived) = self.arrived.get(producer) {
            arrived.fetch_max(sequence + 1, Ordering::Relaxed);
        }
    }

    /// Whether a message of a pipe has come.
    pub(super) fn has_arrived(&self, producer: usize, sequence: u64) -> bool {
        self.arrived[producer].load(Ordering::Relaxed) > sequence
    }

    /// How many partitions a pop of this job may take messages of. A pop that is measured takes them of one, as one does
    /// that says nothing of it.
    pub(super) fn claims(&self) -> usize {
        if self.kind == FlowKind::Backlog { 1 } else { self.partitions }
    }

    /// Whether its queues hold as much as is put into them ahead of pops.
    pub(super) fn is_full(&self) -> bool {
        if self.is_prefilled() {
            return self.filled.load(Ordering::Relaxed) >= self.prefill;
        }
        let there = self.filled.load(Ordering::Relaxed).saturating_sub(self.popped.load(Ordering::Relaxed));
        there >= FILL_LENGTH * self.queues.len() as u64
    }

    /// What a connection of it listens to.
    pub(super) fn listens(&self, job: &Job) -> Listens {
        match *job {
            Job::Push { .. } | Job::Fill { .. } | Job::Read { .. } => Listens::No,
            Job::Pop { queue, group } => {
                Listens::Queue { queue: self.queues[queue].clone(), partitions: self.partitions, group }
            }
            Job::Work { queue } => {
                Listens::Queue { queue: self.queues[queue].clone(), partitions: self.partitions, group: None }
            }
            Job::Request { producer } => {
                let mut name = Vec::new();
                self.append_inbox(producer as u64, None, &mut name);
                Listens::Inbox(String::from_utf8_lossy(&name).into_owned())
            }
        }
    }
}

impl Job {
    /// Whether it does what is due, so that the end of a run waits for it.
    pub(super) fn is_paced(&self, kind: FlowKind) -> bool {
        match self {
            Self::Push { .. } | Self::Request { .. } => true,
            Self::Pop { .. } => matches!(kind, FlowKind::Pop | FlowKind::Backlog),
            Self::Fill { .. } | Self::Work { .. } | Self::Read { .. } => false,
        }
    }
}

/// Checks that a plan can be carried out at all.
pub(super) fn check(plan: &Plan) -> Result<(), RunError> {
    let refuse = |text: String| Err(RunError::Unsupported(text));
    let counts = [
        ("connections", plan.connections),
        ("pairs", plan.pairs),
        ("depth", plan.depth),
        ("batch", plan.batch),
        ("queues", plan.queues),
        ("partitions", plan.partitions),
        ("groups", plan.groups),
        ("parked", plan.parked),
        ("across", plan.across),
    ];
    if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
        return refuse(format!("{name} is 0: it begins at 1"));
    }
    if plan.queues.saturating_mul(plan.partitions) > payload::IDS_MAX {
        return refuse(format!("{} queues of {} partitions are too many", plan.queues, plan.partitions));
    }
    let smallest = match &plan.size {
        Size::Fixed(bytes) => *bytes,
        Size::Uniform { min, .. } => *min,
        // Read, and checked line by line, when the run starts.
        Size::File(_) => payload::BYTES_MIN,
    };
    if smallest < payload::BYTES_MIN {
        let least = payload::BYTES_MIN;
        return refuse(format!("a payload of {smallest} bytes can't carry its checks: ask for {least} or more"));
    }
    if plan.across > plan.partitions {
        return refuse(format!(
            "a push across {} of {} partitions: ask for more of these",
            plan.across, plan.partitions
        ));
    }
    if plan.across > 1 && plan.driver != DriverKind::Durable {
        return refuse("a push to several partitions is one of durable queues: use durable-push, or --across 1".into());
    }
    if !(0.0..=1.0).contains(&plan.incompressible) {
        return refuse(format!("{} is no share: it goes from 0 to 1", plan.incompressible));
    }
    match (plan.driver, plan.scenario, plan.style) {
        (DriverKind::Queen | DriverKind::Nats | DriverKind::Redis, scenario, _) if scenario.is_durable() => refuse(
            "durable scenarios are for durable queues: use the driver `durable`, which http:// targets get".into(),
        ),
        (DriverKind::Durable, Scenario::RequestReply | Scenario::Churn, Style::Verbs) => {
            refuse("durable queues have no verb for a round trip: use --style push-pop".into())
        }
        (DriverKind::Nats, Scenario::Pop, _) => {
            refuse("core NATS keeps no messages that could be popped: use push-pop, or another driver".into())
        }
        (DriverKind::Redis, Scenario::FanOut | Scenario::Mixed, _) => {
            refuse("Redis lists have no groups: use push-pop or request-reply, or another driver".into())
        }
        (DriverKind::Redis, Scenario::RequestReply | Scenario::Churn, Style::Verbs) => {
            refuse("Redis has no verb for a round trip: use --style push-pop".into())
        }
        _ => Ok(()),
    }
}

/// What a checked plan comes to on so many executors, for the run of this number.
pub(super) fn lay_out(plan: &Plan, executors: usize, run: u32) -> Layout {
    let kinds: &[FlowKind] = match plan.scenario {
        Scenario::Push => &[FlowKind::Push],
        Scenario::Pop => &[FlowKind::Pop],
        Scenario::PushPop => &[FlowKind::PushPop],
        Scenario::RequestReply | Scenario::Churn => &[FlowKind::RequestReply],
        Scenario::FanOut => &[FlowKind::FanOut],
        Scenario::Parked => &[FlowKind::Parked],
        Scenario::DurablePush => &[FlowKind::Log],
        Scenario::DurablePop => &[FlowKind::Backlog],
        Scenario::DurablePipe => &[FlowKind::Pipe],
        Scenario::Mixed => &[FlowKind::PushPop, FlowKind::RequestReply, FlowKind::FanOut],
    };
    let mut layout = Layout { flows: Vec::new(), parts: Vec::new() };
    for &kind in kinds {
        let connections = plan.connections.div_ceil(kinds.len());
        let pairs = plan.pairs.div_ceil(kinds.len());
        add_flow(&mut layout, plan, kind, connections, pairs, executors, run);
    }
    layout
}

fn add_flow(
    layout: &mut Layout,
    plan: &Plan,
    kind: FlowKind,
    connections: usize,
    pairs: usize,
    executors: usize,
    run: u32,
) {
    let queues = match kind {
        FlowKind::Parked => plan.parked,
        FlowKind::Pipe => pairs,
        _ => plan.queues,
    };
    let partitions = match kind {
        FlowKind::RequestReply | FlowKind::Parked | FlowKind::Pipe => 1,
        _ => plan.partitions,
    };
    let mut jobs = Vec::new();
    let mut add = |executor: usize, job: Job| jobs.push((executor % executors, job));
    // Takers first: they are to wait before anything is sent.
    let mut takers = 0;
    match kind {
        FlowKind::Push => {}
        FlowKind::Log => (0..queues).for_each(|queue| add(queue, Job::Read { queue })),
        FlowKind::Pop | FlowKind::PushPop | FlowKind::Backlog => {
            takers = connections.max(queues);
            (0..takers).for_each(|taker| add(taker, Job::Pop { queue: taker % queues, group: None }));
        }
        FlowKind::FanOut => {
            for queue in 0..queues {
                let groups = (0..plan.groups).map(Some);
                groups.for_each(|group| add(queue + group.unwrap_or(0), Job::Pop { queue, group }));
            }
        }
        FlowKind::Parked | FlowKind::Pipe => {
            (0..queues).for_each(|queue| add(queue, Job::Pop { queue, group: None }));
        }
        FlowKind::RequestReply => {
            let workers = pairs.max(queues);
            (0..workers).for_each(|worker| add(worker, Job::Work { queue: worker % queues }));
        }
    }
    let producers = match kind {
        FlowKind::Log => {
            (0..connections).for_each(|producer| add(producer, Job::Push { producer }));
            let fillers = if plan.prefill > 0 { LOG_FILLERS } else { 0 };
            (connections..connections + fillers).for_each(|producer| {
                add(producer, Job::Fill { producer, queues: (0..queues).collect() });
            });
            connections + fillers
        }
        FlowKind::Push | FlowKind::PushPop => {
            (0..connections).for_each(|producer| add(producer, Job::Push { producer }));
            connections
        }
        FlowKind::FanOut => {
            add(0, Job::Push { producer: 0 });
            1
        }
        FlowKind::Parked => {
            let pushers = connections.min(queues);
            (0..pushers).for_each(|producer| add(producer, Job::Push { producer }));
            pushers
        }
        FlowKind::Backlog if plan.prefill == 0 => 0,
        FlowKind::Backlog => {
            (0..BACKLOG_FILLERS).for_each(|producer| {
                add(producer, Job::Fill { producer, queues: (0..queues).collect() });
            });
            BACKLOG_FILLERS
        }
        FlowKind::Pipe => {
            (0..pairs).for_each(|producer| add(producer, Job::Push { producer }));
            pairs
        }
        FlowKind::Pop => {
            let fillers = executors.min(queues);
            (0..fillers).for_each(|producer| {
                let queues = (producer..queues).step_by(fillers).collect();
                add(producer, Job::Fill { producer, queues });
            });
            fillers
        }
        FlowKind::RequestReply => {
            let requesters = pairs * plan.depth;
            (0..requesters).for_each(|producer| add(producer % pairs, Job::Request { producer }));
            requesters
        }
    };
    let flow = layout.flows.len();
    layout.parts.extend(jobs.into_iter().map(|(executor, job)| Part { flow, executor, job }));
    // One consumer for each queue takes each partition's messages in their order. Of round trips, a requester has one
    // at a time, and what comes late belongs to an earlier one that it gave up.
    let is_ordered = match kind {
        FlowKind::Pop | FlowKind::PushPop => takers == queues,
        FlowKind::FanOut | FlowKind::Log | FlowKind::Pipe => true,
        // There, each reader looks at the order by itself.
        FlowKind::Backlog => false,
        FlowKind::Push | FlowKind::Parked | FlowKind::RequestReply => false,
    };
    let keys = match kind {
        FlowKind::RequestReply | FlowKind::Parked => 1,
        _ => queues * partitions,
    };
    let groups = if kind == FlowKind::FanOut { plan.groups } else { 1 };
    layout.flows.push(Flow {
        kind,
        queues: (0..queues).map(|queue| format!("lg-{run:06x}-{flow}-{queue}")).collect(),
        inbox_prefix: format!("lg-{run:06x}-{flow}-in-"),
        partitions,
        run,
        ledger: Ledger::new(producers, keys, groups, is_ordered),
        filled: AtomicU64::new(0),
        popped: AtomicU64::new(0),
        claimed: AtomicU64::new(0),
        prefill: plan.prefill as u64,
        arrived: if kind == FlowKind::Pipe { (0..producers).map(|_| AtomicU64::new(0)).collect() } else { Vec::new() },
    });
}

/// In how many steps this plan's round trips go.
pub(super) fn steps(plan: &Plan) -> RoundTrip {
    round_trip(plan.driver, plan.style)
}

/// Whether each request of this plan has an inbox of its own.
pub(super) fn has_new_inboxes(plan: &Plan) -> bool {
    plan.scenario == Scenario::Churn
}
