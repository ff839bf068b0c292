//! Two ends with a wire between them, and an end by hand.

use queen_wire::{
    mesh::{Dialer, Framing, Identity, Next, Seals, Secret, append_frame},
    peer::{Accepted, Asked, Dialing, Frame, Heard, LABEL, Limits, PeerError, Read},
};

pub fn secret(text: &str) -> Secret {
    Secret::new(text).expect("a secret")
}

pub fn me(server_id: &str) -> Identity {
    Identity { server_id: server_id.to_owned(), http_addr: "http://10.0.0.1:6632".to_owned(), epoch: 0xabc }
}

pub fn dialing(limits: Limits) -> Dialing<u32> {
    Dialing::new(secret("s3cret"), &me("a"), "b", "b:6632", &[1; 16], limits)
}

pub fn accepted(limits: Limits) -> Accepted<u32> {
    Accepted::new(secret("s3cret"), "b", [2; 16], limits)
}

/// Two ends, and the bytes between them.
pub struct Pair {
    pub dialing: Dialing<u32>,
    pub accepted: Accepted<u32>,
    /// Sent by the dialer and not yet read.
    pub forward: Vec<u8>,
    /// Sent by the listener and not yet read.
    pub back: Vec<u8>,
}

impl Pair {
    pub fn dialled(dialing_limits: Limits, accepted_limits: Limits) -> Self {
        Self {
            dialing: dialing(dialing_limits),
            accepted: accepted(accepted_limits),
            forward: Vec::new(),
            back: Vec::new(),
        }
    }

    /// Two that have proved themselves.
    pub fn up(dialing_limits: Limits, accepted_limits: Limits) -> Self {
        let mut pair = Self::dialled(dialing_limits, accepted_limits);
        assert_eq!(pair.asked(), []);
        assert!(matches!(pair.heard()[..], [Heard::Proved(_)]));
        assert!(matches!(pair.asked()[..], [Asked::Proved(_)]));
        assert_eq!(pair.heard(), []);
        pair
    }

    /// Whatever the listener comes to hear.
    pub fn asked(&mut self) -> Vec<Asked<u32>> {
        self.dialing.output(&mut self.forward, usize::MAX);
        read_asked(&mut self.accepted, &mut self.forward).expect("a connection")
    }

    /// Whatever the dialer comes to hear.
    pub fn heard(&mut self) -> Vec<Heard<u32>> {
        self.accepted.output(&mut self.back, usize::MAX);
        read_heard(&mut self.dialing, &mut self.back).expect("a connection")
    }
}

pub fn read_asked(accepted: &mut Accepted<u32>, input: &mut Vec<u8>) -> Result<Vec<Asked<u32>>, PeerError> {
    drain(input, |bytes| accepted.read(bytes))
}

pub fn read_heard(dialing: &mut Dialing<u32>, input: &mut Vec<u8>) -> Result<Vec<Heard<u32>>, PeerError> {
    drain(input, |bytes| dialing.read(bytes))
}

fn drain<E>(
    input: &mut Vec<u8>,
    mut read: impl FnMut(&[u8]) -> Result<Read<E>, PeerError>,
) -> Result<Vec<E>, PeerError> {
    let (mut events, mut start) = (Vec::new(), 0);
    loop {
        match read(&input[start..])? {
            Read::Frame { consumed, event } => {
                events.extend(event);
                start += consumed;
            }
            Read::NeedMore { bytes } => {
                assert!(bytes > input.len() - start, "more than there is");
                break;
            }
            Read::Hold => break,
        }
    }
    input.drain(..start);
    Ok(events)
}

/// A dialer by hand, which knows the secret and sends what it likes.
pub struct ByHand {
    pub accepted: Accepted<u32>,
    pub seals: Seals,
    framing: Framing,
}

impl ByHand {
    pub fn up(limits: Limits) -> Self {
        let (dialer, hello) = Dialer::new(secret("s3cret"), LABEL, &me("a"), "b:6632", &[1; 16]);
        let (mut accepted, mut framing, mut sent) = (accepted(limits), Framing::unproven(), Vec::new());
        append_frame(&mut sent, hello.0, &hello.1, None);
        read_asked(&mut accepted, &mut sent).expect("a challenge");
        let mut output = Vec::new();
        accepted.output(&mut output, usize::MAX);
        let Ok(Next::Frame { tag, payload, .. }) = framing.next(&output) else { panic!("a challenge") };
        let step = dialer.step(tag, payload).expect("a challenge");
        append_frame(&mut sent, step.send.0, &step.send.1, None);
        read_asked(&mut accepted, &mut sent).expect("a proof");
        let seals = step.proven.seals.expect("keys");
        framing.trust(Some(seals.back.clone()));
        let mut peer = Self { accepted, seals, framing };
        assert!(matches!(peer.received()[..], [Frame::Credit { .. }]));
        peer
    }

    pub fn send_raw(&mut self, tag: u8, payload: &[u8]) -> Result<Vec<Asked<u32>>, PeerError> {
        let mut bytes = Vec::new();
        append_frame(&mut bytes, tag, payload, Some(&mut self.seals.forward));
        read_asked(&mut self.accepted, &mut bytes)
    }

    pub fn send(&mut self, frame: &Frame) -> Result<Vec<Asked<u32>>, PeerError> {
        let (tag, payload) = frame.render().expect("a frame");
        self.send_raw(tag, &payload)
    }

    /// What the listener has sent.
    pub fn received(&mut self) -> Vec<Frame> {
        let (mut bytes, mut start, mut frames) = (Vec::new(), 0, Vec::new());
        self.accepted.output(&mut bytes, usize::MAX);
        while let Next::Frame { tag, payload, consumed } = self.framing.next(&bytes[start..]).expect("sealed frames") {
            frames.push(Frame::parse(tag, payload).expect("a frame").expect("of a known type"));
            start += consumed;
        }
        frames
    }
}
