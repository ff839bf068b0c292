//! Sockets: a TCP listener per shard and the streams it accepts.

use std::{
    io::{self, IoSlice},
    net::{Shutdown, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll},
};

use glommio::net as glommio_net;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

/// Connections that the kernel keeps ready to be accepted. The kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Accepts connections for one shard. Every shard has one on the same address; the kernel spreads new connections over
/// them (`SO_REUSEPORT`).
pub struct TcpListener(glommio_net::TcpListener);

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
        // SAFETY: the descriptor is an owned, listening, non-blocking socket, and ownership moves into the listener.
        Ok(Self(unsafe { glommio_net::TcpListener::from_raw_fd(socket.into_raw_fd()) }))
    }

    /// The next connection, with nodelay set.
    ///
    /// # Errors
    ///
    /// Of `accept`. `EMFILE` and `ENFILE` say that no descriptor is left: back off before the next call. `ECONNABORTED`
    /// says that the client is gone already.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        // An accepted handle does not close on drop: it becomes a stream, which does, at once.
        self.0.poll_shared_accept(cx).map(|accepted| {
            let stream = TcpStream(accepted?.bind_to_executor());
            stream.set_nodelay(true)?;
            Ok(stream)
        })
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
        Ok(self.0.local_addr()?)
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
pub struct TcpStream(glommio_net::TcpStream);

impl TcpStream {
    /// Connects to `address`, with nodelay set.
    ///
    /// # Errors
    ///
    /// Of `socket`, `connect` or `setsockopt`.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = Self(glommio_net::TcpStream::connect(address).await?);
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Takes over a connection that another executor gave up with [`into_fd`](Self::into_fd).
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        // SAFETY: the descriptor is owned, and ownership moves into the stream.
        Self(unsafe { glommio_net::TcpStream::from_raw_fd(fd.into_raw_fd()) })
    }

    /// Gives the connection up, open, for another executor.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        // SAFETY: into_raw_fd gives up ownership of an open descriptor.
        unsafe { OwnedFd::from_raw_fd(self.0.into_raw_fd()) }
    }

    /// Reads what is there into `buffer`; 0 is the end of what the peer sends. When there is nothing, the task is woken
    /// as soon as there may be.
    ///
    /// # Errors
    ///
    /// Of `recv`.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        futures_io::AsyncRead::poll_read(Pin::new(&mut self.0), cx, buffer)
    }

    /// Writes as much of `bytes` as the socket takes. Pending when it takes nothing.
    ///
    /// # Errors
    ///
    /// Of `send`.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        futures_io::AsyncWrite::poll_write(Pin::new(&mut self.0), cx, bytes)
    }

    /// [`poll_write`](Self::poll_write) for several slices in one system call.
    ///
    /// # Errors
    ///
    /// Of `sendmsg`.
    pub fn poll_write_vectored(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        futures_io::AsyncWrite::poll_write_vectored(Pin::new(&mut self.0), cx, slices)
    }

    /// Whether small writes leave at once.
    ///
    /// # Errors
    ///
    /// Of `setsockopt`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        Ok(self.0.set_nodelay(nodelay)?)
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

    /// The other end's address.
    ///
    /// # Errors
    ///
    /// Of `getpeername`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.peer_addr()?)
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the stream owns the descriptor and keeps it open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}
