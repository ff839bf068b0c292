//! POST partitions/changed: which partitions were written to since a time, page by page.

use std::{rc::Rc, sync::Arc};

use queen_fabric::slice;
use queen_log::{
    id::TenantId,
    read::{ChangedEntry, ChangedRow, Read, ReadAnswer},
    request::Request,
};
use queen_wire::durable::parse_changed;

use super::{
    Plan,
    render::{element, key},
};
use crate::{
    connection::{Frame, Out},
    dispatch::{Call, Handled},
    error::ApiError,
    shard::Shard,
};

/// What was asked for, in order.
pub(super) struct ChangedPlan {
    tenant: TenantId,
    places: Vec<Place>,
}

struct Place {
    queue: Arc<str>,
    limit: u32,
    /// It names a page that this queue did not give: it was not asked of the store.
    bad_cursor: bool,
}

impl Shard {
    pub(crate) fn changed_partitions(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let entries = parse_changed(call.request.body, self.node.config.json_depth_max);
        let entries = entries.map_err(|fault| ApiError::bad_request(&fault))?;
        let tenant = call.log_tenant();
        let (mut places, mut asked) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
        for entry in entries {
            let queue: Arc<str> = (&*entry.queue).into();
            let after = entry.after.as_deref().map_or(Some(0), |cursor| number_of(cursor, tenant, &queue));
            places.push(Place { queue: Arc::clone(&queue), limit: entry.limit, bad_cursor: after.is_none() });
            if let Some(after) = after {
                asked.push(ChangedEntry { queue, since_us: entry.since_us, after, limit: entry.limit });
            }
        }
        let request = Request::Read(Read::Changed { tenant, entries: asked });
        self.serve_stored(call, request, Plan::Changed(ChangedPlan { tenant, places }))
    }
}

/// The text that stands for the page behind a partition: its number, and which queue's it is.
fn cursor(tenant: TenantId, queue: &str, number: u64) -> String {
    format!("{:016x}-{number}", slice::slice(&tenant.0, queue))
}

/// The number in a cursor of this queue.
fn number_of(text: &str, tenant: TenantId, queue: &str) -> Option<u64> {
    let (_, number) = text.split_once('-')?;
    let number = number.parse().ok()?;
    (cursor(tenant, queue, number) == text).then_some(number)
}

impl ChangedPlan {
    /// `200 {"safeTime","safeTimeDegraded","entries":[{"queue","partitions","next"} or {"queue","error"}, …]}`.
    pub(super) fn write(&self, answer: ReadAnswer, frame: &Frame, out: &mut Out) {
        let ReadAnswer::Changed { safe_us, entries } = answer else {
            unreachable!("the store answers what it was asked")
        };
        let mut entries = entries.into_iter();
        out.with_body(frame, 200, |body| {
            body.push(b'{');
            key(body, "safeTime").time_us(Some(safe_us));
            key(body, "safeTimeDegraded").boolean(false);
            key(body, "entries").raw(b"[");
            for place in &self.places {
                element(body);
                body.push(b'{');
                key(body, "queue").text(&place.queue);
                if place.bad_cursor {
                    key(body, "error").text("BAD_CURSOR");
                } else {
                    match entries.next().flatten() {
                        Some(rows) => self.append_page(body, place, &rows),
                        None => key(body, "error").text(super::UNKNOWN),
                    }
                }
                body.push(b'}');
            }
            body.extend_from_slice(b"]}");
        });
    }

    fn append_page(&self, body: &mut Vec<u8>, place: &Place, rows: &[ChangedRow]) {
        key(body, "partitions").raw(b"[");
        for row in rows {
            element(body);
            body.push(b'{');
            key(body, "name").text(&row.name);
            key(body, "id").id(row.id);
            // A partition that was never written to has its newest message before the first offset.
            key(body, "lastOffset").signed(row.next as i64 - 1);
            key(body, "logStart").number(row.log_start);
            key(body, "lastWriteAt").time_us(Some(row.stamp_us));
            body.push(b'}');
        }
        body.push(b']');
        match rows.last().filter(|_| rows.len() >= place.limit as usize) {
            Some(last) => key(body, "next").text(&cursor(self.tenant, &place.queue, last.number)),
            None => key(body, "next").raw(b"null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = queen_log::id::Uuid([7; 16]);

    #[test]
    fn a_cursor_is_read_by_the_queue_that_gave_it_alone() {
        let text = cursor(TENANT, "q", 1_000);
        assert_eq!(number_of(&text, TENANT, "q"), Some(1_000));
        assert_eq!(number_of(&text, TENANT, "r"), None);
        assert_eq!(number_of(&text, TenantId::default(), "q"), None);
        let padded = text.replace('-', "-0");
        for foreign in ["", "1000", "-1000", "x-1000", &padded] {
            assert_eq!(number_of(foreign, TENANT, "q"), None, "{foreign}");
        }
    }

    #[test]
    fn a_full_page_names_the_next_one() {
        let place = |limit| Place { queue: "q".into(), limit, bad_cursor: false };
        let row = |number| ChangedRow {
            name: "p".into(),
            id: queen_log::id::Uuid([0x11; 16]),
            number,
            next: 3,
            log_start: 1,
            stamp_us: 0,
        };
        let plan = ChangedPlan { tenant: TENANT, places: Vec::new() };
        let mut body = b"{".to_vec();
        plan.append_page(&mut body, &place(1), &[row(4)]);
        assert_eq!(
            String::from_utf8(body).expect("text"),
            format!(
                r#"{{"partitions":[{{"name":"p","id":"11111111-1111-1111-1111-111111111111","lastOffset":2,"logStart":1,"lastWriteAt":"1970-01-01T00:00:00.000000Z"}}],"next":"{}""#,
                cursor(TENANT, "q", 4)
            )
        );
        let mut body = b"{".to_vec();
        plan.append_page(&mut body, &place(2), &[row(4)]);
        assert!(body.ends_with(b"],\"next\":null"));
    }
}
