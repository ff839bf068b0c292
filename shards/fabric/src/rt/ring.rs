//! The ring of an executor: what its sockets wait for, and where the thread sleeps.
//!
//! A descriptor is polled once for all its life (a multishot poll): each time that something happens to it, a completion
//! says what. Reads and writes are calls of their own, made without waiting. So a turn of the executor costs one system
//! call when it sleeps and none when there is nothing to hear, however many descriptors there are.
//!
//! Completions are delivered when the thread asks for them and at no other time (`DEFER_TASKRUN`): on an older kernel,
//! which has no such mode, they interrupt the thread.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    task::{Context, Poll, Waker},
    time::Duration,
};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use slab::Slab;

/// Requests that fit into the ring before they have to be submitted.
const SUBMISSIONS: u32 = 256;

/// Completions that fit before the kernel keeps them aside.
const COMPLETIONS: u32 = 4_096;

/// What a poll tells of; errors and hang-ups are told of unasked.
const EVENTS: u32 = (libc_poll::IN | libc_poll::OUT | libc_poll::RDHUP) as u32;

/// A completion of a request that nobody waits for.
const NOBODY: u64 = u64::MAX;

/// The bits of a poll's events, as the kernel's ABI has them on Linux.
mod libc_poll {
    pub(super) const IN: i32 = 0x1;
    pub(super) const OUT: i32 = 0x4;
    pub(super) const ERR: i32 = 0x8;
    pub(super) const HUP: i32 = 0x10;
    pub(super) const RDHUP: i32 = 0x2000;
}

/// Names one polled descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watch {
    index: u32,
    /// Tells it from others that had its place before.
    generation: u32,
}

impl Watch {
    fn user_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }
}

/// One direction of a descriptor.
#[derive(Default)]
struct Direction {
    ready: bool,
    waker: Option<Waker>,
}

impl Direction {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.ready {
            return Poll::Ready(());
        }
        match &mut self.waker {
            Some(known) => known.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn wake(&mut self, woken: &mut Vec<Waker>) {
        self.ready = true;
        woken.extend(self.waker.take());
    }
}

/// What is known of a descriptor.
struct Watched {
    fd: i32,
    generation: u32,
    read: Direction,
    write: Direction,
    /// The other side has ended, or something failed: it stays readable for good.
    ended: bool,
}

/// The ring. Its methods call no foreign code: wakers are collected and woken by the caller.
pub(super) struct Ring {
    ring: IoUring,
    watched: Slab<Watched>,
    generations: u32,
    /// Kept for its memory.
    to_arm: Vec<Watch>,
}

impl Ring {
    /// A ring for this thread alone.
    pub(super) fn new() -> io::Result<Self> {
        let build = |deferred: bool| {
            let mut builder = IoUring::builder();
            builder.dontfork().setup_clamp().setup_cqsize(COMPLETIONS);
            if deferred {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            }
            builder.build(SUBMISSIONS)
        };
        // Deferred since Linux 6.1.
        let ring = build(true).or_else(|_| build(false))?;
        Ok(Self { ring, watched: Slab::new(), generations: 0, to_arm: Vec::new() })
    }

    /// Polls a descriptor from now on, until [`forget`](Self::forget). The caller keeps it open until then.
    pub(super) fn watch(&mut self, fd: BorrowedFd<'_>) -> io::Result<Watch> {
        self.generations = self.generations.wrapping_add(1);
        let generation = self.generations;
        let watched = Watched {
            fd: fd.as_raw_fd(),
            generation,
            read: Direction::default(),
            write: Direction::default(),
            ended: false,
        };
        let index = u32::try_from(self.watched.insert(watched)).expect("fewer than 2^32 descriptors");
        let watch = Watch { index, generation };
        self.arm(watch).inspect_err(|_| drop(self.watched.remove(index as usize)))?;
        Ok(watch)
    }

    /// Ends the poll of a descriptor. Takes effect with the executor's next turn: until then the kernel keeps the file
    /// open for the poll, whoever closes it.
    pub(super) fn forget(&mut self, watch: Watch) {
        self.watched.remove(watch.index as usize);
        // Not the removal that is made for polls: that one fails, and leaves the poll, while news of it is on the way.
        let cancel = opcode::AsyncCancel::new(watch.user_data()).build().user_data(NOBODY);
        // It fails only when the kernel takes no submissions at all; then the ring's own end ends the poll.
        let _ended_with_the_ring = self.push(&cancel);
    }

    /// Ready when a read may find something.
    pub(super) fn poll_read(&mut self, watch: Watch, cx: &Context<'_>) -> Poll<()> {
        self.watched[watch.index as usize].read.poll(cx)
    }

    /// Ready when a write may find room.
    pub(super) fn poll_write(&mut self, watch: Watch, cx: &Context<'_>) -> Poll<()> {
        self.watched[watch.index as usize].write.poll(cx)
    }

    /// A read found nothing more: the next one waits for news. False when there will be none, because the other side
    /// has ended.
    pub(super) fn read_all(&mut self, watch: Watch) -> bool {
        let watched = &mut self.watched[watch.index as usize];
        watched.read.ready = watched.ended;
        !watched.ended
    }

    /// A write found no room.
    pub(super) fn no_room(&mut self, watch: Watch) {
        self.watched[watch.index as usize].write.ready = false;
    }

    /// Whether a read may find something, as far as was heard.
    pub(super) fn may_read(&self, watch: Watch) -> bool {
        self.watched[watch.index as usize].read.ready
    }

    /// Submits what is to be submitted and takes in what has happened. Sleeps until something has, for `sleep` at most,
    /// if it is given. The wakers of whom it concerns are added to `woken`.
    pub(super) fn turn(&mut self, sleep: Option<Sleep>, woken: &mut Vec<Waker>) -> io::Result<()> {
        self.enter(sleep)?;
        self.take_in(woken);
        if !self.to_arm.is_empty() {
            let mut to_arm = std::mem::take(&mut self.to_arm);
            for watch in to_arm.drain(..) {
                self.arm(watch)?;
            }
            self.to_arm = to_arm;
        }
        Ok(())
    }

    fn enter(&mut self, sleep: Option<Sleep>) -> io::Result<()> {
        let submissions = self.ring.submission();
        let nothing_to_do = submissions.is_empty() && !submissions.taskrun() && !submissions.cq_overflow();
        drop(submissions);
        let has_completions = !self.ring.completion().is_empty();
        let entered = match sleep {
            Some(sleep) if !has_completions => match sleep.most() {
                Some(most) => {
                    let timespec = types::Timespec::from(most);
                    let arguments = types::SubmitArgs::new().timespec(&timespec);
                    self.ring.submitter().submit_with_args(1, &arguments)
                }
                None => self.ring.submit_and_wait(1),
            },
            _ if nothing_to_do => return Ok(()),
            _ => self.ring.submit(),
        };
        match entered {
            Ok(_) => Ok(()),
            // The time is up; a signal came; or completions have to be taken in before more is submitted.
            Err(error) => match rustix::io::Errno::from_io_error(&error) {
                Some(
                    rustix::io::Errno::TIME
                    | rustix::io::Errno::INTR
                    | rustix::io::Errno::BUSY
                    | rustix::io::Errno::AGAIN,
                ) => Ok(()),
                _ => Err(error),
            },
        }
    }

    fn take_in(&mut self, woken: &mut Vec<Waker>) {
        for completion in self.ring.completion() {
            let user_data = completion.user_data();
            if user_data == NOBODY {
                continue;
            }
            let watch = Watch { index: user_data as u32, generation: (user_data >> 32) as u32 };
            let Some(watched) = self.watched.get_mut(watch.index as usize) else { continue };
            if watched.generation != watch.generation {
                continue;
            }
            let events = completion.result();
            // A poll that failed tells nothing: whoever reads or writes finds out.
            let failed = events < 0 || events & (libc_poll::ERR | libc_poll::HUP) != 0;
            watched.ended |= failed || events & libc_poll::RDHUP != 0;
            if watched.ended || events & libc_poll::IN != 0 {
                watched.read.wake(woken);
            }
            if failed || events & libc_poll::OUT != 0 {
                watched.write.wake(woken);
            }
            // The kernel ends a poll of many shots when it has no room for a completion. One that failed stays as it is.
            if !cqueue::more(completion.flags()) && events >= 0 {
                self.to_arm.push(watch);
            }
        }
    }

    fn arm(&mut self, watch: Watch) -> io::Result<()> {
        let fd = types::Fd(self.watched[watch.index as usize].fd);
        let poll = opcode::PollAdd::new(fd, EVENTS).multi(true).build().user_data(watch.user_data());
        self.push(&poll)
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the entries of this ring are polls and cancellations. Neither refers to memory of ours, and the
            // descriptor of a poll is kept open by its owner until `forget`; a poll of one that is closed all the same
            // fails with an error.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }
}

/// How long a turn may sleep.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sleep {
    /// Until something happens.
    UntilWoken,
    /// For so long at most.
    AtMost(Duration),
}

impl Sleep {
    fn most(self) -> Option<Duration> {
        match self {
            Self::UntilWoken => None,
            Self::AtMost(most) => Some(most),
        }
    }
}
