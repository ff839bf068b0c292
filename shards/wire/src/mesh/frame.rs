//! Frames: where one ends in a connection's bytes, and whether it is the peer's.

use super::handshake::Seal;

/// The largest frame, type and payload and MAC together. Batches of wakes are the only frames that are not tiny.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// The largest frame of a peer that has not proved itself.
pub const UNPROVEN_FRAME_BYTES_MAX: usize = 4 << 10;

/// Bytes of a frame's MAC, on a connection whose ends have proved themselves.
pub const MAC_BYTES: usize = 16;

/// Bytes of the length in front of a frame.
const LENGTH_BYTES: usize = 4;

/// Why a connection's bytes are no frames of the peer's. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length of nothing: not even a type.
    #[error("a frame without a type")]
    Empty,
    /// More than a frame may have. Found before anything is allocated for it.
    #[error("a frame of {bytes} bytes where {limit} are the most")]
    TooLarge {
        /// What the length says.
        bytes: u32,
        /// What it may say.
        limit: usize,
    },
    /// The MAC is not that of this frame on this connection: changed, replayed, or somebody else's.
    #[error("a frame with a wrong MAC")]
    Mac,
}

impl FrameError {
    /// The word under which it is counted.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLarge { .. } => "too_large",
            Self::Mac => "mac",
        }
    }
}

/// Cuts frames out of a connection's bytes.
#[derive(Debug)]
pub struct Framing {
    limit: usize,
    /// Checks the peer's MACs, once it has proved itself.
    seal: Option<Seal>,
}

/// What the bytes so far begin with.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A part of a frame: read until there are so many bytes in all, or more.
    NeedMore {
        /// Bytes from the beginning of the frame.
        bytes: usize,
    },
    /// A frame.
    Frame {
        /// Its type.
        tag: u8,
        /// Its payload.
        payload: &'a [u8],
        /// Bytes that it took; the next one begins behind them.
        consumed: usize,
    },
}

impl Framing {
    /// Of a connection whose peer has proved nothing.
    #[must_use]
    pub fn unproven() -> Self {
        Self { limit: UNPROVEN_FRAME_BYTES_MAX, seal: None }
    }

    /// From here on frames may be large; with a seal, each ends in a MAC.
    pub fn trust(&mut self, seal: Option<Seal>) {
        self.limit = FRAME_BYTES_MAX;
        self.seal = seal;
    }

    /// The first frame of `bytes`.
    ///
    /// # Errors
    /// See [`FrameError`]; nothing that follows in the bytes means anything then.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Next<'a>, FrameError> {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(Next::NeedMore { bytes: LENGTH_BYTES });
        };
        let declared = u32::from_be_bytes(*length);
        let length = declared as usize;
        let mac = if self.seal.is_some() { MAC_BYTES } else { 0 };
        if length <= mac {
            return Err(FrameError::Empty);
        }
        if length > self.limit {
            return Err(FrameError::TooLarge { bytes: declared, limit: self.limit });
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(Next::NeedMore { bytes: LENGTH_BYTES + length });
        };
        let (frame, mac) = frame.split_at(length - mac);
        let (&tag, payload) = frame.split_first().expect("longer than its MAC");
        if let Some(seal) = &mut self.seal
            && !seal.verifies(declared, tag, payload, mac)
        {
            return Err(FrameError::Mac);
        }
        Ok(Next::Frame { tag, payload, consumed: LENGTH_BYTES + length })
    }
}

/// Appends a frame; with a seal, its MAC too.
///
/// # Panics
/// When the payload is larger than a frame may be: whoever makes one splits it.
pub fn append_frame(out: &mut Vec<u8>, tag: u8, payload: &[u8], seal: Option<&mut Seal>) {
    let mac = if seal.is_some() { MAC_BYTES } else { 0 };
    let length = 1 + payload.len() + mac;
    assert!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
    let length = u32::try_from(length).expect("checked just before");
    out.extend_from_slice(&length.to_be_bytes());
    out.push(tag);
    out.extend_from_slice(payload);
    if let Some(seal) = seal {
        out.extend_from_slice(&seal.sign(length, tag, payload));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tag: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append_frame(&mut out, tag, payload, None);
        out
    }

    fn sealed(seal: &mut Seal, tag: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append_frame(&mut out, tag, payload, Some(seal));
        out
    }

    fn proven() -> Framing {
        let mut framing = Framing::unproven();
        framing.trust(Some(Seal::new([7; 32])));
        framing
    }

    #[test]
    fn a_frame_is_a_length_a_type_and_a_payload() {
        assert_eq!(frame(3, b""), [0, 0, 0, 1, 3]);
        assert_eq!(frame(1, b"{}"), [0, 0, 0, 3, 1, b'{', b'}']);
    }

    #[test]
    fn frames_are_cut_out_however_their_bytes_come() {
        let bytes = [frame(1, b"one"), frame(2, b""), frame(40, b"three")].concat();
        for cut in 0..bytes.len() {
            let (mut framing, mut found, mut start) = (Framing::unproven(), Vec::new(), 0);
            for end in [cut, bytes.len()] {
                while let Ok(Next::Frame { tag, payload, consumed }) = framing.next(&bytes[start..end]) {
                    found.push((tag, payload.to_vec()));
                    start += consumed;
                }
            }
            assert_eq!(found, [(1, b"one".to_vec()), (2, Vec::new()), (40, b"three".to_vec())], "cut at {cut}");
        }
    }

    #[test]
    fn a_part_of_a_frame_says_how_much_it_will_be() {
        let bytes = frame(1, &[b'x'; 100]);
        let mut framing = Framing::unproven();
        assert_eq!(framing.next(&bytes[..3]), Ok(Next::NeedMore { bytes: 4 }));
        assert_eq!(framing.next(&bytes[..50]), Ok(Next::NeedMore { bytes: 105 }));
    }

    #[test]
    fn a_length_is_judged_before_its_frame_comes() {
        let mut framing = Framing::unproven();
        let large = |bytes: u32| bytes.to_be_bytes();
        assert_eq!(framing.next(&large(0)), Err(FrameError::Empty));
        assert_eq!(framing.next(&large(4097)), Err(FrameError::TooLarge { bytes: 4097, limit: 4096 }));
        framing.trust(None);
        assert_eq!(framing.next(&large(4097)), Ok(Next::NeedMore { bytes: 4101 }));
        let most = FRAME_BYTES_MAX as u32;
        assert_eq!(
            framing.next(&large(most + 1)),
            Err(FrameError::TooLarge { bytes: most + 1, limit: FRAME_BYTES_MAX })
        );
        assert!(matches!(framing.next(&large(u32::MAX)), Err(FrameError::TooLarge { .. })));
    }

    #[test]
    fn a_sealed_frame_ends_in_a_mac_that_counts_frames() {
        let (mut out, mut framing) = (Seal::new([7; 32]), proven());
        for n in 0..3 {
            let bytes = sealed(&mut out, 1, &[n]);
            assert_eq!(bytes.len(), 4 + 1 + 1 + MAC_BYTES);
            assert_eq!(framing.next(&bytes), Ok(Next::Frame { tag: 1, payload: &[n], consumed: bytes.len() }));
        }
    }

    #[test]
    fn a_sealed_frame_that_was_changed_replayed_or_moved_is_none() {
        let first = sealed(&mut Seal::new([7; 32]), 40, b"{\"enabled\":true}");
        for at in 4..first.len() {
            let mut changed = first.clone();
            changed[at] ^= 1;
            assert_eq!(proven().next(&changed), Err(FrameError::Mac), "byte {at}");
        }
        let mut framing = proven();
        assert!(framing.next(&first).is_ok());
        assert_eq!(framing.next(&first), Err(FrameError::Mac), "a replay");
        let elsewhere = sealed(&mut Seal::new([8; 32]), 40, b"{}");
        assert_eq!(proven().next(&elsewhere), Err(FrameError::Mac), "another connection's");
        assert_eq!(proven().next(&frame(40, &[0; 20])), Err(FrameError::Mac), "without one");
        assert_eq!(proven().next(&frame(40, &[0; 15])), Err(FrameError::Empty), "too short for one");
    }

    #[test]
    fn a_frame_that_went_missing_is_noticed() {
        let (mut out, mut framing) = (Seal::new([7; 32]), proven());
        let _lost = sealed(&mut out, 1, b"lost");
        assert_eq!(framing.next(&sealed(&mut out, 1, b"next")), Err(FrameError::Mac));
    }
}
