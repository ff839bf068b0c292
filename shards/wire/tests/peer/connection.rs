//! The two ends of a link.

use queen_wire::{
    mesh::{Dialer, FrameError, HandshakeError, append_frame},
    peer::{
        Accepted, Answer, Asked, Dialing, Frame, Heard, Left, Limits, PART_BYTES, PeerError, Read, SendError,
        Undelivered, Unsent,
    },
};

use crate::{
    samples::{answers, asks, pop, push, request},
    support::{ByHand, Pair, accepted, dialing, me, read_asked, read_heard, secret},
};

fn up() -> Pair {
    Pair::up(Limits::default(), Limits::default())
}

fn claimed() -> Answer {
    Answer::Popped { body: b"[1]".to_vec(), has_claim: true }
}

/// The ids of requests, in order.
fn ids(asked: &[Asked<u32>]) -> Vec<u32> {
    asked.iter().map(|event| if let Asked::Request { id, .. } = event { *id } else { panic!("{event:?}") }).collect()
}

#[test]
fn both_ends_learn_who_the_other_is() {
    let mut pair = Pair::dialled(Limits::default(), Limits::default());
    assert_eq!(pair.dialing.request(&push(b"1"), 1), Err(Unsent { error: SendError::NotUp, token: 1 }));
    pair.asked();
    let heard = pair.heard();
    let [Heard::Proved(listener)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(listener.server_id, "b");
    let asked = pair.asked();
    let [Asked::Proved(dialer)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((dialer.server_id.as_str(), dialer.epoch, dialer.places), ("a", Some(0xabc), true));
    assert_eq!(pair.heard(), []);
    assert_eq!(pair.dialing.credit(), Limits::default().credit);
}

#[test]
fn nobody_gets_in_without_the_secret_or_by_another_door() {
    let fails = |mut sent: Vec<u8>| read_asked(&mut accepted(Limits::default()), &mut sent).expect_err("refused");
    let framed = |(tag, payload): (u8, Vec<u8>)| {
        let mut bytes = Vec::new();
        append_frame(&mut bytes, tag, &payload, None);
        bytes
    };
    let old = Dialer::old_form(Some(&secret("s3cret")), "a", &[1; 16]);
    assert_eq!(fails(framed(old)), PeerError::Handshake(HandshakeError::Legacy));
    let (tag, payload) = Frame::Cancel { id: 1 }.render().expect("a frame");
    assert_eq!(fails(framed((tag, payload))), PeerError::Handshake(HandshakeError::Unexpected));
    assert_eq!(fails(framed((70, vec![0; 8]))), PeerError::Handshake(HandshakeError::Unexpected));
    assert!(matches!(fails(vec![0, 0, 0x10, 1]), PeerError::Frame(FrameError::TooLarge { .. })));

    // Another secret, and the mesh's handshake, are found out by the dialer, and a guess by the listener.
    let challenge = |listener: &mut Accepted<u32>, hello: (u8, Vec<u8>)| {
        read_asked(listener, &mut framed(hello)).expect("a challenge");
        let mut out = Vec::new();
        listener.output(&mut out, usize::MAX);
        out
    };
    let mut other = Accepted::<u32>::new(secret("other"), "b", [2; 16], Limits::default());
    let mut dialer = dialing(Limits::default());
    let mut hello = Vec::new();
    dialer.output(&mut hello, usize::MAX);
    read_asked(&mut other, &mut hello).expect("a challenge");
    let mut sent = Vec::new();
    other.output(&mut sent, usize::MAX);
    let error = PeerError::Handshake(HandshakeError::Mac);
    assert_eq!(read_heard(&mut dialer, &mut sent), Err(error));
    assert_eq!(dialer.read(b""), Err(error), "it stays so");
    let (mesh, hello) = Dialer::new(secret("s3cret"), "queen-mesh/1", &me("a"), "b:6632", &[1; 16]);
    let sent = challenge(&mut accepted(Limits::default()), hello);
    assert_eq!(mesh.step(6, &sent[5..]).expect_err("another label"), HandshakeError::Mac);
}

#[test]
fn a_dialer_wants_the_node_that_it_dialled() {
    let mut dialer = Dialing::new(secret("s3cret"), &me("a"), "c", "c:6632", &[1; 16], Limits::default());
    let (mut listener, mut forward, mut back) = (accepted(Limits::default()), Vec::new(), Vec::new());
    dialer.output(&mut forward, usize::MAX);
    read_asked(&mut listener, &mut forward).expect("a challenge");
    listener.output(&mut back, usize::MAX);
    assert_eq!(read_heard(&mut dialer, &mut back), Err(PeerError::WrongPeer));
    dialer.output(&mut forward, usize::MAX);
    assert_eq!(forward, b"", "no proof for it");
}

#[test]
fn every_request_arrives_and_every_answer_finds_it() {
    let mut pair = up();
    for (token, ask) in (0..).zip(asks()) {
        pair.dialing.request(&request(ask), token).expect("sent");
    }
    let asked = pair.asked();
    assert_eq!(pair.accepted.outstanding(), asks().len());
    for (event, ask) in asked.iter().zip(asks()) {
        assert!(matches!(event, Asked::Request { request: sent, .. } if *sent == request(ask)), "{event:?}");
    }
    // Out of order, and each kind of answer for some request.
    let mut expected = Vec::new();
    for (id, answer) in ids(&asked).into_iter().rev().zip(answers().into_iter().cycle()) {
        match answer.clone() {
            Answer::Popped { body, has_claim: true } => pair.accepted.deliver(id, body, id).expect("sent"),
            answer => pair.accepted.answer(id, answer).expect("sent"),
        }
        expected.push(Heard::Answer { id, token: id, answer });
    }
    assert_eq!(pair.heard(), expected);
    (0..asked.len() as u32).for_each(|id| pair.dialing.settled(id));
    assert!(pair.asked().iter().all(|event| matches!(event, Asked::Settled(_))));
    assert_eq!((pair.dialing.outstanding(), pair.accepted.outstanding()), (0, 0));
    assert_eq!(pair.accepted.answer(0, Answer::Empty), Err(Undelivered::Gone), "it is answered");
}

#[test]
fn messages_without_a_claim_are_over_when_they_are_sent() {
    let mut pair = up();
    let id = pair.dialing.request(&pop(0), 1).expect("sent");
    pair.asked();
    pair.accepted.answer(id, claimed()).expect("sent");
    let answer = Answer::Popped { body: b"[1]".to_vec(), has_claim: false };
    assert_eq!(pair.heard(), [Heard::Answer { id, token: 1, answer }]);
    assert_eq!((pair.dialing.outstanding(), pair.accepted.outstanding()), (0, 0));
}

#[test]
fn a_large_message_travels_in_parts_between_others() {
    let mut pair = up();
    for size in [PART_BYTES - 100, PART_BYTES, 3 * PART_BYTES + 1, 17 << 20] {
        let payload: Vec<u8> = (0..size).map(|at| at as u8).collect();
        pair.dialing.request(&push(b"before"), 0).expect("sent");
        pair.dialing.request(&push(&payload), 1).expect("sent");
        let mut largest = 0;
        let mut asked = Vec::new();
        loop {
            let before = pair.forward.len();
            pair.dialing.output(&mut pair.forward, 1);
            largest = largest.max(pair.forward.len() - before);
            if pair.forward.is_empty() {
                break;
            }
            asked.extend(read_asked(&mut pair.accepted, &mut pair.forward).expect("a connection"));
        }
        assert!(largest <= PART_BYTES + 21, "no frame is larger");
        assert_eq!(pair.dialing.waiting_bytes(), 0);
        assert!(matches!(&asked[1], Asked::Request { request, .. } if *request == push(&payload)));
        let ids = ids(&asked);
        let body = Answer::Reply { status: 200, body: payload };
        pair.accepted.answer(ids[1], body.clone()).expect("sent");
        pair.accepted.answer(ids[0], Answer::Pushed(1)).expect("sent");
        let heard = pair.heard();
        assert_eq!(heard[0], Heard::Answer { id: ids[1], token: 1, answer: body });
        assert_eq!(heard[1], Heard::Answer { id: ids[0], token: 0, answer: Answer::Pushed(1) });
    }
}

/// A conversation's bytes, from the dialer and from the listener.
fn conversation() -> (Vec<u8>, Vec<u8>) {
    let mut pair = Pair::dialled(Limits::default(), Limits::default());
    let (mut forward, mut back) = (Vec::new(), Vec::new());
    let mut turn = |pair: &mut Pair| {
        pair.dialing.output(&mut pair.forward, usize::MAX);
        forward.extend_from_slice(&pair.forward);
        let asked = pair.asked();
        pair.accepted.output(&mut pair.back, usize::MAX);
        back.extend_from_slice(&pair.back);
        pair.heard();
        asked
    };
    turn(&mut pair);
    turn(&mut pair);
    pair.dialing.request(&push(b"{\"n\":1}"), 1).expect("sent");
    let waiting = pair.dialing.request(&pop(1_000), 2).expect("sent");
    pair.dialing.request(&pop(1_000), 3).expect("sent");
    let asked = ids(&turn(&mut pair));
    pair.accepted.answer(asked[0], Answer::Pushed(1)).expect("sent");
    pair.accepted.deliver(asked[2], b"[1]".to_vec(), 9).expect("sent");
    turn(&mut pair);
    pair.dialing.cancel(waiting);
    pair.dialing.settled(asked[2]);
    turn(&mut pair);
    (forward, back)
}

/// What a listener makes of the dialer's bytes in pieces, told as text; the claim that was handed out is made up.
fn listened(pieces: &[&[u8]]) -> (Vec<String>, Option<PeerError>) {
    let (mut listener, mut input, mut told) = (accepted(Limits::default()), Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match listener.read(&input) {
                Ok(Read::Frame { consumed, event }) => {
                    input.drain(..consumed);
                    if let Some(Asked::Request { id: 2, .. }) = event {
                        listener.deliver(2, b"[1]".to_vec(), 9).expect("sent");
                    }
                    told.extend(event.map(|event| format!("{event:?}")));
                }
                Ok(Read::NeedMore { .. }) => break,
                Ok(Read::Hold) => panic!("nothing much waits"),
                Err(error) => return (told, Some(error)),
            }
        }
    }
    (told, None)
}

#[test]
fn frames_mean_the_same_wherever_they_are_cut() {
    let (forward, _) = conversation();
    let (told, error) = listened(&[&forward]);
    assert_eq!((told.len(), error), (6, None), "{told:?}");
    for cut in 0..forward.len() {
        let (head, tail) = forward.split_at(cut);
        assert_eq!(listened(&[head, tail]), (told.clone(), None), "cut at {cut}");
        let (before, error) = listened(&[head]);
        assert!(error.is_none() && told.starts_with(&before), "what is not whole says nothing");
    }
    let bytes: Vec<&[u8]> = forward.chunks(1).collect();
    assert_eq!(listened(&bytes), (told, None));
}

#[test]
fn a_bit_changed_anywhere_ends_the_connection() {
    let (forward, back) = conversation();
    let (told, _) = listened(&[&forward]);
    // Whatever a length was made, the bytes for it come in the end, or it is too large.
    let padding = vec![0; 70_000];
    let frame_bytes = |at: usize| 4 + u32::from_be_bytes(*forward[at..].first_chunk().expect("a frame")) as usize;
    let proof_end = frame_bytes(0) + frame_bytes(frame_bytes(0));
    for at in 0..forward.len() {
        for bit in 0..8 {
            let mut changed = forward.clone();
            changed[at] ^= 1 << bit;
            let (before, error) = listened(&[&changed, &padding]);
            assert!(error.is_some() || is_large_length(&forward, at, bit), "byte {at}, bit {bit}");
            // The proof is a number in hexadecimal digits: their case is nobody's business.
            let is_digits_case = bit == 5 && at < proof_end && forward[at].is_ascii_alphabetic();
            assert!(is_digits_case || before.len() < told.len(), "byte {at}, bit {bit}: {before:?}");
        }
    }
    // The other direction. What is sealed begins behind CHALLENGE.
    let challenge_end = 4 + u32::from_be_bytes(*back.first_chunk().expect("a frame")) as usize;
    for at in challenge_end..back.len() {
        let mut dialer = dialing(Limits::default());
        dialer.output(&mut Vec::new(), usize::MAX);
        let mut changed = [&back[..], &padding].concat();
        changed[at] ^= 0x10;
        let is_large = is_large_length(&back, at, 4);
        assert!(read_heard(&mut dialer, &mut changed).is_err() || is_large, "byte {at}");
    }
}

/// Whether this bit stands in a length, and makes it more than the padding and less than the limit.
fn is_large_length(bytes: &[u8], at: usize, bit: u32) -> bool {
    let mut start = 0;
    while start < bytes.len() {
        if (start..start + 4).contains(&at) {
            return (3 - (at - start)) * 8 + bit as usize >= 16;
        }
        start += 4 + u32::from_be_bytes(*bytes[start..].first_chunk().expect("a length")) as usize;
    }
    false
}

#[test]
fn frames_cannot_be_sent_back_to_whoever_made_them() {
    let mut pair = up();
    let id = pair.dialing.request(&push(b"1"), 1).expect("sent");
    pair.asked();
    pair.accepted.answer(id, Answer::Pushed(1)).expect("sent");
    let mut reflected = Vec::new();
    pair.accepted.output(&mut reflected, usize::MAX);
    assert_eq!(pair.accepted.read(&reflected), Err(PeerError::Frame(FrameError::Mac)));
    let mut reflected = Vec::new();
    pair.dialing.request(&push(b"1"), 1).expect("sent");
    pair.dialing.output(&mut reflected, usize::MAX);
    assert_eq!(pair.dialing.read(&reflected), Err(PeerError::Frame(FrameError::Mac)));
    assert_eq!(pair.dialing.request(&push(b"1"), 1), Err(Unsent { error: SendError::NotUp, token: 1 }));
}

#[test]
fn what_became_of_messages_comes_back_once() {
    let mut pair = up();
    for token in 0..3 {
        pair.dialing.request(&pop(1_000), token).expect("sent");
    }
    for id in ids(&pair.asked()) {
        pair.accepted.deliver(id, b"[1]".to_vec(), 100 + id).expect("sent");
    }
    assert_eq!(pair.heard().len(), 3);
    assert_eq!((pair.dialing.outstanding(), pair.accepted.outstanding()), (3, 3));
    pair.dialing.settled(0);
    pair.dialing.give_back(1);
    for id in [0, 1, 77] {
        pair.dialing.settled(id);
        pair.dialing.give_back(id);
    }
    assert_eq!(pair.asked(), [Asked::Settled(100), Asked::GiveBack(101)]);
    assert_eq!((pair.dialing.outstanding(), pair.accepted.outstanding()), (1, 1));
}

#[test]
fn a_cancelled_request_that_waits_is_ended_there_and_answered_once() {
    let mut pair = up();
    let id = pair.dialing.request(&pop(1_000), 5).expect("sent");
    pair.asked();
    assert_eq!(pair.dialing.cancel(id), Some(5));
    assert_eq!((pair.dialing.cancel(id), pair.dialing.cancel(77)), (None, None));
    assert_eq!(pair.asked(), [Asked::Cancel { id }]);
    assert_eq!((pair.dialing.outstanding(), pair.accepted.outstanding()), (1, 1), "until it is answered");
    let empty = Answer::Popped { body: Vec::new(), has_claim: false };
    assert!(pair.accepted.answer(id, empty).is_err());
    assert_eq!(pair.heard(), []);
    assert_eq!((pair.dialing.outstanding(), pair.accepted.outstanding()), (0, 0));
}

#[test]
fn messages_that_cross_a_cancel_go_back() {
    // The listener answers before it hears of it.
    let mut pair = up();
    let id = pair.dialing.request(&pop(1_000), 5).expect("sent");
    pair.asked();
    pair.accepted.deliver(id, b"[1]".to_vec(), 9).expect("sent");
    assert_eq!(pair.dialing.cancel(id), Some(5));
    assert_eq!(pair.asked(), [], "it is answered already");
    assert_eq!(pair.heard(), []);
    assert_eq!(pair.asked(), [Asked::GiveBack(9)]);
    // It heard of it, and somebody else on its node had not.
    let id = pair.dialing.request(&pop(1_000), 6).expect("sent");
    pair.asked();
    pair.dialing.cancel(id);
    assert_eq!(pair.asked(), [Asked::Cancel { id }]);
    let (_, claim) = pair.accepted.deliver(id, b"[1]".to_vec(), 10).expect_err("nobody waits");
    assert_eq!(claim, 10);
    assert_eq!((pair.heard(), pair.asked()), (Vec::new(), Vec::new()));
    assert_eq!((pair.dialing.outstanding(), pair.accepted.outstanding()), (0, 0));
}

#[test]
fn what_does_not_wait_is_served_whether_somebody_waits_for_it_or_not() {
    let mut pair = up();
    let id = pair.dialing.request(&pop(0), 5).expect("sent");
    assert_eq!(pair.dialing.cancel(id), Some(5));
    assert_eq!(ids(&pair.asked()), [id], "and no cancel");
    pair.accepted.deliver(id, b"[1]".to_vec(), 9).expect("sent");
    assert_eq!(pair.heard(), []);
    assert_eq!(pair.asked(), [Asked::GiveBack(9)]);
}

#[test]
fn numbers_come_round_and_pass_over_those_in_use() {
    let mut peer = ByHand::up(Limits::default());
    let frame = Frame::Request { id: u32::MAX, waits: true, request: pop(1_000) };
    assert_eq!(ids(&peer.send(&frame).expect("taken")), [u32::MAX]);
    assert_eq!(peer.send(&frame), Err(PeerError::SameNumber));

    let mut peer = ByHand::up(Limits::default());
    for _ in 0..3 {
        assert_eq!(ids(&peer.send(&frame).expect("taken")), [u32::MAX]);
        peer.accepted.answer(u32::MAX, Answer::Empty).expect("sent");
    }
}

#[test]
fn frames_about_nothing_are_passed_over() {
    let mut peer = ByHand::up(Limits::default());
    let open = Frame::Request { id: 1, waits: true, request: pop(1_000) };
    peer.send(&open).expect("taken");
    let answer = Frame::Answer { id: 1, answer: Answer::Empty };
    for frame in [Frame::Cancel { id: 5 }, Frame::Settled { id: 1 }, Frame::GiveBack { id: 5 }, answer] {
        assert_eq!(peer.send(&frame), Ok(Vec::new()), "{frame:?}");
    }
    assert_eq!(peer.send_raw(99, b"a later version"), Ok(Vec::new()));
    assert_eq!(peer.accepted.outstanding(), 1);
    assert_eq!(peer.send_raw(66, b"abc").map_err(PeerError::reason), Err("malformed"));
}

#[test]
fn a_request_that_is_not_known_is_refused() {
    let mut peer = ByHand::up(Limits::default());
    let mut payload = vec![0, 0, 0, 9, 0];
    payload.extend_from_slice(&[0; 16 + 1]);
    payload.push(200);
    assert_eq!(peer.send_raw(64, &payload), Ok(Vec::new()));
    let received = peer.received();
    let [Frame::Answer { id: 9, answer: Answer::Refused(refusal) }] = &received[..] else { panic!("{received:?}") };
    assert_eq!(refusal.code, queen_wire::peer::UNSUPPORTED);
    assert_eq!(peer.accepted.outstanding(), 0);
}

#[test]
fn an_end_leaves_what_was_not_over() {
    let mut pair = up();
    for token in 10..15 {
        pair.dialing.request(&pop(1_000), token).expect("sent");
    }
    pair.asked();
    pair.accepted.answer(0, Answer::Empty).expect("sent");
    pair.accepted.deliver(1, b"[1]".to_vec(), 101).expect("sent");
    assert_eq!(pair.heard().len(), 2);
    pair.accepted.deliver(2, b"[1]".to_vec(), 102).expect("sent");
    pair.dialing.cancel(3);
    pair.asked();
    assert_eq!(pair.dialing.end(), [12, 14], "neither what was answered nor what was cancelled");
    assert_eq!(pair.accepted.end(), Left { unanswered: vec![4], claims: vec![101, 102] });
}

#[test]
fn an_answer_after_the_end_gives_its_claim_back() {
    let mut pair = up();
    pair.dialing.request(&pop(1_000), 1).expect("sent");
    pair.asked();
    pair.accepted.read(&[0; 4]).expect_err("no frame");
    let (_, claim) = pair.accepted.deliver(0, b"[1]".to_vec(), 9).expect_err("over");
    assert_eq!(claim, 9);
    assert_eq!(pair.accepted.end(), Left { unanswered: vec![0], claims: Vec::new() });
}
