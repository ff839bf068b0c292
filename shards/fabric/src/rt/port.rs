//! Making sure that a port is ours before several listeners share it.
//!
//! Listeners of one address share it with `SO_REUSEPORT`, and the kernel lets any other process of the same user join
//! them: a second broker would start without an error and take half of the connections. So the port is bound once
//! without that flag, which fails while anybody holds it, and held from then on.
//!
//! It is held by a socket that is bound and never listens: it gets no connections. `SO_REUSEPORT` is switched on after
//! the bind, which Linux allows, so that our own listeners may join it.

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
    let socket = plain_socket(address)?;
    // As the listeners have it: connections of the last process in TIME_WAIT do not hold the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    let bound = rustix::net::getsockname(&socket)?;
    let address = SocketAddr::try_from(bound).map_err(io::Error::other)?;
    Ok(ReservedPort { address, _socket: socket })
}
