//! JSON by hand: members of objects, and messages with their payloads byte for byte.

use queen_log::{
    id::{Uuid, message_id},
    record::{Content, Record},
    request::{Run, Slice},
};
use queen_wire::{
    response::{append_base64_string, append_json_string, append_u64},
    time,
};

/// Bytes of a rendered message beside its payload and what is the same for the whole run.
const MESSAGE_BYTES: usize = 224;

/// A member of an object whose value comes next.
pub(super) struct Key<'o>(&'o mut Vec<u8>);

/// Appends a member's name, and the comma before it where one is needed.
pub(super) fn key<'o>(out: &'o mut Vec<u8>, name: &str) -> Key<'o> {
    if !matches!(out.last(), Some(b'{')) {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    Key(out)
}

/// Appends the comma before an element of an array, where one is needed.
pub(super) fn element(out: &mut Vec<u8>) {
    if !matches!(out.last(), Some(b'[')) {
        out.push(b',');
    }
}

impl Key<'_> {
    pub(super) fn raw(self, json: &[u8]) {
        self.0.extend_from_slice(json);
    }

    pub(super) fn text(self, text: &str) {
        append_json_string(self.0, text);
    }

    pub(super) fn number(self, number: u64) {
        append_u64(self.0, number);
    }

    pub(super) fn signed(self, number: i64) {
        if number < 0 {
            self.0.push(b'-');
        }
        append_u64(self.0, number.unsigned_abs());
    }

    pub(super) fn boolean(self, value: bool) {
        self.raw(if value { b"true" } else { b"false" });
    }

    pub(super) fn id(self, id: Uuid) {
        append_id(self.0, id);
    }

    /// A time with microseconds, or null.
    pub(super) fn time_us(self, us: Option<i64>) {
        self.quoted(us, time::append_us);
    }

    /// A time with milliseconds, or null.
    pub(super) fn time_ms(self, us: Option<i64>) {
        self.quoted(us, time::append_ms);
    }

    fn quoted(self, us: Option<i64>, append: fn(&mut Vec<u8>, i64)) {
        let Some(us) = us else { return self.raw(b"null") };
        self.0.push(b'"');
        append(self.0, us);
        self.0.push(b'"');
    }
}

fn append_id(out: &mut Vec<u8>, id: Uuid) {
    out.push(b'"');
    out.extend_from_slice(&id.text());
    out.push(b'"');
}

/// Appends a record's transaction id: its own, or its message id.
fn append_transaction_id(out: &mut Vec<u8>, record: &Record<'_>, id: Uuid) {
    match record.id {
        // A Kafka client may have given any bytes.
        Some(own) => append_json_string(out, &String::from_utf8_lossy(own)),
        None => append_id(out, id),
    }
}

/// Appends a record's payload: JSON as it came in, bytes in base64.
fn append_payload(out: &mut Vec<u8>, record: &Record<'_>) {
    match record.content {
        Content::Json => out.extend_from_slice(record.payload),
        Content::Bytes => append_base64_string(out, record.payload),
        Content::Null => out.extend_from_slice(b"null"),
    }
}

/// Calls `each` with every message of these slices: its offset, its record, its stamp as text. Records that only mark
/// something are none.
fn messages<'s>(slices: &'s [Slice], mut each: impl FnMut(u64, i64, &[u8], Record<'s>)) {
    let mut stamp = Vec::with_capacity(32);
    for slice in slices {
        let stamp_us = slice.segment.stamp_us;
        stamp.clear();
        time::append_us(&mut stamp, stamp_us);
        for offset in slice.from..slice.to {
            let record = slice.segment.record(offset);
            if !record.control {
                each(offset, stamp_us, &stamp, record);
            }
        }
    }
}

/// The payload bytes of these slices, and what surrounds them.
fn bytes_of(slices: &[Slice]) -> usize {
    slices.iter().map(|slice| slice.segment.bytes_between(slice.from, slice.to)).sum()
}

/// Appends the messages of a claimed run to an array, and returns how many they are.
///
/// `lease` is the text of the lease's id, empty with autoAck; `group` is the group as a JSON string.
pub(super) fn append_run(out: &mut Vec<u8>, run: &Run, lease: &[u8], group: &[u8]) -> u64 {
    // What is the same for all of them, written once.
    let mut same = Vec::with_capacity(160 + run.partition.len() + group.len());
    same.push(b'{');
    key(&mut same, "partitionId").id(run.partition_id);
    key(&mut same, "partition").text(&run.partition);
    key(&mut same, "leaseId").raw(b"\"");
    same.extend_from_slice(lease);
    same.push(b'"');
    key(&mut same, "consumerGroup").raw(group);
    key(&mut same, "deliveryAttempt").number(run.attempt);
    let same = &same[1..];

    let length: u64 = run.slices.iter().map(|slice| slice.to - slice.from).sum();
    out.reserve(bytes_of(&run.slices) + length as usize * (MESSAGE_BYTES + same.len()));
    let mut count = 0;
    messages(&run.slices, |offset, stamp_us, stamp, record| {
        count += 1;
        let id = message_id(run.number, offset, stamp_us);
        element(out);
        out.extend_from_slice(b"{\"id\":");
        append_id(out, id);
        out.extend_from_slice(b",\"transactionId\":");
        append_transaction_id(out, &record, id);
        out.extend_from_slice(b",\"traceId\":");
        match record.trace {
            Some(trace) => append_id(out, trace),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"data\":");
        append_payload(out, &record);
        out.extend_from_slice(b",\"producerSub\":");
        match record.sub {
            Some(sub) => append_json_string(out, &String::from_utf8_lossy(sub)),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"createdAt\":\"");
        out.extend_from_slice(stamp);
        out.extend_from_slice(b"\",");
        out.extend_from_slice(same);
        out.extend_from_slice(b",\"offset\":");
        append_u64(out, offset);
        out.push(b'}');
    });
    count
}

/// Appends the records of a fetched entry to an array.
pub(super) fn append_records(out: &mut Vec<u8>, number: u64, slices: &[Slice]) {
    out.reserve(bytes_of(slices));
    messages(slices, |offset, stamp_us, stamp, record| {
        element(out);
        out.extend_from_slice(b"{\"offset\":");
        append_u64(out, offset);
        out.extend_from_slice(b",\"transactionId\":");
        append_transaction_id(out, &record, message_id(number, offset, stamp_us));
        out.extend_from_slice(b",\"payload\":");
        append_payload(out, &record);
        out.extend_from_slice(b",\"ts\":\"");
        out.extend_from_slice(stamp);
        out.extend_from_slice(b"\"}");
    });
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use queen_log::{record::Records, segment::Segment};

    use super::*;

    /// A slice of all of these records, which begin at this offset.
    pub(in super::super) fn slice(base: u64, stamp_us: i64, records: &[Record<'_>]) -> Slice {
        let mut encoded = Records::default();
        for record in records {
            encoded.push(record);
        }
        let segment = Segment { base, stamp_us, bytes: encoded.bytes.into(), ends: encoded.ends.into() };
        let to = segment.next();
        Slice { segment: Arc::new(segment), from: base, to }
    }

    pub(in super::super) fn run(slices: Vec<Slice>) -> Run {
        Run {
            queue: "q".into(),
            partition: "p\"".into(),
            partition_id: Uuid([0x11; 16]),
            number: 3,
            attempt: 2,
            slices,
        }
    }

    fn rendered(run: &Run) -> String {
        let mut out = b"[".to_vec();
        append_run(&mut out, run, b"L", b"\"g\"");
        out.push(b']');
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_message_has_every_member_and_its_payload_byte_for_byte() {
        let payload = b"{\"b\" : 1.50,\t\"a\":[ \"\\ud800\" ]\n}";
        let given = Record { id: Some(b"t\""), sub: Some(b"me"), payload, ..Record::default() };
        let given = Record { trace: Some(Uuid([0x22; 16])), ..given };
        let plain = Record { payload: b"null", ..Record::default() };
        let id = message_id(3, 9, 1_500_000);
        let same = r#""partitionId":"11111111-1111-1111-1111-111111111111","partition":"p\"","leaseId":"L","consumerGroup":"g","deliveryAttempt":2"#;
        assert_eq!(
            rendered(&run(vec![slice(8, 1_500_000, &[given, plain])])),
            format!(
                r#"[{{"id":"{}","transactionId":"t\"","traceId":"22222222-2222-2222-2222-222222222222","data":{},"producerSub":"me","createdAt":"1970-01-01T00:00:01.500000Z",{same},"offset":8}},{{"id":"{id}","transactionId":"{id}","traceId":null,"data":null,"producerSub":null,"createdAt":"1970-01-01T00:00:01.500000Z",{same},"offset":9}}]"#,
                message_id(3, 8, 1_500_000),
                std::str::from_utf8(payload).expect("text"),
            )
        );
    }

    #[test]
    fn bytes_come_in_base64_tombstones_as_null_and_marks_not_at_all() {
        let bytes = Record { content: Content::Bytes, payload: b"\xfb\xff", ..Record::default() };
        let tombstone = Record { content: Content::Null, key: Some(b"k"), ..Record::default() };
        let mark = Record { control: true, payload: b"x", ..Record::default() };
        let mut out = b"[".to_vec();
        append_records(&mut out, 3, &[slice(0, 0, &[bytes, mark, tombstone])]);
        let ids = [message_id(3, 0, 0), message_id(3, 2, 0)];
        assert_eq!(
            String::from_utf8(out).expect("text"),
            format!(
                r#"[{{"offset":0,"transactionId":"{}","payload":"+/8=","ts":"1970-01-01T00:00:00.000000Z"}},{{"offset":2,"transactionId":"{}","payload":null,"ts":"1970-01-01T00:00:00.000000Z"}}"#,
                ids[0], ids[1]
            )
        );
    }

    #[test]
    fn a_slice_is_a_part_of_its_segment() {
        let one = Record { payload: b"1", ..Record::default() };
        let whole = slice(4, 0, &[one; 5]);
        let part = Slice { from: 6, to: 8, ..whole };
        let text = rendered(&run(vec![part]));
        assert_eq!(text.matches("\"offset\":").count(), 2);
        assert!(text.contains("\"offset\":6}") && text.contains("\"offset\":7}"), "{text}");
    }

    #[test]
    fn members_are_parted_by_commas() {
        let mut out = b"{".to_vec();
        key(&mut out, "a").signed(-5);
        key(&mut out, "b").boolean(true);
        key(&mut out, "c").time_ms(None);
        key(&mut out, "d").time_us(Some(0));
        key(&mut out, "e").raw(b"{");
        key(&mut out, "f").text("x\n");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            r#"{"a":-5,"b":true,"c":null,"d":"1970-01-01T00:00:00.000000Z","e":{"f":"x\n""#
        );
    }
}
