//! One client's connection: bytes in, requests served in order, bytes out.
//!
//! The loop reads into a buffer that the whole shard shares, serves every request that is complete in it, and sends
//! all their responses in one write. A connection keeps bytes of its own only for a request that is not complete,
//! for what was read ahead while a response is awaited, and for a response that the socket did not take at once.

mod exchange;
mod held;
mod later;
mod out;
mod stream;

use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Instant,
};

use queen_ephemeral::Millis;
use queen_fabric::rt;
use queen_wire::http::{CONTINUE, Decoded, Decoder, HttpError, Phase};

pub(crate) use self::{
    exchange::{Exchange, Part},
    later::{Later, Operation, Outcome, ParkedPermit, Waiting, Waits},
    out::{Buffers, Frame, Out},
    stream::Stream,
};
use self::{held::Held, out::Handed};
use crate::{
    cluster, dispatch::Handled, error::ApiError, listener::Late, outlet::render_empty, shard::Shard, timers::Slot,
};

/// Bytes read ahead while a pop is parked, so that its client's going is seen; more than this closes the connection.
const READ_AHEAD_BYTES: usize = 16 * 1024;

/// The answer to a peer that asks for its link.
const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: queen-peer/1\r\n\r\n";

/// Reads that one connection may take in a row before others get their turn.
const READS_PER_TURN: usize = 8;

/// Once so many response bytes wait, they are written before another pipelined request is served.
const FLUSH_BYTES: usize = 256 * 1024;

/// A connection's own buffer is charged to the node's budget in steps of this size.
const BUFFER_STEP_BYTES: usize = 64 * 1024;

/// A request body has to make this many bytes of progress a millisecond, on top of the header timeout: 1 KB/s.
const BODY_BYTES_PER_MS: u64 = 1;

/// Serves a connection until one side ends it. A late one is a peer link's or nobody's.
pub(crate) async fn serve(shard: Rc<Shard>, stream: Stream, late: Option<Late>) {
    let mut connection = Connection::new(&shard, stream, late);
    loop {
        match poll_fn(|cx| connection.poll_serve(cx)).await {
            Turn::Wait(later) => {
                if connection.wait(*later).await.is_err() {
                    return;
                }
            }
            Turn::Hold(held) => {
                if connection.hold(*held).await.is_err() {
                    return;
                }
            }
            Turn::Upgrade => {
                let early = std::mem::take(&mut connection.input);
                connection.slot.disarm();
                shard.peer_links.set(shard.peer_links.get() + 1);
                drop(connection.late.take());
                cluster::serve(&shard, &mut connection.stream, early).await;
                shard.peer_links.set(shard.peer_links.get() - 1);
                return;
            }
            Turn::Close => {
                // A response that says «close» is out.
                connection.stream.finish();
                return;
            }
            Turn::Gone => return,
        }
    }
}

/// What the connection has to do next.
enum Turn {
    /// Wait for a response, with one eye on the socket.
    Wait(Box<Later>),
    /// Wait for what decides about a request.
    Hold(Box<Held>),
    /// Speak the peer link's protocol on it from here on.
    Upgrade,
    /// End it in order.
    Close,
    /// The other side is gone already.
    Gone,
}

/// The client is gone, or as good as.
struct Gone;

/// What came of serving: something to wait for, or nothing more for now.
type Served = Result<Option<Awaited>, Gone>;

/// What the last request that was served waits for.
enum Awaited {
    /// Its response.
    Later(Box<Later>),
    /// What decides about it.
    Held(Box<Held>),
}

/// What comes after the requests that were complete.
enum Next {
    /// More bytes are needed.
    Read,
    /// The responses should leave before more are made.
    Flush,
    /// The last request's response has to be waited for, or what decides about it.
    Wait(Awaited),
    /// The connection speaks another protocol from here on.
    Upgrade,
    /// The last response ends the connection.
    Close,
}

struct Connection {
    shard: Rc<Shard>,
    stream: Stream,
    decoder: Decoder,
    /// Bytes read and not yet served.
    input: Vec<u8>,
    /// Whether `input` may hold a whole request that nobody has looked at.
    fresh: bool,
    /// It came while the node stops.
    late: Option<Late>,
    /// The client has sent its last byte.
    eof: bool,
    /// The response that says so is on its way: after it, the connection ends.
    closing: bool,
    /// Once what is written is out, it speaks the peer link's protocol.
    upgrades: bool,
    /// What the socket did not take at once, or what was put off, and how much of it has left since.
    unsent: Vec<u8>,
    sent: usize,
    /// It is to be written at the end of this turn.
    put_off: bool,
    /// Claims on what is in `unsent`.
    handed: Vec<Handed>,
    /// When the current phase (idle, head, body, write) began.
    since_ms: Millis,
    phase: Activity,
    /// Bytes charged to the node's budget for unfinished requests.
    charged: usize,
    slot_key: usize,
    slot: Rc<Slot>,
}

/// What the connection's clock runs for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// Between requests.
    Idle,
    /// In the middle of one that is coming in, or of the handshake before the first.
    Request,
    /// The socket does not take a response.
    Write,
    /// A request is being served: no clock runs, and the next phase starts its own.
    Serving,
}

impl Connection {
    fn new(shard: &Rc<Shard>, stream: Stream, late: Option<Late>) -> Self {
        let (slot_key, slot) = shard.timers.add_slot();
        Self {
            stream,
            decoder: Decoder::new(),
            input: Vec::new(),
            fresh: false,
            late,
            eof: false,
            closing: false,
            upgrades: false,
            unsent: Vec::new(),
            sent: 0,
            put_off: false,
            handed: Vec::new(),
            since_ms: shard.now_ms(),
            phase: Activity::Idle,
            charged: 0,
            slot_key,
            slot,
            shard: Rc::clone(shard),
        }
    }

    /// Reads, serves and writes until a response has to be waited for or the connection ends.
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        for _ in 0..READS_PER_TURN {
            match self.poll_unsent(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Gone)) => return Poll::Ready(Turn::Gone),
                Poll::Pending => return self.pending(cx, Activity::Write),
            }
            if self.closing {
                return Poll::Ready(Turn::Close);
            }
            if self.upgrades {
                return Poll::Ready(Turn::Upgrade);
            }
            let served = if self.fresh {
                self.serve_input(cx)
            } else {
                if self.eof {
                    return Poll::Ready(Turn::Close);
                }
                match self.poll_read(cx) {
                    Poll::Ready(served) => served,
                    Poll::Pending => {
                        let between = self.decoder.phase() == Phase::Idle && self.input.is_empty();
                        let idle = between && !self.stream.is_handshaking();
                        let ends = self.shard.node.is_stopping() && self.late.is_none();
                        if (idle || self.stream.is_handshaking()) && ends {
                            return Poll::Ready(Turn::Close);
                        }
                        return self.pending(cx, if idle { Activity::Idle } else { Activity::Request });
                    }
                }
            };
            match served {
                Ok(None) => {}
                Ok(Some(Awaited::Later(later))) => return Poll::Ready(Turn::Wait(later)),
                Ok(Some(Awaited::Held(held))) => return Poll::Ready(Turn::Hold(held)),
                Err(Gone) => return Poll::Ready(Turn::Gone),
            }
        }
        // What was put off runs this task again at the end of the turn: a wake from here would come in its place, and
        // find the write put off still.
        if !std::mem::take(&mut self.put_off) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Notes until when the connection may stay as it is; ends it when that time has passed.
    fn pending(&mut self, cx: &mut Context<'_>, activity: Activity) -> Poll<Turn> {
        let now_ms = self.shard.now_ms();
        if self.phase != activity {
            self.phase = activity;
            self.since_ms = now_ms;
        }
        let config = &self.shard.node.config;
        let allowed_ms = match activity {
            Activity::Idle | Activity::Write | Activity::Serving => config.idle_timeout_ms,
            Activity::Request => {
                let received = match self.decoder.phase() {
                    Phase::Body { received_bytes } => received_bytes,
                    Phase::Idle | Phase::Head => 0,
                };
                config.header_timeout_ms + received / BODY_BYTES_PER_MS
            }
        };
        let due_ms = self.since_ms + allowed_ms;
        if now_ms < due_ms {
            self.slot.arm(due_ms, cx);
            return Poll::Pending;
        }
        if activity == Activity::Request && !self.stream.is_handshaking() {
            let shard = Rc::clone(&self.shard);
            let mut out = shard.out.borrow_mut();
            out.fail(&HttpError::Timeout);
            self.closing = true;
            if self.send(cx, &mut out).is_err() {
                return Poll::Ready(Turn::Gone);
            }
        }
        Poll::Ready(Turn::Close)
    }

    /// Writes what the socket did not take before.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        if std::mem::take(&mut self.put_off) {
            return Poll::Pending;
        }
        while self.sent < self.unsent.len() {
            match self.stream.poll_write(cx, &self.unsent[self.sent..]) {
                Poll::Ready(Ok(n)) => {
                    self.sent += n;
                    // Every byte taken restarts the clock: a slow reader is not a dead one.
                    self.since_ms = self.shard.now_ms();
                }
                Poll::Ready(Err(_)) => {
                    out::end_claims(&self.shard, self.handed.drain(..), self.sent);
                    return Poll::Ready(Err(Gone));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        if !self.unsent.is_empty() {
            out::end_claims(&self.shard, self.handed.drain(..), self.sent);
            self.shard.buffers.give(std::mem::take(&mut self.unsent));
            self.sent = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what the shard's buffer holds for this connection; keeps what the socket does not take.
    fn send(&mut self, cx: &mut Context<'_>, out: &mut Out) -> Result<(), Gone> {
        if out.is_empty() {
            return Ok(());
        }
        if !self.unsent.is_empty() {
            out.append_to(&mut self.unsent, &mut self.handed);
            return Ok(());
        }
        // Small answers of one turn leave together at its end: a client is woken once for several of them.
        if out.bytes().len() <= Buffers::BYTES_MAX && rt::put_off(cx) {
            self.put_off = true;
            self.unsent = self.shard.buffers.take();
            out.append_to(&mut self.unsent, &mut self.handed);
            return Ok(());
        }
        match self.stream.poll_write(cx, out.bytes()) {
            Poll::Ready(Ok(n)) if n == out.bytes().len() => {
                out::end_claims(&self.shard, out.handed(), n);
                out.clear();
                Ok(())
            }
            Poll::Ready(Err(_)) => {
                out::end_claims(&self.shard, out.handed(), 0);
                out.clear();
                Err(Gone)
            }
            partial => {
                self.sent = if let Poll::Ready(Ok(n)) = partial { n } else { 0 };
                out.append_to(&mut self.unsent, &mut self.handed);
                Ok(())
            }
        }
    }

    /// One read into the shard's buffer, and everything that can be served from it.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Served> {
        let shard = Rc::clone(&self.shard);
        let mut scratch = shard.scratch.borrow_mut();
        match ready!(self.stream.poll_read(cx, &mut scratch)) {
            Err(_) => Poll::Ready(Err(Gone)),
            Ok(0) => {
                self.eof = true;
                Poll::Ready(Ok(None))
            }
            Ok(n) if self.input.is_empty() => Poll::Ready(self.serve_bytes(cx, &scratch[..n])),
            Ok(n) => Poll::Ready(if self.keep(&scratch[..n]) { self.serve_input(cx) } else { self.refuse(cx) }),
        }
    }

    /// Serves what the connection has kept.
    fn serve_input(&mut self, cx: &mut Context<'_>) -> Served {
        let input = std::mem::take(&mut self.input);
        let (consumed, next) = self.serve_requests(cx, &input)?;
        self.input = input;
        self.discard(consumed);
        Ok(self.follow(next))
    }

    /// Serves bytes that lie in the shard's buffer, and keeps what is left of them.
    fn serve_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Served {
        let (consumed, next) = self.serve_requests(cx, bytes)?;
        if !self.keep(&bytes[consumed..]) {
            return self.refuse(cx);
        }
        Ok(self.follow(next))
    }

    /// Serves the complete requests at the start of `bytes` and sends their responses. How many bytes they took, and
    /// what comes next.
    fn serve_requests(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(usize, Next), Gone> {
        let shard = Rc::clone(&self.shard);
        let mut out = shard.out.borrow_mut();
        let mut consumed = 0;
        let mut started = Instant::now();
        let next = loop {
            match self.decoder.decode(&bytes[consumed..], &shard.limits) {
                Decoded::NeedMore { consumed: taken } => {
                    consumed += taken;
                    break Next::Read;
                }
                Decoded::ExpectContinue => {
                    out.append_raw(CONTINUE);
                    break Next::Read;
                }
                Decoded::Failed(error) => {
                    shard.metrics.malformed();
                    out.fail(&error);
                    break Next::Close;
                }
                Decoded::Request { request, consumed: taken } if shard.is_peer_link(&request) => {
                    out.append_raw(SWITCHING);
                    consumed += taken;
                    break Next::Upgrade;
                }
                // No client is taken any more.
                Decoded::Request { .. } if self.late.is_some() => break Next::Close,
                Decoded::Request { request, consumed: taken } => {
                    let keep_alive = request.keep_alive && !shard.node.is_stopping();
                    let (route, handled) = shard.handle(&request, started, &mut out);
                    consumed += taken;
                    // The clock of what comes next starts when it comes; a request that trickles in has but one.
                    self.phase = Activity::Serving;
                    let ended = Instant::now();
                    shard.metrics.observe_turn(route, ended - started);
                    match handled {
                        Handled::Later(later) => break Next::Wait(Awaited::Later(Box::new(later))),
                        Handled::Undecided { until } => match Held::take(&shard, &request, started, until) {
                            Ok(held) => break Next::Wait(Awaited::Held(Box::new(held))),
                            Err(error) => {
                                out.reply(&Frame::last(started), &error.into());
                                break Next::Close;
                            }
                        },
                        Handled::Done => shard.metrics.observe_request(route, ended - started),
                    }
                    started = ended;
                    if !keep_alive {
                        break Next::Close;
                    }
                    if out.bytes().len() >= FLUSH_BYTES {
                        break Next::Flush;
                    }
                }
            }
        };
        self.send(cx, &mut out)?;
        Ok((consumed, next))
    }

    /// Takes note of what comes after the requests that were served.
    fn follow(&mut self, next: Next) -> Option<Awaited> {
        self.fresh = false;
        match next {
            Next::Read => None,
            Next::Flush => {
                self.fresh = true;
                None
            }
            Next::Wait(awaited) => {
                self.fresh = !self.input.is_empty();
                Some(awaited)
            }
            Next::Upgrade => {
                self.upgrades = true;
                None
            }
            Next::Close => {
                self.closing = true;
                None
            }
        }
    }

    /// Keeps bytes for later, if the node may hold that much of unfinished requests.
    fn keep(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let needed = self.input.len() + bytes.len() + self.decoder.buffered_bytes();
        if needed > self.charged + BUFFER_STEP_BYTES {
            // Doubling, as the vector does, so that a large body is charged a few times only.
            let step = needed.next_power_of_two() - self.charged;
            if !self.shard.buffered.try_take(&self.shard.node.buffered, step as u64) {
                return false;
            }
            self.charged += step;
        }
        self.input.extend_from_slice(bytes);
        true
    }

    /// Forgets the first bytes of `input`; an empty connection holds no memory.
    fn discard(&mut self, consumed: usize) {
        if consumed < self.input.len() {
            self.input.drain(..consumed);
            return;
        }
        self.input = Vec::new();
        if self.decoder.buffered_bytes() == 0 {
            self.uncharge();
        }
    }

    fn uncharge(&mut self) {
        if self.charged > 0 {
            self.shard.buffered.give(&self.shard.node.buffered, self.charged as u64);
            self.charged = 0;
        }
    }

    /// The node has no memory for the rest of this request.
    fn refuse(&mut self, cx: &mut Context<'_>) -> Served {
        let error =
            ApiError::overloaded("The node holds as many unfinished requests as QUEEN_HTTP_MAX_BUFFERED_BYTES allows");
        let shard = Rc::clone(&self.shard);
        let mut out = shard.out.borrow_mut();
        out.reply(&Frame::last(Instant::now()), &error.into());
        self.fresh = false;
        self.closing = true;
        self.send(cx, &mut out)?;
        Ok(None)
    }

    /// Waits for a response that is being made, and writes it. While it waits it reads ahead, so that a client that
    /// goes is seen.
    async fn wait(&mut self, mut later: Later) -> Result<(), Gone> {
        self.flush().await?;
        self.slot.disarm();
        let answered = poll_fn(|cx| self.poll_later(cx, &mut later)).await;
        self.phase = Activity::Serving;
        answered
    }

    /// Writes what was served before: it has to leave before something is waited for.
    async fn flush(&mut self) -> Result<(), Gone> {
        poll_fn(|cx| match self.poll_unsent(cx) {
            Poll::Pending => self.pending(cx, Activity::Write).map(|_| Err(Gone)),
            ready => ready,
        })
        .await
    }

    fn poll_later(&mut self, cx: &mut Context<'_>, later: &mut Later) -> Poll<Result<(), Gone>> {
        loop {
            if let Poll::Ready(outcome) = later.operation.poll(cx) {
                return Poll::Ready(self.respond(cx, later, outcome));
            }
            match later.waits {
                // The work runs to its end whatever the client does: reading can wait.
                Waits::No => return Poll::Pending,
                Waits::ForStore if self.shard.node.is_stopping() => {
                    later.end_wait();
                    continue;
                }
                // Nothing is due: it is to be woken by a stop.
                Waits::ForStore => self.slot.arm(Millis::MAX, cx),
                // What waits at another node, or for one, ends here too. Those of this node end in its engines.
                Waits::ForMessages(_) | Waits::ForReply if later.operation.is_elsewhere() => {
                    if self.shard.node.is_stopping() {
                        later.end_wait();
                        continue;
                    }
                    self.slot.arm(Millis::MAX, cx);
                }
                Waits::ForMessages(_) | Waits::ForReply => {}
            }
            ready!(self.poll_ahead(cx))?;
            later.end_wait();
        }
    }

    /// Reads while the client waits: ready at the end of its bytes.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        let shard = Rc::clone(&self.shard);
        let mut scratch = shard.scratch.borrow_mut();
        while !self.eof {
            match ready!(self.stream.poll_read(cx, &mut scratch[..READ_AHEAD_BYTES])) {
                Err(_) => return Poll::Ready(Err(Gone)),
                Ok(n) => self.read_ahead(&scratch[..n])?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes note of what was read while the client waits.
    fn read_ahead(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        if bytes.is_empty() {
            self.eof = true;
        } else if self.input.len() + bytes.len() > READ_AHEAD_BYTES {
            return Err(Gone);
        }
        self.input.extend_from_slice(bytes);
        self.fresh = !self.input.is_empty();
        Ok(())
    }

    /// Writes the response of a request that had to wait.
    fn respond(&mut self, cx: &mut Context<'_>, later: &Later, mut outcome: Outcome) -> Result<(), Gone> {
        let mut frame = later.frame;
        frame.keep_alive &= !self.shard.node.is_stopping();
        self.shard.metrics.observe_request(frame.route, frame.started.elapsed());
        let shard = Rc::clone(&self.shard);
        if let (Waits::ForMessages(queue), Some((body, claimed @ Some(_)))) = (&later.waits, outcome.popped_mut())
            && !self.is_there()
        {
            // The client went before the message came: it stays for the next.
            claimed.take().into_iter().for_each(|claimed| claimed.give_back(&shard));
            body.clear();
            render_empty(body, queue);
        }
        if let (Waits::ForStore, Outcome::Stored(answered)) = (&later.waits, &mut outcome)
            && answered.hands_out()
            && !self.is_there()
        {
            answered.give_back(&shard);
        }
        let mut out = shard.out.borrow_mut();
        match outcome {
            Outcome::Stored(answered) => answered.write(&shard, &frame, &mut out),
            Outcome::Popped(body, claimed) => out.popped(&frame, &body, claimed),
            Outcome::Pushed(messages) => out.pushed(&frame, messages),
            Outcome::Reply(reply) => out.reply(&frame, &reply),
            Outcome::Exchanged(exchanged) => out.exchanged(&frame, *exchanged),
        }
        self.closing = !frame.keep_alive;
        self.send(cx, &mut out)
    }

    /// Whether the client, at this moment, could still take a message: looks past what it has pipelined.
    fn is_there(&mut self) -> bool {
        let shard = Rc::clone(&self.shard);
        let mut scratch = shard.scratch.borrow_mut();
        while !self.eof {
            match self.stream.read_now(&mut scratch[..READ_AHEAD_BYTES]) {
                Ok(None) => return true,
                Err(_) => return false,
                Ok(Some(n)) => {
                    if self.read_ahead(&scratch[..n]).is_err() {
                        return false;
                    }
                }
            }
        }
        false
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        out::end_claims(&self.shard, self.handed.drain(..), self.sent);
        self.uncharge();
        self.shard.timers.remove_slot(self.slot_key);
        if self.stream.is_handshaking() {
            self.shard.metrics.handshake_failed();
        }
    }
}
