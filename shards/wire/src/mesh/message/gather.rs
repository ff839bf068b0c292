//! Batches of places, read into one place for each queue.
//!
//! Nothing is allocated for a place of a queue that was seen before, and so many items are read at the most: a frame of
//! sixteen megabytes holds a million of them, and the core that reads it has others to serve.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::Entry},
    fmt,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{Candidate, MessageError, NAME_BYTES_MAX, PLACES_PER_FRAME, Place, Tenant};

/// Items that are read of one batch: ten times what a broker of this version sends.
const ITEMS_PER_FRAME_MAX: usize = 10 * PLACES_PER_FRAME;

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

/// A batch's places, each queue once, in the order in which they come first.
///
/// Beyond [`ITEMS_PER_FRAME_MAX`] items or [`PLACES_PER_FRAME`] queues nothing is read any more, whatever it is.
pub(super) fn gathered(tag: u8, payload: &[u8]) -> Result<Vec<Candidate>, MessageError> {
    let mut gathering = Gathering::default();
    let mut json = serde_json::Deserializer::from_slice(payload);
    let outcome = json.deserialize_map(Batch(&mut gathering)).and_then(|()| json.end());
    if gathering.is_full {
        // What was not read may be of other partitions and groups of these queues.
        for candidate in &mut gathering.found {
            (candidate.place.partition, candidate.group) = (None, None);
        }
    } else {
        outcome.map_err(|_| MessageError { tag })?;
    }
    Ok(gathering.found)
}

/// What was read of a batch.
#[derive(Default)]
struct Gathering<'de> {
    found: Vec<Candidate>,
    /// Where each queue is in it.
    places: HashMap<(Cow<'de, str>, Option<Tenant>), usize>,
    /// Where the queue of the last item is.
    last: Option<usize>,
    items: usize,
    /// Reading was given up, as there was too much.
    is_full: bool,
}

/// The object around the items.
struct Batch<'g, 'de>(&'g mut Gathering<'de>);

impl<'de> Visitor<'de> for Batch<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with items")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_items = false;
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            if key == "items" {
                has_items = true;
                map.next_value_seed(Items(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if has_items { Ok(()) } else { Err(A::Error::missing_field("items")) }
    }
}

/// The list of items.
struct Items<'g, 'de>(&'g mut Gathering<'de>);

impl<'de> DeserializeSeed<'de> for Items<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of places")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Item<'de>>()? {
            self.0.take(item);
            if self.0.is_full {
                return Err(A::Error::custom("too much"));
            }
        }
        Ok(())
    }
}

impl<'de> Gathering<'de> {
    fn take(&mut self, Item { queue: Text(queue), partition, tenant, group }: Item<'de>) {
        self.items += 1;
        self.is_full = self.items >= ITEMS_PER_FRAME_MAX;
        if queue.len() > NAME_BYTES_MAX {
            return;
        }
        // A push to many partitions names its queue many times, one after the other.
        let same = |&at: &usize| self.found[at].place.queue == queue && self.found[at].place.tenant == tenant;
        let at = match self.last.filter(same) {
            Some(at) => at,
            None => match self.places.entry((queue, tenant)) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let queue = entry.key().0.clone().into_owned();
                    // Longer ones are of no partition or group that there is: the whole queue is meant well enough.
                    let short = |text: Option<Text<'_>>| {
                        text.filter(|Text(text)| text.len() <= TEXT_BYTES_MAX).map(|Text(text)| text.into_owned())
                    };
                    let place = Place { queue, partition: short(partition), tenant };
                    self.last = Some(*entry.insert(self.found.len()));
                    self.found.push(Candidate { place, group: short(group) });
                    self.is_full |= self.found.len() >= PLACES_PER_FRAME;
                    return;
                }
            },
        };
        let known = &mut self.found[at];
        widen(&mut known.place.partition, partition);
        widen(&mut known.group, group);
        self.last = Some(at);
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
        let same = vec![r#"{"queue":"q","partition":"p"}"#; ITEMS_PER_FRAME_MAX].join(",");
        assert_eq!(read(&format!(r#"{same},{{"queue":"r"}}"#)), [candidate("q", None, None)]);
        let many = (0..PLACES_PER_FRAME + 10).map(|n| format!(r#"{{"queue":"q{n}"}}"#)).collect::<Vec<_>>().join(",");
        assert_eq!(read(&format!(r#"{many},{{"queue":"q0"}}"#)).len(), PLACES_PER_FRAME);
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(read(&format!(r#"{{"queue":"{long}"}},{{"queue":"q"}}"#)), [candidate("q", None, None)]);
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(read(&format!(r#"{{"queue":"q","partition":"{long}"}}"#)), [candidate("q", None, None)]);
    }
}
