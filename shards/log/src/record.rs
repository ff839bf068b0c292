//! Records: messages as bytes, one after the other, as they lie in a segment.
//!
//! ```text
//! record  := flags:u8 [more:u8] [id] [key] [headers] [time] [producer] [trace] [sub] payload
//! id, key, headers, sub, payload := length:varint bytes
//! time    := zigzag varint, milliseconds since 1970 as the producer said
//! producer:= id:varint epoch:varint sequence:varint
//! trace   := 16 bytes
//! ```
//!
//! Everything that a Kafka record needs has its place; the HTTP routes use the id, the payload, and seldom trace and
//! subject. A record without an id goes by its [message id](crate::id::message_id).

use crate::id::{Uuid, hash_of_id};

const BYTES: u8 = 1;
const ID: u8 = 1 << 1;
const KEY: u8 = 1 << 2;
const HEADERS: u8 = 1 << 3;
const TIME: u8 = 1 << 4;
const PRODUCER: u8 = 1 << 5;
const CONTROL: u8 = 1 << 6;
const MORE: u8 = 1 << 7;

const TRACE: u8 = 1;
const SUB: u8 = 1 << 1;
const NULL: u8 = 1 << 2;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Content {
    /// JSON text, as the HTTP routes take it.
    #[default]
    Json,
    /// Bytes, as a Kafka client sends them.
    Bytes,
    /// No value at all: a Kafka tombstone.
    Null,
}

/// Who produced a record, and its place among what that producer sent: Kafka's idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// The producer's id.
    pub id: u64,
    /// Its epoch.
    pub epoch: u16,
    /// The record's sequence number.
    pub sequence: u32,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Record<'a> {
    /// The transaction id that the producer gave.
    pub id: Option<&'a [u8]>,
    /// Kafka's key.
    pub key: Option<&'a [u8]>,
    /// Kafka's headers, encoded as Kafka encodes them.
    pub headers: Option<&'a [u8]>,
    /// The producer's time in milliseconds since 1970.
    pub time_ms: Option<i64>,
    /// Kafka's idempotent producer.
    pub producer: Option<Producer>,
    /// A trace id that a transaction gave.
    pub trace: Option<Uuid>,
    /// The verified subject of the token that it was pushed with.
    pub sub: Option<&'a [u8]>,
    /// A record that marks something, and is no message.
    pub control: bool,
    /// What the payload is.
    pub content: Content,
    /// The payload.
    pub payload: &'a [u8],
}

/// Records of one push for one partition, encoded, with what the log has to know of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The records, one after the other.
    pub bytes: Vec<u8>,
    /// Where each ends in `bytes`.
    pub ends: Vec<u32>,
    /// The hash of each one's transaction id, 0 where it has none.
    pub hashes: Vec<u64>,
}

impl Records {
    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends one.
    ///
    /// # Panics
    /// When all together would exceed 4 GiB.
    pub fn push(&mut self, record: &Record<'_>) {
        encode(&mut self.bytes, record);
        self.ends.push(u32::try_from(self.bytes.len()).expect("a push is bounded by its body"));
        self.hashes.push(record.id.map_or(0, hash_of_id));
    }

    /// The encoded bytes of one record.
    #[must_use]
    pub fn encoded(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[start..self.ends[index] as usize]
    }

    /// One record.
    ///
    /// # Panics
    /// Never for what [`push`](Self::push) encoded.
    #[must_use]
    pub fn get(&self, index: usize) -> Record<'_> {
        decode(self.encoded(index)).expect("encoded here").0
    }
}

/// Appends a record's encoding.
pub fn encode(out: &mut Vec<u8>, record: &Record<'_>) {
    let mut more = 0;
    more |= if record.trace.is_some() { TRACE } else { 0 };
    more |= if record.sub.is_some() { SUB } else { 0 };
    more |= if record.content == Content::Null { NULL } else { 0 };
    let mut flags = 0;
    flags |= if record.content == Content::Bytes { BYTES } else { 0 };
    flags |= if record.id.is_some() { ID } else { 0 };
    flags |= if record.key.is_some() { KEY } else { 0 };
    flags |= if record.headers.is_some() { HEADERS } else { 0 };
    flags |= if record.time_ms.is_some() { TIME } else { 0 };
    flags |= if record.producer.is_some() { PRODUCER } else { 0 };
    flags |= if record.control { CONTROL } else { 0 };
    flags |= if more != 0 { MORE } else { 0 };
    out.push(flags);
    if more != 0 {
        out.push(more);
    }
    for field in [record.id, record.key, record.headers].into_iter().flatten() {
        put_bytes(out, field);
    }
    if let Some(time_ms) = record.time_ms {
        put_varint(out, ((time_ms << 1) ^ (time_ms >> 63)) as u64);
    }
    if let Some(producer) = record.producer {
        put_varint(out, producer.id);
        put_varint(out, u64::from(producer.epoch));
        put_varint(out, u64::from(producer.sequence));
    }
    if let Some(trace) = record.trace {
        out.extend_from_slice(&trace.0);
    }
    if let Some(sub) = record.sub {
        put_bytes(out, sub);
    }
    put_bytes(out, record.payload);
}

/// Reads the record at the start of `bytes`, and how many bytes it takes. None where there is no whole record.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let mut reader = Reader(bytes);
    let flags = reader.byte()?;
    let more = if flags & MORE != 0 { reader.byte()? } else { 0 };
    let id = reader.field(flags & ID)?;
    let key = reader.field(flags & KEY)?;
    let headers = reader.field(flags & HEADERS)?;
    let time_ms = if flags & TIME != 0 {
        let raw = reader.varint()?;
        Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
    } else {
        None
    };
    let producer = if flags & PRODUCER != 0 {
        let id = reader.varint()?;
        let epoch = u16::try_from(reader.varint()?).ok()?;
        Some(Producer { id, epoch, sequence: u32::try_from(reader.varint()?).ok()? })
    } else {
        None
    };
    let trace = if more & TRACE != 0 { Some(Uuid(reader.take(16)?.try_into().ok()?)) } else { None };
    let sub = reader.field(more & SUB)?;
    let payload = reader.bytes()?;
    let content = match (flags & BYTES != 0, more & NULL != 0) {
        (_, true) => Content::Null,
        (true, false) => Content::Bytes,
        (false, false) => Content::Json,
    };
    let control = flags & CONTROL != 0;
    let record = Record { id, key, headers, time_ms, producer, trace, sub, control, content, payload };
    Some((record, bytes.len() - reader.0.len()))
}

/// Appends a length and the bytes.
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends seven bits a byte, the lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// What is left to read.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        self.take(length)
    }

    /// A field that is there if its flag is.
    fn field(&mut self, flag: u8) -> Option<Option<&'a [u8]>> {
        if flag == 0 { Some(None) } else { self.bytes().map(Some) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Record<'static> {
        Record {
            id: Some(b"order-1"),
            key: Some(b""),
            headers: Some(b"hh"),
            time_ms: Some(-5),
            producer: Some(Producer { id: u64::MAX, epoch: 3, sequence: 1 << 30 }),
            trace: Some(Uuid([9; 16])),
            sub: Some(b"me"),
            control: true,
            content: Content::Bytes,
            payload: b"\0\xff",
        }
    }

    #[test]
    fn a_record_comes_back_as_it_went_in() {
        let plain = Record { payload: b"{}", ..Record::default() };
        let null = Record { content: Content::Null, ..Record::default() };
        let mut records = Records::default();
        for record in [plain, full(), null] {
            records.push(&record);
        }
        assert_eq!([records.get(0), records.get(1), records.get(2)], [plain, full(), null]);
        assert_eq!(records.hashes[0], 0);
        assert_eq!(records.hashes[1], hash_of_id(b"order-1"));
        assert_eq!(records.encoded(0).len(), 4, "a message costs two bytes beside its payload");
    }

    #[test]
    fn a_record_that_is_cut_short_is_none() {
        let mut bytes = Vec::new();
        encode(&mut bytes, &full());
        assert_eq!(decode(&bytes).map(|(_, length)| length), Some(bytes.len()));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_refused() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, u64::MAX);
        assert_eq!(Reader(&bytes).varint(), Some(u64::MAX));
        *bytes.last_mut().expect("ten bytes") = 2;
        assert_eq!(Reader(&bytes).varint(), None);
        assert_eq!(Reader(&[0x80; 11]).varint(), None);
    }
}
