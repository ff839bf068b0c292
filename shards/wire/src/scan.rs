//! One loop that both directions need: how far a text runs before a byte that JSON strings must
//! escape. The validator reads with it, the response writer writes with it.

/// Bytes looked at in one step: two SSE2 registers, one AVX2 register. The compiler turns the fold
/// over a block into vector compares; a loop that left at the first hit would stay scalar.
const BLOCK_BYTES: usize = 32;

/// True for a byte that cannot stand for itself inside a JSON string.
#[inline]
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// The number of leading bytes that stand for themselves inside a JSON string: the index of the
/// first quote, backslash or control character, or the whole length.
#[inline]
pub(crate) fn plain_prefix_bytes(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let clean =
        blocks.iter().take_while(|block| !block.iter().fold(false, |hit, &byte| hit | is_special(byte))).count()
            * BLOCK_BYTES;
    let rest = &bytes[clean..];
    clean + rest.iter().position(|&byte| is_special(byte)).unwrap_or(rest.len())
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
