//! Identifiers: UUIDs of queues, partitions and leases, and message ids, which carry their offset.
//!
//! A message id is a UUID of version 7 whose 74 free bits hold the partition's number (34 bits) and the offset (40
//! bits). It is worked out from what a segment's row says anyway, so no message stores it, and an ack by such an id
//! needs no index.

use std::fmt;

/// A UUID as its 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid(pub [u8; 16]);

/// A queue's id: new for every queue, also when one is made again under an old name.
pub type QueueId = Uuid;
/// A partition's id.
pub type PartitionId = Uuid;
/// A tenant's id.
pub type TenantId = Uuid;
/// A lease's id: one for all partitions that a pop claimed.
pub type LeaseId = Uuid;

/// The characters of a UUID's text.
pub const UUID_TEXT_BYTES: usize = 36;

const OFFSET_BITS: u32 = 40;
const NUMBER_BITS: u32 = 34;

impl Uuid {
    /// A version 7 UUID of this time in milliseconds since 1970, with 74 of these bits.
    #[must_use]
    pub const fn v7(ms: u64, bits: u128) -> Self {
        let high = (bits >> 62) & 0xfff;
        let low = bits & ((1 << 62) - 1);
        let time = (ms as u128 & 0xffff_ffff_ffff) << 80;
        Self((time | 7 << 76 | high << 64 | 2 << 62 | low).to_be_bytes())
    }

    /// Reads the canonical form of 8-4-4-4-12 hexadecimal digits, in either case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != UUID_TEXT_BYTES {
            return None;
        }
        let mut digits = 0;
        let mut value = 0u128;
        for (at, &byte) in text.iter().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return None;
                }
                continue;
            }
            value = value << 4 | u128::from((byte as char).to_digit(16)?);
            digits += 1;
        }
        debug_assert_eq!(digits, 32);
        Some(Self(value.to_be_bytes()))
    }

    /// The canonical text, in lower case.
    #[must_use]
    pub fn text(self) -> [u8; UUID_TEXT_BYTES] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; UUID_TEXT_BYTES];
        let mut at = 0;
        for byte in self.0 {
            if matches!(at, 8 | 13 | 18 | 23) {
                at += 1;
            }
            text[at] = HEX[usize::from(byte >> 4)];
            text[at + 1] = HEX[usize::from(byte & 15)];
            at += 2;
        }
        text
    }

    /// The time of a version 7 UUID, in milliseconds since 1970.
    #[must_use]
    pub fn v7_ms(self) -> Option<u64> {
        let value = u128::from_be_bytes(self.0);
        (value >> 76 & 15 == 7 && value >> 62 & 3 == 2).then_some((value >> 80) as u64)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).expect("hexadecimal digits and dashes"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id of the message at `offset` of the partition with this number, stamped `stamp_us`.
#[must_use]
pub fn message_id(number: u64, offset: u64, stamp_us: i64) -> Uuid {
    let bits =
        u128::from(number & ((1 << NUMBER_BITS) - 1)) << OFFSET_BITS | u128::from(offset & ((1 << OFFSET_BITS) - 1));
    Uuid::v7(stamp_us.max(0) as u64 / 1000, bits)
}

/// The offset that a message id of this partition carries; the stamp is not checked here. None for any other text.
#[must_use]
pub fn offset_of_message_id(id: &str, number: u64) -> Option<u64> {
    let id = Uuid::parse(id)?;
    id.v7_ms()?;
    let value = u128::from_be_bytes(id.0);
    let bits = (value >> 64 & 0xfff) << 62 | value & ((1 << 62) - 1);
    ((bits >> OFFSET_BITS) as u64 == number & ((1 << NUMBER_BITS) - 1))
        .then_some((bits & ((1 << OFFSET_BITS) - 1)) as u64)
}

/// The packed form of a transaction id in the index of a segment. Never 0, which stands for a message without one.
#[must_use]
pub fn hash_of_id(id: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(id).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_carries_number_and_offset() {
        let id = message_id(12_345, 987_654_321, 1_700_000_000_123_456);
        assert_eq!(id.v7_ms(), Some(1_700_000_000_123));
        assert_eq!(offset_of_message_id(&id.to_string(), 12_345), Some(987_654_321));
        assert_eq!(offset_of_message_id(&id.to_string(), 12_346), None);
    }

    #[test]
    fn uuids_are_read_in_either_case_and_written_in_lower() {
        let text = "018F3A5B-7c00-7abc-8def-0123456789AB";
        let id = Uuid::parse(text).expect("a UUID");
        assert_eq!(id.to_string(), text.to_lowercase());
        for bad in [
            "",
            "018F3A5B7c007abc8def0123456789AB",
            "018F3A5B-7c00-7abc-8def-0123456789AG",
            "{18F3A5B-7c00-7abc-8def-0123456789AB",
        ] {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_version_7_has_a_time() {
        assert_eq!(Uuid::parse("018f3a5b-7c00-4abc-8def-0123456789ab").expect("a UUID").v7_ms(), None);
        assert_eq!(Uuid::v7(5, u128::MAX).v7_ms(), Some(5));
    }
}
