//! Time on a data shard: the engine's next deadline, and the sweep that ends connections which take too long.
//!
//! The engine keeps its own timer wheel and says when it wants to be called; one task sleeps until then. Connections
//! have no timer each: they note until when they may take, and a sweep looks at all of them a few times a second.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use queen_ephemeral::Millis;
use queen_fabric::rt;
use slab::Slab;

use crate::shard::Shard;

/// Due timers that the engine works off before other tasks get their turn.
const ADVANCE_BUDGET: usize = 512;

/// The longest sweep interval; shorter where the timeouts are set short.
const SWEEP_MAX: Duration = Duration::from_millis(500);
const SWEEP_MIN: Duration = Duration::from_millis(10);

/// Sweeps between two returns of unused budget to the node.
const SWEEPS_PER_RETURN: u32 = 4;

/// Sweeps between two looks at which tenants' rates need not be kept.
const SWEEPS_PER_FORGETTING: u32 = 128;

/// The timers of a shard.
pub(crate) struct Timers {
    /// When the engine's task will wake; `Millis::MAX` while nothing is due ever.
    armed_ms: Cell<Millis>,
    /// The engine wants to be called earlier than that.
    earlier: rt::Notify,
    slots: RefCell<Slab<Rc<Slot>>>,
}

/// Until when a connection may take for what it is doing.
pub(crate) struct Slot {
    due_ms: Cell<Millis>,
    waker: Cell<Option<Waker>>,
}

impl Slot {
    /// Notes the time, and who is to be woken when it has passed.
    pub(crate) fn arm(&self, due_ms: Millis, cx: &Context<'_>) {
        self.due_ms.set(due_ms);
        // The task's waker never changes; it is cloned once.
        let waker = self.waker.take().filter(|known| known.will_wake(cx.waker()));
        self.waker.set(Some(waker.unwrap_or_else(|| cx.waker().clone())));
    }

    /// The connection waits for something that has no time limit of its own.
    pub(crate) fn disarm(&self) {
        self.due_ms.set(Millis::MAX);
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { armed_ms: Cell::new(Millis::MAX), earlier: rt::Notify::new(), slots: RefCell::default() }
    }

    /// To be called after every engine call: wakes the engine's task if the engine now wants an earlier call.
    pub(crate) fn rearm(&self, shard: &Shard) {
        let next = shard.engine.borrow().next_deadline_ms();
        if next.is_some_and(|at| at < self.armed_ms.get()) {
            self.earlier.notify();
        }
    }

    /// Lets the engine's task look at the clock again.
    pub(crate) fn look_again(&self) {
        self.earlier.notify();
    }

    pub(crate) fn add_slot(&self) -> (usize, Rc<Slot>) {
        let slot = Rc::new(Slot { due_ms: Cell::new(Millis::MAX), waker: Cell::default() });
        (self.slots.borrow_mut().insert(Rc::clone(&slot)), slot)
    }

    pub(crate) fn remove_slot(&self, key: usize) {
        self.slots.borrow_mut().remove(key);
    }

    /// Lets every connection look at its state again: a stop.
    pub(crate) fn wake_all_connections(&self) {
        for (_, slot) in self.slots.borrow().iter() {
            slot.wake();
        }
    }

    fn wake_due(&self, now_ms: Millis) {
        for (_, slot) in self.slots.borrow().iter() {
            if slot.due_ms.get() <= now_ms {
                slot.wake();
            }
        }
    }
}

/// Calls the engine whenever something in it is due.
pub(crate) async fn run_engine(shard: Rc<Shard>) {
    let mut sleep = rt::Deadline::new();
    loop {
        let now_ms = shard.engine_now_ms();
        let more = shard.engine.borrow_mut().advance(now_ms, ADVANCE_BUDGET, &mut &shard.outlet);
        if more {
            rt::yield_now().await;
            continue;
        }
        let next_ms = shard.engine.borrow().next_deadline_ms();
        shard.timers.armed_ms.set(next_ms.unwrap_or(Millis::MAX));
        // A deadline names a millisecond; the engine acts when it has come.
        sleep.set(next_ms.and_then(|at_ms| shard.clock.engine_instant(at_ms)));
        poll_fn(|cx| match sleep.poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => shard.timers.earlier.poll_wait(cx),
        })
        .await;
    }
}

/// Ends connections that take too long, measures how late the executor runs, and returns unused budget to the node.
pub(crate) async fn run_sweep(shard: Rc<Shard>) {
    let config = &shard.node.config;
    let shortest = Duration::from_millis(config.header_timeout_ms.min(config.idle_timeout_ms));
    let interval = (shortest / 20).clamp(SWEEP_MIN, SWEEP_MAX);
    let mut sweeps = 0u32;
    loop {
        let due = Instant::now() + interval;
        rt::sleep(interval).await;
        shard.metrics.observe_lag(due.elapsed());
        shard.timers.wake_due(shard.now_ms());
        sweeps = sweeps.wrapping_add(1);
        if sweeps.is_multiple_of(SWEEPS_PER_RETURN) {
            shard.return_room();
        }
        if shard.id() == 0 && sweeps.is_multiple_of(SWEEPS_PER_FORGETTING) {
            shard.node.rates.forget_idle(shard.node.boot.elapsed().as_nanos() as u64);
        }
    }
}
