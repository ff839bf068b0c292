//! Accepts connections on this shard's own listener; the kernel spreads them over the shards.

use std::{net::Shutdown, rc::Rc, time::Duration};

use queen_fabric::rt::{self, TcpListener, TcpStream};
use queen_wire::response::{self, Head};
use rustix::net::SendFlags;

use crate::{
    connection::{self, Stream},
    error::Code,
    shard::Shard,
};

/// The pause after an accept that failed for want of descriptors or memory, doubled up to the second figure.
const BACK_OFF_MIN: Duration = Duration::from_millis(10);
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

/// Accepts until it is cancelled.
pub(crate) async fn run(shard: Rc<Shard>, listener: TcpListener) {
    let mut back_off = BACK_OFF_MIN;
    loop {
        match listener.accept().await {
            Ok(stream) => {
                back_off = BACK_OFF_MIN;
                welcome(&shard, stream);
            }
            Err(error) => {
                if shard.metrics.accept_failed() {
                    tracing::warn!(shard = shard.id(), %error, "cannot accept connections; trying again");
                }
                rt::sleep(back_off).await;
                back_off = (back_off * 2).min(BACK_OFF_MAX);
            }
        }
    }
}

fn welcome(shard: &Rc<Shard>, stream: TcpStream) {
    let Some(seat) = Seat::take(shard) else {
        shard.metrics.connection_refused();
        // In TLS nothing can be said before a handshake, and that is work.
        if shard.node.tls.is_none() {
            turn_away(stream);
        }
        return;
    };
    let stream = match &shard.node.tls {
        None => Stream::Plain(stream),
        Some(tls) => match tls.accept() {
            Ok(session) => Stream::tls(stream, session),
            Err(error) => {
                tracing::error!(%error, "a TLS connection cannot be served");
                return;
            }
        },
    };
    shard.metrics.connection_accepted();
    let shard = Rc::clone(shard);
    // A node that stops takes peers' links alone.
    let late = shard.node.is_stopping().then(|| Late::new(&shard));
    rt::spawn_local(async move {
        connection::serve(shard, stream, late).await;
        drop(seat);
    })
    .detach();
}

/// Tells a client that the node is full, as far as the socket takes it at once.
fn turn_away(stream: TcpStream) {
    let mut body = Vec::new();
    response::append_error(
        &mut body,
        "The node holds as many connections as QUEEN_HTTP_MAX_CONNECTIONS allows; try again",
        Code::Overloaded.word(),
    );
    let head = Head {
        keep_alive: false,
        retry_after_s: Code::Overloaded.retry_after_s(),
        ..Head::json(Code::Overloaded.status())
    };
    let mut out = Vec::new();
    response::write(&mut out, &head, &body);
    // Best effort: a client that does not take it learns as much from the end of the connection.
    let _ = rustix::net::send(&stream, &out, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    let _ = stream.shutdown(Shutdown::Write);
}

/// The mark of a connection that came while the node stops, and is no peer link yet: nobody waits for its end.
pub(crate) struct Late {
    shard: Rc<Shard>,
}

impl Late {
    fn new(shard: &Rc<Shard>) -> Self {
        shard.late.set(shard.late.get() + 1);
        Self { shard: Rc::clone(shard) }
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.shard.late.set(self.shard.late.get() - 1);
    }
}

/// A connection's place among those that the node may hold.
struct Seat {
    shard: Rc<Shard>,
}

impl Seat {
    fn take(shard: &Rc<Shard>) -> Option<Self> {
        shard.connections.try_take(&shard.node.connections, 1).then(|| Self { shard: Rc::clone(shard) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shard.connections.give(&self.shard.node.connections, 1);
    }
}
