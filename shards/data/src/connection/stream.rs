//! A client's bytes: plain, or in TLS. Either way a read takes what is there and a write says how much has left.

use std::{
    io::{self, ErrorKind, IoSlice, Read, Write},
    net::Shutdown,
    task::{Context, Poll, Waker, ready},
};

use queen_fabric::rt::TcpStream;
use queen_wire::response::{self, Head};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::error::Code;

/// How a TLS connection begins: the type of a handshake record.
const HANDSHAKE: u8 = 0x16;

/// A connection's bytes.
pub(crate) enum Stream {
    /// As they are on the wire.
    Plain(TcpStream),
    /// In TLS.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Bytes in TLS from a client, its handshake still to come.
    pub(crate) fn tls(tcp: TcpStream, session: ServerConnection) -> Self {
        Self::Tls(Box::new(TlsStream { tcp, session: session.into(), taken: 0, begun: false }))
    }

    /// Bytes in TLS to a server, the handshake still to come.
    pub(crate) fn tls_to(tcp: TcpStream, session: ClientConnection) -> Self {
        Self::Tls(Box::new(TlsStream { tcp, session: session.into(), taken: 0, begun: true }))
    }

    /// Whether the client has yet to finish a TLS handshake: nothing can be said to it.
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.session.is_handshaking(),
        }
    }

    /// Reads what is there into `buffer`; 0 is the end of what the client sends.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_read(cx, buffer),
            Self::Tls(tls) => tls.poll_read(cx, buffer),
        }
    }

    /// Writes some of `bytes` and says how many of them the socket has. Pending, it is to be called again with the same
    /// bytes: in TLS some of them may be on their way already.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_write(cx, bytes),
            Self::Tls(tls) => tls.poll_write(cx, bytes),
        }
    }

    /// Reads what the kernel has at this moment, without waiting for more: `None` where that is nothing.
    pub(super) fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Plain(tcp) => receive_now(tcp, buffer),
            Self::Tls(tls) => tls.read_now(buffer),
        }
    }

    /// Says that nothing more will be sent.
    pub(super) fn finish(&mut self) {
        match self {
            Self::Plain(tcp) => shut(tcp),
            Self::Tls(tls) => tls.finish(),
        }
    }
}

/// What the client may still send is of no interest, and gone already is just as well.
fn shut(tcp: &TcpStream) {
    let _told_or_gone = tcp.shutdown(Shutdown::Write);
}

/// What the kernel has seen counts, also where nobody has heard of it yet.
fn receive_now(tcp: &TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    if !tcp.may_read_now() {
        return Ok(None);
    }
    match rustix::net::recv(tcp, buffer, RecvFlags::DONTWAIT) {
        Ok((n, _)) => Ok(Some(n)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The broker's end of a TLS connection.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    session: Connection,
    /// Plain bytes that the session has taken from the caller and not all sent.
    taken: usize,
    /// What came first was the beginning of a handshake, or nobody has to look: a server sends nothing else.
    begun: bool,
}

impl TlsStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(n) = self.plain(buffer)? {
                return Poll::Ready(Ok(n));
            }
            // Answers of the handshake go out before more is read.
            ready!(self.poll_flush(cx))?;
            let records = self.session.read_tls(&mut Records { tcp: &mut self.tcp, cx, begun: &mut self.begun });
            match self.took(records) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                taken => taken?,
            }
        }
    }

    fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            if let Some(n) = self.plain(buffer)? {
                return Ok(Some(n));
            }
            let records = self.session.read_tls(&mut RecordsNow(&self.tcp));
            match self.took(records) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                taken => taken?,
            }
        }
    }

    /// Plain bytes that have been deciphered; `None` where more records are needed for some.
    fn plain(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.session.reader().read(buffer) {
            Ok(n) => Ok(Some(n)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => Ok(None),
                // The end of the connection without TLS's own word for it: HTTP knows where its messages end.
                ErrorKind::UnexpectedEof => Ok(Some(0)),
                _ => Err(error),
            },
        }
    }

    /// Has the session look at records that it has taken in.
    fn took(&mut self, records: io::Result<usize>) -> io::Result<()> {
        records?;
        if let Err(error) = self.session.process_new_packets() {
            // The alert that says why, as far as the socket takes it.
            let _sent = self.flush_now();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.taken == 0 {
            self.taken = self.session.writer().write(bytes)?;
        }
        ready!(self.poll_flush(cx))?;
        Poll::Ready(Ok(std::mem::take(&mut self.taken)))
    }

    /// Sends what the session has ready.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Records { tcp: &mut self.tcp, cx, begun: &mut self.begun }) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what the socket takes at once; for last words, after which the connection is not waited for.
    fn flush_now(&mut self) -> io::Result<()> {
        match self.poll_flush(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    fn finish(&mut self) {
        self.session.send_close_notify();
        let _told_or_gone = self.flush_now();
        shut(&self.tcp);
    }
}

/// The socket as a session reads and writes it.
struct Records<'s, 'c, 'w> {
    tcp: &'s mut TcpStream,
    cx: &'c mut Context<'w>,
    begun: &'s mut bool,
}

/// As the standard traits say it.
fn or_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

impl Read for Records<'_, '_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = or_would_block(self.tcp.poll_read(self.cx, buffer))?;
        if !*self.begun && n > 0 {
            if buffer[0] != HANDSHAKE && buffer[0].is_ascii_alphabetic() {
                turn_away(self.tcp);
                return Err(ErrorKind::InvalidData.into());
            }
            *self.begun = true;
        }
        Ok(n)
    }
}

impl Write for Records<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_would_block(self.tcp.poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(self.tcp.poll_write_vectored(self.cx, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket, read without waiting.
struct RecordsNow<'s>(&'s TcpStream);

impl Read for RecordsNow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        receive_now(self.0, buffer)?.ok_or_else(|| ErrorKind::WouldBlock.into())
    }
}

/// Tells a client that speaks plain HTTP, in plain HTTP, what this port speaks, as far as the socket takes it at once.
fn turn_away(tcp: &TcpStream) {
    let mut body = Vec::new();
    response::append_error(&mut body, "This port speaks TLS: use https://", Code::TlsRequired.word());
    let head = Head { keep_alive: false, ..Head::json(Code::TlsRequired.status()) };
    let mut out = Vec::new();
    response::write(&mut out, &head, &body);
    let _told_or_gone = rustix::net::send(tcp, &out, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    shut(tcp);
}
