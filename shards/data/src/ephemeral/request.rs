//! POST request: a push whose sender waits for the reply, at a one-time inbox.
//!
//! The inbox that the broker names is on the shard of the requester's connection, so the reply crosses no lane on its
//! way to it. One that the requester chose is where the hash of its name leads, and the whole request goes there: the
//! inbox has to be open before anybody can see the message.

use std::{future::poll_fn, rc::Rc};

use queen_ephemeral::{
    Millis, TenantId, WaiterId,
    inbox::{self, Minted},
};
use queen_fabric::rt;
use queen_wire::body::parse_request;

use super::{Call, Handled, not_reserved};
use crate::{
    cluster::{DEFAULT_PARTITION, Home},
    connection::{Later, Operation, Outcome, Waiting, Waits},
    error::{ApiError, Code},
    protocol::{Ask, PushAsk, QueueKey, RequestAsk},
    shard::Shard,
    waiters::{Given, Place},
};

/// A request, wherever it came from.
pub(crate) struct Requested<'r> {
    pub(crate) tenant: TenantId,
    pub(crate) queue: &'r str,
    pub(crate) partition: &'r str,
    pub(crate) payload: &'r [u8],
    /// The inbox that the requester chose.
    pub(crate) reply_to: Option<&'r str>,
    pub(crate) wait_ms: u64,
}

impl Shard {
    pub(crate) fn request(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let body = parse_request(call.request.body, self.node.config.json_depth_max)?;
        let request = Requested {
            tenant: call.tenant,
            queue: &body.queue,
            partition: &body.partition,
            payload: &call.request.body[std::ops::Range::from(body.payload)],
            reply_to: body.reply_to.as_deref(),
            wait_ms: body.timeout_ms,
        };
        check_names(&request)?;
        if self.node.is_stopping() {
            return Err(ApiError::new(Code::EphemeralUnavailable, "The node is stopping; nothing was pushed"));
        }
        let permit = self.park_permit()?;
        self.take_rate(call, 1)?;
        let home = match request.reply_to {
            Some(name) => self.home_of(request.tenant, name, DEFAULT_PARTITION)?,
            None => Home::Here,
        };
        let owned = |name: &str| RequestAsk {
            key: QueueKey { tenant: request.tenant, queue: request.queue.to_owned() },
            partition: request.partition.to_owned(),
            payload: request.payload.to_owned(),
            reply_to: name.to_owned(),
            wait_ms: request.wait_ms,
        };
        let operation = match request.reply_to.map(|name| (name, self.owner(request.tenant, name))) {
            Some((name, _)) if let Home::Elsewhere(member) = &home => {
                self.forward_request(member, owned(name), permit)?
            }
            Some((name, _)) if home == Home::Awaited => self.hold(Ask::Request(Box::new(owned(name))))?,
            Some((name, owner)) if owner != self.id() => {
                let ask = owned(name);
                let asked = self.peers.ask_parked(owner, Ask::Request(Box::new(ask)));
                Operation::AskedParked { asked, _permit: permit }
            }
            _ => {
                let waiter = self.outlet.waiters().borrow_mut().add_here();
                self.request_here(call.now_ms, &request, waiter)?;
                Operation::Waiting(Waiting::new(waiter, permit))
            }
        };
        Ok(Handled::Later(Later { operation, frame: call.frame, waits: Waits::ForReply }))
    }

    /// Opens the inbox, then pushes. On an error neither has happened, and the waiter is gone.
    pub(crate) fn request_here(
        self: &Rc<Self>,
        now_ms: Millis,
        request: &Requested<'_>,
        waiter: WaiterId,
    ) -> Result<(), ApiError> {
        let &Requested { tenant, queue, partition, payload, reply_to, wait_ms } = request;
        // As in `pop_here`.
        if !self.grants.is_ephemeral_enabled() {
            self.outlet.waiters().borrow_mut().remove(waiter);
            return Err(ApiError::ephemeral_disabled());
        }
        let opened = self.engine.borrow_mut().open_inbox(now_ms, tenant, reply_to, wait_ms, waiter);
        let inbox = opened.map_err(|error| {
            self.outlet.waiters().borrow_mut().remove(waiter);
            ApiError::new(Code::InboxInUse, format!("Inbox {:?}: {error}", reply_to.unwrap_or_default()))
        })?;
        self.outlet.waiters().borrow_mut().placed(waiter, Place::Inbox(inbox));
        self.timers.rearm(self);
        let minted;
        let reply_to = match reply_to {
            Some(chosen) => chosen,
            None => {
                minted = Minted { epoch: self.node.boot_epoch, shard: self.id(), inbox }.to_string();
                &minted
            }
        };
        let pushed = self.home_of(tenant, queue, partition).and_then(|home| {
            let owner = self.owner(tenant, queue);
            if owner == self.id() && home == Home::Here {
                return self.push_request_here(now_ms, tenant, queue, partition, payload, reply_to);
            }
            let key = QueueKey { tenant, queue: queue.to_owned() };
            let (bytes, ends) = (payload.to_owned(), vec![payload.len()]);
            let ask =
                PushAsk { key, partition: partition.to_owned(), bytes, ends, reply_to: Some(reply_to.to_owned()) };
            let mut pushing = match home {
                Home::Here => Operation::Asked(self.ask(owner, Ask::Push(Box::new(ask)))?),
                Home::Elsewhere(member) => self.forward_push(&member, ask)?,
                Home::Awaited => self.hold(Ask::Push(Box::new(ask)))?,
            };
            let shard = Rc::clone(self);
            rt::spawn_local(async move {
                let Outcome::Reply(refusal) = poll_fn(|cx| pushing.poll(cx)).await else { return };
                let waiter = shard.engine.borrow_mut().close_inbox(inbox);
                if let Some(waiter) = waiter {
                    shard.outlet.give(waiter, Given::Reply(refusal));
                }
            })
            .detach();
            Ok(())
        });
        pushed.inspect_err(|_| {
            // Nobody has seen the inbox's name: it is still open.
            self.engine.borrow_mut().close_inbox(inbox);
            self.outlet.waiters().borrow_mut().remove(waiter);
        })
    }
}

fn check_names(request: &Requested<'_>) -> Result<(), ApiError> {
    not_reserved(request.queue)?;
    let Some(name) = request.reply_to else { return Ok(()) };
    let fault = if name.len() <= inbox::PREFIX.len() || !inbox::is_inbox(name) {
        "must be a name under `_inbox.`, such as `_inbox.` with a UUID behind it"
    } else if Minted::parse(name).is_some() {
        "has the form of the names that the broker makes: choose another under `_inbox.`"
    } else {
        return Ok(());
    };
    Err(ApiError::new(Code::EphemeralBadRequest, format!("`replyTo` {fault}")))
}
