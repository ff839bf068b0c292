//! From a request's head to the handler of its route: the route, the tenant, the frame of the response.

use std::{rc::Rc, time::Instant};

use queen_auth::Identity;
use queen_ephemeral::{Millis, TenantId};
use queen_wire::http::{Method, Request};

use crate::{
    admission::{Caller, Refused},
    connection::{Frame, Later, Operation, Out, Waits},
    error::{ApiError, Code},
    reply::Reply,
    routes::{Resolved, Route, Surface, resolve},
    shard::Shard,
};

/// What became of a request by the time its handler returned.
pub(crate) enum Handled {
    /// The response is in [`Out`].
    Done,
    /// The response will come.
    Later(Later),
    /// Nothing yet: the request is to be handled again once so many fetches of signing keys have ended.
    Undecided { until: u64 },
}

/// A request that found its route.
pub(crate) struct Call<'r> {
    pub(crate) request: &'r Request<'r>,
    pub(crate) tenant: TenantId,
    /// What its token says; `None` where no token is asked for.
    pub(crate) identity: Option<Rc<Identity>>,
    pub(crate) frame: Frame,
    pub(crate) now: Instant,
    /// The engine's time.
    pub(crate) now_ms: Millis,
    /// The raw path segments that name things, on the routes that have them.
    pub(crate) segments: [Option<&'r str>; 2],
}

impl Call<'_> {
    /// A response that is waited for whatever the client does.
    pub(crate) fn later(&self, operation: Operation) -> Handled {
        Handled::Later(Later { operation, frame: self.frame, waits: Waits::No })
    }
}

impl Shard {
    /// Serves one request: its response goes to `out`, now or later. Says which route it took.
    pub(crate) fn handle(self: &Rc<Self>, request: &Request<'_>, now: Instant, out: &mut Out) -> (Route, Handled) {
        let resolved = resolve(request.method, request.path);
        let route = match resolved {
            Resolved::Route { route, .. } => route,
            Resolved::WrongMethod { .. } | Resolved::Unknown => Route::None,
        };
        let frame = Frame {
            route,
            started: now,
            keep_alive: request.keep_alive && !self.node.is_stopping(),
            http10: request.http10,
            head_only: request.method == Method::Head,
        };
        let handled = self.caller_of(request).and_then(|caller| {
            let segments = match resolved {
                Resolved::Route { segments, .. } => segments,
                Resolved::WrongMethod { allow } => {
                    out.reply(&frame, &Reply::method_not_allowed(allow));
                    return Ok(Handled::Done);
                }
                Resolved::Unknown => return Err(ApiError::new(Code::NoSuchRoute, "Not Found").into()),
            };
            self.check_access(&caller, route)?;
            let tenant = self.tenant_of(&caller, route, request)?;
            if route.surface() == Surface::Ephemeral {
                self.check_ephemeral(tenant, caller.is_operator())?;
            }
            let Caller { identity } = caller;
            let call = Call { request, tenant, identity, frame, now, now_ms: self.clock.engine_millis(now), segments };
            Ok(self.dispatch(&call, out)?)
        });
        let handled = handled.unwrap_or_else(|refused| match refused {
            Refused::Now(error) => {
                out.reply(&frame, &error.into());
                Handled::Done
            }
            Refused::Undecided { until } => Handled::Undecided { until },
        });
        (route, handled)
    }

    fn dispatch(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        match call.frame.route {
            Route::Push => self.push(call, out),
            Route::Pop | Route::WaitingPop => self.pop(call, out),
            Route::Ack => self.ack(call, out),
            Route::Request => self.request(call),
            Route::Exchange | Route::WaitingExchange => self.exchange(call),
            Route::Configure => self.configure(call),
            Route::Reset => self.reset(call, out),
            Route::Delete => self.delete(call),
            Route::Queues => self.queues(call),
            Route::Depth => self.depth(call, out),
            Route::DurablePush => self.durable_push(call, out),
            Route::DurablePop | Route::DurableWaitingPop => self.durable_pop(call, out),
            Route::DurableAck => self.durable_ack(call),
            Route::DurableAckBatch => self.durable_ack_batch(call, out),
            Route::ExtendLease => self.extend_lease(call),
            Route::DurableConfigure => self.durable_configure(call),
            Route::DurableDelete => self.durable_delete(call),
            Route::Fetch | Route::WaitingFetch => self.fetch(call),
            Route::ChangedPartitions => self.changed_partitions(call),
            Route::DurableQueues
            | Route::DurableQueue
            | Route::DurableDepth
            | Route::Namespaces
            | Route::Tasks
            | Route::Overview
            | Route::Partitions => self.read_resource(call),
            Route::WhoAmI => Ok(self.who_am_i(call, out)),
            Route::EphemeralState | Route::SwitchEphemeral => self.switch_ephemeral(call),
            Route::Quotas => self.quotas(call),
            Route::Quota | Route::PutQuota | Route::DeleteQuota => self.quota(call),
            Route::Maintenance | Route::SwitchMaintenance => self.maintenance(call),
            Route::PopMaintenance | Route::SwitchPopMaintenance => self.pop_maintenance(call),
            Route::SharedState => self.shared_state(call),
            Route::MeshStats => Ok(self.mesh_stats(call)),
            Route::Health => Ok(self.health(call, out)),
            Route::Status | Route::Metrics | Route::Prometheus => Ok(self.report(call)),
            Route::None => unreachable!("a resolved request has a route"),
        }
    }
}
