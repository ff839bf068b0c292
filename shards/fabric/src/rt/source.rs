//! A descriptor that its executor polls.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    task::{Context, Poll, ready},
};

use rustix::io::Errno;

use super::{local::Local, ring::Watch};

/// A descriptor, polled for as long as it is held. Closed on drop.
pub(super) struct Source {
    local: Rc<Local>,
    watch: Watch,
    /// None once it was given up.
    fd: Option<OwnedFd>,
}

impl Source {
    /// Polls a descriptor, which must be set not to block, on this thread's executor.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        let local = Local::here();
        let watch = local.ring.borrow_mut().watch(fd.as_fd())?;
        Ok(Self { local, watch, fd: Some(fd) })
    }

    /// Gives the descriptor up, open.
    pub(super) fn give_up(&mut self) -> OwnedFd {
        self.fd.take().expect("a source holds a descriptor until it is given up")
    }

    /// The descriptor, if it was not given up.
    pub(super) fn held(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Calls `read` when there may be something to read, until it reads something or fails. `wanted` is what it reads
    /// at most: less says that there is no more for now.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut read: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.local.ring.borrow_mut().poll_read(self.watch, cx));
            match read(self.as_fd()) {
                Ok(n) => {
                    if n < wanted {
                        self.local.ring.borrow_mut().read_all(self.watch);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(Errno::AGAIN) => {
                    if !self.local.ring.borrow_mut().read_all(self.watch) {
                        // It has ended, and yet there is nothing: nothing will come that would wake the task.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Calls `write` when there may be room, until it writes something or fails.
    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match write(self.as_fd()) {
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(Errno::AGAIN) => {
                    let mut ring = self.local.ring.borrow_mut();
                    ring.no_room(self.watch);
                    ready!(ring.poll_write(self.watch, cx));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Waits until it may be written to.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.local.ring.borrow_mut().poll_write(self.watch, cx)
    }

    /// Whether a read may find something, as far as was heard.
    pub(super) fn may_read(&self) -> bool {
        self.local.ring.borrow().may_read(self.watch)
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held().expect("a source holds a descriptor until it is given up")
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.local.ring.borrow_mut().forget(self.watch);
    }
}
