//! What happens at the bounds of a link.

use queen_wire::peer::{
    Answer, Ask, Asked, FieldError, Frame, Heard, Limits, PART_BYTES, PeerError, Read, SendError, Undelivered, Unsent,
};

use crate::{
    samples::{pop, push, request},
    support::{ByHand, Pair, read_asked},
};

fn up(limits: Limits) -> Pair {
    Pair::up(limits, limits)
}

fn unsent(error: SendError, token: u32) -> Result<u32, Unsent<u32>> {
    Err(Unsent { error, token })
}

fn reply(bytes: usize) -> Answer {
    Answer::Reply { status: 200, body: vec![b'x'; bytes] }
}

fn code(heard: &Heard<u32>) -> &str {
    match heard {
        Heard::Answer { answer: Answer::Refused(refusal), .. } => &refusal.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_that_does_not_wait_needs_a_credit() {
    let mut pair = up(Limits { credit: 4, ..Limits::default() });
    for token in 0..4 {
        pair.dialing.request(&push(b"1"), token).expect("a credit");
    }
    let waiting = pair.dialing.waiting_bytes();
    assert_eq!(pair.dialing.request(&push(b"1"), 4), unsent(SendError::NoCredit, 4));
    assert_eq!(pair.dialing.request(&pop(0), 4), unsent(SendError::NoCredit, 4));
    assert_eq!(pair.dialing.waiting_bytes(), waiting, "nothing is sent");
    pair.dialing.request(&pop(1), 5).expect("one that waits needs none");
    pair.asked();
    // A credit comes back with the answer, and none for what did not need one.
    pair.accepted.answer(4, Answer::Empty).expect("sent");
    pair.heard();
    assert_eq!(pair.dialing.credit(), 0);
    pair.accepted.answer(2, Answer::Pushed(1)).expect("sent");
    pair.heard();
    assert_eq!(pair.dialing.credit(), 1);
    pair.dialing.request(&push(b"1"), 6).expect("a credit");
}

#[test]
fn credits_come_back_in_handfuls_and_none_is_lost() {
    let mut pair = up(Limits { credit: 10, ..Limits::default() });
    for round in 0..100 {
        for token in 0..=round % 10 {
            pair.dialing.request(&push(b"1"), token).expect("a credit");
        }
        for event in pair.asked() {
            let Asked::Request { id, .. } = event else { panic!("{event:?}") };
            pair.accepted.answer(id, Answer::Pushed(1)).expect("sent");
        }
        pair.heard();
        assert!(pair.dialing.credit() > 8, "fewer than a quarter are held back, here two");
        // Until all ten are there again.
        while pair.dialing.credit() < 10 {
            pair.dialing.request(&push(b"1"), 0).expect("a credit");
            for event in pair.asked() {
                let Asked::Request { id, .. } = event else { panic!("{event:?}") };
                pair.accepted.answer(id, Answer::Pushed(1)).expect("sent");
            }
            pair.heard();
        }
    }
}

#[test]
fn whoever_asks_without_a_credit_is_cut_off() {
    let mut peer = ByHand::up(Limits { credit: 2, ..Limits::default() });
    for id in 0..2 {
        peer.send(&Frame::Request { id, waits: false, request: push(b"1") }).expect("a credit");
    }
    let third = Frame::Request { id: 2, waits: false, request: push(b"1") };
    assert_eq!(peer.send(&third), Err(PeerError::NoCredit));
}

#[test]
fn a_cancelled_request_gives_its_credit_back_with_its_answer() {
    let mut peer = ByHand::up(Limits { credit: 2, ..Limits::default() });
    peer.send(&Frame::Request { id: 0, waits: false, request: push(b"1") }).expect("a credit");
    assert_eq!(peer.send(&Frame::Cancel { id: 0 }), Ok(vec![Asked::Cancel { id: 0 }]));
    assert_eq!(peer.received(), []);
    assert_eq!(peer.accepted.answer(0, Answer::Pushed(1)), Err(Undelivered::Gone));
    assert_eq!(peer.received(), [Frame::Answer { id: 0, answer: Answer::Cancelled }, Frame::Credit { requests: 1 }]);
}

#[test]
fn no_more_requests_are_open_than_may_be() {
    let few = Limits { outstanding_max: 2, ..Limits::default() };
    let mut pair = Pair::up(few, Limits::default());
    pair.dialing.request(&pop(1), 0).expect("one");
    pair.dialing.request(&pop(1), 1).expect("two");
    assert_eq!(pair.dialing.request(&pop(1), 2), unsent(SendError::TooMany, 2));
    pair.asked();
    pair.accepted.deliver(0, b"[1]".to_vec(), 9).expect("sent");
    pair.heard();
    assert_eq!(pair.dialing.request(&pop(1), 2), unsent(SendError::TooMany, 2), "its messages are not settled");
    pair.dialing.settled(0);
    pair.dialing.request(&pop(1), 2).expect("settled");

    // The other end has fewer: it refuses.
    let mut pair = Pair::up(Limits::default(), few);
    for token in 0..3 {
        pair.dialing.request(&if token == 2 { push(b"1") } else { pop(1) }, token).expect("sent");
    }
    assert_eq!(pair.asked().len(), 2);
    let heard = pair.heard();
    assert_eq!((heard.len(), code(&heard[0])), (1, "overloaded"));
}

#[test]
fn a_request_waits_for_no_peer_that_does_not_read() {
    let mut pair = up(Limits { waiting_bytes_max: 100_000, message_bytes_max: 500_000, ..Limits::default() });
    pair.dialing.request(&push(&[0; 99_000]), 0).expect("nothing waits");
    pair.dialing.request(&push(&[0; 400_000]), 1).expect("one of any size, where there is room at all");
    assert_eq!(pair.dialing.request(&push(b"1"), 2), unsent(SendError::Full, 2));
    assert_eq!(pair.dialing.request(&pop(1), 3), unsent(SendError::Full, 3));
    pair.asked();
    pair.dialing.request(&push(b"1"), 4).expect("it was sent");
    // What ends others goes all the same.
    pair.asked();
    let id = pair.dialing.request(&pop(1), 5).expect("sent");
    pair.asked();
    pair.dialing.request(&push(&[0; 101_000]), 6).expect("sent");
    pair.dialing.cancel(id);
    assert!(pair.asked().iter().any(|event| matches!(event, Asked::Cancel { .. })));
}

#[test]
fn what_is_larger_than_nodes_send_each_other_is_not_sent() {
    let limits = Limits { message_bytes_max: 1_000_000, ..Limits::default() };
    let mut pair = up(limits);
    assert_eq!(pair.dialing.request(&push(&[0; 1_000_000]), 0), unsent(SendError::TooLarge, 0));
    let long = request(Ask::Reset { queue: "q".repeat(600) });
    assert_eq!(pair.dialing.request(&long, 0), unsent(SendError::Field(FieldError::TooLong), 0));
    assert_eq!(pair.dialing.credit(), limits.credit, "none is lost for it");
    let id = pair.dialing.request(&pop(1), 0).expect("sent");
    pair.asked();
    let (error, claim) = pair.accepted.deliver(id, vec![0; 1_000_000], 9).expect_err("too large");
    assert_eq!((error, claim), (Undelivered::TooLarge, 9));
    assert_eq!(code(&pair.heard()[0]), "payload_too_large");
    assert_eq!((pair.dialing.outstanding(), pair.accepted.outstanding()), (0, 0));
}

#[test]
fn parts_without_end_are_cut_off() {
    let mut peer = ByHand::up(Limits { message_bytes_max: 600_000, ..Limits::default() });
    let part = vec![0; PART_BYTES];
    assert_eq!(peer.send_raw(70, &part), Ok(Vec::new()));
    assert_eq!(peer.send_raw(70, &part), Ok(Vec::new()));
    assert_eq!(peer.send_raw(70, &part), Err(PeerError::TooLarge));
}

#[test]
fn a_listener_whose_answers_are_not_read_reads_no_further_and_refuses_what_is_large() {
    let limits = Limits { waiting_bytes_max: 10_000, credit: 4, ..Limits::default() };
    let mut pair = Pair::up(Limits::default(), limits);
    for token in 0..4 {
        pair.dialing.request(&push(b"1"), token).expect("a credit");
    }
    for token in 4..7 {
        pair.dialing.request(&pop(1), token).expect("sent");
    }
    pair.asked();
    pair.accepted.answer(0, reply(20_000)).expect("one of any size");
    assert_eq!(pair.accepted.answer(1, reply(3_000)), Err(Undelivered::Full));
    pair.accepted.answer(2, reply(1_000)).expect("a small one has its place");
    let (error, claim) = pair.accepted.deliver(4, vec![b' '; 3_000], 9).expect_err("no room");
    assert_eq!((error, claim), (Undelivered::Full, 9));
    // Nothing is read, however much comes, and no credit goes out.
    pair.dialing.request(&pop(1), 7).expect("sent");
    pair.dialing.output(&mut pair.forward, usize::MAX);
    assert_eq!(pair.accepted.read(&pair.forward), Ok(Read::Hold));
    assert_eq!(pair.dialing.credit(), 0);
    // Until it has left.
    let heard = pair.heard();
    assert_eq!(heard.len(), 4);
    assert_eq!((code(&heard[1]), code(&heard[3])), ("overloaded", "overloaded"));
    assert_eq!(read_asked(&mut pair.accepted, &mut pair.forward).expect("a connection").len(), 1);
    pair.heard();
    assert_eq!(pair.dialing.credit(), 3);
}
