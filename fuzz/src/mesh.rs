//! What comes in on a mesh connection: whatever it is, nothing panics, nobody is proved by it, and how it is cut does not
//! matter.

use queen_wire::mesh::{FrameError, Framing, Listener, ListenerStep, Message, Next, Secret, append_frame};

const LABEL: &str = "queen-mesh/1";

/// Asserts that the bytes as a connection's frames are the same however they are cut; that a message which is understood
/// comes back as it was when it is sent on; and that bytes alone prove nothing to a listener with a secret.
pub fn mesh(data: &[u8]) {
    let whole = frames(data, data.len());
    assert_eq!(whole, frames(data, 1));
    for (tag, payload) in &whole.0 {
        if let Ok(Some(message)) = Message::parse(*tag, payload) {
            let (tag, payload) = message.render();
            assert_eq!(Message::parse(tag, &payload), Ok(Some(message)));
        }
        let mut resent = Vec::new();
        append_frame(&mut resent, *tag, payload, None);
        assert!(data.windows(resent.len()).any(|window| window == resent), "a frame is what came");
    }
    let mut listener = Listener::new(Secret::new("not in any seed"), LABEL, "me", true, [7; 16]);
    for (tag, payload) in &whole.0 {
        match listener.step(*tag, payload) {
            Ok(ListenerStep::Send(_)) => {}
            Ok(ListenerStep::Proven(proven)) => panic!("{proven:?}"),
            Err(_) => break,
        }
    }
    let mut open = Listener::new(None, LABEL, "me", true, [7; 16]);
    if let Some((tag, payload)) = whole.0.first()
        && let Ok(step) = open.step(*tag, payload)
    {
        let ListenerStep::Proven(proven) = step else { panic!("without a secret nobody is asked to prove anything") };
        assert!(proven.seals.is_none() && proven.peer.server_id != "me");
        assert!(queen_wire::mesh::is_server_id(&proven.peer.server_id));
    }
}

/// The frames in some bytes, read in pieces, and why there are no more.
fn frames(data: &[u8], piece: usize) -> (Vec<(u8, Vec<u8>)>, Option<FrameError>) {
    let (mut framing, mut found, mut input) = (Framing::unproven(), Vec::new(), Vec::new());
    for bytes in data.chunks(piece.max(1)) {
        input.extend_from_slice(bytes);
        loop {
            match framing.next(&input) {
                Ok(Next::NeedMore { bytes }) => {
                    assert!(bytes > input.len());
                    break;
                }
                Ok(Next::Frame { tag, payload, consumed }) => {
                    found.push((tag, payload.to_vec()));
                    input.drain(..consumed);
                }
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}
