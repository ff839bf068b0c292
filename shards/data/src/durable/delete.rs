//! DELETE of a queue with everything in it.

use std::{rc::Rc, sync::Arc};

use queen_log::request::Request;

use super::{Plan, render::key};
use crate::{
    connection::{Frame, Out},
    dispatch::{Call, Handled},
    error::ApiError,
    shard::Shard,
};

/// The queue that is to go.
pub(super) struct DeletePlan(Arc<str>);

impl Shard {
    pub(crate) fn durable_delete(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let queue = call.durable_queue()?;
        let request = Request::Delete { tenant: call.log_tenant(), queue: Arc::clone(&queue) };
        self.serve_stored(call, request, Plan::Delete(DeletePlan(queue)))
    }
}

impl DeletePlan {
    /// Always 200: a queue that was not there is gone as well.
    pub(super) fn write(&self, existed: bool, frame: &Frame, out: &mut Out) {
        out.with_body(frame, 200, |body| {
            body.push(b'{');
            key(body, "deleted").boolean(existed);
            key(body, "existed").boolean(existed);
            key(body, "queue").text(&self.0);
            if !existed {
                key(body, "message").text("There is no such queue");
            }
            body.push(b'}');
        });
    }
}
