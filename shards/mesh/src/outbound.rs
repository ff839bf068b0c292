//! The connection that this node dials to one peer, and what waits to be sent on it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use queen_wire::mesh::{
    Dialer, FrameError, Framing, HandshakeError, Identity, Message, Next, Nonce, PeerIdentity, Proven, Seal, Secret,
    append_frame,
};

use crate::node::{Connection, HANDSHAKE_MS, LABEL};
use crate::peers::Peer;
use crate::stats::{FrameKind, PeerStats};

/// Frames that wait for a peer, at most: beyond, they are dropped and counted. Every frame is a hint, and a peer that is
/// slow or down must cost nobody anything.
pub const QUEUE_FRAMES_MAX: usize = 1_024;

/// Bytes that wait for a peer in those frames, at most: a frame of a large push is large.
pub const QUEUE_BYTES_MAX: usize = 16 << 20;

/// The shortest and the longest pause before a peer is dialled again.
pub const BACKOFF_MIN_MS: u64 = 250;
/// See [`BACKOFF_MIN_MS`].
pub const BACKOFF_MAX_MS: u64 = 5_000;

/// A connection of the old form that has lasted so long was a good one.
const LASTING_MS: u64 = 10_000;

/// A peer that answers with this node's own id is this node itself, most of the time: it is asked again now and then.
const OWN_ID_PAUSE_MS: u64 = 60_000;

/// Where the connection is.
enum Link {
    /// To be dialled at this time.
    Down { at_ms: u64 },
    /// The shell dials.
    Dialling,
    /// HELLO is out, and the listener has to prove itself until then.
    Proving { connection: Connection, dialer: Dialer, framing: Framing, input: Vec<u8>, until_ms: u64 },
    /// The handshake has failed: to be closed.
    Failed { connection: Connection },
    /// Frames may be sent.
    Up { connection: Connection, seal: Option<Seal>, heartbeat_ms: u64, since_ms: u64 },
}

/// One configured peer.
pub(crate) struct Outbound {
    pub(crate) peer: Peer,
    link: Link,
    backoff_ms: u64,
    /// The next dial uses the old form: the last one got no challenge.
    old_form: bool,
    /// The nonce of the last HELLO.
    nonce: Nonce,
    /// Frames of the handshake, rendered.
    handshake: Vec<u8>,
    /// What has to be said first and is not dropped: switches, leaving. Two switches and a farewell at most.
    first: Vec<Message>,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    server_id: Option<Arc<str>>,
    sent: BTreeMap<FrameKind, u64>,
    dropped: u64,
}

/// A frame that waits, shared by all peers that it is for, and what it holds of memory.
#[derive(Clone)]
pub(crate) struct Queued {
    message: Arc<Message>,
    bytes: usize,
}

impl Queued {
    pub(crate) fn new(message: Message) -> Self {
        let bytes = message.held_bytes();
        Self { message: Arc::new(message), bytes }
    }
}

/// What came of bytes that a listener has sent.
pub(crate) enum Answered {
    /// Not yet enough.
    Nothing,
    /// The listener has proved itself.
    Proven(PeerIdentity),
}

/// Why an outbound connection is closed.
pub(crate) enum Fault {
    Handshake(HandshakeError),
    Frame(FrameError),
}

impl Outbound {
    pub(crate) fn new(peer: Peer, now_ms: u64) -> Self {
        Self {
            peer,
            link: Link::Down { at_ms: now_ms },
            backoff_ms: BACKOFF_MIN_MS,
            old_form: false,
            nonce: Nonce::default(),
            handshake: Vec::new(),
            first: Vec::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            server_id: None,
            sent: BTreeMap::new(),
            dropped: 0,
        }
    }

    /// Whether it is to be dialled now; then it counts as being dialled.
    pub(crate) fn is_due(&mut self, now_ms: u64) -> bool {
        let due = matches!(self.link, Link::Down { at_ms } if at_ms <= now_ms);
        if due {
            self.link = Link::Dialling;
        }
        due
    }

    /// The connection is made: HELLO goes out. With a secret, the listener is to prove itself first.
    pub(crate) fn dialled(
        &mut self,
        connection: Connection,
        secret: Option<&Secret>,
        me: &Identity,
        nonce: &Nonce,
        heartbeat_ms: u64,
        now_ms: u64,
    ) {
        self.handshake.clear();
        self.nonce = *nonce;
        let hello = match secret {
            Some(secret) if !self.old_form => {
                let (dialer, hello) = Dialer::new(secret.clone(), LABEL, me, &self.peer.to_string(), nonce);
                let until_ms = now_ms + HANDSHAKE_MS;
                let framing = Framing::unproven();
                self.link = Link::Proving { connection, dialer, framing, input: Vec::new(), until_ms };
                hello
            }
            _ => {
                self.up(connection, None, heartbeat_ms, now_ms);
                Dialer::old_form(secret, &me.server_id, nonce)
            }
        };
        append_frame(&mut self.handshake, hello.0, &hello.1, None);
    }

    fn up(&mut self, connection: Connection, seal: Option<Seal>, heartbeat_ms: u64, now_ms: u64) {
        self.link = Link::Up { connection, seal, heartbeat_ms: now_ms + heartbeat_ms, since_ms: now_ms };
    }

    /// The nonce of the last HELLO.
    pub(crate) fn nonce(&self) -> &Nonce {
        &self.nonce
    }

    /// What a listener sends: its proof, and nothing after that.
    pub(crate) fn received(&mut self, bytes: &[u8], heartbeat_ms: u64, now_ms: u64) -> Result<Answered, Fault> {
        let Link::Proving { framing, input, .. } = &mut self.link else {
            // The other direction has a connection of its own: what comes on this one means nothing.
            return Ok(Answered::Nothing);
        };
        input.extend_from_slice(bytes);
        let (tag, payload) = match framing.next(input).map_err(Fault::Frame)? {
            Next::NeedMore { .. } => return Ok(Answered::Nothing),
            Next::Frame { tag, payload, .. } => (tag, payload.to_vec()),
        };
        let Link::Proving { connection, dialer, .. } = std::mem::replace(&mut self.link, Link::Dialling) else {
            unreachable!("just seen");
        };
        self.link = Link::Failed { connection };
        let step = dialer.step(tag, &payload).map_err(Fault::Handshake)?;
        append_frame(&mut self.handshake, step.send.0, &step.send.1, None);
        let id: Arc<str> = step.proven.peer.server_id.as_str().into();
        self.server_id = Some(id);
        let Proven { peer, seals } = step.proven;
        self.up(connection, seals.map(|seals| seals.forward), heartbeat_ms, now_ms);
        self.backoff_ms = BACKOFF_MIN_MS;
        Ok(Answered::Proven(peer))
    }

    /// The connection ended, or was never made. `legacy` is whether the old form may be tried; `jitter` is any number.
    pub(crate) fn ended(&mut self, is_own: bool, legacy: bool, jitter: u64, now_ms: u64) {
        // A listener that closed or said nothing where a challenge is due may be an older broker. Not one that has proved
        // itself before: somebody may keep it busy so that it is taken for one.
        let unchallenged = matches!(self.link, Link::Proving { .. }) && self.server_id.is_none();
        self.old_form = legacy && unchallenged && !self.old_form;
        // The old form has no answer: that it went well shows in that it lasts.
        if matches!(self.link, Link::Up { since_ms, .. } if since_ms + LASTING_MS <= now_ms) {
            self.backoff_ms = BACKOFF_MIN_MS;
        }
        let pause_ms = if is_own {
            OWN_ID_PAUSE_MS
        } else {
            let pause_ms = self.backoff_ms;
            self.backoff_ms = (self.backoff_ms * 2).min(BACKOFF_MAX_MS);
            // Three quarters to five quarters: brokers that start together do not dial together for ever.
            pause_ms * 3 / 4 + jitter % (pause_ms / 2 + 1)
        };
        self.link = Link::Down { at_ms: now_ms + pause_ms };
        self.handshake.clear();
        self.first.clear();
        // What waits is about a time that will be over: a peer that comes back looks at what is there then.
        self.dropped += self.queue.len() as u64;
        self.queue.clear();
        self.queued_bytes = 0;
    }

    /// Whether the time for the listener's proof is over.
    pub(crate) fn is_late(&self, now_ms: u64) -> bool {
        matches!(self.link, Link::Proving { until_ms, .. } if until_ms <= now_ms)
    }

    /// The connection, if there is one.
    pub(crate) fn connection(&self) -> Option<Connection> {
        match self.link {
            Link::Proving { connection, .. } | Link::Failed { connection } | Link::Up { connection, .. } => {
                Some(connection)
            }
            Link::Down { .. } | Link::Dialling => None,
        }
    }

    /// Queues a frame, or drops it: there is no room, or no connection.
    pub(crate) fn send(&mut self, queued: &Queued) {
        let has_room = self.queue.len() < QUEUE_FRAMES_MAX && self.queued_bytes + queued.bytes <= QUEUE_BYTES_MAX;
        if self.is_up() && has_room {
            self.queued_bytes += queued.bytes;
            self.queue.push_back(queued.clone());
        } else {
            self.dropped += 1;
        }
    }

    /// Sends this before anything that waits, in place of another of its kind.
    pub(crate) fn send_first(&mut self, message: Message) {
        if matches!(self.link, Link::Up { .. }) {
            self.first.retain(|other| std::mem::discriminant(other) != std::mem::discriminant(&message));
            self.first.push(message);
        }
    }

    /// The next bytes to send; whole frames, some 64 KiB of them at the most where one is not larger.
    pub(crate) fn take_output(&mut self, heartbeat_every_ms: u64, now_ms: u64) -> Option<Vec<u8>> {
        const TURN_BYTES: usize = 64 << 10;
        let mut out = std::mem::take(&mut self.handshake);
        if let Link::Up { seal, heartbeat_ms, .. } = &mut self.link {
            let mut put = |message: &Message, out: &mut Vec<u8>| {
                let (tag, payload) = message.render();
                append_frame(out, tag, &payload, seal.as_mut());
                *self.sent.entry(FrameKind::of(message)).or_default() += 1;
                // Any frame is a sign of life.
                *heartbeat_ms = now_ms + heartbeat_every_ms;
            };
            for message in std::mem::take(&mut self.first) {
                put(&message, &mut out);
            }
            while out.len() < TURN_BYTES
                && let Some(queued) = self.queue.pop_front()
            {
                self.queued_bytes -= queued.bytes;
                put(&queued.message, &mut out);
            }
            if out.is_empty() && *heartbeat_ms <= now_ms {
                let (tag, payload) = Message::Heartbeat.render();
                append_frame(&mut out, tag, &payload, seal.as_mut());
                *self.sent.entry(FrameKind::Heartbeat).or_default() += 1;
                *heartbeat_ms = now_ms + heartbeat_every_ms;
            }
        }
        (!out.is_empty()).then_some(out)
    }

    /// When something is due here. A heartbeat that is overdue waits for room in the socket, not for a time.
    pub(crate) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        match self.link {
            Link::Down { at_ms } => Some(at_ms),
            Link::Dialling | Link::Failed { .. } => None,
            Link::Proving { until_ms, .. } => Some(until_ms),
            Link::Up { heartbeat_ms, .. } => Some(heartbeat_ms).filter(|&at_ms| at_ms > now_ms),
        }
    }

    /// Whether what has to be said first has left the queue.
    pub(crate) fn has_said_first(&self) -> bool {
        self.first.is_empty()
    }

    /// Whether frames can be sent now.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up { .. })
    }

    pub(crate) fn stats(&self) -> PeerStats {
        PeerStats {
            server_id: self.server_id.clone(),
            connected: self.is_up(),
            sent: self.sent.clone(),
            dropped: self.dropped,
            queued_frames: self.queue.len(),
            queued_bytes: self.queued_bytes,
        }
    }
}
