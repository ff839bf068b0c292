//! From a host's name to its addresses, and to a connection.

use std::{
    future::poll_fn,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
    thread,
};

use super::net::TcpStream;

/// The addresses of a host, which may be an address itself. The system's resolver blocks: it runs on a thread that ends
/// with it.
///
/// # Errors
///
/// When there is none, or no thread.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    type Answer = (Option<io::Result<Vec<SocketAddr>>>, Option<Waker>);
    let answer: Arc<Mutex<Answer>> = Arc::default();
    let lock = |answer: &Mutex<Answer>, take: &mut dyn FnMut(&mut Answer)| {
        take(&mut answer.lock().unwrap_or_else(PoisonError::into_inner));
    };
    thread::Builder::new().name("queen-resolve".into()).spawn({
        let (host, answer) = (host.to_owned(), Arc::clone(&answer));
        move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            let mut found = Some(found);
            let mut waker = None;
            lock(&answer, &mut |(slot, waiting)| {
                *slot = found.take();
                waker = waiting.take();
            });
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    })?;
    poll_fn(|cx| {
        let mut found = None;
        lock(&answer, &mut |(slot, waiting)| {
            found = slot.take();
            *waiting = Some(cx.waker().clone());
        });
        found.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

impl TcpStream {
    /// Connects to the first address of a host that takes it.
    ///
    /// # Errors
    ///
    /// Of the resolver, or of the last address.
    pub async fn connect_to(host: &str, port: u16) -> io::Result<Self> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
        for address in resolve(host, port).await? {
            match Self::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = io::Error::new(error.kind(), format!("{address}: {error}")),
            }
        }
        Err(failure)
    }
}
