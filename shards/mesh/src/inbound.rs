//! A connection that was accepted: who is at its other end, and the frames that come in on it.

use std::{net::IpAddr, sync::Arc};

use queen_wire::mesh::{Framing, Listener, ListenerStep, Message, Next, PeerIdentity, append_frame};

use crate::outbound::Fault;

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
    Up { id: Arc<str>, epoch: Option<u64>, is_proven: bool },
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
    pub(crate) fn received(&mut self, bytes: &[u8], mut heard: impl FnMut(Heard)) -> Result<(), Fault> {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut start = 0;
        while let Next::Frame { tag, payload, consumed } = self.framing.next(&input[start..]).map_err(Fault::Frame)? {
            match &mut self.state {
                State::Up { .. } => match Message::parse(tag, payload) {
                    Ok(Some(message)) => heard(Heard::Message(message)),
                    Ok(None) => heard(Heard::Unknown),
                    // A newer broker may say it in another way: what cannot be understood is a hint that is lost.
                    Err(_) => heard(Heard::Malformed),
                },
                State::Proving { listener, .. } => match listener.step(tag, payload).map_err(Fault::Handshake)? {
                    ListenerStep::Send((tag, payload)) => append_frame(&mut self.output, tag, &payload, None),
                    ListenerStep::Proven(proven) => {
                        let is_proven = proven.seals.is_some();
                        self.framing.trust(proven.seals.map(|seals| seals.forward));
                        let (id, epoch) = (proven.peer.server_id.as_str().into(), proven.peer.epoch);
                        self.state = State::Up { id, epoch, is_proven };
                        heard(Heard::Peer { peer: proven.peer, is_proven });
                    }
                },
            }
            start += consumed;
        }
        input.drain(..start);
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

    /// Until when the dialer has to prove itself, if it has not.
    pub(crate) fn until_ms(&self) -> Option<u64> {
        match self.state {
            State::Proving { until_ms, .. } => Some(until_ms),
            State::Up { .. } => None,
        }
    }

    /// The peer's id, once it is known.
    pub(crate) fn id(&self) -> Option<&Arc<str>> {
        match &self.state {
            State::Up { id, .. } => Some(id),
            State::Proving { .. } => None,
        }
    }

    /// The peer's incarnation, if it has said so.
    pub(crate) fn epoch(&self) -> Option<u64> {
        match self.state {
            State::Up { epoch, .. } => epoch,
            State::Proving { .. } => None,
        }
    }

    /// Whether the peer has proved who it is.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(self.state, State::Up { is_proven: true, .. })
    }
}
