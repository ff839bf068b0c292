//! What comes in on a peer link, before and after its ends have proved themselves: whatever it is, nothing panics, what is
//! read is written the same, and every request and every claim is over once.

use std::collections::BTreeSet;

use queen_wire::{
    mesh::{Dialer, Framing, Identity, Listener, ListenerStep, Next, Secret, append_frame},
    peer::{Accepted, Answer, Ask, Asked, Dialing, Frame, Heard, LABEL, Limits, PeerError, Pop, Read, Request},
};

const LIMITS: Limits = Limits { outstanding_max: 4, waiting_bytes_max: 1 << 10, message_bytes_max: 4 << 10, credit: 2 };

/// Asserts of some bytes, as frames without MACs: that a frame which is understood comes back as it was when it is sent on;
/// that they prove nothing to either end, however they are cut; and that both ends, once they trust whoever sends them,
/// hand out every request once and let every claim end once.
pub fn peer(data: &[u8]) {
    for (tag, payload) in cut(data) {
        if let Ok(Some(frame)) = Frame::parse(tag, payload)
            && let Ok((tag, payload)) = frame.render()
        {
            assert_eq!(Frame::parse(tag, &payload), Ok(Some(frame)));
        }
    }
    assert_eq!(unproven(data, data.len()), unproven(data, 1));
    at_the_listener(data);
    at_the_dialer(data);
}

/// The frames in some bytes.
fn cut(data: &[u8]) -> Vec<(u8, &[u8])> {
    let (mut framing, mut frames, mut rest) = (Framing::unproven(), Vec::new(), data);
    framing.trust(None);
    while let Ok(Next::Frame { tag, payload, consumed }) = framing.next(rest) {
        frames.push((tag, payload));
        rest = &rest[consumed..];
    }
    frames
}

fn secret() -> Secret {
    Secret::new("not in any seed").expect("a secret")
}

fn me() -> Identity {
    Identity { server_id: "me".to_owned(), http_addr: String::new(), epoch: 1 }
}

fn dialing() -> (Dialing<u32>, Vec<u8>) {
    let (mut dialing, mut hello) = (Dialing::new(secret(), &me(), "there", "there:1", &[1; 16], LIMITS), Vec::new());
    dialing.output(&mut hello, usize::MAX);
    (dialing, hello)
}

/// How both ends refuse bytes of whoever knows no secret, if they do.
fn unproven(data: &[u8], piece: usize) -> [Option<PeerError>; 2] {
    let mut accepted = Accepted::<u32>::new(secret(), "there", [2; 16], LIMITS);
    let (mut dialing, _) = dialing();
    [refusal(data, piece, |input| accepted.read(input)), refusal(data, piece, |input| dialing.read(input))]
}

fn refusal<E>(
    data: &[u8],
    piece: usize,
    mut read: impl FnMut(&[u8]) -> Result<Read<E>, PeerError>,
) -> Option<PeerError> {
    let mut input = Vec::new();
    for bytes in data.chunks(piece.max(1)) {
        input.extend_from_slice(bytes);
        loop {
            match read(&input) {
                Ok(Read::NeedMore { bytes }) => {
                    assert!(bytes > input.len());
                    break;
                }
                Ok(Read::Frame { consumed, event }) => {
                    assert!(event.is_none(), "nobody is proved by this");
                    input.drain(..consumed);
                }
                Ok(Read::Hold) => panic!("nothing waits"),
                Err(error) => return Some(error),
            }
        }
    }
    None
}

/// A dialer that knows the secret sends these frames.
fn at_the_listener(data: &[u8]) {
    let (dialer, hello) = Dialer::new(secret(), LABEL, &me(), "there:1", &[1; 16]);
    let mut accepted = Accepted::<usize>::new(secret(), "there", [2; 16], LIMITS);
    let (mut sent, mut output) = (Vec::new(), Vec::new());
    append_frame(&mut sent, hello.0, &hello.1, None);
    accepted.read(&sent).expect("a HELLO");
    accepted.output(&mut output, usize::MAX);
    let challenge = cut(&output);
    let step = dialer.step(challenge[0].0, challenge[0].1).expect("a challenge");
    let mut seal = step.proven.seals.expect("keys").forward;
    sent.clear();
    append_frame(&mut sent, step.send.0, &step.send.1, None);
    accepted.read(&sent).expect("a proof");

    let (mut due, mut claims) = (BTreeSet::new(), Vec::new());
    for (tag, payload) in cut(data) {
        sent.clear();
        append_frame(&mut sent, tag, payload, Some(&mut seal));
        let event = match accepted.read(&sent) {
            Ok(Read::Frame { consumed, event }) => {
                assert_eq!(consumed, sent.len());
                event
            }
            Ok(Read::NeedMore { .. }) => panic!("a whole frame"),
            // Whoever does not read is not read from: this one reads from here on.
            Ok(Read::Hold) => {
                accepted.output(&mut output, usize::MAX);
                let Ok(Read::Frame { event, .. }) = accepted.read(&sent) else { break };
                event
            }
            Err(_) => break,
        };
        match event {
            Some(Asked::Request { id, request }) => {
                assert!(due.insert(id), "a request comes once");
                if let Ask::Push(push) = &request.ask {
                    assert_eq!(push.payloads().map(<[u8]>::len).sum::<usize>(), push.bytes.len());
                }
                match id % 3 {
                    0 => {}
                    1 => {
                        // Whether it went out as it was or not, it is over.
                        let _ = accepted.answer(id, Answer::Reply { status: 200, body: payload.to_vec() });
                        due.remove(&id);
                    }
                    _ => {
                        if accepted.deliver(id, payload.to_vec(), claims.len()).is_ok() {
                            claims.push(true);
                        }
                        due.remove(&id);
                    }
                }
            }
            Some(Asked::Cancel { id }) => assert!(due.contains(&id)),
            Some(Asked::Settled(claim) | Asked::GiveBack(claim)) => {
                assert!(std::mem::take(&mut claims[claim]), "a claim ends once");
            }
            Some(Asked::Proved(_)) => panic!("it had proved itself"),
            None => {}
        }
        assert!(accepted.outstanding() <= LIMITS.outstanding_max);
    }
    let left = accepted.end();
    assert!(left.unanswered.iter().all(|id| due.contains(id)));
    left.claims.iter().for_each(|&claim| assert!(std::mem::take(&mut claims[claim]), "a claim ends once"));
    assert!(!claims.contains(&true), "no claim is lost");
}

/// A listener that knows the secret sends these frames to one that has asked for a few things.
fn at_the_dialer(data: &[u8]) {
    let (mut dialing, hello) = dialing();
    let mut listener = Listener::new(Some(secret()), LABEL, "there", false, [2; 16]);
    let hello = cut(&hello);
    let Ok(ListenerStep::Send((tag, payload))) = listener.step(hello[0].0, hello[0].1) else { panic!("a challenge") };
    let (mut sent, mut output) = (Vec::new(), Vec::new());
    append_frame(&mut sent, tag, &payload, None);
    dialing.read(&sent).expect("a challenge");
    dialing.output(&mut output, usize::MAX);
    let proof = cut(&output);
    let Ok(ListenerStep::Proven(proven)) = listener.step(proof[0].0, proof[0].1) else { panic!("a proof") };
    let mut seal = proven.seals.expect("keys").back;

    let pop = |wait_ms| {
        let (queue, partition, group) = ("q".to_owned(), None, None);
        let ask = Ask::Pop(Pop { queue, partition, group, batch: 1, auto_ack: false, wait_ms });
        Request { tenant: [0; 16], access: 0, ask }
    };
    let mut tokens = BTreeSet::new();
    for (turn, (tag, payload)) in (0..).zip(cut(data)) {
        if dialing.request(&pop(u64::from(turn % 2)), turn).is_ok() {
            tokens.insert(turn);
        }
        if turn % 5 == 4
            && let Some(token) = dialing.cancel(turn / 2)
        {
            assert!(tokens.remove(&token));
        }
        sent.clear();
        append_frame(&mut sent, tag, payload, Some(&mut seal));
        match dialing.read(&sent) {
            Ok(Read::Frame { event: Some(Heard::Answer { id, token, answer }), .. }) => {
                assert!(tokens.remove(&token), "an answer comes once");
                if matches!(answer, Answer::Popped { .. }) && token % 3 > 0 {
                    dialing.settled(id);
                }
            }
            Ok(Read::Frame { event: None, consumed }) => assert_eq!(consumed, sent.len()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => break,
        }
        assert!(dialing.outstanding() <= LIMITS.outstanding_max);
        dialing.output(&mut output, 100);
    }
    assert_eq!(dialing.end().into_iter().collect::<BTreeSet<_>>(), tokens, "every request is over once");
}
