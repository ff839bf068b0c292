//! The end of a peer link that answers: what another node asks is asked of the shard that owns the queue here.

use std::{
    cell::RefCell,
    collections::HashMap,
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use queen_ephemeral::TenantId;
use queen_fabric::{
    port::{Asked as AskedHere, Reply as ReplyHere},
    rt::{self, Notify, Task, within},
};
use queen_wire::{
    http::Request as HttpRequest,
    peer::{Accepted, Answer, Ask, Asked, Chunk, LABEL, Limits, Read, Refusal, Request},
};

use super::{DEFAULT_PARTITION, Home, PATH, administer, convert, hold::Gate, parcel, pipe::Pipe};
use crate::{
    connection::{ParkedPermit, Stream},
    error::{ApiError, Code},
    handed::Claimed,
    protocol::{self, AdoptAsk, DataProtocol, PartitionKey},
    shard::Shard,
};

/// How long a peer has to prove itself.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);

/// Reads of one link before others on the shard get their turn.
const READS_PER_TURN: usize = 8;

/// A link that was accepted, with what is under way on it.
struct Served {
    shard: Rc<Shard>,
    connection: RefCell<Accepted<Claimed>>,
    /// What is being asked of shards, by the request's number. Dropped, nobody waits for it.
    asking: RefCell<HashMap<u32, Task<()>>>,
    /// Partitions that are coming, by transfer, as far as they have come.
    coming: RefCell<HashMap<u64, Coming>>,
    /// There is something to send.
    wake: Notify,
}

/// A partition that is coming.
#[derive(Default)]
struct Coming {
    pieces: u32,
    bytes: Vec<u8>,
}

/// Serves a connection that speaks the peer link's protocol from here on, until either end closes it.
pub(crate) async fn serve(shard: &Rc<Shard>, stream: &mut Stream, early: Vec<u8>) {
    let Some(cluster) = &shard.node.cluster else { return };
    let (secret, id) = (cluster.secret.clone(), &*cluster.me.server_id);
    let served = Rc::new(Served {
        shard: Rc::clone(shard),
        connection: RefCell::new(Accepted::new(secret, id, super::nonce(), Limits::default())),
        asking: RefCell::default(),
        coming: RefCell::default(),
        wake: Notify::new(),
    });
    let mut pipe = Pipe::new(stream, early);
    let proved = within(HANDSHAKE_PATIENCE, poll_fn(|cx| served.poll(cx, &mut pipe, true))).await;
    let outcome = match proved {
        None => Err(io::ErrorKind::TimedOut.into()),
        Some(Err(error)) => Err(error),
        Some(Ok(())) => poll_fn(|cx| served.poll(cx, &mut pipe, false)).await,
    };
    if let Err(error) = outcome {
        tracing::debug!(shard = shard.id(), "a peer link ended: {error}");
    }
    served.end();
}

impl Shard {
    /// Whether a request asks for a peer link, and this node is one of several.
    pub(crate) fn is_peer_link(&self, request: &HttpRequest<'_>) -> bool {
        self.node.cluster.is_some()
            && request.path == PATH
            && request.upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(LABEL.as_bytes()))
    }
}

impl Served {
    /// Ready at the end of the connection, or once the peer has proved itself if that is waited for.
    fn poll(self: &Rc<Self>, cx: &mut Context<'_>, pipe: &mut Pipe<'_>, until_proved: bool) -> Poll<io::Result<()>> {
        while self.wake.poll_wait(cx).is_ready() {}
        for _ in 0..READS_PER_TURN {
            let proved = self.take_in(pipe)?;
            let written = pipe.poll_write(cx, |out, bytes_max| self.connection.borrow_mut().output(out, bytes_max));
            if let Poll::Ready(written) = written {
                written?;
            }
            if proved && until_proved {
                return Poll::Ready(Ok(()));
            }
            if written_is_behind(&self.connection) {
                return Poll::Pending;
            }
            let mut scratch = self.shard.scratch.borrow_mut();
            match pipe.poll_read(cx, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(read) => {
                    if !read? {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes in what has come. Whether the peer has proved itself with it.
    fn take_in(self: &Rc<Self>, pipe: &mut Pipe<'_>) -> io::Result<bool> {
        let (mut start, mut proved) = (0, false);
        loop {
            let read = self.connection.borrow_mut().read(&pipe.input[start..]).map_err(io::Error::other)?;
            match read {
                Read::NeedMore { .. } | Read::Hold => break,
                Read::Frame { consumed, event } => {
                    start += consumed;
                    match event {
                        None => {}
                        Some(Asked::Proved(_)) => proved = true,
                        Some(Asked::Request { id, request }) => self.serve(id, request),
                        Some(Asked::Cancel { id }) => {
                            // What was asked of a shard is cancelled with it.
                            drop(self.asking.borrow_mut().remove(&id));
                            self.answer(id, Answer::Cancelled);
                        }
                        Some(Asked::Settled(claimed)) => claimed.settle(&self.shard),
                        Some(Asked::GiveBack(claimed)) => claimed.give_back(&self.shard),
                    }
                }
            }
        }
        pipe.consumed(start);
        Ok(proved)
    }

    fn serve(self: &Rc<Self>, id: u32, request: Request) {
        match self.start(request) {
            Ok(Started::Held(gate, request)) => {
                let served = Rc::clone(self);
                let task = rt::spawn_local(async move {
                    served.serve_held(id, *gate, *request).await;
                    served.is_over(id);
                });
                self.asking.borrow_mut().insert(id, task);
            }
            Ok(Started::Asked(asked, permit)) => {
                let served = Rc::clone(self);
                let task = rt::spawn_local(async move {
                    let reply = asked.await;
                    drop(permit);
                    served.finish(id, reply);
                    served.is_over(id);
                });
                self.asking.borrow_mut().insert(id, task);
            }
            Ok(Started::Later(answer)) => {
                let served = Rc::clone(self);
                let task = rt::spawn_local(async move {
                    let answer = answer.await;
                    served.answer(id, answer);
                    served.is_over(id);
                });
                self.asking.borrow_mut().insert(id, task);
            }
            Ok(Started::Done(answer)) => self.answer(id, answer),
            Ok(Started::Moved(owner)) => self.answer(id, Answer::Moved { owner }),
            Err(error) => self.refuse(id, &error),
        }
    }

    /// Serves a request once its partition may be served.
    async fn serve_held(&self, id: u32, mut gate: Gate, mut request: Request) {
        loop {
            if let Err(error) = poll_fn(|cx| gate.poll(cx)).await {
                return self.refuse(id, &error);
            }
            if let Ask::Pop(pop) = &mut request.ask {
                pop.wait_ms = pop.wait_ms.saturating_sub(gate.held_for().as_millis() as u64);
            }
            match self.start(request) {
                Ok(Started::Held(again, held)) => (gate, request) = (*again, *held),
                Ok(Started::Asked(asked, permit)) => {
                    drop(gate);
                    let reply = asked.await;
                    drop(permit);
                    return self.finish(id, reply);
                }
                Ok(Started::Later(answer)) => return self.answer(id, answer.await),
                Ok(Started::Done(answer)) => return self.answer(id, answer),
                Ok(Started::Moved(owner)) => return self.answer(id, Answer::Moved { owner }),
                Err(error) => return self.refuse(id, &error),
            }
        }
    }

    /// Forgets the task of a request, which is at its end.
    fn is_over(&self, id: u32) {
        let task = self.asking.borrow_mut().remove(&id);
        if let Some(task) = task {
            task.detach();
        }
    }

    fn refuse(&self, id: u32, error: &ApiError) {
        self.answer(id, Answer::Refused(refusal(error)));
    }

    /// Asks the shard that owns the queue, if its partition is this node's.
    fn start(&self, request: Request) -> Result<Started, ApiError> {
        let shard = &self.shard;
        let tenant = TenantId(request.tenant);
        if administer::is_for_everybody(&request.ask) {
            return administer::start(shard, tenant, request.ask);
        }
        if !matches!(request.ask, Ask::Chunk(_)) {
            shard.check_ephemeral(tenant, false)?;
        }
        if let Ask::Inquire { queue, partition } = request.ask {
            let to = shard.owner(tenant, &queue);
            let ask = protocol::Ask::Inquire(Box::new(PartitionKey { tenant, queue, partition }));
            return Ok(Started::Asked(shard.ask(to, ask)?, None));
        }
        let Some((queue, partition)) = convert::place(&request.ask) else {
            return Err(ApiError::unsupported());
        };
        let waits = request.ask.waits();
        match shard.home_of(tenant, queue, partition.unwrap_or(DEFAULT_PARTITION))? {
            // One that waits here without a partition would miss what is pushed where its queue is placed by now.
            Home::Elsewhere(owner) if partition.is_some() || waits => return Ok(Started::Moved(owner.id.to_string())),
            // What it waits for comes in chunks.
            Home::Awaited if !matches!(request.ask, Ask::Chunk(_) | Ask::Ack(_)) => {
                let gate = shard.gate(tenant, queue, partition.unwrap_or(DEFAULT_PARTITION))?;
                return Ok(Started::Held(Box::new(gate), Box::new(request)));
            }
            Home::Elsewhere(_) | Home::Awaited | Home::Here => {}
        }
        if shard.node.is_stopping() && matches!(&request.ask, Ask::Pop(pop) if pop.wait_ms > 0) {
            // Nothing waits here any more. The node that asks may not know yet that this one leaves.
            return Ok(Started::Moved(String::new()));
        }
        let to = shard.owner(tenant, queue);
        if let Ask::Chunk(chunk) = request.ask {
            return self.take_piece(tenant, chunk);
        }
        let ask = convert::ask(tenant, request.ask).ok_or_else(ApiError::unsupported)?;
        Ok(if waits {
            let permit = shard.park_permit()?;
            Started::Asked(shard.peers.ask_parked(to, ask), Some(permit))
        } else {
            Started::Asked(shard.ask(to, ask)?, None)
        })
    }

    /// Takes a piece of a partition in; with the last one it goes to the shard that has the queue.
    fn take_piece(&self, tenant: TenantId, chunk: Chunk) -> Result<Started, ApiError> {
        let shard = &self.shard;
        let mut coming = self.coming.borrow_mut();
        let begun = coming.entry(chunk.transfer).or_default();
        match chunk.index.cmp(&begun.pieces) {
            // It came before; its answer was lost.
            std::cmp::Ordering::Less => return Ok(Started::Done(Answer::Adopted)),
            std::cmp::Ordering::Greater => {
                coming.remove(&chunk.transfer);
                return Err(ApiError::forward_failed("A piece of the partition is missing"));
            }
            std::cmp::Ordering::Equal => {}
        }
        begun.pieces += 1;
        begun.bytes.extend_from_slice(&chunk.bytes);
        let most = shard.node.config.ephemeral_max_bytes.saturating_mul(2);
        if begun.bytes.len() as u64 > most {
            coming.remove(&chunk.transfer);
            return Err(ApiError::overloaded("The partition is larger than this node may hold"));
        }
        if !chunk.last {
            return Ok(Started::Done(Answer::Adopted));
        }
        let whole = coming.remove(&chunk.transfer).expect("just seen");
        let parcel = parcel::decode(&whole.bytes).map_err(|error| ApiError::forward_failed(&error.to_string()))?;
        let is_it = (parcel.tenant(), parcel.queue(), parcel.partition()) == (tenant, &*chunk.queue, &*chunk.partition);
        if !is_it {
            return Err(ApiError::forward_failed("The pieces are of another partition"));
        }
        let to = shard.owner(tenant, parcel.queue());
        let ask = protocol::Ask::Adopt(Box::new(AdoptAsk { transfer: chunk.transfer, parcel }));
        Ok(Started::Asked(shard.ask(to, ask)?, None))
    }

    fn finish(&self, id: u32, reply: ReplyHere<DataProtocol>) {
        let ReplyHere { answer, follow } = reply;
        let answer = match answer {
            protocol::Answer::Pushed(messages) => Answer::Pushed(messages),
            protocol::Answer::Popped(popped) => match popped.claim {
                None => Answer::Popped { body: popped.body, has_claim: false },
                Some(claim) => {
                    let claimed = Claimed::There(claim, follow);
                    let delivered = self.connection.borrow_mut().deliver(id, popped.body, claimed);
                    if let Err((_, claimed)) = delivered {
                        claimed.give_back(&self.shard);
                    }
                    return self.wake.notify();
                }
            },
            protocol::Answer::Reply(reply) => match reply.code {
                // Where it is now, the other node asks the members that it knows.
                Some(Code::OwnerMoved) => Answer::Moved { owner: String::new() },
                // A refusal keeps its word and its pause.
                Some(_) => Answer::Refused(convert::refusal_of(&reply)),
                None => Answer::Reply { status: reply.status, body: reply.body },
            },
            protocol::Answer::Refused(error) if error.code == Code::OwnerMoved => {
                Answer::Moved { owner: String::new() }
            }
            protocol::Answer::Refused(error) => Answer::Refused(refusal(&error)),
            protocol::Answer::Coming => Answer::Coming,
            protocol::Answer::Empty => Answer::Empty,
            protocol::Answer::Adopted => Answer::Adopted,
            protocol::Answer::Dropped { existed, messages } => Answer::Dropped { existed, messages },
            protocol::Answer::Declared { applied } => Answer::Declared { applied },
            protocol::Answer::DepthShare(share) => Answer::Depth(*share),
            protocol::Answer::Elsewhere | protocol::Answer::Piece(_) | protocol::Answer::Observed(_) => {
                unreachable!("not asked for by another node")
            }
        };
        self.answer(id, answer);
    }

    fn answer(&self, id: u32, answer: Answer) {
        // Where nobody waits for it any more, or it does not fit, the connection has said what is to be said.
        let _undelivered = self.connection.borrow_mut().answer(id, answer);
        self.wake.notify();
    }

    /// The connection has ended: nobody waits for anything, and what was handed out goes back.
    fn end(&self) {
        drop(self.asking.take());
        let ended = self.connection.replace(Accepted::new(
            self.shard.node.cluster.as_ref().expect("it was served").secret.clone(),
            "",
            [0; 16],
            Limits::default(),
        ));
        for claimed in ended.end().claims {
            claimed.give_back(&self.shard);
        }
    }
}

/// What became of a request's start.
pub(super) enum Started {
    Asked(AskedHere<DataProtocol>, Option<ParkedPermit>),
    /// A task of this shard makes the answer.
    Later(Pin<Box<dyn Future<Output = Answer>>>),
    Done(Answer),
    Moved(String),
    /// It is to be started again once the gate lets it through.
    Held(Box<Gate>, Box<Request>),
}

/// Whether the peer takes so little that nothing more is to be taken from it.
fn written_is_behind(connection: &RefCell<Accepted<Claimed>>) -> bool {
    connection.borrow().waiting_bytes() >= Limits::default().waiting_bytes_max
}

pub(super) fn refusal(error: &ApiError) -> Refusal {
    Refusal { code: error.code.word().to_owned(), message: error.message.clone(), retry_after_s: error.retry_after_s() }
}
