//! Frames by themselves.

use queen_wire::{
    name::NAME_BYTES_MAX,
    peer::{
        Ack, AckStatus, Answer, Ask, CHUNK_BYTES_MAX, Chunk, DECLARATIONS_MAX, DeclarationState, FieldError, Frame,
        MESSAGE_ID_BYTES_MAX, OPTIONS_BYTES_MAX, Push, REFUSAL_BYTES_MAX, Refusal,
    },
};

use crate::samples::{declaration, frames, pop, request, text};

fn render(ask: Ask) -> Result<(u8, Vec<u8>), FieldError> {
    Frame::Request { id: 1, waits: ask.waits(), request: request(ask) }.render()
}

#[test]
fn every_frame_comes_back_as_it_was_sent() {
    for frame in frames() {
        let (tag, payload) = frame.render().expect("a frame");
        assert_eq!(Frame::parse(tag, &payload), Ok(Some(frame)));
    }
}

#[test]
fn every_part_of_a_payload_is_an_error() {
    for frame in frames() {
        let (tag, payload) = frame.render().expect("a frame");
        for end in 0..payload.len() {
            assert_eq!(Frame::parse(tag, &payload[..end]), Err(FieldError::Short), "{frame:?} cut at {end}");
        }
    }
}

#[test]
fn bytes_behind_the_last_field_are_a_later_versions() {
    for frame in frames() {
        let (tag, mut payload) = frame.render().expect("a frame");
        payload.extend_from_slice(b"more");
        assert_eq!(Frame::parse(tag, &payload), Ok(Some(frame)));
    }
}

#[test]
fn whatever_a_changed_byte_makes_of_a_payload_is_read_or_refused_and_written_again() {
    for frame in frames() {
        let (tag, payload) = frame.render().expect("a frame");
        for at in 0..payload.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = payload.clone();
                changed[at] ^= change;
                if let Ok(Some(read)) = Frame::parse(tag, &changed)
                    && let Ok((tag, payload)) = read.render()
                {
                    assert_eq!(Frame::parse(tag, &payload), Ok(Some(read)));
                }
            }
        }
    }
}

#[test]
fn a_pop_has_its_bytes_where_the_table_says() {
    let (tag, payload) = Frame::Request { id: 0x01020304, waits: true, request: pop(258) }.render().expect("a frame");
    let mut expected = vec![1, 2, 3, 4, 1];
    expected.extend_from_slice(&[7; 16]);
    expected.extend_from_slice(&[3, 2]);
    expected.extend_from_slice(&[0, 0, 0, 1, b'q', 0, 1, 0, 0, 0, 1, b'g', 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!((tag, payload), (64, expected));
}

#[test]
fn types_and_kinds_that_are_not_known_are_told_from_those_that_are_wrong() {
    for tag in [0, 4, 6, 7, 63, 70, 71, 255] {
        assert_eq!(Frame::parse(tag, b"anything"), Ok(None), "{tag}");
    }
    let mut payload = vec![0, 0, 0, 9, 0b1000_0001];
    payload.extend_from_slice(&[0; 16 + 1]);
    payload.push(200);
    assert_eq!(Frame::parse(64, &payload), Ok(Some(Frame::UnknownRequest { id: 9, waits: true })));
    assert_eq!(Frame::parse(65, &[0, 0, 0, 9, 200]), Ok(Some(Frame::UnknownAnswer { id: 9 })));
    assert_eq!(Frame::UnknownAnswer { id: 9 }.render(), Err(FieldError::Value));
}

#[test]
fn what_the_other_end_could_not_read_is_not_written() {
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    assert_eq!(render(Ask::Reset { queue: long.clone() }), Err(FieldError::TooLong));
    assert_eq!(render(Ask::Depth { queue: text("q"), group: Some(long) }), Err(FieldError::TooLong));
    let options_json = " ".repeat(OPTIONS_BYTES_MAX + 1);
    assert_eq!(render(Ask::Configure { queue: text("q"), options_json, updated_at_ms: 0 }), Err(FieldError::TooLong));
    let ack = |acks| Ask::Ack(Ack { queue: text("q"), group: None, acks });
    assert_eq!(render(ack(vec![("i".repeat(MESSAGE_ID_BYTES_MAX + 1), AckStatus::Retry)])), Err(FieldError::TooLong));
    assert_eq!(render(ack(vec![(text("i"), AckStatus::Retry); 10_001])), Err(FieldError::TooLong));
    let chunk = |bytes| Chunk { transfer: 1, index: 0, last: false, queue: text("q"), partition: text("p"), bytes };
    assert!(render(Ask::Chunk(chunk(vec![0; CHUNK_BYTES_MAX]))).is_ok());
    assert_eq!(render(Ask::Chunk(chunk(vec![0; CHUNK_BYTES_MAX + 1]))), Err(FieldError::TooLong));
    let declarations = vec![declaration("q", DeclarationState::Deleted); DECLARATIONS_MAX + 1];
    let answer = Answer::Declarations { declarations, more: true };
    assert_eq!(Frame::Answer { id: 1, answer }.render(), Err(FieldError::TooLong));
}

#[test]
fn a_pushs_ends_are_in_order_and_within_its_bytes() {
    let push = |ends: &[u32]| {
        let (queue, partition, bytes) = (text("q"), text("p"), b"abcd".to_vec());
        Push { queue, partition, bytes, ends: ends.to_vec(), reply_to: None }
    };
    assert_eq!(push(&[1, 1, 4]).payloads().collect::<Vec<_>>(), [&b"a"[..], b"", b"bcd"]);
    for ends in [&[2, 1, 4][..], &[1, 3], &[1, 5], &[]] {
        assert_eq!(render(Ask::Push(push(ends))), Err(FieldError::Value), "{ends:?}");
    }
    // The same, as bytes: the end that stands as 1 becomes 9.
    let (tag, payload) = render(Ask::Push(push(&[1, 4]))).expect("a push");
    let at = payload.windows(8).position(|window| window == [0, 0, 0, 1, 0, 0, 0, 4]).expect("the ends") + 3;
    let mut changed = payload;
    changed[at] = 9;
    assert_eq!(Frame::parse(tag, &changed), Err(FieldError::Value));
}

#[test]
fn a_refusals_sentence_is_cut_between_characters() {
    let message = "é".repeat(REFUSAL_BYTES_MAX);
    let refusal = |message| Answer::Refused(Refusal { code: text("queue_full"), message, retry_after_s: None });
    let (tag, payload) = Frame::Answer { id: 1, answer: refusal(message) }.render().expect("a frame");
    let answer = refusal("é".repeat(REFUSAL_BYTES_MAX / 2));
    assert_eq!(Frame::parse(tag, &payload), Ok(Some(Frame::Answer { id: 1, answer })));
}
