//! An exchange on its way: the parts that are done, those that are awaited, and the body that they make together.

use std::{
    rc::Rc,
    task::{Context, Poll},
};

use queen_wire::response::append_u64;

use super::later::{Operation, Outcome};
use crate::{reply::Reply, shard::Shard};

/// One part of an exchange.
pub(crate) enum Part {
    /// Another shard, or a wait, will end it.
    Waiting(Operation),
    /// It has ended.
    Done(Outcome),
}

impl Part {
    /// Whether it has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if let Self::Waiting(operation) = self {
            let Poll::Ready(outcome) = operation.poll(cx) else { return false };
            *self = Self::Done(outcome);
        }
        true
    }

    fn outcome(self) -> Outcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::Waiting(_) => unreachable!("every part has ended"),
        }
    }
}

/// An exchange that is not answered yet. Dropped, it gives back what its pop has taken.
pub(crate) struct Exchange {
    shard: Rc<Shard>,
    acks: Option<Part>,
    pushes: Option<Vec<Part>>,
    pop: Option<Part>,
}

impl Exchange {
    pub(crate) fn new(shard: &Rc<Shard>, acks: Option<Part>, pushes: Option<Vec<Part>>, pop: Option<Part>) -> Self {
        Self { shard: Rc::clone(shard), acks, pushes, pop }
    }

    /// Ready once every part has ended. Every part that has not is polled each time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Exchanged> {
        let parts = self.acks.iter_mut().chain(self.pushes.iter_mut().flatten()).chain(&mut self.pop);
        let awaited = parts.map(|part| part.poll(cx)).filter(|ended| !ended).count();
        if awaited > 0 {
            return Poll::Pending;
        }
        Poll::Ready(Exchanged {
            acks: self.acks.take().map(Part::outcome),
            pushes: self.pushes.take().map(|pushes| pushes.into_iter().map(Part::outcome).collect()),
            pop: self.pop.take().map(Part::outcome),
        })
    }

    /// The pop waits no longer.
    pub(super) fn end_pop(&mut self, nothing: Outcome) {
        if let Some(pop @ Part::Waiting(_)) = &mut self.pop {
            *pop = Part::Done(nothing);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(Part::Done(Outcome::Popped(_, Some(claimed)))) = self.pop.take() {
            claimed.give_back(&self.shard);
        }
    }
}

/// What came of an exchange. A part that was not asked for is `None`.
pub(crate) struct Exchanged {
    pub(super) acks: Option<Outcome>,
    pub(super) pushes: Option<Vec<Outcome>>,
    pub(super) pop: Option<Outcome>,
}

impl Exchanged {
    /// Appends `{"results":[…],"pushes":[…],"queue":…,"messages":[…]}`, of a part that failed its error instead.
    pub(super) fn render(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        match &self.acks {
            None => {}
            Some(Outcome::Reply(reply)) if reply.status == 200 => append_members(out, &reply.body),
            Some(outcome) => append_failure(out, "acksError", outcome),
        }
        if let Some(pushes) = &self.pushes {
            append_key(out, "pushes");
            out.push(b'[');
            for (index, push) in pushes.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                match push {
                    Outcome::Pushed(messages) => {
                        out.extend_from_slice(b"{\"status\":201,\"pushed\":");
                        append_u64(out, u64::from(*messages));
                        out.push(b'}');
                    }
                    refused => append_refusal(out, reply_of(refused)),
                }
            }
            out.push(b']');
        }
        match &self.pop {
            None => {}
            Some(Outcome::Popped(body, _)) => append_members(out, body),
            Some(outcome) => append_failure(out, "popError", outcome),
        }
        out.push(b'}');
    }
}

/// Appends the members of an object that is rendered already, and a comma before them where one is needed.
fn append_members(out: &mut Vec<u8>, object: &[u8]) {
    append_comma(out);
    out.extend_from_slice(&object[1..object.len() - 1]);
}

fn append_key(out: &mut Vec<u8>, key: &str) {
    append_comma(out);
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn append_comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

fn append_failure(out: &mut Vec<u8>, key: &str, outcome: &Outcome) {
    append_key(out, key);
    append_refusal(out, reply_of(outcome));
}

/// Appends `{"status":…,"error":…,"code":…}`.
fn append_refusal(out: &mut Vec<u8>, refusal: &Reply) {
    out.extend_from_slice(b"{\"status\":");
    append_u64(out, u64::from(refusal.status));
    append_members(out, &refusal.body);
    out.push(b'}');
}

fn reply_of(outcome: &Outcome) -> &Reply {
    match outcome {
        Outcome::Reply(reply) => reply,
        _ => unreachable!("a part ends as what it is or with a refusal"),
    }
}
