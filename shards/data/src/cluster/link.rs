//! This shard's link to one other member: dialled as soon as there is such a member, and again for as long as there is.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use queen_fabric::{
    members::Member,
    rt::{self, Notify, within},
};
use queen_wire::peer::{Answer, Dialing, Heard, Limits, Read, Request, SendError};

use super::{dial::dial, pipe::Pipe};
use crate::{
    error::{ApiError, Code},
    shard::Shard,
};

/// From dialling to the end of the handshake.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause before a member is dialled again, doubled up to the second figure.
const BACK_OFF_MIN: Duration = Duration::from_millis(50);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// Reads of one link before others on the shard get their turn.
const READS_PER_TURN: usize = 8;

/// The link to one member.
pub(crate) struct Link {
    member: Member,
    connection: RefCell<Option<Dialing<Rc<Slot>>>>,
    /// Counts connections: numbers of requests mean something on theirs alone.
    generation: Cell<u64>,
    /// When something was heard last.
    heard_at: Cell<Instant>,
    /// There is something to send.
    wake: Notify,
    /// The last trouble was logged.
    is_logged: Cell<bool>,
}

/// Where a request's answer is put.
#[derive(Default)]
struct Slot {
    answer: Cell<Option<Result<Answer, Lost>>>,
    waker: Cell<Option<Waker>>,
}

impl Slot {
    fn put(&self, answer: Result<Answer, Lost>) {
        self.answer.set(Some(answer));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The connection ended before the answer came: what was asked for may have been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

impl Link {
    pub(super) fn new(member: Member) -> Self {
        Self {
            member,
            connection: RefCell::default(),
            generation: Cell::new(0),
            heard_at: Cell::new(Instant::now()),
            wake: Notify::new(),
            is_logged: Cell::new(false),
        }
    }

    /// Whom it leads to.
    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// Whether answers are waited for and nothing has come for so long.
    pub(super) fn is_silent_for(&self, time: Duration) -> bool {
        let waits = self.connection.borrow().as_ref().is_some_and(|connection| connection.outstanding() > 0);
        waits && self.heard_at.get().elapsed() >= time
    }

    /// Asks the member.
    pub(super) fn ask(self: &Rc<Self>, request: &Request) -> Result<Sent, ApiError> {
        let mut connection = self.connection.borrow_mut();
        let Some(connection) = &mut *connection else { return Err(self.unreachable()) };
        let slot = Rc::<Slot>::default();
        let id = connection.request(request, Rc::clone(&slot)).map_err(|unsent| match unsent.error {
            SendError::NotUp => self.unreachable(),
            SendError::TooLarge | SendError::Field(_) => ApiError::new(
                Code::PayloadTooLarge,
                format!("The request is too large for another node: {}", unsent.error),
            ),
            error @ (SendError::TooMany | SendError::NoCredit | SendError::Full) => {
                ApiError::overloaded(&format!("The way to the node that owns the partition is full: {error}"))
            }
        })?;
        self.wake.notify();
        Ok(Sent { link: Rc::clone(self), generation: self.generation.get(), id, slot, is_over: false })
    }

    fn unreachable(&self) -> ApiError {
        ApiError::forward_failed(&format!("Node {} owns it, and cannot be reached", self.member.id))
    }

    /// Does something with the connection on which a request was sent, if that is still there.
    fn with(&self, generation: u64, act: impl FnOnce(&mut Dialing<Rc<Slot>>)) {
        if self.generation.get() == generation
            && let Some(connection) = &mut *self.connection.borrow_mut()
        {
            act(connection);
            self.wake.notify();
        }
    }

    /// There is no connection any more.
    fn down(&self) {
        let ended = self.connection.borrow_mut().take();
        self.generation.set(self.generation.get() + 1);
        for slot in ended.into_iter().flat_map(Dialing::end) {
            slot.put(Err(Lost));
        }
    }
}

/// A request that was sent. Dropped, nobody waits for its answer any more.
pub(super) struct Sent {
    link: Rc<Link>,
    generation: u64,
    id: u32,
    slot: Rc<Slot>,
    is_over: bool,
}

impl Sent {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, Lost>> {
        match self.slot.answer.take() {
            Some(answer) => {
                self.is_over = true;
                Poll::Ready(answer)
            }
            None => {
                self.slot.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// The claim on the messages in the answer that was taken.
    pub(super) fn claim(&self) -> LinkClaim {
        LinkClaim { link: Rc::clone(&self.link), generation: self.generation, id: self.id }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        match self.slot.answer.take() {
            Some(Ok(Answer::Popped { has_claim: true, .. })) => self.claim().give_back(),
            Some(_) => {}
            None => self.link.with(self.generation, |connection| drop(connection.cancel(self.id))),
        }
    }
}

/// A claim on messages that another node has handed out. Where the link is gone, that node has them back already.
pub(crate) struct LinkClaim {
    link: Rc<Link>,
    generation: u64,
    id: u32,
}

impl LinkClaim {
    /// They have reached the client.
    pub(crate) fn settle(self) {
        self.link.with(self.generation, |connection| connection.settled(self.id));
    }

    /// They have not.
    pub(crate) fn give_back(self) {
        self.link.with(self.generation, |connection| connection.give_back(self.id));
    }
}

/// Ends what waits for answers when the task of a link ends, however it does.
struct Down(Rc<Link>);

impl Drop for Down {
    fn drop(&mut self) {
        self.0.down();
    }
}

/// Keeps a link for as long as it is not dropped.
pub(super) async fn keep(shard: Rc<Shard>, link: Rc<Link>) {
    let mut pause = BACK_OFF_MIN;
    loop {
        let error = match run(&shard, &link).await {
            Ok(()) => {
                pause = BACK_OFF_MIN;
                "it has closed the connection".to_owned()
            }
            Err(error) => error.to_string(),
        };
        if !link.is_logged.replace(true) {
            let (shard, member) = (shard.id(), link.member());
            tracing::warn!(shard, "peer link to {} at {}: {error}; dialled again", member.id, member.http_addr);
        }
        rt::sleep(pause).await;
        pause = (pause * 2).min(BACK_OFF_MAX);
    }
}

/// Dials, and serves the connection until it ends.
async fn run(shard: &Rc<Shard>, link: &Rc<Link>) -> io::Result<()> {
    let Some(cluster) = &shard.node.cluster else { return Ok(()) };
    let member = link.member();
    let silent = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", PATIENCE.as_secs()));
    let (mut stream, early) = within(PATIENCE, dial(cluster, &member.http_addr)).await.ok_or_else(silent)??;
    let dialled = member.http_addr.split_once("://").map_or(&*member.http_addr, |(_, authority)| authority);
    let (me, secret) = (&cluster.me, cluster.secret.clone());
    let connection = Dialing::new(secret, me, &member.id, dialled, &super::nonce(), Limits::default());
    link.generation.set(link.generation.get() + 1);
    link.connection.replace(Some(connection));
    let _down = Down(Rc::clone(link));
    let mut serving = Serving { shard, link, pipe: Pipe::new(&mut stream, early) };
    let proved = within(PATIENCE, poll_fn(|cx| serving.poll(cx, true))).await;
    proved.ok_or_else(silent)??;
    shard.link_is_up(link);
    if link.is_logged.replace(false) {
        tracing::info!(shard = shard.id(), "peer link to {} is there", member.id);
    }
    poll_fn(|cx| serving.poll(cx, false)).await
}

/// A connection at work.
struct Serving<'s> {
    shard: &'s Rc<Shard>,
    link: &'s Rc<Link>,
    pipe: Pipe<'s>,
}

impl Serving<'_> {
    /// Ready at the end of the connection, or once the peer has proved itself if that is waited for.
    fn poll(&mut self, cx: &mut Context<'_>, until_proved: bool) -> Poll<io::Result<()>> {
        while self.link.wake.poll_wait(cx).is_ready() {}
        for _ in 0..READS_PER_TURN {
            let proved = self.take_in()?;
            self.write(cx)?;
            if proved && until_proved {
                return Poll::Ready(Ok(()));
            }
            let mut scratch = self.shard.scratch.borrow_mut();
            match self.pipe.poll_read(cx, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(read) => {
                    if !read? {
                        return Poll::Ready(if until_proved {
                            Err(io::ErrorKind::UnexpectedEof.into())
                        } else {
                            Ok(())
                        });
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let connection = &self.link.connection;
        let written = self.pipe.poll_write(cx, |out, bytes_max| {
            if let Some(connection) = &mut *connection.borrow_mut() {
                connection.output(out, bytes_max);
            }
        });
        match written {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(()),
        }
    }

    /// Takes in what has come. Whether the peer has proved itself with it.
    fn take_in(&mut self) -> io::Result<bool> {
        let (mut start, mut proved) = (0, false);
        loop {
            let read = match &mut *self.link.connection.borrow_mut() {
                Some(connection) => connection.read(&self.pipe.input[start..]).map_err(io::Error::other)?,
                None => return Err(io::ErrorKind::NotConnected.into()),
            };
            match read {
                Read::NeedMore { .. } | Read::Hold => break,
                Read::Frame { consumed, event } => {
                    start += consumed;
                    self.link.heard_at.set(Instant::now());
                    match event {
                        Some(Heard::Proved(_)) => proved = true,
                        Some(Heard::Answer { token, answer, .. }) => token.put(Ok(answer)),
                        None => {}
                    }
                }
            }
        }
        self.pipe.consumed(start);
        Ok(proved)
    }
}
