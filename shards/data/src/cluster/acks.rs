//! The acks of one call, which partitions of several nodes may be meant by.

use std::{
    rc::Rc,
    task::{Context, Poll},
};

use queen_ephemeral::id::MessageId;
use queen_fabric::members::Member;
use queen_wire::response::append_json_string;

use super::Home;
use crate::{
    connection::{Operation, Outcome},
    error::ApiError,
    protocol::{AckAsk, Ask},
    reply::Reply,
    shard::Shard,
};

/// How an answer to acks begins.
const OPEN: &[u8] = b"{\"results\":[";

/// Where acks have to go.
pub(crate) enum AckHome {
    /// All of them to this node.
    Here,
    /// All of them to another.
    Elsewhere(Member),
    /// Held: this node starts.
    Awaited,
    /// To several: the home of each.
    Several(Vec<Home>),
}

/// Acks that several nodes settle.
pub(crate) struct Scattered {
    ids: Vec<String>,
    parts: Vec<Part>,
}

/// The acks of one node.
struct Part {
    /// Their places in the call.
    places: Vec<usize>,
    operation: Operation,
    outcome: Option<Outcome>,
}

impl Shard {
    /// Where the acks of a call have to go: each to the owner of its partition. An id that names none is anybody's.
    pub(crate) fn home_of_acks(&self, ask: &AckAsk) -> Result<AckHome, ApiError> {
        let home_of = |id: &str| -> Result<Home, ApiError> {
            match MessageId::parse(id) {
                Some(id) => match self.home_of(ask.key.tenant, &ask.key.queue, id.partition)? {
                    // An id of this incarnation is settled here, whatever is to come; all others are stale.
                    Home::Awaited if !self.is_starting() => Ok(Home::Here),
                    home => Ok(home),
                },
                None => Ok(Home::Here),
            }
        };
        let homes = ask.acks.iter().map(|(id, _)| home_of(id)).collect::<Result<Vec<_>, _>>()?;
        if homes.contains(&Home::Awaited) {
            return Ok(AckHome::Awaited);
        }
        Ok(match &homes[..] {
            [] => AckHome::Here,
            [first, others @ ..] if others.iter().all(|other| other == first) => match first {
                Home::Here | Home::Awaited => AckHome::Here,
                Home::Elsewhere(member) => AckHome::Elsewhere(member.clone()),
            },
            _ => AckHome::Several(homes),
        })
    }

    /// Sends each of the acks to its home.
    pub(crate) fn scatter_acks(self: &Rc<Self>, ask: AckAsk, homes: &[Home]) -> Result<Operation, ApiError> {
        let AckAsk { key, group, acks } = ask;
        let ids = acks.iter().map(|(id, _)| id.clone()).collect();
        let mut grouped: Vec<(&Home, Vec<usize>, AckAsk)> = Vec::new();
        for (place, (ack, home)) in acks.into_iter().zip(homes).enumerate() {
            let at = grouped.iter().position(|(other, ..)| *other == home).unwrap_or_else(|| {
                grouped.push((home, Vec::new(), AckAsk { key: key.clone(), group: group.clone(), acks: Vec::new() }));
                grouped.len() - 1
            });
            grouped[at].1.push(place);
            grouped[at].2.acks.push(ack);
        }
        let parts = grouped.into_iter().map(|(home, places, part)| {
            let operation = match home {
                Home::Elsewhere(member) => self.forward_acks(member, part)?,
                Home::Here | Home::Awaited => {
                    let owner = self.owner(part.key.tenant, &part.key.queue);
                    Operation::Asked(self.ask(owner, Ask::Ack(Box::new(part)))?)
                }
            };
            Ok(Part { places, operation, outcome: None })
        });
        let parts = parts.collect::<Result<_, ApiError>>()?;
        Ok(Operation::Scattered(Box::new(Scattered { ids, parts })))
    }
}

impl Scattered {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        for part in self.parts.iter_mut().filter(|part| part.outcome.is_none()) {
            if let Poll::Ready(outcome) = part.operation.poll(cx) {
                part.outcome = Some(outcome);
            }
        }
        if self.parts.iter().any(|part| part.outcome.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(Outcome::Reply(self.gather()))
    }

    /// The results in the order of the call, or the first refusal: then what other nodes were asked may have been done.
    fn gather(&mut self) -> Reply {
        let mut words: Vec<Option<Vec<u8>>> = vec![None; self.ids.len()];
        for part in &mut self.parts {
            let reply = match part.outcome.take() {
                Some(Outcome::Reply(reply)) => reply,
                _ => unreachable!("acks are answered with a reply"),
            };
            if reply.status != 200 {
                return reply;
            }
            let ids = part.places.iter().map(|&place| &*self.ids[place]);
            let Some(found) = outcomes(&reply.body, ids) else {
                return ApiError::forward_failed("A node answered acks with what cannot be read").into();
            };
            for (&place, word) in part.places.iter().zip(found) {
                words[place] = Some(word);
            }
        }
        let mut body = OPEN.to_vec();
        for (index, (id, word)) in self.ids.iter().zip(&words).enumerate() {
            if index > 0 {
                body.push(b',');
            }
            append_result(&mut body, id, word.as_deref().unwrap_or_default());
        }
        body.extend_from_slice(b"]}");
        Reply::json(200, body)
    }
}

fn append_result(out: &mut Vec<u8>, id: &str, word: &[u8]) {
    out.extend_from_slice(b"{\"id\":");
    append_json_string(out, id);
    out.extend_from_slice(b",\"outcome\":\"");
    out.extend_from_slice(word);
    out.extend_from_slice(b"\"}");
}

/// The words of a rendered answer to the acks of these ids.
fn outcomes<'i>(body: &[u8], ids: impl Iterator<Item = &'i str>) -> Option<Vec<Vec<u8>>> {
    let mut rest = body.strip_prefix(OPEN)?;
    let mut words = Vec::new();
    for id in ids {
        rest = rest.strip_prefix(b",").unwrap_or(rest);
        let mut before = b"{\"id\":".to_vec();
        append_json_string(&mut before, id);
        before.extend_from_slice(b",\"outcome\":\"");
        rest = rest.strip_prefix(&before[..])?;
        let end = rest.iter().position(|&byte| byte == b'"')?;
        words.push(rest[..end].to_vec());
        rest = rest[end..].strip_prefix(b"\"}")?;
    }
    (rest == b"]}").then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_rendered_answer_are_found_again() {
        let ids = ["e:1:a:0", "with \"quotes\" and }", ""];
        let mut body = OPEN.to_vec();
        for (index, (id, word)) in ids.iter().zip(["acked", "stale", "unknown"]).enumerate() {
            if index > 0 {
                body.push(b',');
            }
            append_result(&mut body, id, word.as_bytes());
        }
        body.extend_from_slice(b"]}");
        let words = outcomes(&body, ids.into_iter()).expect("a whole answer");
        assert_eq!(words, [&b"acked"[..], b"stale", b"unknown"]);
        assert_eq!(outcomes(&body, ids.into_iter().take(2)), None);
        assert_eq!(outcomes(b"{\"results\":[]}", ids.into_iter().take(1)), None);
    }
}
