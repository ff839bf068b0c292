//! One executor of a run: it opens its connections, begins with the others, keeps time, and ends when all has come.

use std::{cell::Cell, future::poll_fn, rc::Rc, sync::Arc, task::Poll, time::Duration};

use queen_fabric::rt::{PollSet, PreciseTimer, Task, TcpStream, monotonic_ns, sleep, spawn_local};

use super::{
    RunError,
    connection::Connection,
    core::{Core, Local, Seat, Share},
    flow::{Flow, FlowKind, Part},
    role,
    shared::{Shared, Timeline, nanos},
    sizes::Sizes,
};
use crate::{driver, plan::Plan};

/// How often an executor looks at the run as a whole, and how many looks pass between two reports of its progress.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_PER_REPORT: u32 = 5;

/// How long connections may take to open and to be greeted, all together.
const START_MAX: Duration = Duration::from_secs(60);

/// How long queues are filled before a run that pops from them begins in any case.
const FILL_MAX: Duration = Duration::from_secs(10);

/// How long a backlog may take to be put there.
const BACKLOG_MAX: Duration = Duration::from_secs(600);

/// Parked pops are left alone for so long before the first push.
const SETTLE: Duration = Duration::from_secs(1);

/// After the end, what was due before it is sent for so long.
const SEND_MAX: Duration = Duration::from_secs(10);

/// Once all is sent, messages are waited for as long as some come within this time,
const QUIET: Duration = Duration::from_secs(2);
/// and no longer than this.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// The same where a whole log is read back.
const READ_QUIET: Duration = Duration::from_secs(10);
const READ_MAX: Duration = Duration::from_secs(600);

/// What an executor works from.
pub(super) struct Setup {
    pub(super) executor: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) flows: Arc<[Arc<Flow>]>,
    pub(super) parts: Vec<Part>,
    pub(super) shares: Vec<Share>,
    pub(super) sizes: Sizes,
    pub(super) shared: Arc<Shared>,
}

/// Runs an executor's part.
pub(super) async fn run(setup: Setup) -> Result<(), RunError> {
    let Setup { executor, plan, flows, parts, shares, sizes, shared } = setup;
    let mut core = Core::new(executor, Arc::clone(&plan), Arc::clone(&flows), Arc::clone(&shared));
    for part in &parts {
        let paced = part.job.is_paced(flows[part.flow].kind);
        core.seats.push(Seat::new(paced));
    }
    let no_descriptor = |error| RunError::Executor(format!("{error}: raise the limit of open files (ulimit -n)"));
    let local = Local::new(core, PollSet::new().map_err(no_descriptor)?);
    let timer = PreciseTimer::new().map_err(no_descriptor)?;
    let failed = Rc::new(Cell::new(None));
    let timer = spawn_local(keep_time(Rc::clone(&local), timer, Rc::clone(&failed)));
    let sockets = spawn_local(watch(Rc::clone(&local), Rc::clone(&failed)));
    let connections = open(&local, &parts, &sizes, &plan).await?;
    let Some(timeline) = begin(&local, &shared, &flows, &shares).await? else { return Ok(()) };
    supervise(&local, &shared, &flows, timeline).await;
    for connection in connections {
        connection.cancel().await;
    }
    timer.cancel().await;
    sockets.cancel().await;
    let core = &mut *local.core.borrow_mut();
    core.set_now(monotonic_ns());
    let last = core.recorder.current_second();
    core.recorder.take_second(core.now_ns, |slice| shared.second(last, slice));
    shared.publish(executor, core.recorder.totals());
    failed.take().map_or(Ok(()), |error| Err(RunError::Executor(error)))
}

/// Opens all connections, one after the other: a listener has room for so many that wait.
async fn open(local: &Rc<Local>, parts: &[Part], sizes: &Sizes, plan: &Plan) -> Result<Vec<Task<()>>, RunError> {
    let mut connections = Vec::with_capacity(parts.len());
    for (seat, part) in parts.iter().enumerate() {
        let address = plan.target.address;
        let stream = TcpStream::connect(address).await.map_err(|error| {
            let (opened, all) = (seat, parts.len());
            RunError::Unreachable(format!(
                "only {opened} of {all} connections to {} could be opened ({error}): see whether the broker still \
                 runs, and how many connections it and this shell (ulimit -n) allow",
                plan.target.url
            ))
        })?;
        let (driver, role) = {
            let core = local.core.borrow();
            let flow = &core.flows[part.flow];
            let driver = driver::new(plan.driver, &plan.target, flow.listens(&part.job), flow.bound());
            (driver, role::new(part, seat, sizes.clone(), &core))
        };
        let connection = Connection::new(local, seat, driver, role);
        connections.push(spawn_local(connection.work(stream, address)));
    }
    Ok(connections)
}

/// Waits until everything is in place, here and on the other executors, and starts the clocks. `None` if another one
/// has failed.
async fn begin(
    local: &Rc<Local>,
    shared: &Shared,
    flows: &[Arc<Flow>],
    shares: &[Share],
) -> Result<Option<Timeline>, RunError> {
    let have_started = || local.core.borrow().seats.iter().all(|seat| seat.started);
    if !wait_until(START_MAX, || have_started() || shared.is_finished()).await {
        return Err(RunError::Unreachable(format!(
            "connections were opened, and not all of them could be used within {} seconds: see what the broker says",
            START_MAX.as_secs()
        )));
    }
    let is_filled = |flow: &Flow| !(flow.kind == FlowKind::Pop || flow.is_prefilled()) || flow.is_full();
    let are_filled = || flows.iter().all(|flow| is_filled(flow));
    let has_backlog = flows.iter().any(|flow| flow.is_prefilled());
    let fill_max = if has_backlog { BACKLOG_MAX } else { FILL_MAX };
    let filled_in_time = wait_until(fill_max, || are_filled() || shared.is_finished()).await;
    // Bounded queues that take less than asked for are as full as they get.
    if has_backlog && !filled_in_time {
        return Err(RunError::Unreachable(format!(
            "the backlog was not there after {} seconds: ask for less with --prefill, or see what the broker says",
            BACKLOG_MAX.as_secs()
        )));
    }
    if flows.iter().any(|flow| flow.kind == FlowKind::Parked) {
        sleep(SETTLE).await;
    }
    shared.ready();
    let timeline = loop {
        if shared.is_finished() {
            return Ok(None);
        }
        match shared.timeline() {
            Some(timeline) => break timeline,
            None => sleep(Duration::from_millis(1)).await,
        }
    };
    let core = &mut *local.core.borrow_mut();
    core.set_now(monotonic_ns());
    core.begin(timeline, shares);
    local.timer.notify();
    Ok(Some(timeline))
}

/// Waits until `is_so`, looking each millisecond. False when that takes longer than `at_most`.
async fn wait_until(at_most: Duration, is_so: impl Fn() -> bool) -> bool {
    let until_ns = monotonic_ns() + nanos(at_most);
    while !is_so() {
        if monotonic_ns() > until_ns {
            return false;
        }
        sleep(Duration::from_millis(1)).await;
    }
    true
}

/// Gives connections that wait what is due, when it is due.
async fn keep_time(local: Rc<Local>, mut timer: PreciseTimer, failed: Rc<Cell<Option<String>>>) {
    let ended = poll_fn(|cx| {
        loop {
            // Until it is pending: only then the next notification wakes this task.
            while local.timer.poll_wait(cx).is_ready() {}
            let at_ns = local.core.borrow().timer_at_ns();
            let fired = timer.set(at_ns).map_or_else(|error| Poll::Ready(Err(error)), |()| timer.poll(cx));
            match fired {
                Poll::Ready(Ok(())) => {
                    let core = &mut *local.core.borrow_mut();
                    core.set_now(monotonic_ns());
                    core.hand_out();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    failed.set(Some(format!("the timer failed: {ended}")));
    local.core.borrow().shared.finish();
}

/// Wakes connections that have something to read, or room to write.
async fn watch(local: Rc<Local>, failed: Rc<Cell<Option<String>>>) {
    let wake = |number: u64| {
        let core = &mut *local.core.borrow_mut();
        if let Some(seat) = usize::try_from(number).ok().and_then(|seat| core.seats.get_mut(seat)) {
            seat.readable = true;
            seat.notify.notify();
        }
    };
    let error = loop {
        if let Err(error) = local.sockets.wait(wake).await {
            break error;
        }
    };
    failed.set(Some(format!("sockets could not be waited for: {error}")));
    local.core.borrow().shared.finish();
}

/// Looks after the run until nothing more is waited for.
async fn supervise(local: &Rc<Local>, shared: &Shared, flows: &[Arc<Flow>], timeline: Timeline) {
    let mut drain = Drain::default();
    let is_parked = flows.iter().any(|flow| flow.kind == FlowKind::Parked);
    let mut is_exhausted = false;
    for look in 0_u32.. {
        sleep(LOOK_EVERY).await;
        {
            let core = &mut *local.core.borrow_mut();
            core.set_now(monotonic_ns());
            core.look_at_end();
            expire(core);
            if look.is_multiple_of(LOOKS_PER_REPORT) {
                shared.publish(core.executor, core.recorder.totals());
            }
            if is_parked && !is_exhausted && core.now_ns >= timeline.begin_ns {
                is_exhausted = core.is_exhausted() && core.has_sent_all();
                if is_exhausted {
                    shared.exhausted();
                }
            }
            if core.now_ns >= core.end_ns {
                drain.look(core, shared, flows);
            }
        }
        // Whoever waits in a line may wait for nothing any more, now that the end is known.
        local.timer.notify();
        if shared.is_finished() {
            return;
        }
    }
}

/// Has connections give up that have waited too long for an answer.
fn expire(core: &mut Core) {
    for seat in &mut core.seats {
        if seat.gives_up_at_ns.is_some_and(|at_ns| at_ns <= core.now_ns) {
            seat.gives_up_at_ns = None;
            seat.expired = true;
            seat.notify.notify();
        }
    }
}

/// Waiting for the last messages.
#[derive(Default)]
struct Drain {
    /// What was missing at the last look, and since when it has been that.
    missing: u64,
    since_ns: u64,
    has_sent_all: bool,
}

impl Drain {
    /// Looks whether everything has come, or nothing comes any longer.
    fn look(&mut self, core: &mut Core, shared: &Shared, flows: &[Arc<Flow>]) {
        let gives_up = core.now_ns >= core.end_ns + nanos(SEND_MAX);
        if !self.has_sent_all && (core.has_sent_all() || gives_up) {
            core.give_up();
            self.has_sent_all = true;
            shared.sent_all();
        }
        let reads_back = flows.iter().any(|flow| flow.kind == FlowKind::Log);
        let (quiet, drain_max) = if reads_back { (READ_QUIET, READ_MAX) } else { (QUIET, DRAIN_MAX) };
        if reads_back && !core.reads_back && shared.all_have_sent() {
            core.reads_back = true;
            core.seats.iter().filter(|seat| !seat.paced).for_each(|seat| seat.notify.notify());
        }
        let is_over = core.now_ns >= core.end_ns + nanos(SEND_MAX + drain_max);
        let missing = flows.iter().filter(|flow| flow.is_drained()).map(|flow| flow.ledger.missing()).sum();
        if self.since_ns == 0 || missing != self.missing {
            (self.missing, self.since_ns) = (missing, core.now_ns);
        }
        let is_quiet = core.now_ns >= self.since_ns + nanos(quiet);
        if is_over || (shared.all_have_sent() && (missing == 0 || is_quiet)) {
            shared.finish();
        }
    }
}
