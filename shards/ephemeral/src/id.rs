//! Message ids as clients see them.
//!
//! `e:<16 hex digits of the owner's boot epoch>:<partition>:<sequence>`, and from the second
//! delivery on `<sequence>.<attempts>`. Clients treat an id as opaque. A partition name may hold
//! colons and dots, so an id is read from both ends. Parsing accepts exactly what formatting
//! makes, so two different texts never name the same delivery.

use std::fmt;

/// One delivery of one message: what an ack names.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct MessageId<'a> {
    /// The boot epoch of the engine that minted the id ([`EngineConfig::boot_epoch`](crate::EngineConfig)).
    pub epoch: u64,
    /// The partition's name.
    pub partition: &'a str,
    /// The message's sequence number, never reused within an epoch.
    pub sequence: u64,
    /// Which delivery of the message this was, from 1.
    pub attempts: u32,
}

impl<'a> MessageId<'a> {
    /// Reads an id. `None` for whatever formatting would not have written: leading zeros, signs,
    /// upper-case digits, numbers out of range, an explicit first attempt, no partition.
    pub fn parse(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix("e:")?;
        let (epoch, rest) = rest.split_at_checked(16)?;
        let epoch = parse_hex(epoch)?;
        let rest = rest.strip_prefix(':')?;
        let (partition, delivery) = rest.rsplit_once(':')?;
        if partition.is_empty() {
            return None;
        }
        let (sequence, attempts) = match delivery.split_once('.') {
            None => (delivery, 1),
            Some((sequence, attempts)) => {
                let attempts = u32::try_from(parse_decimal(attempts)?).ok()?;
                if attempts < 2 {
                    return None;
                }
                (sequence, attempts)
            }
        };
        Some(Self { epoch, partition, sequence: parse_decimal(sequence)?, attempts })
    }

    /// Appends the id's text, allocating nothing but the buffer's own growth.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"e:");
        append_hex(self.epoch, out);
        out.push(b':');
        out.extend_from_slice(self.partition.as_bytes());
        out.push(b':');
        append_decimal(self.sequence, out);
        if self.attempts > 1 {
            out.push(b'.');
            append_decimal(u64::from(self.attempts), out);
        }
    }
}

impl fmt::Display for MessageId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e:{:016x}:{}:{}", self.epoch, self.partition, self.sequence)?;
        if self.attempts > 1 {
            write!(f, ".{}", self.attempts)?;
        }
        Ok(())
    }
}

pub(crate) fn parse_hex(text: &str) -> Option<u64> {
    text.bytes().try_fold(0, |value, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

pub(crate) fn parse_decimal(text: &str) -> Option<u64> {
    let canonical = !text.is_empty() && (text == "0" || !text.starts_with('0'));
    if !canonical || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Appends sixteen digits.
pub(crate) fn append_hex(value: u64, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for shift in (0..16).rev() {
        out.push(HEX[(value >> (shift * 4)) as usize & 15]);
    }
}

pub(crate) fn append_decimal(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(id: &MessageId<'_>) -> String {
        let mut out = Vec::new();
        id.append_to(&mut out);
        let text = String::from_utf8(out).expect("an id is UTF-8");
        assert_eq!(text, id.to_string());
        text
    }

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        for partition in ["Default", "a:b", "1.2", ":", "..", "e:0:1", "ü:7"] {
            for (sequence, attempts) in [(0, 1), (7, 2), (u64::MAX, u32::MAX), (10, 10)] {
                let id = MessageId { epoch: 0x624f_5af8_2b58_223f, partition, sequence, attempts };
                assert_eq!(MessageId::parse(&written(&id)), Some(id));
            }
        }
    }

    #[test]
    fn the_first_delivery_shows_no_attempts_and_later_ones_do() {
        let mut id = MessageId { epoch: 1, partition: "room-1", sequence: 0, attempts: 1 };
        assert_eq!(written(&id), "e:0000000000000001:room-1:0");
        id.attempts = 2;
        assert_eq!(written(&id), "e:0000000000000001:room-1:0.2");
    }

    #[test]
    fn what_formatting_would_not_write_is_no_id() {
        for text in [
            "",
            "e:",
            "x:0000000000000001:p:1",
            "e:1:p:1",
            "e:000000000000000A:p:1",
            "e:0000000000000001:p:01",
            "e:0000000000000001:p:+1",
            "e:0000000000000001:p:1.1",
            "e:0000000000000001:p:1.0",
            "e:0000000000000001:p:1.02",
            "e:0000000000000001:p:",
            "e:0000000000000001::1",
            "e:0000000000000001:1",
            "e:0000000000000001:p:1.2.3",
            "e:0000000000000001:p:18446744073709551616",
            "e:0000000000000001:p:1.4294967296",
            "e:0000000000000001:p: 1",
            "e:000000000000000é:p:1",
        ] {
            assert_eq!(MessageId::parse(text), None, "{text}");
        }
    }
}
