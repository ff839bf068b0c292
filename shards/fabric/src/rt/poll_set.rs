//! Waiting for any of many sockets through one poll of the ring.
//!
//! A [`TcpStream`](super::TcpStream) asks the ring anew for each read that has to wait: a submission, a completion, and
//! an interrupt of the thread for the completion, per message. Where many connections talk at once that is a good part of
//! all that is not reading and writing. A set is an epoll instance, edge-triggered, that the executor
//! polls like a socket: what became ready while it was busy is told in one call, and a member that goes on talking
//! costs no call of its own.
//!
//! Members are read and written without waiting (`MSG_DONTWAIT`). They are told of once each time that something
//! comes, or that there is room again after there was none: read until a read is not filled, write until a write fails.

use std::{
    cell::RefCell,
    io, mem,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    io::Errno,
    time::Timespec,
};

use super::source::Source;

/// Members that are told of in one call.
const EVENTS_MAX: usize = 512;

/// Sockets, each under a number, whose readiness one task waits for.
pub struct PollSet {
    epoll: Source,
    /// Its memory is used again.
    events: RefCell<Vec<epoll::Event>>,
}

impl PollSet {
    /// An empty set.
    ///
    /// # Errors
    ///
    /// Of `epoll_create1`: no descriptor is left.
    ///
    /// # Panics
    ///
    /// When called outside an executor.
    pub fn new() -> io::Result<Self> {
        let epoll = Source::new(epoll::create(CreateFlags::CLOEXEC)?)?;
        Ok(Self { epoll, events: RefCell::new(Vec::with_capacity(EVENTS_MAX)) })
    }

    /// Adds a socket under a number of the caller's. It leaves when it is closed. It is told of at once if it is ready.
    ///
    /// # Errors
    ///
    /// Of `epoll_ctl`: memory or watches (`fs.epoll.max_user_watches`) are used up.
    pub fn add(&self, socket: impl AsFd, number: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(self.epoll.as_fd(), socket, EventData::new_u64(number), flags)?)
    }

    /// Waits until members are ready, and tells of each by its number. It may tell of one that is not, or that has left.
    ///
    /// # Errors
    ///
    /// Of `epoll_wait`; none is known for a set that could be made.
    pub async fn wait(&self, mut on_ready: impl FnMut(u64)) -> io::Result<()> {
        let mut events = mem::take(&mut *self.events.borrow_mut());
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut take = |epoll: BorrowedFd<'_>| match epoll::wait(epoll, spare_capacity(&mut events), Some(&at_once))? {
            0 => Err(Errno::AGAIN),
            n => Ok(n),
        };
        std::future::poll_fn(|cx| self.epoll.poll_read(cx, EVENTS_MAX, &mut take)).await?;
        for event in events.drain(..) {
            on_ready(event.data.u64());
        }
        self.events.replace(events);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
        time::Duration,
    };

    use super::*;
    use crate::rt::Executor;

    /// Runs on an executor, where alone a set can be made.
    fn run<T: Send + 'static>(body: impl AsyncFnOnce() -> T + Send + 'static) -> T {
        Executor::spawn("test", None, Duration::ZERO, move || body()).unwrap().join().unwrap()
    }

    async fn told(set: &PollSet) -> Vec<u64> {
        let mut numbers = Vec::new();
        set.wait(|number| numbers.push(number)).await.unwrap();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn members_are_told_of_once_for_what_comes_and_again_for_what_comes_later() {
        run(async || {
            let set = PollSet::new().unwrap();
            let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
            for (number, (member, _)) in pairs.iter().enumerate() {
                set.add(member, number as u64).unwrap();
            }
            assert_eq!(told(&set).await, [0, 1, 2], "there is room to write");
            for _ in 0..3 {
                (&pairs[1].1).write_all(b"x").unwrap();
                // What was not read is no reason to be told again: another member is told of alone.
                assert_eq!(told(&set).await, [1]);
                (&pairs[2].1).write_all(b"x").unwrap();
                assert_eq!(told(&set).await, [2]);
            }
            let mut read = [0; 8];
            assert_eq!((&pairs[1].0).read(&mut read).unwrap(), 3);
        });
    }

    #[test]
    fn an_end_is_told_and_a_closed_member_is_not() {
        run(async || {
            let set = PollSet::new().unwrap();
            let (first, second) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
            set.add(&first.0, 1).unwrap();
            set.add(&second.0, 2).unwrap();
            assert_eq!(told(&set).await, [1, 2]);
            drop(first);
            drop(second.1);
            assert_eq!(told(&set).await, [2]);
        });
    }
}
