//! What a message carries: enough to find out whether it arrived, once, in order and whole, and how long that took.
//!
//! A payload is a JSON string of printable ASCII without escapes, so that it goes through any broker as it is:
//!
//! ```text
//! " RRRR PPPP KKKK SSSSSSSS DDDDDDDDDD f…f CCCCCCCCCCC "      (without the spaces)
//! ```
//!
//! R is the run, P the producer, K the key (partition), S the sequence number, D when it was due, in nanoseconds on
//! `CLOCK_MONOTONIC`, and C an XXH3 over all between the quotes before it. Each is a number in base 64, six bits a
//! digit. Between the header and the checksum stands filler: a share of it random digits (which hold six bits in eight:
//! as little as JSON text can be compressed), the rest one letter.

use xxhash_rust::xxh3::xxh3_64;

use crate::random::Random;

/// Digits of the header's numbers.
const RUN_DIGITS: usize = 4;
const PRODUCER_DIGITS: usize = 4;
const KEY_DIGITS: usize = 4;
const SEQUENCE_DIGITS: usize = 8;
const DUE_DIGITS: usize = 10;
const CHECKSUM_DIGITS: usize = 11;

const HEADER_BYTES: usize = RUN_DIGITS + PRODUCER_DIGITS + KEY_DIGITS + SEQUENCE_DIGITS + DUE_DIGITS;

/// The smallest payload: its header, checksum and quotes.
pub const BYTES_MIN: usize = HEADER_BYTES + CHECKSUM_DIGITS + 2;

/// The largest payload.
pub const BYTES_MAX: usize = 64 << 20;

/// The most producers of a run, and the most keys of a producer: what their digits hold.
pub const IDS_MAX: usize = 1 << (6 * 4);

/// Base 64 by RFC 4648, in the letters that are safe in names too.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What is no digit.
const NO_DIGIT: u8 = 0xff;

const VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < DIGITS.len() {
        values[DIGITS[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// Random digits are copied from a pool of this size, at a random place: larger than the window of usual compressors.
const POOL_BYTES: usize = 256 * 1024;

/// Who a message is: unique in a run, and in all runs that reach one broker as far as their `run` differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The run, of which only the lower 24 bits are kept.
    pub run: u32,
    /// Who sent it, below [`IDS_MAX`].
    pub producer: u32,
    /// In which sequence of the producer, below [`IDS_MAX`].
    pub key: u32,
    /// Its number in that sequence, from 0, below 2⁴⁸.
    pub sequence: u64,
    /// When it was due, in nanoseconds on `CLOCK_MONOTONIC`, below 2⁶⁰.
    pub due_ns: u64,
}

/// The run of these bits, as a [`Header`] keeps it.
#[must_use]
pub fn run_of(bits: u64) -> u32 {
    (bits & 0xff_ffff) as u32
}

/// Makes payloads.
pub struct Maker {
    pool: Vec<u8>,
    random: Random,
    incompressible: f64,
}

impl Maker {
    /// A maker whose filler follows from `random`, of which the share `incompressible`, from 0 to 1, does not compress.
    #[must_use]
    pub fn new(mut random: Random, incompressible: f64) -> Self {
        let pool = (0..POOL_BYTES).map(|_| DIGITS[random.below(64)]).collect();
        Self { pool, random, incompressible }
    }

    /// Appends a payload of exactly `bytes` bytes, which are at least [`BYTES_MIN`].
    pub fn append(&mut self, header: &Header, bytes: usize, out: &mut Vec<u8>) {
        assert!(bytes >= BYTES_MIN, "a payload holds its header");
        out.push(b'"');
        let begin = out.len();
        let mut digits = [0; HEADER_BYTES];
        let mut rest = digits.as_mut_slice();
        for (value, count) in [
            (u64::from(header.run), RUN_DIGITS),
            (u64::from(header.producer), PRODUCER_DIGITS),
            (u64::from(header.key), KEY_DIGITS),
            (header.sequence, SEQUENCE_DIGITS),
            (header.due_ns, DUE_DIGITS),
        ] {
            let (field, behind) = rest.split_at_mut(count);
            encode(value, field);
            rest = behind;
        }
        out.extend_from_slice(&digits);
        let filler_bytes = bytes - BYTES_MIN;
        let mut random_bytes = ((filler_bytes as f64 * self.incompressible).ceil() as usize).min(filler_bytes);
        out.reserve(filler_bytes + CHECKSUM_DIGITS + 1);
        out.resize(out.len() + filler_bytes - random_bytes, b'x');
        while random_bytes > 0 {
            let piece = random_bytes.min(POOL_BYTES / 2);
            let at = self.random.below(POOL_BYTES - piece);
            out.extend_from_slice(&self.pool[at..at + piece]);
            random_bytes -= piece;
        }
        let mut checksum = [0; CHECKSUM_DIGITS];
        encode(xxh3_64(&out[begin..]), &mut checksum);
        out.extend_from_slice(&checksum);
        out.push(b'"');
    }
}

/// A received message is not one that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupted;

/// Reads a payload back.
///
/// # Errors
///
/// [`Corrupted`], when any byte of it is not as it was made.
pub fn parse(payload: &[u8]) -> Result<Header, Corrupted> {
    let inner = match payload {
        [b'"', inner @ .., b'"'] if payload.len() >= BYTES_MIN => inner,
        _ => return Err(Corrupted),
    };
    let (covered, checksum) = inner.split_at(inner.len() - CHECKSUM_DIGITS);
    let mut wanted = [0; CHECKSUM_DIGITS];
    encode(xxh3_64(covered), &mut wanted);
    if checksum != wanted {
        return Err(Corrupted);
    }
    let mut rest = covered;
    let mut field = |count: usize| {
        let (digits, behind) = rest.split_at(count);
        rest = behind;
        decode(digits)
    };
    Ok(Header {
        run: field(RUN_DIGITS)? as u32,
        producer: field(PRODUCER_DIGITS)? as u32,
        key: field(KEY_DIGITS)? as u32,
        sequence: field(SEQUENCE_DIGITS)?,
        due_ns: field(DUE_DIGITS)?,
    })
}

/// Writes the lowest digits of `value`, the highest of them first.
fn encode(mut value: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(value & 63) as usize];
        value >>= 6;
    }
}

fn decode(digits: &[u8]) -> Result<u64, Corrupted> {
    digits.iter().try_fold(0, |value: u64, &digit| match VALUES[usize::from(digit)] {
        NO_DIGIT => Err(Corrupted),
        six_bits => Ok((value << 6) | u64::from(six_bits)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { run: 0xab_cdef, producer: 16_777_215, key: 3, sequence: 1 << 47, due_ns: 123_456_789_012_345 };

    fn made(bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        Maker::new(Random::new(1, 0), 0.5).append(&HEADER, bytes, &mut out);
        out
    }

    #[test]
    fn a_payload_comes_back_and_has_the_size_asked_for() {
        for bytes in [BYTES_MIN, BYTES_MIN + 1, 64, 255, 256, 4096, 1 << 20] {
            let payload = made(bytes);
            assert_eq!(payload.len(), bytes);
            assert_eq!(parse(&payload), Ok(HEADER), "{bytes} bytes");
        }
    }

    #[test]
    fn any_change_of_any_byte_is_seen() {
        let payload = made(96);
        for at in 0..payload.len() {
            for bit in 0..8 {
                let mut changed = payload.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(parse(&changed), Err(Corrupted), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_payload_that_lost_bytes_is_seen() {
        let payload = made(96);
        for bytes in 0..payload.len() {
            assert_eq!(parse(&payload[..bytes]), Err(Corrupted), "the first {bytes} bytes");
        }
    }

    #[test]
    fn filler_is_as_random_as_asked_for() {
        for (share, random_bytes) in [(0.0, 0), (0.5, 500), (1.0, 1_000)] {
            let mut payload = Vec::new();
            Maker::new(Random::new(1, 0), share).append(&HEADER, BYTES_MIN + 1_000, &mut payload);
            let filler = &payload[1 + HEADER_BYTES..payload.len() - CHECKSUM_DIGITS - 1];
            let (plain, random) = filler.split_at(1_000 - random_bytes);
            assert!(plain.iter().all(|&byte| byte == b'x'), "{share}");
            // A random digit in 64 is that letter, too.
            let letters = random.iter().filter(|&&byte| byte == b'x').count();
            assert!(letters <= random_bytes / 16, "{letters} of {random_bytes} bytes");
            assert_eq!(parse(&payload), Ok(HEADER));
        }
    }

    #[test]
    fn half_of_the_filler_is_random_and_differs_from_message_to_message() {
        let mut maker = Maker::new(Random::new(1, 0), 0.5);
        let [mut first, mut second] = [Vec::new(), Vec::new()];
        maker.append(&HEADER, BYTES_MIN + 1_000, &mut first);
        maker.append(&HEADER, BYTES_MIN + 1_000, &mut second);
        let equal = first.iter().zip(&second).filter(|(a, b)| a == b).count();
        // The header, the half that is one letter, and a random digit in 64.
        assert!((500..500 + BYTES_MIN + 50).contains(&equal), "{equal} bytes are equal");
    }
}
