//! Making sure that a port is ours before several listeners share it.
//!
//! Listeners of one address share it with `SO_REUSEPORT`, and the kernel lets any other process of the same user join
//! them: a second broker would start without an error and take half of the connections. So the port is bound once
//! without that flag, which fails while anybody holds it, and held from then on.
//!
//! It is held by a socket that is bound and never listens: it gets no connections. `SO_REUSEPORT` is switched on after
//! the bind, which Linux allows, so that our own listeners may join it.
//!
//! Connections of a process that has just ended, in `TIME_WAIT`, keep a port from being bound unless `SO_REUSEADDR` is
//! set, and with it set, two sockets that do not listen may hold one port. So the first try is without, and only when
//! that fails a second one is made with it: that still fails while anybody listens, but two brokers that start at the
//! same moment, within a minute of the end of a third one, may not see each other.

use std::{io, net::SocketAddr, os::fd::OwnedFd};

use rustix::net::sockopt;

use super::net::plain_socket;

/// A port that nobody else held when it was reserved. Keep it until the listeners are bound.
#[must_use = "dropped, the port is free for others"]
pub struct ReservedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ReservedPort {
    /// The address to bind the listeners to, with the port that the kernel gave if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Reserves the port of `address`; port 0 lets the kernel choose one.
///
/// # Errors
///
/// `EADDRINUSE` when somebody holds it, or of `socket`, `bind` and `getsockname`.
pub fn reserve_port(address: SocketAddr) -> io::Result<ReservedPort> {
    let socket = bound(address, HeldBy::Nobody).or_else(|error| match error.kind() {
        io::ErrorKind::AddrInUse => bound(address, HeldBy::EndedConnections),
        _ => Err(error),
    })?;
    sockopt::set_socket_reuseport(&socket, true)?;
    let bound = rustix::net::getsockname(&socket)?;
    let address = SocketAddr::try_from(bound).map_err(io::Error::other)?;
    Ok(ReservedPort { address, _socket: socket })
}

/// Who may hold an address that is bound all the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldBy {
    Nobody,
    EndedConnections,
}

fn bound(address: SocketAddr, held_by: HeldBy) -> io::Result<OwnedFd> {
    let socket = plain_socket(address)?;
    sockopt::set_socket_reuseaddr(&socket, held_by == HeldBy::EndedConnections)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}
