//! One loop that both directions need: how far a text runs before a byte that JSON strings must
//! escape. The validator reads with it, the response writer writes with it.

/// A byte's value in each byte of a word.
const fn splat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Marks, with its highest bit, a byte of `word` that cannot stand for itself inside a JSON string.
/// The lowest mark is exact; a borrow may set wrong ones above it.
#[inline]
const fn special_bytes(word: u64) -> u64 {
    let controls = word.wrapping_sub(splat(0x20)) & !word;
    let quotes = word ^ splat(b'"');
    let quotes = quotes.wrapping_sub(splat(1)) & !quotes;
    let backslashes = word ^ splat(b'\\');
    let backslashes = backslashes.wrapping_sub(splat(1)) & !backslashes;
    (controls | quotes | backslashes) & splat(0x80)
}

/// The number of leading bytes that stand for themselves inside a JSON string: the index of the
/// first quote, backslash or control character, or the whole length.
///
/// Eight bytes at a time: most strings are short, and what follows them is within reach.
#[inline]
pub(crate) fn plain_prefix_bytes(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return index * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    words.len() * 8 + rest.iter().position(is_special).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::plain_prefix_bytes;

    #[test]
    fn the_first_special_byte_is_found_at_every_distance() {
        for special in [b'"', b'\\', 0, 0x1f, b'\n'] {
            for at in 0..100 {
                let mut text = vec![b'x'; 100];
                text[at] = special;
                assert_eq!(plain_prefix_bytes(&text), at, "{special:#x} at {at}");
                text[99] = b'"';
                assert_eq!(plain_prefix_bytes(&text), at, "{special:#x} at {at}, another behind");
            }
        }
    }

    #[test]
    fn every_other_byte_is_plain() {
        let text: Vec<u8> = (0x20..=0xff).filter(|byte| *byte != b'"' && *byte != b'\\').collect();
        assert_eq!(plain_prefix_bytes(&text), text.len());
        assert_eq!(plain_prefix_bytes(b""), 0);
    }
}
