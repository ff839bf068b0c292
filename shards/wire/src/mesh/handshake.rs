//! Who is at the other end of a connection: the exchange with which it begins, from both ends.
//!
//! ```text
//! dialer                                             listener
//!   HELLO {id, nonce, challenge, dialled, …}  ──────▶
//!         ◀────── CHALLENGE {id, nonce, mac: HMAC(secret, "listener" ‖ T)}
//!   PROOF {mac: HMAC(secret, "dialer" ‖ T)}   ──────▶
//!   frames with MACs under HMAC(secret, "key" ‖ T) ─▶
//!         ◀─ frames with MACs under HMAC(secret, "key-back" ‖ T)
//! ```
//!
//! T is SHA-256 over a label, HELLO's payload as it was sent, and id and nonce of CHALLENGE, each with its u32 length in
//! front. Each end contributes a nonce, so neither half can be replayed to another, and nothing in HELLO can be changed.
//! This authenticates; it does not encrypt. The label tells kinds of connections apart: a mesh connection carries frames
//! from the dialer only, a [peer link](crate::peer) both ways. Each direction has a key of its own, so that no frame can
//! be sent back to whoever made it.
//!
//! The **old form**, which older brokers speak: HELLO `{server_id, nonce, mac: HMAC(secret, nonce)}` and nothing else. It
//! can be replayed. It is spoken where it is allowed, and where there is no secret: then nothing is verified.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::frame::MAC_BYTES;

/// The types of the exchange's frames.
const HELLO: u8 = 4;
const CHALLENGE: u8 = 6;
const PROOF: u8 = 7;

/// What a peer says that places queues as this broker does.
pub const PLACEMENT: &str = "queen-tpc/1";

/// A random number of 16 bytes, as hexadecimal text on the wire.
pub type Nonce = [u8; 16];

/// What all brokers of a cluster know. Never shown.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret; an empty one is none.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.as_bytes().to_vec()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(not shown)")
    }
}

/// Bytes of a server's id, at most.
pub const SERVER_ID_BYTES_MAX: usize = 128;

/// Whether a text can be a server's id: printable ASCII but blanks, quotes and backslashes, so that it needs no escape
/// wherever it is shown.
#[must_use]
pub fn is_server_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    (1..=SERVER_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// Who this broker is, to its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The same over restarts, and of this broker alone.
    pub server_id: String,
    /// Where peers reach its HTTP port: a base address.
    pub http_addr: String,
    /// The node's incarnation.
    pub epoch: u64,
}

/// Who a peer says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Its id.
    pub server_id: String,
    /// Where its HTTP port is, if it says so.
    pub http_addr: Option<String>,
    /// Its incarnation, if it says so.
    pub epoch: Option<u64>,
    /// Whether it places queues as this broker does.
    pub places: bool,
}

/// A peer at the end of the exchange.
#[derive(Debug)]
pub struct Proven {
    /// Who it is.
    pub peer: PeerIdentity,
    /// What frames are sealed with; `None` where it has proved nothing: it spoke the old form, or there is no secret.
    pub seals: Option<Seals>,
}

/// What the frames of a connection are sealed with: a key for each direction, the same at both ends.
#[derive(Debug)]
pub struct Seals {
    /// Of the frames from the dialer to the listener.
    pub forward: Seal,
    /// Of those from the listener to the dialer.
    pub back: Seal,
}

/// Why the exchange ended without a peer. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HandshakeError {
    /// Another frame came than the exchange has at this point.
    #[error("a frame that the handshake does not have there")]
    Unexpected,
    /// The frame's payload is not what it should be.
    #[error("a handshake that cannot be read")]
    Malformed,
    /// The MAC is not made with this secret over this exchange.
    #[error("another secret, or a replay")]
    Mac,
    /// The old form, where it is not allowed.
    #[error("the old handshake, which QUEEN_MESH_LEGACY_HELLO does not allow")]
    Legacy,
    /// The peer has this broker's own id.
    #[error("the id of this broker itself")]
    SameId,
}

impl HandshakeError {
    /// The word under which it is counted.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unexpected => "unexpected",
            Self::Malformed => "malformed",
            Self::Mac => "mac",
            Self::Legacy => "legacy",
            Self::SameId => "same_id",
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Hello {
    server_id: String,
    nonce: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    challenge: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placement: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dialled: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http_addr: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    eph_epoch: Option<String>,
}

impl Hello {
    fn parse(payload: &[u8]) -> Result<Self, HandshakeError> {
        let hello: Self = serde_json::from_slice(payload).map_err(|_| HandshakeError::Malformed)?;
        let is_whole = is_server_id(&hello.server_id) && !hello.nonce.is_empty();
        if is_whole { Ok(hello) } else { Err(HandshakeError::Malformed) }
    }

    fn peer(self) -> PeerIdentity {
        PeerIdentity {
            server_id: self.server_id,
            http_addr: self.http_addr,
            epoch: self.eph_epoch.and_then(|epoch| u64::from_str_radix(&epoch, 16).ok()),
            places: self.placement.as_deref() == Some(PLACEMENT),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Challenge {
    server_id: String,
    nonce: String,
    mac: String,
}

#[derive(Serialize, Deserialize)]
struct Proof {
    mac: String,
}

/// What each end computes its MACs over.
struct Transcript([u8; 32]);

impl Transcript {
    fn new(label: &str, hello: &[u8], server_id: &str, nonce: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [label.as_bytes(), hello, server_id.as_bytes(), nonce.as_bytes()] {
            hash.update(u32::try_from(part.len()).expect("a frame is smaller").to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    fn mac(&self, secret: &Secret, role: &str) -> Hmac<Sha256> {
        keyed(&secret.0, &[role.as_bytes(), &self.0])
    }

    fn seals(&self, secret: &Secret) -> Seals {
        let seal = |role| Seal::new(self.mac(secret, role).finalize().into_bytes().into());
        Seals { forward: seal("key"), back: seal("key-back") }
    }
}

fn keyed(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::new_from_slice(key).expect("a key of any length will do");
    for part in parts {
        mac.update(part);
    }
    mac
}

/// Whether a text is this MAC, in constant time.
fn is(mac: Hmac<Sha256>, text: &str) -> bool {
    of_hex(text).is_some_and(|bytes| mac.verify_slice(&bytes).is_ok())
}

/// A MAC as text.
fn text(mac: Hmac<Sha256>) -> String {
    hex(&mac.finalize().into_bytes())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a digit");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Makes and checks the MACs of one direction of a connection: each covers the number of its frame, so that none can be
/// left out, repeated or moved.
#[derive(Clone)]
pub struct Seal {
    key: [u8; 32],
    frames: u64,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").field("frames", &self.frames).finish_non_exhaustive()
    }
}

impl Seal {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self { key, frames: 0 }
    }

    fn next(&mut self, length: u32, tag: u8, payload: &[u8]) -> Hmac<Sha256> {
        let count = self.frames.to_be_bytes();
        self.frames += 1;
        keyed(&self.key, &[&count, &length.to_be_bytes(), &[tag], payload])
    }

    pub(super) fn sign(&mut self, length: u32, tag: u8, payload: &[u8]) -> [u8; MAC_BYTES] {
        let mac = self.next(length, tag, payload).finalize().into_bytes();
        *mac.first_chunk().expect("SHA-256 is longer")
    }

    pub(super) fn verifies(&mut self, length: u32, tag: u8, payload: &[u8], mac: &[u8]) -> bool {
        mac.len() == MAC_BYTES && self.next(length, tag, payload).verify_truncated_left(mac).is_ok()
    }
}

/// The end that dials.
#[derive(Debug)]
pub struct Dialer {
    secret: Secret,
    label: &'static str,
    own_id: String,
    hello: Vec<u8>,
}

/// A dialer's answer to a frame: send this, and the listener has proved itself.
#[derive(Debug)]
pub struct DialerStep {
    /// The frame to send.
    pub send: (u8, Vec<u8>),
    /// The listener.
    pub proven: Proven,
}

impl Dialer {
    /// Begins an exchange in which both ends prove themselves: the dialer, and the frame to send first. `dialled` is the
    /// configured `host:port`; `label` tells kinds of connections apart, such as `queen-mesh/1`.
    #[must_use]
    pub fn new(
        secret: Secret,
        label: &'static str,
        me: &Identity,
        dialled: &str,
        nonce: &Nonce,
    ) -> (Self, (u8, Vec<u8>)) {
        let hello = Hello {
            server_id: me.server_id.clone(),
            nonce: hex(nonce),
            mac: None,
            challenge: true,
            placement: Some(PLACEMENT.to_owned()),
            dialled: Some(dialled.to_owned()),
            http_addr: Some(me.http_addr.clone()),
            eph_epoch: Some(format!("{:x}", me.epoch)),
        };
        let hello = serde_json::to_vec(&hello).expect("texts");
        let dialer = Self { secret, label, own_id: me.server_id.clone(), hello: hello.clone() };
        (dialer, (HELLO, hello))
    }

    /// HELLO in the old form, after which frames follow at once and nothing is proved. Without a secret its MAC is made
    /// with an empty one.
    #[must_use]
    pub fn old_form(secret: Option<&Secret>, server_id: &str, nonce: &Nonce) -> (u8, Vec<u8>) {
        let nonce = hex(nonce);
        let mac = keyed(secret.map_or(&[], |secret| &secret.0), &[nonce.as_bytes()]);
        let hello = Hello {
            server_id: server_id.to_owned(),
            mac: Some(text(mac)),
            nonce,
            challenge: false,
            placement: None,
            dialled: None,
            http_addr: None,
            eph_epoch: None,
        };
        (HELLO, serde_json::to_vec(&hello).expect("texts"))
    }

    /// The listener's first frame.
    ///
    /// # Errors
    /// See [`HandshakeError`].
    pub fn step(self, tag: u8, payload: &[u8]) -> Result<DialerStep, HandshakeError> {
        if tag != CHALLENGE {
            return Err(HandshakeError::Unexpected);
        }
        let challenge: Challenge = serde_json::from_slice(payload).map_err(|_| HandshakeError::Malformed)?;
        let transcript = Transcript::new(self.label, &self.hello, &challenge.server_id, &challenge.nonce);
        if !is(transcript.mac(&self.secret, "listener"), &challenge.mac) {
            return Err(HandshakeError::Mac);
        }
        if challenge.server_id == self.own_id {
            return Err(HandshakeError::SameId);
        }
        if !is_server_id(&challenge.server_id) {
            return Err(HandshakeError::Malformed);
        }
        let proof = Proof { mac: text(transcript.mac(&self.secret, "dialer")) };
        let peer = PeerIdentity { server_id: challenge.server_id, http_addr: None, epoch: None, places: false };
        Ok(DialerStep {
            send: (PROOF, serde_json::to_vec(&proof).expect("a text")),
            proven: Proven { peer, seals: Some(transcript.seals(&self.secret)) },
        })
    }
}

/// The end that is dialled.
#[derive(Debug)]
pub struct Listener {
    secret: Option<Secret>,
    label: &'static str,
    own_id: String,
    /// Whether a peer that does not ask for a challenge is taken.
    legacy: bool,
    nonce: Nonce,
    /// The nonce of HELLO, as it was written.
    dialer_nonce: Option<String>,
    /// What HELLO said, once it was challenged.
    challenged: Option<(PeerIdentity, Transcript)>,
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transcript")
    }
}

/// What a listener does next.
#[derive(Debug)]
pub enum ListenerStep {
    /// Send this frame, and wait for the next.
    Send((u8, Vec<u8>)),
    /// The exchange is over: frames count from here on.
    Proven(Proven),
}

impl Listener {
    /// Waits for HELLO. Without a secret every HELLO is taken, and nothing is proved.
    #[must_use]
    pub fn new(secret: Option<Secret>, label: &'static str, server_id: &str, legacy: bool, nonce: Nonce) -> Self {
        Self { secret, label, own_id: server_id.to_owned(), legacy, nonce, dialer_nonce: None, challenged: None }
    }

    /// The dialer's next frame.
    ///
    /// # Errors
    /// See [`HandshakeError`]: nothing more is to be read from the connection.
    pub fn step(&mut self, tag: u8, payload: &[u8]) -> Result<ListenerStep, HandshakeError> {
        match (tag, self.challenged.take()) {
            (HELLO, None) => self.hello(payload),
            (PROOF, Some((peer, transcript))) => self.proof(payload, peer, &transcript),
            _ => Err(HandshakeError::Unexpected),
        }
    }

    /// Whether the dialer's HELLO has this nonce: then it comes from whoever made that up, who has not told it before.
    #[must_use]
    pub fn is_from(&self, nonce: &Nonce) -> bool {
        self.dialer_nonce.as_ref().is_some_and(|said| *said == hex(nonce))
    }

    fn hello(&mut self, payload: &[u8]) -> Result<ListenerStep, HandshakeError> {
        let hello = Hello::parse(payload)?;
        self.dialer_nonce = Some(hello.nonce.clone());
        let Some(secret) = &self.secret else {
            // Nothing is verified, so nothing that matters is believed.
            return self.not_myself(hello.peer()).map(unproven);
        };
        if !hello.challenge {
            if !self.legacy {
                return Err(HandshakeError::Legacy);
            }
            let mac = keyed(&secret.0, &[hello.nonce.as_bytes()]);
            if !hello.mac.as_deref().is_some_and(|text| is(mac, text)) {
                return Err(HandshakeError::Mac);
            }
            return self.not_myself(hello.peer()).map(unproven);
        }
        let nonce = hex(&self.nonce);
        let transcript = Transcript::new(self.label, payload, &self.own_id, &nonce);
        let mac = text(transcript.mac(secret, "listener"));
        let challenge = Challenge { server_id: self.own_id.clone(), nonce, mac };
        self.challenged = Some((hello.peer(), transcript));
        Ok(ListenerStep::Send((CHALLENGE, serde_json::to_vec(&challenge).expect("texts"))))
    }

    fn proof(
        &self,
        payload: &[u8],
        peer: PeerIdentity,
        transcript: &Transcript,
    ) -> Result<ListenerStep, HandshakeError> {
        let secret = self.secret.as_ref().expect("only with one is a peer challenged");
        let proof: Proof = serde_json::from_slice(payload).map_err(|_| HandshakeError::Malformed)?;
        if !is(transcript.mac(secret, "dialer"), &proof.mac) {
            return Err(HandshakeError::Mac);
        }
        let peer = self.not_myself(peer)?;
        Ok(ListenerStep::Proven(Proven { peer, seals: Some(transcript.seals(secret)) }))
    }

    fn not_myself(&self, peer: PeerIdentity) -> Result<PeerIdentity, HandshakeError> {
        if peer.server_id == self.own_id { Err(HandshakeError::SameId) } else { Ok(peer) }
    }
}

/// A peer of the old form: what it says about placement is nobody's word.
fn unproven(peer: PeerIdentity) -> ListenerStep {
    ListenerStep::Proven(Proven { peer: PeerIdentity { places: false, ..peer }, seals: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::{FrameError, Framing, Next, append_frame};

    const LABEL: &str = "queen-mesh/1";

    fn secret(text: &str) -> Secret {
        Secret::new(text).expect("a secret")
    }

    fn me(server_id: &str) -> Identity {
        Identity { server_id: server_id.to_owned(), http_addr: "http://10.0.0.1:6632".to_owned(), epoch: 0xabc }
    }

    fn dialer(text: &str) -> (Dialer, (u8, Vec<u8>)) {
        Dialer::new(secret(text), LABEL, &me("a"), "b:6633", &[1; 16])
    }

    fn listener(text: Option<&str>, legacy: bool) -> Listener {
        Listener::new(text.map(secret), LABEL, "b", legacy, [2; 16])
    }

    fn challenge(listener: &mut Listener, (tag, hello): &(u8, Vec<u8>)) -> (u8, Vec<u8>) {
        match listener.step(*tag, hello) {
            Ok(ListenerStep::Send(frame)) => frame,
            other => panic!("a challenge, not {other:?}"),
        }
    }

    fn proven(step: Result<ListenerStep, HandshakeError>) -> Proven {
        match step {
            Ok(ListenerStep::Proven(proven)) => proven,
            other => panic!("a peer, not {other:?}"),
        }
    }

    #[test]
    fn two_that_know_the_secret_prove_it_and_share_a_key() {
        let ((dialer, hello), mut listener) = (dialer("s3cret"), listener(Some("s3cret"), false));
        let (tag, payload) = challenge(&mut listener, &hello);
        let DialerStep { send: (tag, proof), proven: there } =
            dialer.step(tag, &payload).expect("the listener's proof");
        assert_eq!(there.peer.server_id, "b");
        let here = proven(listener.step(tag, &proof));
        let peer = PeerIdentity {
            server_id: "a".to_owned(),
            http_addr: Some("http://10.0.0.1:6632".to_owned()),
            epoch: Some(0xabc),
            places: true,
        };
        assert_eq!(here.peer, peer);
        let (there, here) = (there.seals.expect("keys"), here.seals.expect("keys"));
        let (mut seal, mut framing) = (there.forward, Framing::unproven());
        framing.trust(Some(here.forward));
        let mut out = Vec::new();
        append_frame(&mut out, 40, b"{\"enabled\":true}", Some(&mut seal));
        assert!(matches!(framing.next(&out), Ok(Next::Frame { tag: 40, .. })));
        assert_eq!(framing.next(&out), Err(FrameError::Mac), "a replay on the same connection");
        let (mut seal, mut framing) = (here.back, Framing::unproven());
        framing.trust(Some(there.back.clone()));
        assert_eq!(framing.next(&out), Err(FrameError::Mac), "sent back to whoever made it");
        let mut back = Vec::new();
        append_frame(&mut back, 40, b"{\"enabled\":true}", Some(&mut seal));
        let mut framing = Framing::unproven();
        framing.trust(Some(there.back));
        assert!(matches!(framing.next(&back), Ok(Next::Frame { tag: 40, .. })));
    }

    #[test]
    fn the_secret_itself_and_the_key_never_travel() {
        let ((dialer, hello), mut listener) = (dialer("s3cret-of-all"), listener(Some("s3cret-of-all"), false));
        let sent = challenge(&mut listener, &hello);
        let step = dialer.step(sent.0, &sent.1).expect("a proof");
        for payload in [&hello.1, &sent.1, &step.send.1] {
            let payload = String::from_utf8_lossy(payload);
            assert!(!payload.contains("s3cret"), "{payload}");
            let seals = step.proven.seals.as_ref().expect("keys");
            assert!(
                !payload.contains(&hex(&seals.forward.key)) && !payload.contains(&hex(&seals.back.key)),
                "{payload}"
            );
        }
        assert_eq!(format!("{:?}", secret("s3cret")), "(not shown)");
        assert_eq!(format!("{:?}", step.proven.seals.expect("keys").forward), "Seal { frames: 0, .. }");
    }

    #[test]
    fn another_secret_is_found_out_by_both_ends() {
        let ((dialer, hello), mut listener) = (dialer("one"), listener(Some("other"), true));
        let (tag, payload) = challenge(&mut listener, &hello);
        assert_eq!(dialer.step(tag, &payload).expect_err("another secret"), HandshakeError::Mac);
        let forged = serde_json::to_vec(&Proof { mac: hex(&[0; 32]) }).expect("JSON");
        assert_eq!(listener.step(PROOF, &forged).expect_err("a guess"), HandshakeError::Mac);
    }

    #[test]
    fn what_hello_said_cannot_be_changed_on_the_way() {
        for (from, to) in [
            (r#""http_addr":"http://10.0.0.1:6632""#, r#""http_addr":"http://10.6.6.6:6632""#),
            (r#""eph_epoch":"abc""#, r#""eph_epoch":"abd""#),
            (r#""dialled":"b:6633""#, r#""dialled":"c:6633""#),
            (r#""server_id":"a""#, r#""server_id":"x""#),
            (r#""placement":"queen-tpc/1""#, r#""placement":"queen-tpc/2""#),
        ] {
            let ((dialer, hello), mut listener) = (dialer("s3cret"), listener(Some("s3cret"), true));
            let swapped = String::from_utf8(hello.1).expect("JSON").replace(from, to);
            let (tag, payload) = challenge(&mut listener, &(HELLO, swapped.into_bytes()));
            assert_eq!(dialer.step(tag, &payload).expect_err(to), HandshakeError::Mac);
        }
    }

    #[test]
    fn neither_half_can_be_replayed() {
        // Recorded: a whole exchange.
        let ((one, hello), mut first) = (dialer("s3cret"), listener(Some("s3cret"), false));
        let sent = challenge(&mut first, &hello);
        let proof = one.step(sent.0, &sent.1).expect("a proof").send.1;
        // The dialer's half, to the same listener: it asks with another nonce.
        let mut again = Listener::new(Some(secret("s3cret")), LABEL, "b", false, [3; 16]);
        challenge(&mut again, &hello);
        assert_eq!(again.step(PROOF, &proof).expect_err("a replay"), HandshakeError::Mac);
        // The listener's half, to the same dialer: it has asked with another nonce.
        let (fresh, _) = Dialer::new(secret("s3cret"), LABEL, &me("a"), "b:6633", &[9; 16]);
        assert_eq!(fresh.step(sent.0, &sent.1).expect_err("a replay"), HandshakeError::Mac);
        // And on a connection of another kind.
        let mut link = Listener::new(Some(secret("s3cret")), "queen-peer/1", "b", false, [2; 16]);
        challenge(&mut link, &hello);
        assert_eq!(link.step(PROOF, &proof).expect_err("for another kind"), HandshakeError::Mac);
        // A listener's own MAC is no proof.
        let reflected = serde_json::from_slice::<Challenge>(&sent.1).expect("JSON").mac;
        let reflected = serde_json::to_vec(&Proof { mac: reflected }).expect("JSON");
        let mut third = listener(Some("s3cret"), false);
        challenge(&mut third, &hello);
        assert_eq!(third.step(PROOF, &reflected).expect_err("a reflection"), HandshakeError::Mac);
    }

    #[test]
    fn frames_out_of_turn_end_it() {
        let (_, hello) = dialer("s3cret");
        let fresh = || listener(Some("s3cret"), true);
        for tag in [PROOF, CHALLENGE, 1, 3, 40, 99] {
            assert_eq!(fresh().step(tag, b"{}").expect_err("before HELLO"), HandshakeError::Unexpected, "{tag}");
        }
        let mut twice = fresh();
        challenge(&mut twice, &hello);
        assert_eq!(twice.step(HELLO, &hello.1).expect_err("HELLO twice"), HandshakeError::Unexpected);
        let (dialer, _) = dialer("s3cret");
        assert_eq!(dialer.step(HELLO, &hello.1).expect_err("HELLO back"), HandshakeError::Unexpected);
    }

    #[test]
    fn a_payload_that_is_none_ends_it() {
        for payload in [
            "",
            "{}",
            "[]",
            r#"{"server_id":"","nonce":"00"}"#,
            r#"{"server_id":"a"}"#,
            r#"{"server_id":7,"nonce":"0"}"#,
        ] {
            let step = listener(Some("s3cret"), true).step(HELLO, payload.as_bytes());
            assert_eq!(step.expect_err(payload), HandshakeError::Malformed);
        }
        for mac in ["", "0", "zz", "é", "00"] {
            let (_, hello) = dialer("s3cret");
            let mut listener = listener(Some("s3cret"), true);
            challenge(&mut listener, &hello);
            let proof = serde_json::to_vec(&Proof { mac: mac.to_owned() }).expect("JSON");
            assert_eq!(listener.step(PROOF, &proof).expect_err(mac), HandshakeError::Mac);
        }
    }

    #[test]
    fn the_old_form_is_taken_where_it_is_allowed_and_proves_nothing() {
        let (tag, old) = Dialer::old_form(Some(&secret("s3cret")), "old", &[5; 16]);
        let taken = proven(listener(Some("s3cret"), true).step(tag, &old));
        assert_eq!((taken.peer.server_id.as_str(), taken.peer.places), ("old", false));
        assert!(taken.seals.is_none());
        assert_eq!(listener(Some("s3cret"), false).step(tag, &old).expect_err("not allowed"), HandshakeError::Legacy);
        assert_eq!(listener(Some("other"), true).step(tag, &old).expect_err("another secret"), HandshakeError::Mac);
        let bare = br#"{"server_id":"old","nonce":"00","placement":"queen-tpc/1"}"#;
        assert_eq!(listener(Some("s3cret"), true).step(tag, bare).expect_err("no MAC"), HandshakeError::Mac);
    }

    #[test]
    fn the_old_forms_mac_is_over_the_nonces_text() {
        let (_, old) = Dialer::old_form(Some(&secret("key")), "old", &[0xab; 16]);
        let old: Hello = serde_json::from_slice(&old).expect("JSON");
        assert_eq!(old.nonce, "abababababababababababababababab");
        // printf abab…ab | openssl dgst -sha256 -hmac key
        let expected = "212a038217cf7764783e9566b5dc4c18a2b2d7bc3f877735c8a9ea0c5ce99a22";
        assert_eq!(old.mac.as_deref(), Some(expected));
    }

    #[test]
    fn without_a_secret_everybody_is_taken_and_nobody_believed() {
        let (_, hello) = dialer("whatever");
        let old = Dialer::old_form(None, "old", &[5; 16]);
        for (tag, payload) in [hello, old] {
            let taken = proven(listener(None, true).step(tag, &payload));
            assert!(!taken.peer.places && taken.seals.is_none());
        }
    }

    #[test]
    fn a_broker_does_not_take_itself_for_a_peer() {
        let (dialer, hello) = Dialer::new(secret("s3cret"), LABEL, &me("b"), "b:6633", &[1; 16]);
        let mut itself = listener(Some("s3cret"), true);
        let (tag, payload) = challenge(&mut itself, &hello);
        assert_eq!(dialer.step(tag, &payload).expect_err("itself"), HandshakeError::SameId);
        let (tag, old) = Dialer::old_form(None, "b", &[5; 16]);
        assert_eq!(listener(None, true).step(tag, &old).expect_err("itself"), HandshakeError::SameId);
    }
}
