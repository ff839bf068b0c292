//! A producer: pushes with transaction ids, one message or several to one or more partitions, the same request again
//! until it is answered, and now and then once more although it was.

use std::{sync::atomic::Ordering, thread, time::Duration};

use serde_json::json;

use crate::{
    history::{Message, MessageNumber, Pushed},
    load::Shared,
    random::Random,
    wire::{Client, Item},
};

/// Messages of a push, at most; most have one.
const BATCH_MAX: u64 = 20;

/// The name of who draws pads.
const PADS: u64 = 0x9ad;

/// Pushes until it is told to stop.
pub fn run(shared: &Shared, mut client: Client, producer: usize) {
    let mut random = Random::new(shared.seed, producer as u64);
    // Of each partition.
    let mut sequences = vec![0; shared.shape.partitions];
    while !shared.stops_pushing.load(Ordering::Relaxed) {
        let count = if random.percent(50) { 1 } else { random.within(2, BATCH_MAX) };
        let messages: Vec<_> = (0..count).map(|_| next(shared, producer, &mut sequences, &mut random)).collect();
        push_until_answered(shared, &mut client, &messages, &mut random);
        thread::sleep(Duration::from_micros(random.within(0, 8_000)));
    }
}

/// A message that is to be pushed, with its payload.
struct Outgoing {
    number: MessageNumber,
    partition: usize,
    transaction_id: String,
    payload: String,
}

fn next(shared: &Shared, producer: usize, sequences: &mut [u64], random: &mut Random) -> Outgoing {
    let partition = random.within(0, sequences.len() as u64 - 1) as usize;
    let sequence = sequences[partition];
    sequences[partition] += 1;
    // As the published clients mint them, and as people write them.
    let transaction_id = match producer % 2 {
        0 => uuid_v7(random),
        _ => format!("order {partition}/{producer}/{sequence}"),
    };
    let mut history = shared.history();
    let number = history.messages.len();
    history.messages.push(Message { partition, producer, sequence, transaction_id: transaction_id.clone() });
    drop(history);
    let payload = json!({"message": number, "pad": pad(number)}).to_string();
    Outgoing { number, partition, transaction_id, payload }
}

/// What follows the number in a message's payload: so that any other bytes than those that were pushed are seen, it
/// follows from the number. One in twenty is long.
pub fn pad(number: MessageNumber) -> String {
    let mut random = Random::new(number as u64, PADS);
    let bytes = if random.percent(5) { random.within(2_000, 20_000) } else { random.within(0, 500) };
    (0..bytes).map(|_| char::from(b'a' + (random.next() % 26) as u8)).collect()
}

fn push_until_answered(shared: &Shared, client: &mut Client, messages: &[Outgoing], random: &mut Random) {
    let mut is_retry = false;
    loop {
        let items: Vec<_> = messages
            .iter()
            .map(|message| Item {
                partition: partition_name(message.partition),
                transaction_id: &message.transaction_id,
                payload: message.payload.clone(),
            })
            .collect();
        match client.push(&items) {
            Ok(answers) => {
                let mut history = shared.history();
                history.pushes.extend(messages.iter().zip(answers).map(|(message, answer)| Pushed {
                    message: message.number,
                    status: answer.status,
                    message_id: answer.message_id,
                    offset: answer.offset,
                    is_retry,
                }));
                drop(history);
                if random.percent(95) {
                    return;
                }
            }
            Err(trouble) => shared.note_trouble(trouble),
        }
        is_retry = true;
    }
}

/// The name of a partition by its number.
pub fn partition_name(number: usize) -> String {
    format!("p{number}")
}

/// A version-7 UUID of this moment.
fn uuid_v7(random: &mut Random) -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (time, high, low) = (since.as_millis() as u64, random.next(), random.next());
    format!(
        "{:08x}-{:04x}-7{:03x}-{:04x}-{:012x}",
        (time >> 16) & 0xffff_ffff,
        time & 0xffff,
        high & 0xfff,
        0x8000 | ((high >> 16) & 0x3fff),
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_form_of_a_version_7_uuid() {
        let mut random = Random::new(1, 1);
        let (first, second) = (uuid_v7(&mut random), uuid_v7(&mut random));
        assert_ne!(first, second);
        assert_eq!(first.len(), 36);
        assert_eq!(&first[14..15], "7");
        assert!(matches!(&first[19..20], "8" | "9" | "a" | "b"), "{first}");
    }
}
