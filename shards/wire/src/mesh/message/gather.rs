//! Batches of places, read into one place for each queue.
//!
//! Nothing is allocated for a place of a queue that was seen before: sixteen megabytes of them cost the time to read them
//! and the memory of a few names.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::Entry},
    fmt,
};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::{Candidate, MessageError, NAME_BYTES_MAX, PLACES_PER_FRAME, Place, Tenant};

/// A text that is borrowed from the frame unless it has escapes.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// A place as it stands in a frame.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    queue: Text<'a>,
    #[serde(default, borrow)]
    partition: Option<Text<'a>>,
    #[serde(default, with = "super::uuid")]
    tenant: Option<Tenant>,
    #[serde(default, borrow)]
    group: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Batch {
    #[serde(deserialize_with = "gather")]
    items: Vec<Candidate>,
}

/// A batch's places, each queue once, in the order in which they come first.
pub(super) fn gathered(tag: u8, payload: &[u8]) -> Result<Vec<Candidate>, MessageError> {
    serde_json::from_slice::<Batch>(payload).map(|batch| batch.items).map_err(|_| MessageError { tag })
}

fn gather<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Candidate>, D::Error> {
    deserializer.deserialize_seq(Gathering)
}

struct Gathering;

impl<'de> Visitor<'de> for Gathering {
    type Value = Vec<Candidate>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of places")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut gathered: Vec<Candidate> = Vec::new();
        let mut places: HashMap<(Cow<'de, str>, Option<Tenant>), usize> = HashMap::new();
        let mut last = None;
        while let Some(Item { queue: Text(queue), partition, tenant, group }) = items.next_element::<Item<'de>>()? {
            if queue.len() > NAME_BYTES_MAX {
                continue;
            }
            // A push to many partitions names its queue many times, one after the other.
            let same = |&at: &usize| gathered[at].place.queue == queue && gathered[at].place.tenant == tenant;
            let at = match last.filter(same) {
                Some(at) => at,
                None => match places.entry((queue, tenant)) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(_) if gathered.len() >= PLACES_PER_FRAME => continue,
                    Entry::Vacant(entry) => {
                        let queue = entry.key().0.clone().into_owned();
                        // Longer ones are of no partition or group that there is: the whole queue is meant well enough.
                        let short = |text: Option<Text<'_>>| {
                            text.filter(|Text(text)| text.len() <= TEXT_BYTES_MAX).map(|Text(text)| text.into_owned())
                        };
                        let place = Place { queue, partition: short(partition), tenant };
                        gathered.push(Candidate { place, group: short(group) });
                        last = Some(*entry.insert(gathered.len() - 1));
                        continue;
                    }
                },
            };
            let known = &mut gathered[at];
            widen(&mut known.place.partition, partition);
            widen(&mut known.group, group);
            last = Some(at);
        }
        Ok(gathered)
    }
}

/// Bytes of a partition's or group's name that is kept, at most.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// What is said of one and of another is said of all.
fn widen(known: &mut Option<String>, other: Option<Text<'_>>) {
    if known.as_deref() != other.as_ref().map(|Text(text)| &**text) {
        *known = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(items: &str) -> Vec<Candidate> {
        gathered(5, format!(r#"{{"more":[1],"items":[{items}],"less":null}}"#).as_bytes()).expect("a batch")
    }

    fn candidate(queue: &str, partition: Option<&str>, group: Option<&str>) -> Candidate {
        let place = Place { queue: queue.to_owned(), partition: partition.map(str::to_owned), tenant: None };
        Candidate { place, group: group.map(str::to_owned) }
    }

    #[test]
    fn places_of_one_queue_are_one() {
        let same = r#"{"queue":"q","partition":"p","group":"g"}"#;
        assert_eq!(read(&format!("{same},{same}")), [candidate("q", Some("p"), Some("g"))]);
        let items = format!(r#"{same},{{"queue":"r"}},{{"queue":"q","partition":"o","group":"g"}},{same}"#);
        assert_eq!(read(&items), [candidate("q", None, Some("g")), candidate("r", None, None)]);
        assert_eq!(read(&format!(r#"{same},{{"queue":"q","partition":"p"}}"#)), [candidate("q", Some("p"), None)]);
    }

    #[test]
    fn tenants_are_kept_apart() {
        let tenant = |digit: &str| format!(r#"{{"queue":"q","tenant":"00000000-0000-0000-0000-00000000000{digit}"}}"#);
        let found = read(&[tenant("1"), tenant("2"), tenant("1"), r#"{"queue":"q"}"#.to_owned()].join(","));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn names_with_escapes_are_the_same_names() {
        assert_eq!(read(r#"{"queue":"\u0071"},{"queue":"q"}"#), [candidate("q", None, None)]);
    }

    #[test]
    fn what_no_broker_needs_is_passed_over() {
        let many = (0..PLACES_PER_FRAME + 10).map(|n| format!(r#"{{"queue":"q{n}"}}"#)).collect::<Vec<_>>().join(",");
        assert_eq!(read(&format!(r#"{many},{{"queue":"q0"}}"#)).len(), PLACES_PER_FRAME);
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(read(&format!(r#"{{"queue":"{long}"}},{{"queue":"q"}}"#)), [candidate("q", None, None)]);
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(read(&format!(r#"{{"queue":"q","partition":"{long}"}}"#)), [candidate("q", None, None)]);
    }
}
