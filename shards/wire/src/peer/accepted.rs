//! The end of a peer link that answers.

use std::collections::BTreeMap;

use super::{
    answer::{Answer, Refusal},
    ask::Request,
    frame::{Frame, render_answer},
    link::{Incoming, LABEL, Limits, Link, PeerError, Read},
};
use crate::mesh::{HandshakeError, Listener, ListenerStep, Nonce, PeerIdentity, Secret};

/// The largest answer that is taken whatever waits to be sent, in payload bytes. No more can be of them than requests.
const SMALL_ANSWER_BYTES: usize = 2 << 10;

/// The end that answers. `C` is a claim on messages that were handed out.
pub struct Accepted<C> {
    link: Link,
    /// Until the dialer has proved itself.
    listener: Option<Listener>,
    requests: BTreeMap<u32, State<C>>,
    /// Requests that do not wait and which the dialer may still send.
    granted: u32,
    /// What it is to get in addition.
    owed: u32,
}

/// How far a request is.
enum State<C> {
    /// It has no answer.
    Open { waits: bool },
    /// It has none and nobody waits for it, which the caller has been told.
    Cancelled { waits: bool },
    /// It was answered with messages.
    Claimed(C),
}

/// What comes in at the end that answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<C> {
    /// The dialer has proved itself: it is a peer.
    Proved(PeerIdentity),
    /// A request. It is due one [`Accepted::answer`] or [`Accepted::deliver`], also when it is cancelled.
    Request {
        /// Its number.
        id: u32,
        /// What is asked.
        request: Request,
    },
    /// Nobody waits for an answer any more: end what waits, and answer anything.
    Cancel {
        /// The request's number.
        id: u32,
    },
    /// Messages reached the client.
    Settled(C),
    /// They did not: they go back to where they were.
    GiveBack(C),
}

/// Why an answer did not go out as it was. Its request is over all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// Nobody waits for it: the request was cancelled, or is none, or the connection has ended.
    #[error("nobody waits for the answer")]
    Gone,
    /// [`Limits::waiting_bytes_max`] bytes wait to be sent. `overloaded` was answered in its place.
    #[error("the peer reads slower than it asks")]
    Full,
    /// It is larger than [`Limits::message_bytes_max`], or a field of it than it may be. `payload_too_large` was answered
    /// in its place.
    #[error("larger than nodes send each other")]
    TooLarge,
}

/// What an end of the connection leaves.
#[derive(Debug, PartialEq, Eq)]
pub struct Left<C> {
    /// Numbers of the requests that were not answered and not cancelled: to be ended.
    pub unanswered: Vec<u32>,
    /// Claims of which nothing was heard: to be given back.
    pub claims: Vec<C>,
}

impl<C> Accepted<C> {
    /// Waits for a dialer that proves itself; there is no other way in.
    #[must_use]
    pub fn new(secret: Secret, server_id: &str, nonce: Nonce, limits: Limits) -> Self {
        Self {
            link: Link::new(limits),
            listener: Some(Listener::new(Some(secret), LABEL, server_id, false, nonce)),
            requests: BTreeMap::new(),
            granted: 0,
            owed: limits.credit,
        }
    }

    /// Takes the first frame of `input`. It may have been a part of something, or answered here: then there is no event.
    ///
    /// # Errors
    /// See [`PeerError`]: the connection is over, and every later call says so too.
    pub fn read(&mut self, input: &[u8]) -> Result<Read<Asked<C>>, PeerError> {
        if self.link.is_full() && self.link.is_up() {
            return Ok(Read::Hold);
        }
        let (tag, payload, consumed) = match self.link.next(input)? {
            Incoming::NeedMore { bytes } => return Ok(Read::NeedMore { bytes }),
            Incoming::Part { consumed } => return Ok(Read::Frame { consumed, event: None }),
            Incoming::Frame { tag, payload, consumed } => (tag, payload, consumed),
        };
        let event = match self.listener.take() {
            Some(listener) => self.prove(listener, tag, &payload),
            None => self.take(tag, &payload),
        };
        match event {
            Ok(event) => Ok(Read::Frame { consumed, event }),
            Err(error) => Err(self.link.fail(error)),
        }
    }

    fn prove(&mut self, mut listener: Listener, tag: u8, payload: &[u8]) -> Result<Option<Asked<C>>, PeerError> {
        let proven = match listener.step(tag, payload)? {
            ListenerStep::Send(frame) => {
                self.link.put_handshake(&frame);
                self.listener = Some(listener);
                return Ok(None);
            }
            ListenerStep::Proven(proven) => proven,
        };
        let seals = proven.seals.ok_or(HandshakeError::Unexpected)?;
        self.link.trust(seals.forward, seals.back);
        self.grant();
        Ok(Some(Asked::Proved(proven.peer)))
    }

    fn take(&mut self, tag: u8, payload: &[u8]) -> Result<Option<Asked<C>>, PeerError> {
        Ok(match Link::parse(tag, payload)? {
            Some(Frame::Request { id, waits, request }) => {
                self.admit(id, waits)?.then_some(Asked::Request { id, request })
            }
            Some(Frame::UnknownRequest { id, waits }) => {
                if self.admit(id, waits)? {
                    self.close(id, waits, refuse(id, Refusal::unsupported()));
                }
                None
            }
            Some(Frame::Cancel { id }) => match self.requests.get(&id) {
                Some(&State::Open { waits }) => {
                    self.requests.insert(id, State::Cancelled { waits });
                    Some(Asked::Cancel { id })
                }
                // The answer is on its way: what it holds, the other end gives back.
                _ => None,
            },
            Some(Frame::Settled { id }) => self.claim(id).map(Asked::Settled),
            Some(Frame::GiveBack { id }) => self.claim(id).map(Asked::GiveBack),
            // What only this end sends, or a later version.
            _ => None,
        })
    }

    /// Whether a request may be served; where there are too many, it has been refused.
    fn admit(&mut self, id: u32, waits: bool) -> Result<bool, PeerError> {
        if self.requests.contains_key(&id) {
            return Err(PeerError::SameNumber);
        }
        if !waits {
            self.granted = self.granted.checked_sub(1).ok_or(PeerError::NoCredit)?;
        }
        if self.requests.len() >= self.link.limits.outstanding_max {
            self.close(id, waits, refuse(id, Refusal::overloaded("Too many requests of this peer wait")));
            return Ok(false);
        }
        self.requests.insert(id, State::Open { waits });
        Ok(true)
    }

    fn claim(&mut self, id: u32) -> Option<C> {
        match self.requests.remove(&id)? {
            State::Claimed(claim) => Some(claim),
            other => {
                self.requests.insert(id, other);
                None
            }
        }
    }

    /// Answers a request, which is over then. An [`Answer::Popped`] that holds messages goes out by [`Self::deliver`].
    ///
    /// # Errors
    /// See [`Undelivered`].
    pub fn answer(&mut self, id: u32, answer: Answer) -> Result<(), Undelivered> {
        let answer = match answer {
            // The other end would wait for nothing.
            Answer::Popped { body, has_claim: true } => Answer::Popped { body, has_claim: false },
            answer => answer,
        };
        self.close_open(id, &answer)
    }

    /// Answers a pop with messages, and keeps their claim until the other end says what became of them.
    ///
    /// # Errors
    /// See [`Undelivered`]: the claim comes back, its messages have reached nobody.
    pub fn deliver(&mut self, id: u32, body: Vec<u8>, claim: C) -> Result<(), (Undelivered, C)> {
        match self.close_open(id, &Answer::Popped { body, has_claim: true }) {
            Ok(()) => {
                self.requests.insert(id, State::Claimed(claim));
                Ok(())
            }
            Err(error) => Err((error, claim)),
        }
    }

    fn close_open(&mut self, id: u32, answer: &Answer) -> Result<(), Undelivered> {
        match self.requests.get(&id) {
            Some(&State::Open { waits }) if self.link.is_up() => {
                let rendered = self.render(id, answer);
                let error = rendered.as_ref().err().copied();
                self.close(id, waits, rendered.unwrap_or_else(|error| refuse(id, error.refusal())));
                error.map_or(Ok(()), Err)
            }
            Some(&State::Cancelled { waits }) if self.link.is_up() => {
                self.close(id, waits, small(id, &Answer::Cancelled));
                Err(Undelivered::Gone)
            }
            _ => Err(Undelivered::Gone),
        }
    }

    fn render(&self, id: u32, answer: &Answer) -> Result<(u8, Vec<u8>), Undelivered> {
        let frame = render_answer(id, answer).map_err(|_| Undelivered::TooLarge)?;
        let payload_bytes = frame.1.len();
        if payload_bytes > self.link.limits.message_bytes_max {
            Err(Undelivered::TooLarge)
        } else if payload_bytes > SMALL_ANSWER_BYTES && self.link.is_full() {
            Err(Undelivered::Full)
        } else {
            Ok(frame)
        }
    }

    fn close(&mut self, id: u32, waits: bool, frame: (u8, Vec<u8>)) {
        self.requests.remove(&id);
        self.link.put(frame);
        self.owed += u32::from(!waits);
        self.grant();
    }

    /// Lets the dialer send more, a quarter of what it may have at once, unless it does not take what it has asked for.
    fn grant(&mut self) {
        let enough = self.owed >= (self.link.limits.credit / 4).max(1);
        if enough && self.link.is_up() && !self.link.is_full() {
            self.link.put_number(&Frame::Credit { requests: self.owed });
            self.granted += self.owed;
            self.owed = 0;
        }
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
        self.grant();
    }

    /// The connection has ended.
    #[must_use]
    pub fn end(self) -> Left<C> {
        let mut left = Left { unanswered: Vec::new(), claims: Vec::new() };
        for (id, state) in self.requests {
            match state {
                State::Open { .. } => left.unanswered.push(id),
                State::Cancelled { .. } => {}
                State::Claimed(claim) => left.claims.push(claim),
            }
        }
        left
    }
}

impl Undelivered {
    /// What is answered in place of the answer.
    fn refusal(self) -> Refusal {
        match self {
            Self::TooLarge => Refusal {
                code: "payload_too_large".to_owned(),
                message: "The answer is larger than nodes send each other; ask for fewer messages".to_owned(),
                retry_after_s: None,
            },
            Self::Full | Self::Gone => Refusal::overloaded("Too many answers wait on the way from the owner"),
        }
    }
}

fn refuse(id: u32, refusal: Refusal) -> (u8, Vec<u8>) {
    small(id, &Answer::Refused(refusal))
}

/// An answer of this module's own.
fn small(id: u32, answer: &Answer) -> (u8, Vec<u8>) {
    render_answer(id, answer).expect("nothing that could be too long")
}
