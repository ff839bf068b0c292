//! POST configure and DELETE queue: to the store first, then into the engine.
//!
//! Both run on the shard that owns the queue, and their store calls are answered in the order in which they were
//! made, so that the engine sees two declarations of one queue in the order in which the store keeps them.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    time::{Duration, UNIX_EPOCH},
};

use queen_ephemeral::{Policy, QueueOptions, TenantId, Window};
use queen_fabric::{
    port::{Asked, Ticket},
    protocol::store::{Declaration, StoreAnswer, StoreAsk, StoreProtocol},
    rt,
};
use queen_wire::{
    body::{self, Options, parse_configure, parse_options},
    peer as wire,
    response::append_json_string,
};

use super::{Call, Handled, not_reserved};
use crate::{
    cluster::Failed,
    connection::Operation,
    error::{ApiError, Code},
    protocol::{Answer, Ask, ConfigureAsk, QueueKey},
    reply::{Promise, Reply, promise},
    shard::Shard,
};

/// The declarations that are on their way to the store and back.
pub(crate) struct Declarations {
    jobs: RefCell<VecDeque<Job>>,
    /// There is a job.
    arrived: rt::Notify,
}

struct Job {
    asked: Asked<StoreProtocol>,
    then: Then,
    answer_to: AnswerTo,
}

/// What the engine is told once the store has it.
#[derive(Debug)]
enum Then {
    Apply(Box<ConfigureAsk>),
    Delete(Box<QueueKey>),
}

/// Who waits for the outcome.
pub(crate) enum AnswerTo {
    Here(Promise),
    There(Ticket),
    Nobody,
}

impl Declarations {
    pub(crate) fn new() -> Self {
        Self { jobs: RefCell::default(), arrived: rt::Notify::new() }
    }
}

impl Shard {
    pub(crate) fn configure(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let body = parse_configure(call.request.body, self.node.config.json_depth_max)?;
        not_reserved(&body.queue)?;
        let key = QueueKey { tenant: call.tenant, queue: body.queue };
        let ask = Box::new(ConfigureAsk { key, options_text: body.options_text, options: body.options });
        let owner = self.owner(call.tenant, &ask.key.queue);
        if owner != self.id() {
            return Ok(call.later(Operation::Asked(self.ask(owner, Ask::Configure(ask))?)));
        }
        let (promise, promised) = promise();
        self.declare_here(ask, AnswerTo::Here(promise));
        Ok(call.later(Operation::Promised(promised)))
    }

    pub(crate) fn delete(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let key = Box::new(QueueKey { tenant: call.tenant, queue: call.queue()? });
        let owner = self.owner(key.tenant, &key.queue);
        if owner != self.id() {
            return Ok(call.later(Operation::Asked(self.ask(owner, Ask::Delete(key))?)));
        }
        let (promise, promised) = promise();
        self.delete_here(key, AnswerTo::Here(promise));
        Ok(call.later(Operation::Promised(promised)))
    }

    /// Sends a declaration of this shard's slice to the store.
    pub(crate) fn declare_here(&self, ask: Box<ConfigureAsk>, answer_to: AnswerTo) {
        // What cannot be applied is not kept either.
        let key = &ask.key;
        self.make_room(key.tenant, 0, key.queue.len() as u64 + 1024);
        let possible = self.engine.borrow_mut().check_configure(self.engine_now_ms(), key.tenant, &key.queue);
        if let Err(error) = possible {
            return self.answer_job(answer_to, ApiError::configure(error, &key.queue).into());
        }
        if self.keeps_own_declarations() {
            return self.declare_own(ask, answer_to);
        }
        let declaration = Declaration {
            tenant: ask.key.tenant.0,
            queue: ask.key.queue.clone(),
            options_json: Some(ask.options_text.clone()),
            updated_at_ms: 0,
            origin: String::new(),
        };
        self.enqueue(StoreAsk::Declare(Box::new(declaration)), Then::Apply(ask), answer_to);
    }

    /// Has the store forget a declaration of this shard's slice.
    pub(crate) fn delete_here(&self, key: Box<QueueKey>, answer_to: AnswerTo) {
        if self.keeps_own_declarations() {
            return self.delete_own(key, answer_to);
        }
        let ask = StoreAsk::Remove(Box::new((key.tenant.0, key.queue.clone())));
        self.enqueue(ask, Then::Delete(key), answer_to);
    }

    fn enqueue(&self, ask: StoreAsk, then: Then, answer_to: AnswerTo) {
        match self.store.ask(ask) {
            Ok(asked) => {
                self.declarations.jobs.borrow_mut().push_back(Job { asked, then, answer_to });
                self.declarations.arrived.notify();
            }
            Err(error) => self.answer_job(answer_to, error.into()),
        }
    }

    fn answer_job(&self, answer_to: AnswerTo, reply: Reply) {
        match answer_to {
            AnswerTo::Here(promise) => promise.keep(reply),
            AnswerTo::There(ticket) => self.peers.answer(ticket, Answer::Reply(Box::new(reply))),
            AnswerTo::Nobody => {}
        }
    }

    /// Finishes declarations in the order in which they went to the store.
    pub(crate) async fn run_declarations(self: Rc<Self>) {
        loop {
            let next = self.declarations.jobs.borrow_mut().pop_front();
            let Some(job) = next else {
                self.declarations.arrived.wait().await;
                continue;
            };
            let stored = job.asked.await.answer;
            let Finished { reply, told } = self.finish(job.then, stored);
            match told.filter(|_| !matches!(job.answer_to, AnswerTo::Nobody)) {
                None => self.answer_job(job.answer_to, reply),
                Some(told) => self.tell_then_reply(told, reply, job.answer_to),
            }
        }
    }

    /// Answers once the other members know it too.
    fn tell_then_reply(self: &Rc<Self>, told: Told, mut reply: Reply, answer_to: AnswerTo) {
        let shard = Rc::clone(self);
        rt::spawn_local(async move {
            let Told { declaration, deleted: removed } = told;
            let (existed, failed) = shard.tell_everybody(declaration).await;
            match removed {
                Some((key, was_there, declared)) => {
                    reply = deleted(&key, was_there || existed, declared, Some(&failed));
                }
                None => Failed::put_into(&mut reply, &failed),
            }
            shard.answer_job(answer_to, reply);
        })
        .detach();
    }

    fn finish(&self, then: Then, stored: StoreAnswer) -> Finished {
        let now_ms = self.engine_now_ms();
        match (then, stored) {
            (_, StoreAnswer::Unavailable(why)) => Finished::alone(
                ApiError::new(
                    Code::EphemeralUnavailable,
                    format!("The store is unavailable, nothing was changed: {why}"),
                )
                .into(),
            ),
            (Then::Apply(ask), StoreAnswer::Done { updated_at_ms }) => {
                let (is_newest, told) = self.note_mine(&ask.key, updated_at_ms, Some(ask.options_text.clone()));
                if is_newest && let Err(error) = self.apply(now_ms, ask.key.tenant, &ask.key.queue, &ask.options) {
                    // The room went to another queue meanwhile: what was kept is forgotten again.
                    self.delete_here(Box::new(ask.key), AnswerTo::Nobody);
                    return Finished::alone(error.into());
                }
                let told = told.map(|declaration| Told { declaration, deleted: None });
                Finished { reply: configured(&ask, updated_at_ms, None), told }
            }
            (Then::Delete(key), StoreAnswer::Removed { declared, updated_at_ms }) => {
                let (_, told) = self.note_mine(&key, updated_at_ms, None);
                let was_there =
                    self.engine.borrow_mut().delete(now_ms, key.tenant, &key.queue, &mut &self.outlet).deleted;
                self.timers.rearm(self);
                let reply = deleted(&key, was_there, declared, None);
                let told = told.map(|declaration| Told { declaration, deleted: Some((key, was_there, declared)) });
                Finished { reply, told }
            }
            _ => unreachable!("the store answers what it was asked"),
        }
    }

    /// Puts a declaration into the engine.
    pub(crate) fn apply(&self, now_ms: u64, tenant: TenantId, queue: &str, options: &Options) -> Result<(), ApiError> {
        self.make_room(tenant, 0, queue.len() as u64 + 1024);
        let applied =
            self.engine.borrow_mut().configure(now_ms, tenant, queue, engine_options(options), &mut &self.outlet);
        self.timers.rearm(self);
        applied.map_err(|error| ApiError::configure(error, queue))
    }

    /// Puts the stored declarations into the engine once the store can be reached.
    pub(crate) async fn restore_later(self: Rc<Self>) {
        let declared = self.store.declarations().await;
        self.restore(declared);
    }

    /// Puts the stored declarations of this shard's slice into its engine, at boot.
    pub(crate) fn restore(&self, mut declared: Vec<Declaration>) {
        // The oldest tombstones are forgotten first.
        declared.sort_by_key(|declared| declared.updated_at_ms);
        let now_ms = self.engine_now_ms();
        let count = declared.len();
        for declaration in declared {
            let tenant = TenantId(declaration.tenant);
            let (true, Some(options_json)) = (self.note_stored(&declaration), &declaration.options_json) else {
                continue;
            };
            let restored = parse_options(options_json)
                .map_err(ApiError::from)
                .and_then(|options| self.apply(now_ms, tenant, &declaration.queue, &options));
            if let Err(error) = restored {
                tracing::error!(queue = declaration.queue, %error, "a stored declaration could not be applied; the queue runs on defaults");
            }
        }
        tracing::debug!(shard = self.id(), declarations = count, "declarations restored");
    }
}

/// What became of a job: its answer, and what the other members are told of it.
struct Finished {
    reply: Reply,
    told: Option<Told>,
}

impl Finished {
    /// Nobody is told.
    fn alone(reply: Reply) -> Self {
        Self { reply, told: None }
    }
}

/// What other members are told.
struct Told {
    declaration: wire::Declaration,
    /// Of a deletion: the queue, whether it was here, and whether it was declared.
    deleted: Option<(Box<QueueKey>, bool, bool)>,
}

/// `{"queue","deleted","declared"}`, and on a node of several who has not heard of it.
pub(crate) fn deleted(key: &QueueKey, was_there: bool, declared: bool, failed: Option<&[Failed]>) -> Reply {
    let mut body = Vec::with_capacity(64 + key.queue.len());
    body.extend_from_slice(b"{\"queue\":");
    append_json_string(&mut body, &key.queue);
    body.extend_from_slice(format!(",\"deleted\":{was_there},\"declared\":{declared}}}").as_bytes());
    let mut reply = Reply::json(200, body);
    Failed::put_into(&mut reply, failed.unwrap_or_default());
    reply
}

/// `{"queue","options","updatedAt"}`, the options as they were sent, and on a node of several who has not heard of it.
pub(crate) fn configured(ask: &ConfigureAsk, updated_at_ms: u64, failed: Option<&[Failed]>) -> Reply {
    let mut body = Vec::with_capacity(96 + ask.key.queue.len() + ask.options_text.len());
    body.extend_from_slice(b"{\"queue\":");
    append_json_string(&mut body, &ask.key.queue);
    body.extend_from_slice(b",\"options\":");
    body.extend_from_slice(ask.options_text.as_bytes());
    let updated_at = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(updated_at_ms));
    body.extend_from_slice(format!(",\"updatedAt\":\"{updated_at}\"}}").as_bytes());
    let mut reply = Reply::json(201, body);
    Failed::put_into(&mut reply, failed.unwrap_or_default());
    reply
}

/// The declaration in the engine's units; 0 means the default, as on the wire.
fn engine_options(options: &Options) -> QueueOptions {
    let set = |value: Option<u64>| value.filter(|&value| value > 0);
    let seconds = |value: Option<u64>| set(value).map(|seconds| seconds.saturating_mul(1000));
    QueueOptions {
        max_bytes: set(options.max_bytes),
        max_length: set(options.max_length),
        policy: match options.policy {
            Some(body::Policy::DropOldest) => Policy::DropOldest,
            Some(body::Policy::Reject) | None => Policy::Reject,
        },
        ttl_ms: seconds(options.ttl_seconds),
        lease_ms: seconds(options.lease_seconds),
        retry_limit: set(options.retry_limit).map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        window: options
            .window_buffer
            .as_ref()
            .map(|window| Window { ms: window.ms, count: u32::try_from(window.count).unwrap_or(u32::MAX) }),
    }
}
