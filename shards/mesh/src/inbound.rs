//! A connection that was accepted: who is at its other end, and the frames that come in on it.

use std::{net::IpAddr, sync::Arc};

use queen_wire::mesh::{Framing, Listener, ListenerStep, Message, Next, Nonce, PeerIdentity, append_frame};

use crate::outbound::Fault;

/// After so many times the threshold at which a peer counts as dead, without a whole frame, its connection is closed.
const SILENT_DEAD_TIMES: u64 = 3;

/// Whoever was heard within so many heartbeats still speaks.
pub(crate) const SPEAKS_HEARTBEATS: u64 = 3;

/// Room for bytes that a connection keeps when there are none.
const INPUT_KEPT_BYTES: usize = 64 << 10;

/// One accepted connection.
pub(crate) struct Inbound {
    /// Where it comes from.
    remote: IpAddr,
    state: State,
    framing: Framing,
    /// Bytes of a frame that is not whole.
    input: Vec<u8>,
    /// What is to be sent: a challenge, and nothing else ever.
    output: Vec<u8>,
}

enum State {
    /// Until then the dialer has to prove itself.
    Proving { listener: Listener, until_ms: u64 },
    /// It did, or said who it is where nothing has to be proved.
    Up(Up),
}

/// Of a dialer that is known.
struct Up {
    id: Arc<str>,
    epoch: Option<u64>,
    is_proven: bool,
    /// When it said who it is.
    since_ms: u64,
    /// When its last whole frame came.
    heard_ms: u64,
    /// When another connection came up under this id without saying of which incarnation it is.
    doubted_ms: Option<u64>,
}

/// Why a connection is given up when its time is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// Its dialer has not proved itself.
    Unproven,
    /// No whole frame came for so long.
    Silent,
    /// Its dialer has another connection now and says nothing on this one any more.
    Replaced,
}

/// What a peer says.
pub(crate) enum Heard {
    /// It is who it says.
    Peer { peer: PeerIdentity, is_proven: bool },
    /// A frame that is known.
    Message(Message),
    /// A frame of a type that is not.
    Unknown,
    /// A frame of a known type that says nothing that this type can say.
    Malformed,
}

impl Inbound {
    pub(crate) fn new(remote: IpAddr, listener: Listener, until_ms: u64) -> Self {
        Self {
            remote,
            state: State::Proving { listener, until_ms },
            framing: Framing::unproven(),
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Takes bytes in, and gives what they come to, one after the other, until an error ends the connection.
    pub(crate) fn received(&mut self, bytes: &[u8], now_ms: u64, mut heard: impl FnMut(Heard)) -> Result<(), Fault> {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut start = 0;
        while let Next::Frame { tag, payload, consumed } = self.framing.next(&input[start..]).map_err(Fault::Frame)? {
            match &mut self.state {
                State::Up(up) => {
                    up.heard_ms = now_ms;
                    match Message::parse(tag, payload) {
                        Ok(Some(message)) => heard(Heard::Message(message)),
                        Ok(None) => heard(Heard::Unknown),
                        // A newer broker may say it in another way: what cannot be understood is a hint that is lost.
                        Err(_) => heard(Heard::Malformed),
                    }
                }
                State::Proving { listener, .. } => match listener.step(tag, payload).map_err(Fault::Handshake)? {
                    ListenerStep::Send((tag, payload)) => append_frame(&mut self.output, tag, &payload, None),
                    ListenerStep::Proven(proven) => {
                        let is_proven = proven.seals.is_some();
                        self.framing.trust(proven.seals.map(|seals| seals.forward));
                        self.state = State::Up(Up {
                            id: proven.peer.server_id.as_str().into(),
                            epoch: proven.peer.epoch,
                            is_proven,
                            since_ms: now_ms,
                            heard_ms: now_ms,
                            doubted_ms: None,
                        });
                        heard(Heard::Peer { peer: proven.peer, is_proven });
                    }
                },
            }
            start += consumed;
        }
        input.drain(..start);
        if input.is_empty() && input.capacity() > INPUT_KEPT_BYTES {
            input = Vec::new();
        }
        self.input = input;
        Ok(())
    }

    /// Where it comes from.
    pub(crate) fn remote(&self) -> IpAddr {
        self.remote
    }

    pub(crate) fn take_output(&mut self) -> Option<Vec<u8>> {
        let output = std::mem::take(&mut self.output);
        (!output.is_empty()).then_some(output)
    }

    /// Whether its dialer's own nonce is this one.
    pub(crate) fn is_from(&self, nonce: &Nonce) -> bool {
        matches!(&self.state, State::Proving { listener, .. } if listener.is_from(nonce))
    }

    /// Bytes of a frame that is not whole.
    pub(crate) fn input_bytes(&self) -> usize {
        self.input.len()
    }

    /// When the connection is given up if nothing happens, and why.
    pub(crate) fn over(&self, heartbeat_ms: u64, dead_ms: u64) -> (u64, Over) {
        match &self.state {
            State::Proving { until_ms, .. } => (*until_ms, Over::Unproven),
            State::Up(up) => {
                let silent = (up.heard_ms + SILENT_DEAD_TIMES * dead_ms, Over::Silent);
                let replaced = up.doubted_ms.map(|at_ms| (at_ms + SPEAKS_HEARTBEATS * heartbeat_ms, Over::Replaced));
                replaced.filter(|&(at_ms, _)| at_ms < silent.0).unwrap_or(silent)
            }
        }
    }

    /// Whether the dialer has still to say or prove who it is.
    pub(crate) fn is_unproven(&self) -> bool {
        matches!(self.state, State::Proving { .. })
    }

    fn up(&self) -> Option<&Up> {
        match &self.state {
            State::Up(up) => Some(up),
            State::Proving { .. } => None,
        }
    }

    /// The peer's id, once it is known.
    pub(crate) fn id(&self) -> Option<&Arc<str>> {
        self.up().map(|up| &up.id)
    }

    /// The peer's incarnation, if it has said so.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.up().and_then(|up| up.epoch)
    }

    /// When the peer said who it is.
    pub(crate) fn since_ms(&self) -> Option<u64> {
        self.up().map(|up| up.since_ms)
    }

    /// Another connection has come up under this id: this one has to show that it is in use.
    pub(crate) fn doubt(&mut self, now_ms: u64) {
        if let State::Up(up) = &mut self.state {
            up.doubted_ms.get_or_insert(now_ms);
        }
    }

    /// Whether a frame that comes now shows that the connection is in use, though another came up: it cannot have been on
    /// its way then.
    pub(crate) fn settle(&mut self, heartbeat_ms: u64, now_ms: u64) -> bool {
        let State::Up(up) = &mut self.state else { return false };
        up.doubted_ms.take_if(|at_ms| now_ms >= *at_ms + heartbeat_ms).is_some()
    }

    /// Whether the peer has proved who it is.
    pub(crate) fn is_proven(&self) -> bool {
        self.up().is_some_and(|up| up.is_proven)
    }
}
