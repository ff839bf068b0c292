//! One connection: bytes in, events to its role, what the role starts out again in one write.
//!
//! When it is lost, what was under way is counted as failed and it is opened again, later each time, for as long as the
//! run goes on.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use queen_fabric::rt::{Notify, TcpStream, monotonic_ns, sleep};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};

use super::{
    core::{Core, Local},
    role::{Loss, Role},
};
use crate::driver::{Driver, Event, Owed};

/// Reads that a connection may take in a row before others get their turn.
const TURNS: usize = 8;

/// The first pause before a lost connection is opened again, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// One connection of a run.
pub(super) struct Connection {
    local: Rc<Local>,
    seat: usize,
    notify: Rc<Notify>,
    driver: Box<dyn Driver>,
    role: Box<dyn Role>,
    /// Bytes of an answer that is not complete.
    input: Vec<u8>,
    out: Vec<u8>,
    /// How many bytes of `out` have left.
    written: usize,
    /// The driver's greeting is not answered.
    is_greeting: bool,
    /// It has never let its role send.
    is_fresh: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.on_end();
    }
}

impl Connection {
    pub(super) fn new(local: &Rc<Local>, seat: usize, driver: Box<dyn Driver>, role: Box<dyn Role>) -> Self {
        let notify = Rc::clone(&local.core.borrow().seats[seat].notify);
        Self {
            local: Rc::clone(local),
            seat,
            notify,
            driver,
            role,
            input: Vec::new(),
            out: Vec::new(),
            written: 0,
            is_greeting: false,
            is_fresh: false,
        }
    }

    /// Works on `stream`, and on its successors at the same address, until it is cancelled.
    pub(super) async fn work(mut self, stream: TcpStream, address: SocketAddr) {
        let mut stream = stream.into_fd();
        let mut pause = PAUSE_MIN;
        loop {
            self.open();
            let opened_ns = monotonic_ns();
            let loss = match self.local.sockets.add(&stream, self.seat as u64) {
                Ok(()) => poll_fn(|cx| self.poll(cx, &stream)).await,
                Err(_) => Loss::Disconnected,
            };
            drop(stream);
            self.on_loss(loss);
            if Duration::from_nanos(monotonic_ns() - opened_ns) > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
            stream = loop {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                match TcpStream::connect(address).await {
                    Ok(stream) => break stream.into_fd(),
                    Err(_) => self.fail("not_connected"),
                }
            };
        }
    }

    fn open(&mut self) {
        self.input.clear();
        self.out.clear();
        self.written = 0;
        self.is_greeting = self.driver.greet(&mut self.out) == Owed::Answer;
        self.is_fresh = true;
    }

    fn on_loss(&mut self, loss: Loss) {
        let local = Rc::clone(&self.local);
        let core = &mut *local.core.borrow_mut();
        core.set_now(monotonic_ns());
        let requests = self.role.on_loss(loss, core);
        core.recorder.failed(loss.code(), core.now_ns, requests.max(1));
        core.leave_lines(self.seat);
        self.report(core);
        local.notify_timer(core);
    }

    /// Counts what the end of the run has left without an answer. That is no loss of messages: they may be there.
    fn on_end(&mut self) {
        let local = Rc::clone(&self.local);
        let core = &mut *local.core.borrow_mut();
        let requests = self.role.on_loss(Loss::Timeout, core);
        if core.seats[self.seat].paced {
            core.recorder.failed("unanswered", core.now_ns, requests);
        }
    }

    fn fail(&self, code: &str) {
        let core = &mut *self.local.core.borrow_mut();
        core.set_now(monotonic_ns());
        core.recorder.failed(code, core.now_ns, 1);
    }

    /// Reads, lets the role act and writes, until nothing more can be done without waiting. Ready when it is lost.
    fn poll(&mut self, cx: &mut Context<'_>, stream: &OwnedFd) -> Poll<Loss> {
        let local = Rc::clone(&self.local);
        for _ in 0..TURNS {
            let has_read = match self.read(stream, &local) {
                Ok(has_read) => has_read,
                Err(loss) => return Poll::Ready(loss),
            };
            let is_woken = self.notify.poll_wait(cx).is_ready();
            {
                let core = &mut *local.core.borrow_mut();
                if std::mem::take(&mut core.seats[self.seat].expired) {
                    return Poll::Ready(Loss::Timeout);
                }
                if !self.is_greeting && (has_read || is_woken || self.is_fresh) {
                    if !has_read {
                        core.set_now(monotonic_ns());
                    }
                    self.is_fresh = false;
                    self.role.send(&mut *self.driver, &mut self.out, core);
                }
                local.notify_timer(core);
            }
            let Ok(is_written) = self.write(stream) else { return Poll::Ready(Loss::Disconnected) };
            if !has_read && !is_woken {
                let core = &mut *local.core.borrow_mut();
                core.seats[self.seat].started |= is_written && !self.is_fresh;
                self.report(core);
                return Poll::Pending;
            }
        }
        self.report(&mut local.core.borrow_mut());
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Tells the executor what it has to know to end the run, and to give up on an answer.
    fn report(&self, core: &mut Core) {
        let seat = &mut core.seats[self.seat];
        seat.gives_up_at_ns = self.role.gives_up_at_ns();
        seat.busy = self.role.is_busy();
        seat.exhausted = self.role.is_exhausted();
    }

    /// Reads once, if there may be something, and hands what is complete to the role. False when nothing was there.
    fn read(&mut self, stream: &OwnedFd, local: &Local) -> Result<bool, Loss> {
        let core = &mut *local.core.borrow_mut();
        if !core.seats[self.seat].readable {
            return Ok(false);
        }
        let scratch = &mut **local.scratch.borrow_mut();
        let bytes = match rustix::net::recv(stream, &mut *scratch, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(Loss::Disconnected),
            Ok((bytes, _)) => bytes,
            Err(Errno::AGAIN) => {
                core.seats[self.seat].readable = false;
                return Ok(false);
            }
            Err(_) => return Err(Loss::Disconnected),
        };
        // A read that does not fill the buffer has emptied the socket: what comes after it is told of anew.
        core.seats[self.seat].readable = bytes == scratch.len();
        core.set_now(monotonic_ns());
        let (driver, role, is_greeting) = (&mut *self.driver, &mut *self.role, &mut self.is_greeting);
        let mut on_event = |event: Event<'_>| match event {
            Event::Answered { .. } if *is_greeting => *is_greeting = false,
            event => role.on_event(event, core),
        };
        let read = &scratch[..bytes];
        let decoded = if self.input.is_empty() {
            driver.decode(read, &mut on_event).map(|taken| self.input.extend_from_slice(&read[taken..]))
        } else {
            self.input.extend_from_slice(read);
            driver.decode(&self.input, &mut on_event).map(|taken| drop(self.input.drain(..taken)))
        };
        decoded.map(|()| true).map_err(|_| Loss::Garbled)
    }

    /// Writes what the role has started. False when the socket has no room for it now.
    fn write(&mut self, stream: &OwnedFd) -> io::Result<bool> {
        while self.written < self.out.len() {
            match rustix::net::send(stream, &self.out[self.written..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => self.written += bytes,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(true)
    }
}
