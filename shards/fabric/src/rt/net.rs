//! Sockets: a TCP listener per shard and the streams it accepts, TCP and unix-domain streams to others.

use std::{
    io::{self, IoSlice},
    net::{Shutdown, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, ipproto,
        sockopt,
    },
};

use super::{local, source::Source};

/// Connections that the kernel keeps ready to be accepted. The kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A peer that is gone is an error of the write, not a signal.
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Accepts connections for one shard. Every shard has one on the same address; the kernel spreads new connections over
/// them (`SO_REUSEPORT`).
pub struct TcpListener(Source);

impl TcpListener {
    /// Listens at `address`, IPv4 or IPv6, beside any other listener of this user there that does so. See
    /// [`reserve_port`](super::reserve_port) for who else may hold it.
    ///
    /// # Errors
    ///
    /// Of `socket`, `setsockopt`, `bind` or `listen`.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = reuse_port_socket(address)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self(Source::new(socket)?))
    }

    /// The next connection, with nodelay set.
    ///
    /// # Errors
    ///
    /// Of `accept`. `EMFILE` and `ENFILE` say that no descriptor is left: back off before the next call. `ECONNABORTED`
    /// says that the client is gone already.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let mut accepted = None;
        // One that was accepted says nothing of whether there are more: what is read counts as all that was wanted.
        let accept = |listener: BorrowedFd<'_>| {
            accepted = Some(rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?);
            Ok(1)
        };
        ready!(self.0.poll_read(cx, 1, accept))?;
        Poll::Ready(TcpStream::new(accepted.expect("it was accepted")))
    }

    /// [`poll_accept`](Self::poll_accept) as a future.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The address that it listens at.
    ///
    /// # Errors
    ///
    /// Of `getsockname`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        SocketAddr::try_from(rustix::net::getsockname(self.0.as_fd())?).map_err(io::Error::other)
    }
}

/// A non-blocking TCP socket that may share its address with others like it.
pub(super) fn reuse_port_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = plain_socket(address)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    // After a crash, connections of the last process in TIME_WAIT must not keep the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

/// A non-blocking TCP socket of the address's family.
pub(super) fn plain_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?)
}

/// A connection. Closed on drop.
///
/// Reads go straight into the caller's buffer, without one of its own: what waits for bytes holds no buffer, and a
/// shard can read all of its connections into one scratch buffer.
pub struct TcpStream(Source);

impl TcpStream {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        sockopt::set_tcp_nodelay(&socket, true)?;
        Ok(Self(Source::new(socket)?))
    }

    /// Connects to `address`, with nodelay set.
    ///
    /// # Errors
    ///
    /// Of `socket`, `connect` or `setsockopt`.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = plain_socket(address)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Self::new(socket),
            Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = Self::new(socket)?;
        std::future::poll_fn(|cx| stream.0.poll_writable(cx)).await;
        sockopt::socket_error(stream.0.as_fd())??;
        Ok(stream)
    }

    /// Takes over a connection that another executor gave up with [`into_fd`](Self::into_fd).
    ///
    /// # Errors
    ///
    /// When the executor's ring takes no more descriptors.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(Source::new(fd)?))
    }

    /// Gives the connection up, open, for another executor.
    #[must_use]
    pub fn into_fd(mut self) -> OwnedFd {
        self.0.give_up()
    }

    /// Reads what is there into `buffer`; 0 is the end of what the peer sends. When there is nothing, the task is woken
    /// as soon as there may be.
    ///
    /// # Errors
    ///
    /// Of `recv`.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let wanted = buffer.len();
        self.0.poll_read(cx, wanted, |fd| Ok(rustix::net::recv(fd, &mut *buffer, RecvFlags::DONTWAIT)?.0))
    }

    /// Whether a read may find something, the end of what the peer sends included: asks the kernel what it has heard of
    /// up to now.
    #[must_use]
    pub fn may_read_now(&self) -> bool {
        self.0.may_read() || {
            local::look_now();
            self.0.may_read()
        }
    }

    /// Writes as much of `bytes` as the socket takes. Pending when it takes nothing.
    ///
    /// # Errors
    ///
    /// Of `send`.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, |fd| rustix::net::send(fd, bytes, SEND))
    }

    /// [`poll_write`](Self::poll_write) for several slices in one system call.
    ///
    /// # Errors
    ///
    /// Of `sendmsg`.
    pub fn poll_write_vectored(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, |fd| rustix::net::sendmsg(fd, slices, &mut SendAncillaryBuffer::default(), SEND))
    }

    /// Whether small writes leave at once.
    ///
    /// # Errors
    ///
    /// Of `setsockopt`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        Ok(sockopt::set_tcp_nodelay(self.as_fd(), nodelay)?)
    }

    /// Has the kernel look after a peer that says nothing for `idle`, and give it up after some more of that.
    ///
    /// # Errors
    ///
    /// Of `setsockopt`.
    pub fn set_keepalive(&self, idle: Duration) -> io::Result<()> {
        const PROBES: u32 = 3;
        sockopt::set_socket_keepalive(self.as_fd(), true)?;
        sockopt::set_tcp_keepidle(self.as_fd(), idle)?;
        sockopt::set_tcp_keepintvl(self.as_fd(), idle)?;
        sockopt::set_tcp_keepcnt(self.as_fd(), PROBES)?;
        // Bytes that are sent and not acknowledged stop the probes: they are given up after the same time.
        let patience_ms = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX).saturating_mul(PROBES + 1);
        Ok(sockopt::set_tcp_user_timeout(self.as_fd(), patience_ms)?)
    }

    /// Ends one or both directions, now.
    ///
    /// # Errors
    ///
    /// Of `shutdown`; `ENOTCONN` when the peer is gone already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => rustix::net::Shutdown::Read,
            Shutdown::Write => rustix::net::Shutdown::Write,
            Shutdown::Both => rustix::net::Shutdown::Both,
        };
        Ok(rustix::net::shutdown(self.as_fd(), how)?)
    }

    /// This end's address.
    ///
    /// # Errors
    ///
    /// Of `getsockname`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        SocketAddr::try_from(rustix::net::getsockname(self.as_fd())?).map_err(io::Error::other)
    }

    /// The other end's address.
    ///
    /// # Errors
    ///
    /// Of `getpeername`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let address = rustix::net::getpeername(self.as_fd())?.ok_or(Errno::NOTCONN)?;
        SocketAddr::try_from(address).map_err(io::Error::other)
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        // The ring keeps the socket open until its next turn: its end is told at once. Gone already is just as well.
        if let Some(socket) = self.0.held() {
            let _told_or_gone = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A connection to a unix-domain socket. Closed on drop.
pub struct UnixStream(Source);

impl UnixStream {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// Of `socket` or `connect`; `EAGAIN` when too many wait to be accepted there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(Source::new(socket)?))
    }

    /// As [`TcpStream::poll_read`].
    ///
    /// # Errors
    ///
    /// Of `recv`.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let wanted = buffer.len();
        self.0.poll_read(cx, wanted, |fd| Ok(rustix::net::recv(fd, &mut *buffer, RecvFlags::DONTWAIT)?.0))
    }

    /// As [`TcpStream::poll_write`].
    ///
    /// # Errors
    ///
    /// Of `send`.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, |fd| rustix::net::send(fd, bytes, SEND))
    }
}

impl Drop for UnixStream {
    fn drop(&mut self) {
        if let Some(socket) = self.0.held() {
            let _told_or_gone = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}
