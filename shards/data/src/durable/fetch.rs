//! POST fetch: messages at offsets, without lease, cursor or group.

use std::{rc::Rc, sync::Arc};

use queen_log::{
    id::TenantId,
    request::{FetchEntry, FetchError, FetchRequest, Fetched, Request},
};
use queen_wire::durable::parse_fetch;

use super::{
    Plan,
    render::{append_records, element, key},
};
use crate::{
    connection::{Frame, Later, Operation, Out, Waits},
    dispatch::{Call, Handled},
    error::ApiError,
    routes::Route,
    shard::Shard,
};

/// What a fetch asked for, to name it in its answer and to ask again when it shall wait no longer.
pub(super) struct FetchPlan {
    tenant: TenantId,
    places: Vec<Place>,
    max_bytes: u64,
}

struct Place {
    queue: Arc<str>,
    partition: Arc<str>,
    offset: u64,
    max_bytes: u64,
}

impl Shard {
    pub(crate) fn fetch(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let fetch = parse_fetch(call.request.body, self.node.config.json_depth_max);
        let fetch = fetch.map_err(|fault| ApiError::bad_request(&fault))?;
        let places = fetch.entries.iter().map(|entry| Place {
            queue: (&*entry.queue).into(),
            partition: (&*entry.partition).into(),
            offset: entry.offset,
            max_bytes: entry.max_bytes,
        });
        let plan = FetchPlan { tenant: call.log_tenant(), places: places.collect(), max_bytes: fetch.max_bytes };
        if fetch.max_wait_ms == 0 || fetch.min_bytes == 0 || self.node.is_stopping() {
            return Ok(call.later(self.fetch_now(plan)?));
        }
        let request = Request::Fetch(plan.request(fetch.max_wait_ms, fetch.min_bytes));
        let operation = self.ask_store_parked(request, Plan::Fetch(plan))?;
        let frame = Frame { route: Route::WaitingFetch, ..call.frame };
        Ok(Handled::Later(Later { operation, frame, waits: Waits::ForStore }))
    }

    /// Asks for what there is.
    pub(super) fn fetch_now(self: &Rc<Self>, plan: FetchPlan) -> Result<Operation, ApiError> {
        self.ask_store(Request::Fetch(plan.request(0, 0)), Plan::Fetch(plan))
    }
}

impl FetchPlan {
    fn request(&self, max_wait_ms: u64, min_bytes: u64) -> FetchRequest {
        let entries = self.places.iter().map(|place| FetchEntry {
            queue: Arc::clone(&place.queue),
            partition: Arc::clone(&place.partition),
            offset: place.offset,
            max_bytes: place.max_bytes,
        });
        FetchRequest {
            tenant: self.tenant,
            entries: entries.collect(),
            max_bytes: self.max_bytes,
            max_wait_ms,
            min_bytes,
        }
    }

    /// `200 {"entries":[{"queue","partition","records","highWatermark","logStartOffset","error"?}, …]}`, in the order
    /// of the request.
    pub(super) fn write(&self, entries: &[Fetched], frame: &Frame, out: &mut Out) {
        out.with_body(frame, 200, |body| {
            body.extend_from_slice(b"{\"entries\":[");
            for (place, fetched) in self.places.iter().zip(entries) {
                element(body);
                body.push(b'{');
                key(body, "queue").text(&place.queue);
                key(body, "partition").text(&place.partition);
                key(body, "records").raw(b"[");
                append_records(body, fetched.number, &fetched.slices);
                body.push(b']');
                key(body, "highWatermark").number(fetched.high_watermark);
                key(body, "logStartOffset").number(fetched.log_start);
                match fetched.error {
                    None => {}
                    Some(FetchError::Unknown) => key(body, "error").text(super::UNKNOWN),
                    Some(FetchError::OutOfRange) => key(body, "error").text("OFFSET_OUT_OF_RANGE"),
                }
                body.push(b'}');
            }
            body.extend_from_slice(b"]}");
        });
    }
}
