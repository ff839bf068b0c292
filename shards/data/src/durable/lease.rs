//! POST lease/:lease/extend: more time for everything that a pop claimed.

use std::{rc::Rc, sync::Arc};

use queen_log::{
    id::Uuid,
    request::{ExtendRequest, Extended, Request},
};
use queen_wire::durable::parse_extend;

use super::{Plan, render::key};
use crate::{
    connection::{Frame, Out},
    dispatch::{Call, Handled},
    error::ApiError,
    shard::Shard,
};

/// The lease as the path names it, whatever that is.
pub(super) struct ExtendPlan(Arc<str>);

impl Shard {
    pub(crate) fn extend_lease(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        // Whatever names no lease is one that nobody holds.
        let lease = call.named(0, "leaseId", |_, _| Ok(())).map_err(|fault| ApiError::bad_request(&fault))?;
        let lease = lease.expect("the route has a lease in its path");
        let request = ExtendRequest {
            tenant: call.log_tenant(),
            lease: Uuid::parse(&lease),
            seconds: parse_extend(call.request.body, self.node.config.json_depth_max),
        };
        self.serve_stored(call, Request::Extend(request), Plan::Extend(ExtendPlan(lease)))
    }
}

impl ExtendPlan {
    /// Always 200; the same time under three names, for clients of three ages.
    pub(super) fn write(&self, extended: Extended, frame: &Frame, out: &mut Out) {
        out.with_body(frame, 200, |body| {
            body.push(b'{');
            key(body, "leaseId").text(&self.0);
            key(body, "success").boolean(extended.renewed > 0);
            key(body, "renewed").number(extended.renewed.into());
            for name in ["newExpiresAt", "expiresAt", "lease_expires_at"] {
                key(body, name).time_us(extended.until_us);
            }
            body.push(b'}');
        });
    }
}
