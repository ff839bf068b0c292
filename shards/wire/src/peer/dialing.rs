//! The end of a peer link that asks.

use std::collections::BTreeMap;

use super::{
    answer::{Answer, Refusal},
    ask::Request,
    codec::FieldError,
    frame::{Frame, render_request},
    link::{Incoming, LABEL, Limits, Link, PeerError, Read},
};
use crate::mesh::{Dialer, DialerStep, HandshakeError, Identity, Nonce, PeerIdentity, Secret};

/// The end that asks. `T` is what the caller knows a request by, and gets back with its answer.
pub struct Dialing<T> {
    link: Link,
    /// Until the listener has proved itself.
    dialer: Option<Dialer>,
    /// The id that it has to have.
    listener_id: String,
    next_id: u32,
    requests: BTreeMap<u32, State<T>>,
    /// Requests that do not wait and may still be sent.
    credit: u32,
}

/// How far a request is.
enum State<T> {
    /// Its answer is to come.
    Waiting { token: T, waits: bool },
    /// Its answer is to come and nobody wants it. Until then its number is not free.
    Cancelled,
    /// Its messages came, and the other end waits to hear what became of them.
    Claimed,
}

/// What comes in at the end that asks.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<T> {
    /// The listener has proved that it is the one that was dialled: requests may go.
    Proved(PeerIdentity),
    /// A request's answer. After [`Answer::Popped`] with a claim, [`Dialing::settled`] or [`Dialing::give_back`] is due.
    Answer {
        /// The request's number.
        id: u32,
        /// What it was sent with.
        token: T,
        /// What became of it.
        answer: Answer,
    },
}

/// Why a request was not sent. Nothing of it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection is not up yet, or no longer.
    #[error("there is no connection to the peer")]
    NotUp,
    /// [`Limits::outstanding_max`] requests are not over.
    #[error("too many requests to the peer are not answered yet")]
    TooMany,
    /// The peer takes no more requests that do not wait for now.
    #[error("the peer has more to do than it can")]
    NoCredit,
    /// [`Limits::waiting_bytes_max`] bytes wait to be sent.
    #[error("the peer reads slower than is sent to it")]
    Full,
    /// It is larger than [`Limits::message_bytes_max`].
    #[error("larger than nodes send each other")]
    TooLarge,
    /// It cannot be written.
    #[error(transparent)]
    Field(FieldError),
}

/// A request that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent<T> {
    /// Why.
    pub error: SendError,
    /// What it would have been sent with.
    pub token: T,
}

impl<T> Dialing<T> {
    /// Begins a connection to the node `listener_id` at `dialled`, a `host:port`. Its first bytes wait to be sent.
    #[must_use]
    pub fn new(secret: Secret, me: &Identity, listener_id: &str, dialled: &str, nonce: &Nonce, limits: Limits) -> Self {
        let (dialer, hello) = Dialer::new(secret, LABEL, me, dialled, nonce);
        let mut link = Link::new(limits);
        link.put_handshake(&hello);
        Self {
            link,
            dialer: Some(dialer),
            listener_id: listener_id.to_owned(),
            next_id: 0,
            requests: BTreeMap::new(),
            credit: 0,
        }
    }

    /// Takes the first frame of `input`. It may have been a part of something, or about a request that is over: then
    /// there is no event.
    ///
    /// # Errors
    /// See [`PeerError`]: the connection is over, and every later call says so too.
    pub fn read(&mut self, input: &[u8]) -> Result<Read<Heard<T>>, PeerError> {
        let (tag, payload, consumed) = match self.link.next(input)? {
            Incoming::NeedMore { bytes } => return Ok(Read::NeedMore { bytes }),
            Incoming::Part { consumed } => return Ok(Read::Frame { consumed, event: None }),
            Incoming::Frame { tag, payload, consumed } => (tag, payload, consumed),
        };
        let event = match self.dialer.take() {
            Some(dialer) => self.prove(dialer, tag, &payload).map(Some),
            None => self.take(tag, &payload),
        };
        match event {
            Ok(event) => Ok(Read::Frame { consumed, event }),
            Err(error) => Err(self.link.fail(error)),
        }
    }

    fn prove(&mut self, dialer: Dialer, tag: u8, payload: &[u8]) -> Result<Heard<T>, PeerError> {
        let DialerStep { send, proven } = dialer.step(tag, payload)?;
        if proven.peer.server_id != self.listener_id {
            return Err(PeerError::WrongPeer);
        }
        let seals = proven.seals.ok_or(HandshakeError::Unexpected)?;
        self.link.put_handshake(&send);
        self.link.trust(seals.back, seals.forward);
        Ok(Heard::Proved(proven.peer))
    }

    fn take(&mut self, tag: u8, payload: &[u8]) -> Result<Option<Heard<T>>, PeerError> {
        Ok(match Link::parse(tag, payload)? {
            Some(Frame::Answer { id, answer }) => {
                let has_claim = matches!(answer, Answer::Popped { has_claim: true, .. });
                self.answered(id, answer, has_claim)
            }
            Some(Frame::UnknownAnswer { id }) => {
                // Whatever it holds goes back; where it holds nothing, this says nothing.
                if matches!(self.requests.get(&id), Some(State::Waiting { .. } | State::Cancelled)) {
                    self.link.put_number(&Frame::GiveBack { id });
                }
                self.answered(id, Answer::Refused(Refusal::unsupported()), false)
            }
            Some(Frame::Credit { requests }) => {
                self.credit = self.credit.saturating_add(requests);
                None
            }
            // What only this end sends, or a later version.
            _ => None,
        })
    }

    fn answered(&mut self, id: u32, answer: Answer, has_claim: bool) -> Option<Heard<T>> {
        match self.requests.remove(&id)? {
            State::Waiting { token, .. } => {
                if has_claim {
                    self.requests.insert(id, State::Claimed);
                }
                Some(Heard::Answer { id, token, answer })
            }
            State::Cancelled => {
                if has_claim {
                    self.link.put_number(&Frame::GiveBack { id });
                }
                None
            }
            State::Claimed => {
                // A second answer: the first one counts.
                self.requests.insert(id, State::Claimed);
                None
            }
        }
    }

    /// Queues a request; its number.
    ///
    /// # Errors
    /// See [`SendError`]: nothing is sent.
    pub fn request(&mut self, request: &Request, token: T) -> Result<u32, Unsent<T>> {
        let waits = request.ask.waits();
        match self.render(request, waits) {
            Ok((id, frame)) => {
                self.credit -= u32::from(!waits);
                self.next_id = id.wrapping_add(1);
                self.requests.insert(id, State::Waiting { token, waits });
                self.link.put(frame);
                Ok(id)
            }
            Err(error) => Err(Unsent { error, token }),
        }
    }

    fn render(&self, request: &Request, waits: bool) -> Result<(u32, (u8, Vec<u8>)), SendError> {
        if !self.link.is_up() {
            return Err(SendError::NotUp);
        }
        if self.requests.len() >= self.link.limits.outstanding_max {
            return Err(SendError::TooMany);
        }
        if !waits && self.credit == 0 {
            return Err(SendError::NoCredit);
        }
        // Requests that are not over are few beside all numbers: a free one is near.
        let mut id = self.next_id;
        while self.requests.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        let frame = render_request(id, waits, request).map_err(SendError::Field)?;
        if frame.1.len() > self.link.limits.message_bytes_max {
            return Err(SendError::TooLarge);
        }
        if self.link.is_full() {
            return Err(SendError::Full);
        }
        Ok((id, frame))
    }

    /// Nobody waits for a request's answer any more: what it was sent with. An answer that is on its way is passed over
    /// and what it holds given back. A request that does not wait is served nevertheless; one that does is ended there.
    pub fn cancel(&mut self, id: u32) -> Option<T> {
        match self.requests.insert(id, State::Cancelled) {
            Some(State::Waiting { token, waits }) => {
                if waits {
                    self.link.put_number(&Frame::Cancel { id });
                }
                Some(token)
            }
            Some(other) => {
                self.requests.insert(id, other);
                None
            }
            None => {
                self.requests.remove(&id);
                None
            }
        }
    }

    /// The messages of an answer reached the client.
    pub fn settled(&mut self, id: u32) {
        self.resolve(id, &Frame::Settled { id });
    }

    /// They did not: they go back to where they were.
    pub fn give_back(&mut self, id: u32) {
        self.resolve(id, &Frame::GiveBack { id });
    }

    fn resolve(&mut self, id: u32, frame: &Frame) {
        if matches!(self.requests.get(&id), Some(State::Claimed)) {
            self.requests.remove(&id);
            self.link.put_number(frame);
        }
    }

    /// Requests that do not wait and may still be sent.
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.credit
    }

    /// Requests that are not over.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.link.waiting_bytes()
    }

    /// Appends bytes to send, whole frames, until there are `bytes_max` of them or somewhat more.
    pub fn output(&mut self, out: &mut Vec<u8>, bytes_max: usize) {
        self.link.output(out, bytes_max);
    }

    /// The connection has ended: what the requests were sent with that were never answered, the oldest number first.
    /// Claims that were not settled are given back by the other end.
    #[must_use]
    pub fn end(self) -> Vec<T> {
        let waiting = |state| match state {
            State::Waiting { token, .. } => Some(token),
            State::Cancelled | State::Claimed => None,
        };
        self.requests.into_values().filter_map(waiting).collect()
    }
}
