//! Message ids and the names of inboxes: two texts never name the same delivery, or the same inbox.

use queen_ephemeral::{id::MessageId, inbox::Minted};

/// Asserts that an id or a name that parses is written exactly as it was read, and that an id made
/// of the bytes reads back as itself.
pub fn message_id(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(id) = MessageId::parse(text) {
        assert_eq!(id.to_string(), text, "{id:?}");
    }
    if let Some(minted) = Minted::parse(text) {
        assert_eq!(minted.to_string(), text, "{minted:?}");
    }
    let Some((numbers, partition)) = text.split_at_checked(20) else { return };
    let (epoch, rest) = numbers.as_bytes().split_at(8);
    let (sequence, attempts) = rest.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
    let id = MessageId {
        epoch: number(epoch),
        partition,
        sequence: number(sequence),
        attempts: (number(attempts) as u32).max(1),
    };
    let written = id.to_string();
    let expected = (!partition.is_empty()).then_some(id);
    assert_eq!(MessageId::parse(&written), expected, "{written}");
}
