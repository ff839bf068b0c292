//! One connection: bytes between its socket and the node.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    net::IpAddr,
    rc::Rc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use queen_fabric::rt::{Deadline, Notify, TcpStream};

use super::Role;
use crate::Connection;

/// Bytes read from a socket in one system call, into a buffer that all connections share.
pub(super) const SCRATCH_BYTES: usize = 64 << 10;

/// Reads of one connection before the others get their turn.
const READS_PER_TURN: usize = 4;

/// What the role knows of a connection.
pub(super) struct Socket {
    remote: IpAddr,
    is_to_own_host: bool,
    is_closed: Cell<bool>,
    /// The socket has taken all that there was to send.
    is_idle: Cell<bool>,
    wake: Notify,
}

impl Socket {
    pub(super) fn new(stream: &TcpStream) -> io::Result<Self> {
        let remote = stream.peer_addr()?.ip();
        Ok(Self {
            remote,
            is_to_own_host: stream.local_addr()?.ip() == remote,
            is_closed: Cell::new(false),
            is_idle: Cell::new(true),
            wake: Notify::new(),
        })
    }

    /// The other end.
    pub(super) fn remote(&self) -> IpAddr {
        self.remote.to_canonical()
    }

    /// Whether both ends are at the same address.
    pub(super) fn is_to_own_host(&self) -> bool {
        self.is_to_own_host
    }

    /// Whether the socket has taken all that there was to send, when it was last looked at.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.get()
    }

    /// There may be something to send, or room for what is read.
    pub(super) fn look(&self) {
        self.wake.notify();
    }

    /// It is to end, and the node knows.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        self.wake.notify();
    }
}

/// Serves a connection until either end closes it.
pub(super) async fn serve(role: Rc<Role>, connection: Connection, stream: TcpStream, socket: Rc<Socket>) {
    let patience = Duration::from_millis(role.config.node.dead_ms);
    let mut serving = Serving {
        role: Rc::clone(&role),
        connection,
        stream,
        out: Vec::new(),
        written: 0,
        patience,
        late: Deadline::new(),
    };
    poll_fn(|cx| serving.turn(cx, &socket)).await;
    drop(serving);
    if !socket.is_closed.get() {
        role.sockets.borrow_mut().remove(&connection);
        role.node.borrow_mut().closed(connection, role.now_ms());
        role.act();
    }
}

struct Serving {
    role: Rc<Role>,
    connection: Connection,
    stream: TcpStream,
    /// What the socket has not taken yet.
    out: Vec<u8>,
    written: usize,
    /// How long it may take nothing.
    patience: Duration,
    late: Deadline,
}

impl Serving {
    /// Ready when the connection has ended.
    fn turn(&mut self, cx: &mut Context<'_>, socket: &Socket) -> Poll<()> {
        // Asked first: whatever comes while this turn is under way wakes the task again.
        while socket.wake.poll_wait(cx).is_ready() {}
        if socket.is_closed.get() || self.write(cx).is_err() {
            return Poll::Ready(());
        }
        socket.is_idle.set(self.written == self.out.len());
        if self.late.poll(cx).is_ready() {
            self.role.node.borrow_mut().stalled(self.connection, self.role.now_ms());
            self.role.act();
            return Poll::Ready(());
        }
        for _ in 0..READS_PER_TURN {
            if self.role.is_behind() {
                return Poll::Pending;
            }
            match self.read(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(_)) => {}
            }
            if socket.is_closed.get() {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let role = &self.role;
        let read = {
            let mut scratch = role.scratch.borrow_mut();
            let read = std::task::ready!(self.stream.poll_read(cx, &mut scratch))?;
            role.node.borrow_mut().received(self.connection, &scratch[..read], role.now_ms());
            read
        };
        // What is to be answered is sent when the task is woken for it, which this does.
        role.act();
        Poll::Ready(Ok(read))
    }

    /// Writes what there is, as far as the socket takes it.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.written == self.out.len() {
                let role = &self.role;
                let next = role.node.borrow_mut().take_output(self.connection, role.now_ms());
                self.late.set(None);
                let Some(next) = next else { return Ok(()) };
                // Any frame puts the next heartbeat off.
                role.rearm.notify();
                (self.out, self.written) = (next, 0);
            }
            match self.stream.poll_write(cx, &self.out[self.written..]) {
                Poll::Ready(written) => {
                    self.written += written?;
                    self.late.set(None);
                }
                Poll::Pending => {
                    if self.late.at().is_none() {
                        self.late.set(Some(Instant::now() + self.patience));
                    }
                    return Ok(());
                }
            }
        }
    }
}
