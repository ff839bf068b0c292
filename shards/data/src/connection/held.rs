//! A request whose token names a signing key that is being fetched: kept whole until the fetch has ended, then handled.
//!
//! Only this request waits: its connection reads nothing meanwhile, and no other one notices.

use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use queen_fabric::rt;
use queen_wire::http::{Method, Request};

use super::{Connection, Gone, out::Frame};
use crate::{
    dispatch::Handled,
    error::{ApiError, Code},
    shard::Shard,
};

/// How long a request is held. A client's own patience is longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often is looked whether the fetch has ended: keys change a few times a year.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A request that owns what it says.
pub(super) struct Held {
    shard: Rc<Shard>,
    started: Instant,
    /// Decided once so many fetches have ended.
    until: u64,
    method: Method,
    path: String,
    query: Option<String>,
    keep_alive: bool,
    http10: bool,
    tenant: Option<Vec<u8>>,
    authorization: Option<Vec<u8>>,
    body: Vec<u8>,
    /// Bytes charged to the node's budget for unfinished requests.
    charged: u64,
}

impl Held {
    /// Copies a request, if the node may hold so much of unfinished requests.
    pub(super) fn take(
        shard: &Rc<Shard>,
        request: &Request<'_>,
        started: Instant,
        until: u64,
    ) -> Result<Self, ApiError> {
        let pieces = [request.path.len(), request.query.map_or(0, str::len), request.body.len()];
        let charged = (pieces.iter().sum::<usize>() + request.authorization.map_or(0, <[u8]>::len)) as u64;
        if !shard.buffered.try_take(&shard.node.buffered, charged) {
            let held = "The node holds as many unfinished requests as QUEEN_HTTP_MAX_BUFFERED_BYTES allows";
            return Err(ApiError::overloaded(held));
        }
        Ok(Self {
            shard: Rc::clone(shard),
            started,
            until,
            method: request.method,
            path: request.path.to_owned(),
            query: request.query.map(str::to_owned),
            keep_alive: request.keep_alive,
            http10: request.http10,
            tenant: request.tenant.map(<[u8]>::to_owned),
            authorization: request.authorization.map(<[u8]>::to_owned),
            body: request.body.to_owned(),
            charged,
        })
    }

    fn request(&self) -> Request<'_> {
        Request {
            method: self.method,
            path: &self.path,
            query: self.query.as_deref(),
            keep_alive: self.keep_alive,
            http10: self.http10,
            tenant: self.tenant.as_deref(),
            authorization: self.authorization.as_deref(),
            upgrade: None,
            body: &self.body,
        }
    }

    /// Whether the fetch that it waits for has ended.
    fn is_decided(&self) -> bool {
        let keys = self.shard.node.auth.as_ref().and_then(|auth| auth.keys.as_ref());
        keys.is_none_or(|keys| keys.fetches_done() >= self.until)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shard.buffered.give(&self.shard.node.buffered, self.charged);
    }
}

impl Connection {
    /// Waits for what decides about a request, then handles it.
    pub(super) async fn hold(&mut self, mut held: Held) -> Result<(), Gone> {
        self.flush().await?;
        self.slot.disarm();
        let give_up = held.started + PATIENCE;
        loop {
            while !held.is_decided() && Instant::now() < give_up && !self.shard.node.is_stopping() {
                rt::sleep(LOOK_EVERY).await;
            }
            match poll_fn(|cx| Poll::Ready(self.handle_held(cx, &held))).await? {
                Handled::Done => return Ok(()),
                Handled::Later(later) => {
                    drop(held);
                    return self.wait(later).await;
                }
                Handled::Undecided { until } => held.until = until,
            }
        }
    }

    /// Handles a request that was held, and sends its response if there is one already.
    fn handle_held(&mut self, cx: &mut Context<'_>, held: &Held) -> Result<Handled, Gone> {
        let shard = Rc::clone(&self.shard);
        let mut out = shard.out.borrow_mut();
        let now = Instant::now();
        let (route, mut handled) = shard.handle(&held.request(), now, &mut out);
        let is_late = now >= held.started + PATIENCE || shard.node.is_stopping();
        if is_late && matches!(handled, Handled::Undecided { .. }) {
            let message = "The token's signing key is still being fetched; try again";
            out.reply(&Frame::last(now), &ApiError::new(Code::AuthUnavailable, message).into());
            self.closing = true;
            handled = Handled::Done;
        }
        if matches!(handled, Handled::Done) {
            shard.metrics.observe_request(route, held.started.elapsed());
            self.closing |= !held.keep_alive || shard.node.is_stopping();
        }
        self.send(cx, &mut out)?;
        Ok(handled)
    }
}
