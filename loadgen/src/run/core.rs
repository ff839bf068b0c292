//! One executor's part of a run: what its connections share.
//!
//! Everything in it is reached from one thread, between two awaits.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use queen_fabric::rt::{Notify, PollSet};

use super::{
    flow::Flow,
    pace::{Clockwork, Pacer},
    shared::{Shared, Timeline},
};
use crate::{
    payload::Maker,
    plan::{Pacing, Plan},
    random::Random,
    recorder::Recorder,
    schedule::Schedule,
};

/// The connections read into one buffer of this size; what is left of an answer that is not complete is kept aside.
const SCRATCH_BYTES: usize = 256 * 1024;

/// Who looks again in a moment does so after this time.
const MOMENT_NS: u64 = 1_000_000;

/// What an executor's tasks share.
pub(super) struct Local {
    pub(super) core: RefCell<Core>,
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// Says that the timer may have to fire earlier.
    pub(super) timer: Notify,
    /// The connections' sockets, each under its seat.
    pub(super) sockets: PollSet,
}

/// The state that roles work with.
pub(super) struct Core {
    pub(super) executor: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) flows: Arc<[Arc<Flow>]>,
    pub(super) shared: Arc<Shared>,
    /// Read once for each batch of answers.
    pub(super) now_ns: u64,
    /// The end of the measured part, as of the last look at the shared state.
    pub(super) end_ns: u64,
    pub(super) recorder: Recorder,
    pub(super) maker: Maker,
    /// One for each flow, once the run has begun, where this executor has a part in it.
    pacers: Vec<Option<Pacer>>,
    pub(super) seats: Vec<Seat>,
    /// Those who look again in a moment, and when that is.
    later: Vec<usize>,
    later_at_ns: u64,
    /// Whether somebody has begun to wait since the timer was set.
    timer_is_stale: bool,
    /// All that is pushed has been: what is there to be read back is read now.
    pub(super) reads_back: bool,
}

/// What others than a connection's own task know of it.
#[derive(Default)]
pub(super) struct Seat {
    pub(super) notify: Rc<Notify>,
    /// The request that it is to send next, by when it was due.
    assigned_ns: Option<u64>,
    in_line: bool,
    /// It sends what is due, and so the end of the run waits for it.
    pub(super) paced: bool,
    /// It has sent what it waits for an answer to.
    pub(super) busy: bool,
    /// It has sent all that it ever will.
    pub(super) exhausted: bool,
    /// Its greeting is answered and its first requests are written.
    pub(super) started: bool,
    /// It is to be given up if it still waits for the same answer then.
    pub(super) gives_up_at_ns: Option<u64>,
    /// It was.
    pub(super) expired: bool,
    /// Its socket has something to read, or is at its end.
    pub(super) readable: bool,
}

impl Seat {
    pub(super) fn new(paced: bool) -> Self {
        Self { paced, ..Self::default() }
    }
}

impl Local {
    pub(super) fn new(core: Core, sockets: PollSet) -> Rc<Self> {
        Rc::new(Self {
            sockets,
            core: RefCell::new(core),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            timer: Notify::new(),
        })
    }

    /// Wakes the timer's task if it may have to fire earlier.
    pub(super) fn notify_timer(&self, core: &mut Core) {
        if std::mem::take(&mut core.timer_is_stale) {
            self.timer.notify();
        }
    }
}

impl Core {
    pub(super) fn new(executor: usize, plan: Arc<Plan>, flows: Arc<[Arc<Flow>]>, shared: Arc<Shared>) -> Self {
        let maker = Maker::new(Random::new(plan.seed, 0x1000 + executor as u64), plan.incompressible);
        Self {
            executor,
            pacers: flows.iter().map(|_| None).collect(),
            plan,
            flows,
            shared,
            now_ns: 0,
            end_ns: u64::MAX,
            // Nothing counts before the run has begun.
            recorder: Recorder::new(u64::MAX..u64::MAX),
            maker,
            seats: Vec::new(),
            later: Vec::new(),
            later_at_ns: 0,
            timer_is_stale: false,
            reads_back: false,
        }
    }

    /// Starts the clocks. `shares` is which part of each flow's rate is this executor's, and where in the gap between
    /// two of its requests it begins.
    pub(super) fn begin(&mut self, timeline: Timeline, shares: &[Share]) {
        self.end_ns = self.shared.end_ns();
        self.recorder = Recorder::new(timeline.measured_from_ns..self.end_ns.max(timeline.measured_from_ns));
        for (number, (pacer, share)) in self.pacers.iter_mut().zip(shares).enumerate() {
            if share.part == 0.0 {
                continue;
            }
            let clockwork = match self.plan.pacing {
                Pacing::Closed => Clockwork::Closed { begin_ns: timeline.begin_ns },
                Pacing::Open { rate_per_s, arrivals } => {
                    let messages = self.flows[number].messages_per_request(&self.plan) as f64;
                    let rate_per_s = rate_per_s * share.part / messages;
                    let name = 0x2000 + (self.executor * self.flows.len() + number) as u64;
                    let random = Random::new(self.plan.seed, name);
                    Clockwork::Open(Schedule::new(arrivals, rate_per_s, timeline.begin_ns, share.phase, random))
                }
            };
            *pacer = Some(Pacer::new(clockwork));
        }
        for seat in &mut self.seats {
            seat.in_line = false;
            seat.notify.notify();
        }
    }

    /// Notes the time, and hands over the second that has ended.
    pub(super) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if let Some(second) = self.recorder.ended_second(now_ns) {
            self.recorder.take_second(now_ns, |slice| self.shared.second(second, slice));
        }
    }

    /// Notes when the measured part ends, which may have moved to sooner.
    pub(super) fn look_at_end(&mut self) {
        self.end_ns = self.shared.end_ns();
        self.recorder.end_at(self.end_ns);
    }

    /// What is due for a connection: since when, or `None`, and then it is woken when something is.
    pub(super) fn take(&mut self, flow: usize, seat: usize) -> Option<u64> {
        let own = &mut self.seats[seat];
        if let Some(due_ns) = own.assigned_ns.take() {
            return Some(due_ns);
        }
        let pacer = self.pacers[flow].as_mut()?;
        let taken = pacer.take(self.now_ns, self.end_ns);
        if taken.is_none() && !own.in_line {
            own.in_line = true;
            pacer.wait(seat);
            self.timer_is_stale = true;
        }
        taken
    }

    /// A connection is gone for a while: others get what is due.
    pub(super) fn leave_lines(&mut self, seat: usize) {
        if std::mem::take(&mut self.seats[seat].in_line) {
            self.pacers.iter_mut().flatten().for_each(|pacer| pacer.leave(seat));
        }
    }

    /// Wakes a connection in a moment, for what can't wake it itself.
    pub(super) fn poll_later(&mut self, seat: usize) {
        if self.later.is_empty() {
            self.later_at_ns = self.now_ns + MOMENT_NS;
            self.timer_is_stale = true;
        }
        if !self.later.contains(&seat) {
            self.later.push(seat);
        }
    }

    /// When somebody who waits has something to do.
    pub(super) fn timer_at_ns(&self) -> Option<u64> {
        let due = self.pacers.iter().flatten().filter_map(|pacer| pacer.wakes_at_ns(self.now_ns, self.end_ns)).min();
        let later = (!self.later.is_empty()).then_some(self.later_at_ns);
        due.into_iter().chain(later).min()
    }

    /// Wakes those who wait for what is due, and those who look again.
    pub(super) fn hand_out(&mut self) {
        if self.now_ns >= self.later_at_ns {
            for seat in self.later.drain(..) {
                self.seats[seat].notify.notify();
            }
        }
        for pacer in self.pacers.iter_mut().flatten() {
            while let Some((seat, due_ns)) = pacer.hand_out(self.now_ns, self.end_ns) {
                let seat = &mut self.seats[seat];
                seat.in_line = false;
                seat.assigned_ns = Some(due_ns);
                seat.notify.notify();
            }
        }
    }

    /// Whether all who send have sent all that they ever will.
    pub(super) fn is_exhausted(&self) -> bool {
        self.seats.iter().filter(|seat| seat.paced).all(|seat| seat.exhausted)
    }

    /// Whether all that was due before the end has been sent and answered.
    pub(super) fn has_sent_all(&self) -> bool {
        let behind = |pacer: &Pacer| pacer.is_behind(self.now_ns, self.end_ns);
        let under_way = |seat: &Seat| seat.paced && (seat.busy || seat.assigned_ns.is_some());
        let is_behind = !self.is_exhausted() && self.pacers.iter().flatten().any(behind);
        !is_behind && !self.seats.iter().any(under_way)
    }

    /// Gives up on what was due and could not be sent: nobody took it in time, which is a failure of each.
    pub(super) fn give_up(&mut self) {
        if self.is_exhausted() {
            return;
        }
        let end_ns = self.end_ns;
        let left: u64 = self.pacers.iter_mut().flatten().map(|pacer| pacer.give_up(end_ns)).sum();
        let assigned = self.seats.iter_mut().filter_map(|seat| seat.assigned_ns.take()).count();
        self.recorder.failed("not_sent", self.now_ns, left + assigned as u64);
    }
}

/// An executor's part of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    /// Of the whole rate, 0 to 1.
    pub(super) part: f64,
    /// Where in its first gap it begins, 0 to 1.
    pub(super) phase: f64,
}
