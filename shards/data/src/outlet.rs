//! From the engine's hand to an answer: renders what a pop gets and sends it where the pop came from.

use std::cell::RefCell;

use queen_ephemeral::{Claim, Delivery, Sink, WaiterId};
use queen_fabric::port::Port;
use queen_wire::response::{append_json_string, append_u64};

use crate::{
    error::ApiError,
    protocol::{Answer, DataProtocol},
    reply::{Popped, Reply},
    waiters::{AT_ONCE, Destination, Given, Waiters},
};

/// Bytes of a rendered message beside its payload and twice its partition: braces, keys, epoch, sequence, attempts.
const MESSAGE_OVERHEAD_BYTES: usize = 96;

/// How the answer to a request begins that got its reply.
const REPLY_OPEN: &[u8] = b"{\"reply\":";

/// The sink of every engine call of a shard.
pub(crate) struct Outlet {
    /// `e:<epoch>:`, how every id of this incarnation starts.
    id_prefix: String,
    waiters: RefCell<Waiters>,
    /// What a pop got that is answered in the same call.
    at_once: RefCell<AtOnce>,
    /// What whoever is released with nothing now is told in its place.
    refusing: RefCell<Option<ApiError>>,
    port: Port<DataProtocol>,
}

/// The answer of a pop that did not have to wait. The body's memory is used again and again.
#[derive(Default)]
pub(crate) struct AtOnce {
    pub(crate) body: Vec<u8>,
    pub(crate) claim: Option<Claim>,
}

impl Outlet {
    pub(crate) fn new(boot_epoch: u64, port: Port<DataProtocol>) -> Self {
        Self {
            id_prefix: format!("e:{boot_epoch:016x}:"),
            waiters: RefCell::default(),
            at_once: RefCell::default(),
            refusing: RefCell::default(),
            port,
        }
    }

    pub(crate) fn waiters(&self) -> &RefCell<Waiters> {
        &self.waiters
    }

    pub(crate) fn at_once(&self) -> &RefCell<AtOnce> {
        &self.at_once
    }

    /// What those that are released with nothing from here on are refused with, if they are.
    pub(crate) fn refuse_those_released(&self, refusing: Option<ApiError>) {
        self.refusing.replace(refusing);
    }

    /// Gives a waiter what it waited for.
    pub(crate) fn give(&self, waiter: WaiterId, given: Given) {
        let (destination, given) = self.waiters.borrow_mut().answer(waiter, given);
        match (destination, given) {
            (Destination::There(ticket), Some(given)) => self.port.answer(ticket, given.into()),
            (Destination::Here(Some(waker)), _) => waker.wake(),
            (Destination::Here(None), _) | (Destination::There(_), None) => {}
        }
    }

    /// `{"queue":…,"messages":[…]}`, every payload as it came in.
    fn render(&self, delivery: &Delivery<'_>, out: &mut Vec<u8>) {
        open(out, delivery.queue());
        // A partition's name is escaped once for the run of messages that comes from it.
        let mut quoted: Vec<u8> = Vec::new();
        let mut quoted_from: Option<&str> = None;
        for (index, message) in delivery.messages().enumerate() {
            if !quoted_from.is_some_and(|name| std::ptr::eq(name, message.partition)) {
                quoted.clear();
                append_json_string(&mut quoted, message.partition);
                quoted_from = Some(message.partition);
            }
            out.reserve(MESSAGE_OVERHEAD_BYTES + 2 * quoted.len() + message.payload.len());
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"id\":\"");
            out.extend_from_slice(self.id_prefix.as_bytes());
            out.extend_from_slice(&quoted[1..quoted.len() - 1]);
            out.push(b':');
            append_u64(out, message.sequence);
            if message.attempts > 1 {
                out.push(b'.');
                append_u64(out, u64::from(message.attempts));
            }
            out.extend_from_slice(b"\",\"partition\":");
            out.extend_from_slice(&quoted);
            out.extend_from_slice(b",\"attempts\":");
            append_u64(out, u64::from(message.attempts));
            out.extend_from_slice(b",\"payload\":");
            out.extend_from_slice(message.payload);
            if let Some(inbox) = message.reply_to {
                out.extend_from_slice(b",\"replyTo\":");
                append_json_string(out, inbox);
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
    }
}

fn open(out: &mut Vec<u8>, queue: &str) {
    out.extend_from_slice(b"{\"queue\":");
    append_json_string(out, queue);
    out.extend_from_slice(b",\"messages\":[");
}

/// The answer of a pop that gets nothing.
pub(crate) fn render_empty(out: &mut Vec<u8>, queue: &str) {
    open(out, queue);
    out.extend_from_slice(b"]}");
}

impl Sink for &Outlet {
    fn deliver(&mut self, waiter: WaiterId, mut delivery: Delivery<'_>) {
        if waiter == AT_ONCE {
            let mut at_once = self.at_once.borrow_mut();
            at_once.body.clear();
            self.render(&delivery, &mut at_once.body);
            at_once.claim = delivery.take_claim();
            return;
        }
        if delivery.messages().len() == 0
            && let Some(refusal) = self.refusing.borrow().clone()
        {
            return self.give(waiter, Given::Reply(refusal.into()));
        }
        let mut body = Vec::new();
        self.render(&delivery, &mut body);
        self.give(waiter, Given::Popped(Popped { body, claim: delivery.take_claim() }));
    }

    fn reply(&mut self, waiter: WaiterId, reply: Option<&[u8]>) {
        let reply = match reply {
            Some(payload) => Reply::json(200, [REPLY_OPEN, payload, b"}"].concat()),
            None => self.refusing.borrow().clone().unwrap_or_else(ApiError::no_reply).into(),
        };
        self.give(waiter, Given::Reply(reply));
    }
}

impl From<Given> for Answer {
    fn from(given: Given) -> Self {
        match given {
            Given::Popped(popped) => Self::Popped(Box::new(popped)),
            Given::Reply(reply) => Self::Reply(Box::new(reply)),
        }
    }
}
