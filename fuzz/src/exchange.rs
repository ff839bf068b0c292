//! The bodies of request and exchange, with serde_json as the oracle for what is taken and for every span.

use std::ops::Range;

use queen_wire::body::{Span, parse_exchange, parse_request};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::push::{DEPTH_MAX, Push};

#[derive(Deserialize)]
struct Exchange<'a> {
    #[serde(borrow)]
    pushes: Option<Vec<Push<'a>>>,
    pop: Option<Pop>,
}

#[derive(Deserialize)]
struct Pop {
    queue: String,
    batch: Option<u64>,
    wait: Option<bool>,
}

#[derive(Deserialize)]
struct Request<'a> {
    queue: String,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// Asserts of a body that is taken that every span is a whole JSON value, that the pushes share the spans out among
/// them in order, and that serde_json, where it reads the body, reads the same.
pub fn exchange_body(data: &[u8]) {
    let payload = |span: &Span| {
        let payload = &data[Range::from(*span)];
        assert!(queen_wire::json::validate(payload, DEPTH_MAX).is_ok());
        assert_eq!(payload.trim_ascii(), payload);
        payload
    };
    let mut spans = Vec::new();
    if let Ok(ours) = parse_exchange(data, DEPTH_MAX, &mut spans) {
        let payloads: Vec<&[u8]> = spans.iter().map(payload).collect();
        let mut next = 0;
        for push in ours.pushes.iter().flatten() {
            assert_eq!(push.spans.start, next);
            next = push.spans.end;
        }
        assert_eq!(next, spans.len());
        if let Ok(theirs) = serde_json::from_slice::<Exchange<'_>>(data) {
            assert_eq!(ours.pushes.is_some(), theirs.pushes.is_some());
            for (ours, theirs) in ours.pushes.iter().flatten().zip(theirs.pushes.iter().flatten()) {
                assert_eq!(ours.push.queue, theirs.queue);
                let expected = theirs.messages.iter().map(|message| message.payload.get().as_bytes());
                assert!(payloads[ours.spans.clone()].iter().copied().eq(expected));
            }
            assert_eq!(ours.pop.is_some(), theirs.pop.is_some());
            if let (Some(ours), Some(theirs)) = (ours.pop, theirs.pop) {
                assert_eq!(ours.queue, theirs.queue);
                assert_eq!(u64::from(ours.batch), theirs.batch.unwrap_or(1).min(10_000));
                assert_eq!(ours.wait, theirs.wait.unwrap_or(false));
            }
        }
    }
    if let Ok(ours) = parse_request(data, DEPTH_MAX) {
        let payload = payload(&ours.payload);
        if let Ok(theirs) = serde_json::from_slice::<Request<'_>>(data) {
            assert_eq!((&*ours.queue, payload), (&*theirs.queue, theirs.payload.get().as_bytes()));
        }
    }
}
