//! Answers on their way to a connection: rendered bodies, and promises of bodies that are still being made.

use std::{
    cell::Cell,
    rc::Rc,
    task::{Context, Poll, ready},
};

use queen_ephemeral::Claim;
use queen_fabric::rt::Notify;
use queen_wire::response::{self, ContentType};

use crate::{
    error::{ApiError, Code},
    outlet::render_empty,
};

/// A pop's answer: the rendered body, and the claim on what is in it.
#[derive(Debug)]
pub struct Popped {
    /// `{"queue":…,"messages":[…]}`.
    pub body: Vec<u8>,
    /// To be settled when the body is written, given back when it cannot be. None for an empty list.
    pub claim: Option<Claim>,
}

impl Popped {
    /// The answer of a pop that gets nothing.
    pub(crate) fn empty(queue: &str) -> Self {
        let mut body = Vec::new();
        render_empty(&mut body, queue);
        Self { body, claim: None }
    }
}

/// A whole response but for what the connection adds.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// What the body is.
    pub content_type: ContentType,
    /// The body.
    pub body: Vec<u8>,
    /// Seconds for `Retry-After`.
    pub retry_after_s: Option<u32>,
    /// Methods for `Allow`.
    pub allow: Option<&'static str>,
    /// What it refuses with, if it does.
    pub code: Option<Code>,
}

impl Reply {
    pub(crate) fn json(status: u16, body: Vec<u8>) -> Self {
        Self { status, content_type: ContentType::Json, body, retry_after_s: None, allow: None, code: None }
    }

    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        let mut reply = Self::from(ApiError::new(
            Code::MethodNotAllowed,
            format!("This path does not take that method; it takes {allow}"),
        ));
        reply.allow = Some(allow);
        reply
    }
}

impl From<ApiError> for Reply {
    fn from(error: ApiError) -> Self {
        let mut body = Vec::with_capacity(48 + error.message.len());
        response::append_error(&mut body, &error.message, error.code.word());
        let mut reply = Self::json(error.code.status(), body);
        reply.retry_after_s = error.retry_after_s();
        reply.code = Some(error.code);
        reply
    }
}

/// The writing half of a reply that a task of this shard is making.
pub(crate) struct Promise(Rc<PromiseCell>);

/// The waiting half: polled by the connection. Dropping it lets the task run on and its reply go nowhere.
pub(crate) struct Promised(Rc<PromiseCell>);

#[derive(Default)]
struct PromiseCell {
    reply: Cell<Option<Reply>>,
    kept: Notify,
}

/// A promise and its other half.
pub(crate) fn promise() -> (Promise, Promised) {
    let cell = Rc::new(PromiseCell::default());
    (Promise(Rc::clone(&cell)), Promised(cell))
}

impl Promise {
    pub(crate) fn keep(self, reply: Reply) {
        self.0.reply.set(Some(reply));
        self.0.kept.notify();
    }
}

impl Promised {
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Reply> {
        ready!(self.0.kept.poll_wait(cx));
        Poll::Ready(self.0.reply.take().expect("a promise is kept once, with a reply"))
    }
}
