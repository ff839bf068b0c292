//! A chunked body, put together as its bytes come: one byte, one step, every step resumable.
//!
//! Chunk extensions and trailers are checked and dropped. What bounds them is the head limit: all
//! extensions of a body together, and all trailers together, stay below it.

use super::{HttpError, Limits};

/// The most digits of one chunk size: those of a 64-bit number.
const SIZE_DIGITS_MAX: u8 = 16;

/// The place in the grammar of RFC 9112, section 7.1, before the next byte.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Inside a size, after this many digits of it.
    Size {
        digits: u8,
    },
    /// White space behind a size, which only an extension may follow.
    SpaceBeforeExtension,
    Extension,
    SizeLineFeed,
    Data {
        left_bytes: u64,
    },
    DataReturn,
    DataLineFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
    End,
}

/// Takes a chunked body apart.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    /// The size of the chunk whose size line is being read.
    size_bytes: u64,
    extension_bytes: usize,
    trailer_bytes: usize,
}

impl Chunks {
    pub(super) fn new() -> Self {
        Self { at: At::Size { digits: 0 }, size_bytes: 0, extension_bytes: 0, trailer_bytes: 0 }
    }

    /// True once the empty line behind the last chunk has been read.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.at, At::End)
    }

    /// Appends to `body` what `input` holds of it and returns how many bytes were read: all of
    /// them, unless the body ends before.
    pub(super) fn feed(&mut self, input: &[u8], body: &mut Vec<u8>, limits: &Limits) -> Result<usize, HttpError> {
        let mut read = 0;
        while read < input.len() && !self.is_ended() {
            if let At::Data { left_bytes } = self.at {
                let rest = &input[read..];
                let taken = usize::try_from(left_bytes).map_or(rest.len(), |n| n.min(rest.len()));
                body.extend_from_slice(&rest[..taken]);
                read += taken;
                let left_bytes = left_bytes - taken as u64;
                self.at = if left_bytes == 0 { At::DataReturn } else { At::Data { left_bytes } };
            } else {
                self.at = self.step(input[read], body.len() as u64, limits)?;
                read += 1;
            }
        }
        Ok(read)
    }

    /// One byte of framing.
    fn step(&mut self, byte: u8, body_bytes: u64, limits: &Limits) -> Result<At, HttpError> {
        match (self.at, byte) {
            (At::Size { digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.take_digit(byte, digits, body_bytes, limits)
            }
            (At::Size { digits: 1.. }, b'\r') => Ok(At::SizeLineFeed),
            (At::Size { digits: 1.. } | At::SpaceBeforeExtension, b' ' | b'\t') => {
                self.count_extension_byte(limits)?;
                Ok(At::SpaceBeforeExtension)
            }
            (At::Size { digits: 1.. } | At::SpaceBeforeExtension, b';') => Ok(At::Extension),
            (At::Extension, b'\r') => Ok(At::SizeLineFeed),
            (At::Extension, _) if is_text(byte) => {
                self.count_extension_byte(limits)?;
                Ok(At::Extension)
            }
            (At::SizeLineFeed, b'\n') => Ok(match std::mem::take(&mut self.size_bytes) {
                0 => At::TrailerStart,
                left_bytes => At::Data { left_bytes },
            }),
            (At::DataReturn, b'\r') => Ok(At::DataLineFeed),
            (At::DataLineFeed, b'\n') => Ok(At::Size { digits: 0 }),
            (At::TrailerStart, b'\r') => Ok(At::LastLineFeed),
            (At::LastLineFeed, b'\n') => Ok(At::End),
            (At::TrailerStart | At::TrailerName | At::TrailerValue | At::TrailerLineFeed, _) => {
                self.trailer_step(byte, limits)
            }
            (At::LastLineFeed, _) => Err(HttpError::Trailer),
            _ => Err(HttpError::Chunk),
        }
    }

    fn take_digit(&mut self, byte: u8, digits: u8, body_bytes: u64, limits: &Limits) -> Result<At, HttpError> {
        if digits == SIZE_DIGITS_MAX {
            return Err(HttpError::Chunk);
        }
        let digit = (byte as char).to_digit(16).expect("the caller matched a hexadecimal digit");
        // Sixteen digits fill 64 bits exactly, so the shift loses nothing.
        self.size_bytes = (self.size_bytes << 4) | u64::from(digit);
        // Refused while the digits come, before a byte of the chunk is read.
        match body_bytes.checked_add(self.size_bytes) {
            Some(sum) if sum <= limits.body_bytes_max => Ok(At::Size { digits: digits + 1 }),
            _ => Err(HttpError::BodyTooLarge),
        }
    }

    fn count_extension_byte(&mut self, limits: &Limits) -> Result<(), HttpError> {
        self.extension_bytes += 1;
        if self.extension_bytes > limits.head_bytes_max {
            return Err(HttpError::HeadTooLarge);
        }
        Ok(())
    }

    fn trailer_step(&mut self, byte: u8, limits: &Limits) -> Result<At, HttpError> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > limits.head_bytes_max {
            return Err(HttpError::HeadTooLarge);
        }
        match (self.at, byte) {
            (At::TrailerStart | At::TrailerName, _) if is_token(byte) => Ok(At::TrailerName),
            (At::TrailerName, b':') => Ok(At::TrailerValue),
            (At::TrailerValue, b'\r') => Ok(At::TrailerLineFeed),
            (At::TrailerValue, _) if is_text(byte) => Ok(At::TrailerValue),
            (At::TrailerLineFeed, b'\n') => Ok(At::TrailerStart),
            _ => Err(HttpError::Trailer),
        }
    }
}

/// True for what may stand in a field value: anything but control characters other than tab.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

/// True for a `tchar` of RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::{Chunks, HttpError, Limits};

    fn limits() -> Limits {
        Limits { head_bytes_max: 64, headers_max: 100, body_bytes_max: 1000 }
    }

    /// The body and the bytes read, or the refusal.
    fn whole(input: &[u8]) -> Result<(Vec<u8>, usize), HttpError> {
        let (mut chunks, mut body) = (Chunks::new(), Vec::new());
        let read = chunks.feed(input, &mut body, &limits())?;
        assert!(chunks.is_ended(), "{:?} is not whole", String::from_utf8_lossy(input));
        Ok((body, read))
    }

    #[test]
    fn chunks_are_joined_and_what_follows_is_left() {
        assert_eq!(whole(b"0\r\n\r\nrest"), Ok((vec![], 5)));
        assert_eq!(whole(b"3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n!"), Ok((b"abc0123456789".into(), 30)));
    }

    #[test]
    fn extensions_and_trailers_are_dropped() {
        assert_eq!(whole(b"1;a=b\r\nx\r\n1 \t;c\r\ny\r\n0;\r\n\r\n").map(|(body, _)| body), Ok(b"xy".into()));
        assert_eq!(whole(b"0\r\na: b\r\nC:\r\n\r\n"), Ok((vec![], 15)));
    }

    #[test]
    fn framing_that_is_not_exact_is_refused() {
        let cases: [&[u8]; 13] = [
            b"\r\n",
            b"g\r\n",
            b"1\n",
            b"1 \r\n",
            b"1\rx",
            b"1\r\nxy",
            b"1\r\nx\n",
            b"1\r\nx\ry",
            b" 1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b"1;a\n",
            b"00000000000000001\r\n",
        ];
        for input in cases {
            assert_eq!(whole(input), Err(HttpError::Chunk), "{:?}", String::from_utf8_lossy(input));
        }
        let cases: [&[u8]; 7] = [
            b"0\r\n\n",
            b"0\r\n\rx",
            b"0\r\n a: b\r\n",
            b"0\r\na\r\n",
            b"0\r\na: b\n",
            b"0\r\na: b\r\n\n",
            b"0\r\na: \0\r\n",
        ];
        for input in cases {
            assert_eq!(whole(input), Err(HttpError::Trailer), "{:?}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn sizes_beyond_the_limit_are_refused_at_their_digits() {
        assert_eq!(whole(b"3e9"), Err(HttpError::BodyTooLarge));
        assert_eq!(whole(b"ffffffffffffffff"), Err(HttpError::BodyTooLarge));
        let mut sum = b"3e8\r\n".to_vec();
        sum.extend([b'x'; 1000]);
        sum.extend(b"\r\n1");
        assert_eq!(whole(&sum), Err(HttpError::BodyTooLarge));
    }

    #[test]
    fn extensions_and_trailers_stay_below_the_head_limit() {
        let long = "x".repeat(65);
        assert_eq!(whole(format!("1;{long}").as_bytes()), Err(HttpError::HeadTooLarge));
        assert_eq!(whole(format!("0\r\n{long}").as_bytes()), Err(HttpError::HeadTooLarge));
        let many = "1;xxxxxxxx\r\ny\r\n".repeat(9);
        assert_eq!(whole(many.as_bytes()), Err(HttpError::HeadTooLarge));
    }
}
