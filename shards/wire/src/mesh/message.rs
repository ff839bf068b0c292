//! What frames say, as JSON in their payloads.
//!
//! Members that are not known are ignored. A tenant that is absent is not the default tenant: it is a peer from before
//! there were tenants, and what it says is about every tenant that has such a queue.

mod gather;

use serde::{Deserialize, Serialize};

use self::gather::gathered;

/// A tenant's UUID.
type Tenant = [u8; 16];

/// Places that one frame holds at most: with the longest names that there are, some 10 MiB.
pub const PLACES_PER_FRAME: usize = 2_000;

/// Bytes of a queue's name that a peer says, at most: no queue has a longer one.
pub const NAME_BYTES_MAX: usize = 1_020;

/// A partition of a queue that has something new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The queue.
    pub queue: String,
    /// The partition.
    #[serde(default)]
    pub partition: Option<String>,
    /// Whose; `None` is everybody who has such a queue.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "uuid")]
    pub tenant: Option<Tenant>,
}

impl Place {
    /// The queue that it is a partition of.
    #[must_use]
    pub fn queue_name(self) -> QueueName {
        QueueName { queue: self.queue, tenant: self.tenant }
    }
}

/// A partition that may have something for a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// For whom; `None` is every group of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueName {
    /// Its name.
    pub queue: String,
    /// Whose; `None` is everybody who has such a queue.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "uuid")]
    pub tenant: Option<Tenant>,
}

impl QueueName {
    /// A tenant's queue.
    #[must_use]
    pub fn of(tenant: Tenant, queue: &str) -> Self {
        Self { queue: queue.to_owned(), tenant: Some(tenant) }
    }
}

/// What an older broker does to an ephemeral queue, and wants done here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Administration {
    /// Drop its messages.
    Reset,
    /// Remove it.
    Delete,
    /// Its declaration has changed.
    ConfigSet,
}

/// A frame's meaning. Those of the handshake have types of their own, see [`Dialer`](super::Dialer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Wake the pops that wait for these; one frame for a whole push.
    Available(Vec<Place>),
    /// The sender is there.
    Heartbeat,
    /// These may have something that was not looked at yet.
    Dirty(Vec<Candidate>),
    /// The sender owns nothing from here on.
    Leaving,
    /// A queue's options have changed.
    ConfigSet(QueueName),
    /// A queue is gone.
    ConfigDelete(QueueName),
    /// An older broker's administration of an ephemeral queue.
    EphemeralAdmin(Administration, QueueName),
    /// Push maintenance is on or off.
    Maintenance(bool),
    /// Pop maintenance is on or off.
    PopMaintenance(bool),
}

/// A frame of a known type whose payload is not what that type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of type {tag} with a payload that it cannot have")]
pub struct MessageError {
    /// The type.
    pub tag: u8,
}

const AVAILABLE: u8 = 1;
const AVAILABLE_BATCH: u8 = 2;
const HEARTBEAT: u8 = 3;
const DIRTY_BATCH: u8 = 5;
const LEAVING: u8 = 8;
const CONFIG_SET: u8 = 10;
const CONFIG_DELETE: u8 = 11;
const EPHEMERAL_ADMIN: u8 = 20;
const MAINTENANCE: u8 = 40;
const POP_MAINTENANCE: u8 = 41;

#[derive(Serialize)]
struct Items<T> {
    items: Vec<T>,
}

#[derive(Serialize, Deserialize)]
struct Flag {
    enabled: bool,
}

#[derive(Serialize, Deserialize)]
struct Admin {
    op: Administration,
    #[serde(flatten)]
    queue: QueueName,
}

impl Message {
    /// Bytes of memory that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        fn of(place: &Place) -> usize {
            size_of::<Candidate>() + place.queue.len() + place.partition.as_ref().map_or(0, String::len)
        }
        let held = match self {
            Self::Available(places) => places.iter().map(of).sum(),
            Self::Dirty(candidates) => candidates
                .iter()
                .map(|candidate| of(&candidate.place) + candidate.group.as_ref().map_or(0, String::len))
                .sum(),
            Self::ConfigSet(queue) | Self::ConfigDelete(queue) | Self::EphemeralAdmin(_, queue) => queue.queue.len(),
            Self::Heartbeat | Self::Leaving | Self::Maintenance(_) | Self::PopMaintenance(_) => 0,
        };
        size_of::<Self>() + held
    }

    /// Reads a frame; `None` where its type is not known, or belongs to the handshake.
    ///
    /// Places of one queue in a batch come out as one: with its partition and group if all have
    /// the same, else for every partition, or every group. A frame may hold a million places, and whoever hears of them looks at queues.
    /// Queues beyond [`PLACES_PER_FRAME`] are passed over, and so are items beyond ten times as many, and names longer than
    /// [`NAME_BYTES_MAX`].
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn parse(tag: u8, payload: &[u8]) -> Result<Option<Self>, MessageError> {
        fn json<'a, T: Deserialize<'a>>(tag: u8, payload: &'a [u8]) -> Result<T, MessageError> {
            serde_json::from_slice(payload).map_err(|_| MessageError { tag })
        }
        let message = match tag {
            AVAILABLE => Self::Available(vec![json(tag, payload)?]),
            AVAILABLE_BATCH => {
                let candidates = gathered(tag, payload)?.into_iter();
                Self::Available(candidates.map(|candidate| candidate.place).collect())
            }
            HEARTBEAT => Self::Heartbeat,
            DIRTY_BATCH => Self::Dirty(gathered(tag, payload)?),
            LEAVING => Self::Leaving,
            CONFIG_SET => Self::ConfigSet(json(tag, payload)?),
            CONFIG_DELETE => Self::ConfigDelete(json(tag, payload)?),
            EPHEMERAL_ADMIN => {
                let Admin { op, queue } = json(tag, payload)?;
                Self::EphemeralAdmin(op, queue)
            }
            MAINTENANCE => Self::Maintenance(json::<Flag>(tag, payload)?.enabled),
            POP_MAINTENANCE => Self::PopMaintenance(json::<Flag>(tag, payload)?.enabled),
            _ => return Ok(None),
        };
        let name = match &message {
            Self::Available(places) => places.first().map(|place| &place.queue),
            Self::ConfigSet(queue) | Self::ConfigDelete(queue) | Self::EphemeralAdmin(_, queue) => Some(&queue.queue),
            Self::Heartbeat | Self::Dirty(_) | Self::Leaving | Self::Maintenance(_) | Self::PopMaintenance(_) => None,
        };
        if name.is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            return Err(MessageError { tag });
        }
        Ok(Some(message))
    }

    /// Its type and payload.
    #[must_use]
    pub fn render(&self) -> (u8, Vec<u8>) {
        fn json(value: &impl Serialize) -> Vec<u8> {
            serde_json::to_vec(value).expect("texts, numbers and lists of them")
        }
        match self {
            Self::Available(places) => match &places[..] {
                [one] => (AVAILABLE, json(one)),
                several => (AVAILABLE_BATCH, json(&Items { items: several.to_vec() })),
            },
            Self::Heartbeat => (HEARTBEAT, Vec::new()),
            Self::Dirty(candidates) => (DIRTY_BATCH, json(&Items { items: candidates.clone() })),
            Self::Leaving => (LEAVING, b"{}".to_vec()),
            Self::ConfigSet(queue) => (CONFIG_SET, json(queue)),
            Self::ConfigDelete(queue) => (CONFIG_DELETE, json(queue)),
            Self::EphemeralAdmin(op, queue) => (EPHEMERAL_ADMIN, json(&Admin { op: op.clone(), queue: queue.clone() })),
            Self::Maintenance(enabled) => (MAINTENANCE, json(&Flag { enabled: *enabled })),
            Self::PopMaintenance(enabled) => (POP_MAINTENANCE, json(&Flag { enabled: *enabled })),
        }
    }
}

/// A tenant as peers write it: a UUID's text.
mod uuid {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::{Tenant, gather::Text};

    /// Where its dashes are.
    const DASHES: [usize; 4] = [8, 13, 18, 23];

    pub(super) fn serialize<S: Serializer>(tenant: &Option<Tenant>, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(tenant) = tenant else { return serializer.serialize_none() };
        let mut text = String::with_capacity(36);
        for byte in tenant {
            if DASHES.contains(&text.len()) {
                text.push('-');
            }
            text.push(char::from_digit(u32::from(byte >> 4), 16).expect("a digit"));
            text.push(char::from_digit(u32::from(byte & 15), 16).expect("a digit"));
        }
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Tenant>, D::Error> {
        let text = Option::<Text<'de>>::deserialize(deserializer)?;
        let Some(Text(text)) = text.filter(|Text(text)| !text.is_empty()) else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| D::Error::custom("a UUID"))
    }

    fn parse(text: &str) -> Option<Tenant> {
        let bytes = text.as_bytes();
        if bytes.len() != 36 || DASHES.iter().any(|&at| bytes[at] != b'-') {
            return None;
        }
        let mut digits = bytes.iter().filter(|&&byte| byte != b'-').map(|&byte| char::from(byte).to_digit(16));
        let mut tenant = [0; 16];
        for byte in &mut tenant {
            *byte = (digits.next()?? << 4 | digits.next()??) as u8;
        }
        digits.next().is_none().then_some(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: &str = "6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab";

    fn tenant() -> Option<Tenant> {
        Some([0x6f, 0x2c, 0x1f, 0x0a, 0x3a, 0x5e, 0x4a, 0x8c, 0x9d, 0x2e, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab])
    }

    fn place(queue: &str, tenant: Option<Tenant>) -> Place {
        Place { queue: queue.to_owned(), partition: Some("p".to_owned()), tenant }
    }

    #[test]
    fn every_message_comes_back_as_it_was_sent() {
        let queue = QueueName { queue: "q".to_owned(), tenant: tenant() };
        let candidate = Candidate { place: place("q", None), group: Some("g".to_owned()) };
        for message in [
            Message::Available(vec![place("q", tenant())]),
            Message::Available(vec![place("q", tenant()), place("r", None)]),
            Message::Available(Vec::new()),
            Message::Heartbeat,
            Message::Dirty(vec![candidate.clone(), Candidate { place: place("r", None), group: None }]),
            Message::Leaving,
            Message::ConfigSet(queue.clone()),
            Message::ConfigDelete(queue.clone()),
            Message::EphemeralAdmin(Administration::Reset, queue.clone()),
            Message::EphemeralAdmin(Administration::ConfigSet, queue),
            Message::Maintenance(true),
            Message::PopMaintenance(false),
        ] {
            let (tag, payload) = message.render();
            assert_eq!(Message::parse(tag, &payload), Ok(Some(message)));
        }
    }

    #[test]
    fn the_payloads_are_those_that_other_brokers_send() {
        let text = |message: &Message| String::from_utf8(message.render().1).expect("JSON");
        assert_eq!(
            text(&Message::Available(vec![place("q", tenant())])),
            format!(r#"{{"queue":"q","partition":"p","tenant":"{TENANT}"}}"#)
        );
        assert_eq!(text(&Message::Maintenance(true)), r#"{"enabled":true}"#);
        let parsed = Message::parse(2, br#"{"items":[{"queue":"q","partition":"p","more":1},{"queue":"r"}],"more":2}"#);
        let second = Place { queue: "r".to_owned(), partition: None, tenant: None };
        assert_eq!(parsed, Ok(Some(Message::Available(vec![place("q", None), second]))));
        let upper = format!(r#"{{"queue":"q","tenant":"{}"}}"#, TENANT.to_uppercase());
        let queue = QueueName { queue: "q".to_owned(), tenant: tenant() };
        assert_eq!(Message::parse(10, upper.as_bytes()), Ok(Some(Message::ConfigSet(queue))));
    }

    #[test]
    fn a_type_that_is_not_known_says_nothing() {
        for tag in [0, 4, 6, 7, 9, 12, 99, 255] {
            assert_eq!(Message::parse(tag, b"anything"), Ok(None), "{tag}");
        }
    }

    #[test]
    fn a_payload_that_a_type_cannot_have_is_an_error() {
        for (tag, payload) in [
            (1, "{}"),
            (1, r#"{"queue":"q","tenant":"nobody"}"#),
            (2, "[]"),
            (5, r#"{"items":7}"#),
            (10, "not JSON"),
            (20, r#"{"op":"drop","queue":"q"}"#),
            (40, "{}"),
            (41, r#"{"enabled":"yes"}"#),
            (1, &format!(r#"{{"queue":"{}"}}"#, "q".repeat(NAME_BYTES_MAX + 1))),
            (20, &format!(r#"{{"op":"reset","queue":"{}"}}"#, "q".repeat(NAME_BYTES_MAX + 1))),
        ] {
            assert_eq!(Message::parse(tag, payload.as_bytes()), Err(MessageError { tag }), "{tag} {payload}");
        }
    }
}
