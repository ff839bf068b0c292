//! What an executor is made of, on its own thread: tasks that are ready, the ring, the timers; and the door through
//! which other threads wake its tasks.
//!
//! A turn runs every task that was ready at its beginning, once and in order, then looks at timers and the ring. So no
//! task waits for longer than one run of each of the others, and a task that yields lets the sockets be looked at. What
//! tasks have to write they may put off to the end of the turn, so that it leaves together.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use async_task::Runnable;
use rustix::event::{EventfdFlags, eventfd};
use slab::Slab;

use super::{
    ring::{Ring, Sleep, Watch},
    timers::Timers,
};

thread_local! {
    /// This thread's executor.
    static HERE: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// One executor, as its own thread sees it. No borrow of a cell lives across a wake or a run of a task.
pub(super) struct Local {
    door: Arc<Door>,
    ready: RefCell<VecDeque<Runnable>>,
    /// A waker for every task that has not ended, to end those that are left when the executor does.
    tasks: RefCell<Slab<Waker>>,
    pub(super) ring: RefCell<Ring>,
    pub(super) timers: RefCell<Timers>,
    /// The door's poll.
    knocks: Watch,
    /// Kept for its memory.
    woken: RefCell<Vec<Waker>>,
    /// Tasks that run once more at the end of this turn.
    gathered: RefCell<Vec<Waker>>,
    /// The turn is at its end: nobody is put off to it any more.
    ending: Cell<bool>,
}

/// How other threads reach an executor.
struct Door {
    /// Written to when the queue was empty.
    bell: OwnedFd,
    /// Tasks that other threads have woken.
    queue: Mutex<Vec<Runnable>>,
}

impl Door {
    fn queue(&self) -> impl std::ops::DerefMut<Target = Vec<Runnable>> + '_ {
        // A panic while it is locked leaves a whole vector behind.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a task that was woken where its executor finds it.
    fn schedule(self: &Arc<Self>, runnable: Runnable) {
        let mut runnable = Some(runnable);
        Local::with(|local| local.take_own(self, &mut runnable));
        let Some(runnable) = runnable else { return };
        let was_empty = {
            let mut queue = self.queue();
            queue.push(runnable);
            queue.len() == 1
        };
        if was_empty {
            // It fails only when the counter is full, and then the executor has something to read already.
            let _readable_anyway = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl Local {
    /// Makes this thread's executor.
    pub(super) fn install() -> io::Result<Rc<Self>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut ring = Ring::new()?;
        let knocks = ring.watch(bell.as_fd())?;
        let local = Rc::new(Self {
            door: Arc::new(Door { bell, queue: Mutex::default() }),
            ready: RefCell::default(),
            tasks: RefCell::default(),
            ring: RefCell::new(ring),
            timers: RefCell::default(),
            knocks,
            woken: RefCell::default(),
            gathered: RefCell::default(),
            ending: Cell::new(false),
        });
        HERE.set(Some(Rc::clone(&local)));
        Ok(local)
    }

    /// Calls `body` with this thread's executor, if it has one.
    pub(super) fn with<T>(body: impl FnOnce(&Rc<Self>) -> T) -> Option<T> {
        // The thread's variables may be gone already when a task's waker is dropped at its very end.
        HERE.try_with(|here| here.borrow().as_ref().map(body)).ok().flatten()
    }

    /// This thread's executor.
    ///
    /// # Panics
    ///
    /// When the thread runs none.
    pub(super) fn here() -> Rc<Self> {
        Self::with(Rc::clone).expect("this is called on an executor")
    }

    /// Queues a task if it is one of this executor.
    fn take_own(&self, door: &Arc<Door>, runnable: &mut Option<Runnable>) {
        if Arc::ptr_eq(door, &self.door) {
            self.ready.borrow_mut().extend(runnable.take());
        }
    }

    /// Spawns a task. It first runs in the next turn.
    pub(super) fn spawn<T: 'static>(self: &Rc<Self>, future: impl Future<Output = T> + 'static) -> async_task::Task<T> {
        let mut tasks = self.tasks.borrow_mut();
        let entry = tasks.vacant_entry();
        let listed = Listed { local: Rc::clone(self), key: entry.key() };
        let future = async move {
            let _listed = listed;
            future.await
        };
        let door = Arc::clone(&self.door);
        let (runnable, task) = async_task::spawn_local(future, move |runnable| door.schedule(runnable));
        entry.insert(runnable.waker());
        drop(tasks);
        runnable.schedule();
        task
    }

    /// Runs `future`, and every other task meanwhile, until it ends.
    pub(super) fn run<T: 'static>(
        self: &Rc<Self>,
        future: impl Future<Output = T> + 'static,
        spin: Duration,
    ) -> io::Result<T> {
        let ended = Rc::new(Cell::new(None));
        let end = Rc::clone(&ended);
        self.spawn(async move { end.set(Some(future.await)) }).detach();
        loop {
            self.run_ready();
            if let Some(output) = ended.take() {
                return Ok(output);
            }
            self.turn(spin)?;
        }
    }

    /// Ends every task that is left, so that what they hold is closed by this thread.
    pub(super) fn shut_down(&self) {
        loop {
            let left: Vec<Waker> = self.tasks.borrow_mut().drain().collect();
            left.iter().for_each(Waker::wake_by_ref);
            let mut runnables: Vec<Runnable> = self.ready.borrow_mut().drain(..).collect();
            runnables.append(&mut self.door.queue());
            if runnables.is_empty() {
                break;
            }
            // A task that is dropped as it is about to run is cancelled, and its future dropped.
            drop(runnables);
        }
        self.ring.borrow_mut().forget(self.knocks);
        // Ends the polls of what was closed, for as long as they last the kernel keeps it open.
        let _nobody_left_to_tell = self.ring.borrow_mut().turn(None, &mut Vec::new());
    }

    /// Runs what is ready now, then those that asked for the end of the turn and whom the others have woken.
    fn run_ready(&self) {
        self.run_batch();
        let mut gathered = self.gathered.take();
        if !gathered.is_empty() {
            self.ending.set(true);
            gathered.drain(..).for_each(Waker::wake);
            self.gathered.replace(gathered);
            self.run_batch();
            self.ending.set(false);
        }
    }

    fn run_batch(&self) {
        let ready = self.ready.borrow().len();
        for _ in 0..ready {
            let Some(runnable) = self.ready.borrow_mut().pop_front() else { return };
            runnable.run();
        }
    }

    /// Puts a task off to the end of the turn, if there are others to run before.
    fn put_off(&self, waker: &Waker) -> bool {
        let put_off = !self.ending.get() && !self.ready.borrow().is_empty();
        if put_off {
            self.gathered.borrow_mut().push(waker.clone());
        }
        put_off
    }

    /// Looks at timers and the ring, and sleeps there if nothing is ready.
    fn turn(&self, spin: Duration) -> io::Result<()> {
        self.look(None)?;
        if !self.ready.borrow().is_empty() {
            return Ok(());
        }
        if !spin.is_zero() {
            let started = Instant::now();
            while started.elapsed() < spin {
                std::hint::spin_loop();
                self.look(None)?;
                if !self.ready.borrow().is_empty() {
                    return Ok(());
                }
            }
        }
        let sleep = match self.timers.borrow().next_in() {
            Some(most) => Sleep::AtMost(most),
            None => Sleep::UntilWoken,
        };
        self.look(Some(sleep))
    }

    /// Takes in what has happened, and wakes whom it concerns.
    pub(super) fn look(&self, sleep: Option<Sleep>) -> io::Result<()> {
        let mut woken = self.woken.take();
        let looked = self.ring.borrow_mut().turn(sleep, &mut woken);
        self.timers.borrow_mut().take_due(&mut woken);
        woken.drain(..).for_each(Waker::wake);
        self.woken.replace(woken);
        looked?;
        let knocked = self.ring.borrow().may_read(self.knocks);
        if knocked {
            self.open_door();
        }
        Ok(())
    }

    /// Takes over the tasks that other threads have woken.
    fn open_door(&self) {
        self.ring.borrow_mut().read_all(self.knocks);
        // The counter first: a wake that comes after the queue is taken finds it empty and writes again.
        let _counter_or_nothing = rustix::io::read(&self.door.bell, &mut [0_u8; 8]);
        let woken = std::mem::take(&mut *self.door.queue());
        self.ready.borrow_mut().extend(woken);
    }
}

/// A task's place in the list of those that have not ended.
struct Listed {
    local: Rc<Local>,
    key: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let _waker = self.local.tasks.borrow_mut().try_remove(self.key);
    }
}

/// Lets every other task that is ready run first, and the executor look at its sockets and timers once. What works for
/// long calls it every now and then: nothing else interrupts a task, or tasks that keep each other busy.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx: &mut Context<'_>| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Asks to be polled once more at the end of this turn, when the others that are ready have run. False when there are
/// none, or the turn is at its end: then there is nothing to wait for.
#[must_use]
pub fn put_off(cx: &Context<'_>) -> bool {
    Local::with(|local| local.put_off(cx.waker())).unwrap_or(false)
}

/// Hears at once of everything that the kernel has seen happen, instead of at the end of this turn.
pub(super) fn look_now() {
    Local::with(|local| {
        // What cannot be heard now is heard, or reported, at the end of the turn.
        let _later = local.look(None);
    });
}
