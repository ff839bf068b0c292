//! The bodies of the durable routes, with serde_json as the oracle for what is taken and what is read.

use std::ops::Range;

use queen_wire::{
    body::BodyError,
    durable::{
        Given, ITEMS_MAX, Number, PopQuery, parse_ack, parse_ack_batch, parse_changed, parse_configure, parse_extend,
        parse_fetch, parse_push,
    },
    json::JsonErrorKind,
    name, time,
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::push::DEPTH_MAX;

#[derive(Deserialize)]
struct Push<'a> {
    #[serde(borrow)]
    items: Vec<Item<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    queue: String,
    partition: Option<String>,
    transaction_id: Option<String>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// Asserts of a push that is taken that every span is a whole JSON value and that serde_json reads the same items; of
/// one that is refused, that serde_json refuses it too or that a rule which serde_json does not have says so.
pub fn durable_push_body(data: &[u8]) {
    match (parse_push(data, DEPTH_MAX), serde_json::from_slice::<Push<'_>>(data)) {
        (Ok(items), theirs) => {
            for item in &items {
                let payload = &data[Range::from(item.payload)];
                assert!(queen_wire::json::validate(payload, DEPTH_MAX).is_ok());
                assert_eq!(payload.trim_ascii(), payload);
                assert!(name::check_queue("queue", &item.queue).is_ok());
            }
            // serde_json refuses a member given twice, among others; where it reads, it agrees.
            let Ok(theirs) = theirs else { return };
            assert_eq!(items.len(), theirs.items.len());
            for (ours, theirs) in items.iter().zip(&theirs.items) {
                assert_eq!(ours.queue, theirs.queue);
                assert_eq!(ours.partition, theirs.partition.as_deref().unwrap_or("Default"));
                assert_eq!(ours.transaction_id.as_deref(), theirs.transaction_id.as_deref());
                assert_eq!(&data[Range::from(ours.payload)], theirs.payload.get().as_bytes());
            }
        }
        (Err(error), Ok(theirs)) => {
            let own_rule = match innermost(&error) {
                BodyError::Name { .. } => theirs.items.iter().any(|item| {
                    name::check_queue("queue", &item.queue).is_err()
                        || item.partition.as_ref().is_some_and(|name| name::check_partition("", name).is_err())
                        || item.transaction_id.as_ref().is_some_and(|id| name::check_transaction_id("", id).is_err())
                }),
                // The derived reader takes arrays for structs.
                BodyError::NotAnObject | BodyError::Wrong { .. } => data.contains(&b'['),
                BodyError::TooMany { .. } => theirs.items.len() > ITEMS_MAX,
                BodyError::Json(fault) => matches!(fault.kind, JsonErrorKind::TooDeep | JsonErrorKind::Utf8),
                _ => false,
            };
            assert!(own_rule, "{error}: {:?}", String::from_utf8_lossy(data));
        }
        (Err(_), Err(_)) => {}
    }
}

fn innermost(error: &BodyError) -> &BodyError {
    match error {
        BodyError::In { fault, .. } => innermost(fault),
        error => error,
    }
}

/// A member as text, if it is one.
fn text<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member).and_then(Value::as_str)
}

/// Asserts of acks, extensions, configurations, fetches and reads of changes that what is taken is what serde_json
/// reads, with defaults and clamps in force. Of a member given twice both take the last.
pub fn durable_bodies(data: &[u8]) {
    let value = serde_json::from_slice::<Value>(data).ok();
    if let Ok(acks) = parse_ack(data, DEPTH_MAX) {
        let [ack] = &acks.acks[..] else { panic!("one ack") };
        if let Some(value) = &value {
            assert_eq!(acks.group.as_deref(), text(value, "consumerGroup"));
            assert_eq!(ack.transaction_id.as_deref(), text(value, "transactionId"));
            assert_eq!(ack.partition_id.as_deref(), text(value, "partitionId"));
            assert_eq!(ack.status.as_deref(), text(value, "status"));
            assert_eq!(ack.lease_id.as_deref(), text(value, "leaseId"));
            assert_eq!(ack.error.as_deref(), text(value, "error"));
        }
    }
    if let (Ok(acks), Some(value)) = (parse_ack_batch(data, DEPTH_MAX), &value) {
        let theirs = value.get("acknowledgments").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        assert_eq!(acks.acks.len(), theirs.len());
        for (ours, theirs) in acks.acks.iter().zip(theirs) {
            assert_eq!(ours.transaction_id.as_deref(), text(theirs, "transactionId"));
        }
    }
    let seconds = parse_extend(data, DEPTH_MAX);
    assert!((1..=i32::MAX as u64).contains(&seconds));
    if let Some(theirs) = value.as_ref().and_then(|value| value.get("seconds")).and_then(Value::as_u64)
        && queen_wire::json::validate(data, DEPTH_MAX).is_ok()
    {
        assert!(seconds == theirs.clamp(1, i32::MAX as u64) || theirs > i64::MAX as u64);
    }
    if let Ok(configure) = parse_configure(data, DEPTH_MAX) {
        assert!(name::check_queue("queue", &configure.queue).is_ok());
        for (number, given) in &configure.numbers {
            if let Given::Value(value) = given {
                assert!(value.unsigned_abs() <= i32::MAX as u64, "{number:?}: {value}");
                assert!(*number != Number::LeaseS || *value > 0);
            }
        }
        if let Some(value) = &value {
            assert_eq!(Some(&*configure.queue), text(value, "queue"));
            let options = value.get("options").filter(|options| options.is_object()).unwrap_or(value);
            let lease = configure.numbers.iter().find(|(number, _)| *number == Number::LeaseS);
            match (options.get("leaseTime"), lease) {
                (None, None) | (Some(Value::Null), Some((_, Given::Default))) => {}
                (Some(theirs), Some((_, Given::Value(ours)))) => {
                    let theirs = theirs.as_i64().or_else(|| theirs.as_str()?.parse().ok());
                    assert_eq!(theirs, Some(*ours));
                }
                pair => panic!("{pair:?}"),
            }
        }
    }
    if let Ok(fetch) = parse_fetch(data, DEPTH_MAX) {
        assert!((1..=1024).contains(&fetch.entries.len()) && fetch.max_wait_ms <= 30_000);
        if let Some(theirs) = value.as_ref().and_then(|value| value["entries"].as_array()) {
            assert_eq!(fetch.entries.len(), theirs.len());
            for (ours, theirs) in fetch.entries.iter().zip(theirs) {
                assert_eq!((Some(&*ours.queue), Some(ours.offset)), (text(theirs, "queue"), theirs["offset"].as_u64()));
            }
        }
    }
    if let Ok(entries) = parse_changed(data, DEPTH_MAX) {
        assert!(entries.len() <= 1024 && entries.iter().all(|entry| (1..=1000).contains(&entry.limit)));
    }
}

/// Asserts of a query that is taken that everything in it is in its range, and of a time that is read that it is
/// written and read as itself.
pub fn durable_query(data: &[u8]) {
    let Ok(query) = std::str::from_utf8(data) else { return };
    if let Ok(pop) = PopQuery::parse(Some(query), false) {
        assert!(pop.batch > 0 && pop.partitions > 0 && pop.lease_s.is_none_or(|seconds| seconds > 0));
        assert!(pop.conflation != Some(true) || pop.group.is_some() && !pop.auto_ack);
    }
    if let Some(us) = time::parse_us(query) {
        let mut written = Vec::new();
        time::append_us(&mut written, us);
        let written = String::from_utf8(written).expect("ASCII");
        // A zone can take a time of the first or last day out of the years that are written.
        let inside =
            !written.starts_with("0000-01-01T00:00:00.000000") && !written.starts_with("9999-12-31T23:59:59.9");
        assert!(time::parse_us(&written) == Some(us) || !inside, "{written}");
    }
}
