//! Responses on their way out: put together in a buffer of the shard, with the claims on what they hand out.

use std::{cell::RefCell, rc::Rc, time::Instant};

use queen_wire::{
    http::HttpError,
    response::{self, ContentType, Head},
};

use super::{exchange::Exchanged, later::Outcome};
use crate::{error::Code, handed::Claimed, reply::Reply, routes::Route, shard::Shard, store::Leased};

/// A buffer that has grown beyond this is not kept.
const KEEP_BYTES: usize = 1024 * 1024;

/// What a response has to take over from its request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) route: Route,
    /// When the request was read.
    pub(crate) started: Instant,
    pub(crate) keep_alive: bool,
    pub(crate) http10: bool,
    /// A HEAD: everything but the body.
    pub(crate) head_only: bool,
}

impl Frame {
    /// The frame of a response after which the connection ends, whatever its request was.
    pub(crate) fn last(started: Instant) -> Self {
        Self { route: Route::None, started, keep_alive: false, http10: false, head_only: false }
    }
}

/// Messages whose response is being written.
pub(crate) struct Handed {
    /// Where the response ends: once so many bytes are out, the messages are delivered.
    end: usize,
    messages: Messages,
}

/// What is handed out, and how it goes back.
enum Messages {
    /// Ephemeral ones.
    Claimed(Claimed),
    /// Durable ones, under a lease.
    Leased(Leased),
}

/// Small buffers that connections borrow from their shard while a response is put off.
#[derive(Default)]
pub(crate) struct Buffers(RefCell<Vec<Vec<u8>>>);

impl Buffers {
    /// The largest response that is put off, and the largest buffer that is kept.
    pub(super) const BYTES_MAX: usize = 4096;

    /// Buffers kept: as many as one turn may need, at most half a megabyte.
    const KEPT_MAX: usize = 128;

    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps an emptied buffer for the next, if it is small.
    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
        if buffer.capacity() <= Self::BYTES_MAX && kept.len() < Self::KEPT_MAX {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

/// The responses of one turn of one connection. One per shard, empty between turns.
#[derive(Default)]
pub(crate) struct Out {
    bytes: Vec<u8>,
    handed: Vec<Handed>,
    /// Where bodies are rendered before their length is known.
    body: Vec<u8>,
    /// Requests that were refused, by code.
    refused: Refusals,
}

/// How often each code was answered.
pub(crate) struct Refusals([u64; Code::COUNT]);

impl Default for Refusals {
    fn default() -> Self {
        Self([0; Code::COUNT])
    }
}

impl Out {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn handed(&mut self) -> impl Iterator<Item = Handed> + '_ {
        self.handed.drain(..)
    }

    pub(super) fn clear(&mut self) {
        debug_assert!(self.handed.is_empty(), "a claim is settled or given back, never forgotten");
        self.bytes.clear();
        if self.bytes.capacity() > KEEP_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Moves everything behind what a connection still has to send.
    pub(super) fn append_to(&mut self, unsent: &mut Vec<u8>, handed: &mut Vec<Handed>) {
        let before = unsent.len();
        if before == 0 && self.bytes.len() > Buffers::BYTES_MAX {
            *unsent = std::mem::take(&mut self.bytes);
        } else {
            unsent.append(&mut self.bytes);
        }
        handed.extend(self.handed.drain(..).map(|claimed| Handed { end: claimed.end + before, ..claimed }));
    }

    pub(super) fn append_raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The answer to bytes that are no request; the connection ends after it.
    pub(super) fn fail(&mut self, error: &HttpError) {
        let mut body = Vec::with_capacity(128);
        response::append_error(&mut body, &error.to_string(), error.code());
        let reply = Reply::json(error.status(), body);
        self.reply(&Frame::last(Instant::now()), &reply);
    }

    /// How often each code was answered since boot, in the codes' order.
    pub(crate) fn refused(&self) -> [u64; Code::COUNT] {
        self.refused.0
    }

    pub(crate) fn reply(&mut self, frame: &Frame, reply: &Reply) {
        if let Some(code) = reply.code {
            self.refused.0[code as usize] += 1;
        }
        let head = Head {
            retry_after_s: reply.retry_after_s,
            allow: reply.allow,
            wants_token: reply.status == 401,
            no_cache: reply.content_type == ContentType::Prometheus,
            ..head(frame, reply.status, reply.content_type)
        };
        response::write(&mut self.bytes, &head, &reply.body);
    }

    /// A JSON response whose body `render` appends.
    pub(crate) fn with_body(&mut self, frame: &Frame, status: u16, render: impl FnOnce(&mut Vec<u8>)) {
        self.body.clear();
        render(&mut self.body);
        response::write(&mut self.bytes, &head(frame, status, ContentType::Json), &self.body);
    }

    /// 204.
    pub(crate) fn no_content(&mut self, frame: &Frame) {
        response::write(&mut self.bytes, &head(frame, 204, ContentType::Json), &[]);
    }

    /// A pop's response, and the claim on the messages in it.
    pub(crate) fn popped(&mut self, frame: &Frame, body: &[u8], claimed: Option<Claimed>) {
        response::write(&mut self.bytes, &head(frame, 200, ContentType::Json), body);
        self.hand(claimed);
    }

    /// An exchange's response, and the claim on the messages in it.
    pub(super) fn exchanged(&mut self, frame: &Frame, mut exchanged: Exchanged) {
        self.with_body(frame, 200, |body| exchanged.render(body));
        if let Some(Outcome::Popped(_, claimed)) = exchanged.pop.take() {
            self.hand(claimed);
        }
    }

    /// Notes that the last response hands durable messages out.
    pub(crate) fn hand_leased(&mut self, leased: Leased) {
        self.handed.push(Handed { end: self.bytes.len(), messages: Messages::Leased(leased) });
    }

    /// Notes that the last response hands messages out.
    fn hand(&mut self, claimed: Option<Claimed>) {
        if let Some(claimed) = claimed {
            self.handed.push(Handed { end: self.bytes.len(), messages: Messages::Claimed(claimed) });
        }
    }
}

fn head(frame: &Frame, status: u16, content_type: ContentType) -> Head {
    Head {
        keep_alive: frame.keep_alive,
        content_type,
        body_omitted: frame.head_only,
        http10: frame.http10,
        ..Head::json(status)
    }
}

/// Settles the claims whose response is out and gives back the others.
pub(super) fn end_claims(shard: &Rc<Shard>, handed: impl Iterator<Item = Handed>, written_bytes: usize) {
    for Handed { end, messages } in handed {
        match messages {
            Messages::Claimed(claimed) if end > written_bytes => claimed.give_back(shard),
            Messages::Claimed(claimed) => claimed.settle(shard),
            Messages::Leased(leased) if end > written_bytes => shard.store.give_back(leased),
            // Its lease runs, and an ack will end it.
            Messages::Leased(_) => {}
        }
    }
}
