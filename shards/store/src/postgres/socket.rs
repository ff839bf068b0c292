//! The executor's streams as the client library reads and writes them.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use queen_fabric::rt::{TcpStream, UnixStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream to the server.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let read = ready!(match &mut *self {
            Self::Tcp(stream) => stream.poll_read(cx, room),
            Self::Unix(stream) => stream.poll_read(cx, room),
        })?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Tcp(stream) => stream.poll_write(cx, bytes),
            Self::Unix(stream) => stream.poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Dropping it ends both directions.
        Poll::Ready(Ok(()))
    }
}
