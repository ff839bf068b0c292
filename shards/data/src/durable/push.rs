//! POST push: items by partition, in one request to the log.

use std::{collections::HashMap, rc::Rc};

use queen_log::{
    id::{TenantId, message_id},
    record::{Record, Records},
    request::{PushPart, PushRequest, Pushed, PushedPart, Request},
};
use queen_wire::{
    durable::{Item, parse_push},
    response::{append_json_string, append_u64},
};

use super::Plan;
use crate::{
    connection::{Frame, Out},
    dispatch::{Call, Handled},
    error::ApiError,
    shard::Shard,
};

/// Up to so many partitions of one push are looked up by comparing names; more in a hash map.
const COMPARED_PARTS_MAX: usize = 8;

/// Bytes of a record beside its id and payload: flags and two lengths.
const RECORD_OVERHEAD_BYTES: usize = 12;

/// Bytes of a result beside the transaction id and the queue's name.
const RESULT_BYTES: usize = 160;

/// What the answer to a push needs of its items.
pub(super) struct PushPlan {
    items: Vec<PlannedItem>,
    /// The transaction ids that were given, as JSON strings, one after the other.
    ids: Vec<u8>,
    /// By part, its queue's name as a JSON string.
    queues: Vec<Vec<u8>>,
}

struct PlannedItem {
    /// Its place among the parts.
    part: u32,
    /// Where its transaction id ends in `ids`; it has none where that is where the one before ends.
    id_end: u32,
}

impl Shard {
    pub(crate) fn durable_push(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let body = call.request.body;
        let items = parse_push(body, self.node.config.json_depth_max).map_err(|fault| ApiError::bad_request(&fault))?;
        if items.is_empty() {
            out.with_body(&call.frame, 201, |body| body.extend_from_slice(b"[]"));
            return Ok(Handled::Done);
        }
        if self.grants.is_push_maintenance() {
            return Err(ApiError::maintenance());
        }
        let (request, plan) = plan(call.log_tenant(), body, &items);
        self.serve_stored(call, Request::Push(request), Plan::Push(plan))
    }
}

/// Copies the items into records, by partition in the order of first appearance.
fn plan(tenant: TenantId, body: &[u8], items: &[Item<'_>]) -> (PushRequest, PushPlan) {
    let mut parts = Parts::default();
    let mut planned = Vec::with_capacity(items.len());
    let mut ids = Vec::new();
    for item in items {
        let part = parts.of(item);
        let payload = item.payload.end - item.payload.start;
        let id_bytes = item.transaction_id.as_ref().map_or(0, |id| id.len());
        let sized = &mut parts.sizes[part];
        sized.records += 1;
        sized.bytes += payload as usize + id_bytes + RECORD_OVERHEAD_BYTES;
        if let Some(id) = &item.transaction_id {
            append_json_string(&mut ids, id);
        }
        planned.push(PlannedItem { part: part as u32, id_end: ids.len() as u32 });
    }
    let mut asked: Vec<PushPart> = parts
        .names
        .iter()
        .zip(&parts.sizes)
        .map(|(&(queue, partition), size)| PushPart {
            queue: queue.into(),
            partition: partition.into(),
            records: Records {
                bytes: Vec::with_capacity(size.bytes),
                ends: Vec::with_capacity(size.records),
                hashes: Vec::with_capacity(size.records),
            },
        })
        .collect();
    for (item, planned) in items.iter().zip(&planned) {
        asked[planned.part as usize].records.push(&Record {
            id: item.transaction_id.as_ref().map(|id| id.as_bytes()),
            payload: &body[item.payload.start as usize..item.payload.end as usize],
            ..Record::default()
        });
    }
    let queues = asked.iter().map(|part| quoted(&part.queue)).collect();
    (PushRequest { tenant, parts: asked }, PushPlan { items: planned, ids, queues })
}

fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    append_json_string(&mut out, text);
    out
}

/// The distinct partitions of a push.
#[derive(Default)]
struct Parts<'i> {
    /// Queue and partition of each.
    names: Vec<(&'i str, &'i str)>,
    sizes: Vec<Size>,
    /// The part of the item before: most pushes go to few partitions, many to one.
    last: usize,
    /// Where each is, once they are many.
    places: HashMap<(&'i str, &'i str), usize>,
}

#[derive(Default)]
struct Size {
    records: usize,
    bytes: usize,
}

impl<'i> Parts<'i> {
    /// The place of the item's partition.
    fn of(&mut self, item: &'i Item<'_>) -> usize {
        let name = (&*item.queue, &*item.partition);
        if self.names.get(self.last) == Some(&name) {
            return self.last;
        }
        let known = if self.names.len() <= COMPARED_PARTS_MAX {
            self.names.iter().position(|known| *known == name)
        } else {
            self.places.get(&name).copied()
        };
        self.last = known.unwrap_or_else(|| self.add(name));
        self.last
    }

    fn add(&mut self, name: (&'i str, &'i str)) -> usize {
        let place = self.names.len();
        self.names.push(name);
        self.sizes.push(Size::default());
        if place == COMPARED_PARTS_MAX {
            self.places.extend(self.names.iter().enumerate().map(|(place, &name)| (name, place)));
        } else if place > COMPARED_PARTS_MAX {
            self.places.insert(name, place);
        }
        place
    }
}

impl PushPlan {
    /// `201 [{"index","message_id","transaction_id","queueName","status","offset"}, …]`, in the order of the items.
    pub(super) fn write(&self, parts: &[PushedPart], shard: &Shard, frame: &Frame, out: &mut Out) {
        let mut queued = 0;
        out.with_body(frame, 201, |body| queued = self.render(parts, body));
        shard.metrics.durable_pushed(queued);
    }

    /// Returns how many were stored.
    fn render(&self, parts: &[PushedPart], body: &mut Vec<u8>) -> u64 {
        body.reserve(self.items.len() * RESULT_BYTES + self.ids.len());
        let mut next = vec![0; parts.len()];
        let (mut queued, mut id_start) = (0, 0);
        for (index, item) in self.items.iter().enumerate() {
            let place = item.part as usize;
            let pushed = parts[place].messages[next[place]];
            next[place] += 1;
            let (status, offset, stamp_us) = match pushed {
                Pushed::Queued { offset, stamp_us } => ("queued", offset, stamp_us),
                Pushed::Duplicate { offset, stamp_us } => ("duplicate", offset, stamp_us),
            };
            queued += u64::from(matches!(pushed, Pushed::Queued { .. }));
            let id = message_id(parts[place].number, offset, stamp_us).text();
            body.extend_from_slice(if index == 0 { b"[{\"index\":" } else { b",{\"index\":" });
            append_u64(body, index as u64);
            body.extend_from_slice(b",\"message_id\":\"");
            body.extend_from_slice(&id);
            body.extend_from_slice(b"\",\"transaction_id\":");
            let id_end = item.id_end as usize;
            if id_start < id_end {
                body.extend_from_slice(&self.ids[id_start..id_end]);
            } else {
                body.push(b'"');
                body.extend_from_slice(&id);
                body.push(b'"');
            }
            id_start = id_end;
            body.extend_from_slice(b",\"queueName\":");
            body.extend_from_slice(&self.queues[place]);
            body.extend_from_slice(b",\"status\":\"");
            body.extend_from_slice(status.as_bytes());
            body.extend_from_slice(b"\",\"offset\":");
            append_u64(body, offset);
            body.push(b'}');
        }
        body.push(b']');
        queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(body: &str) -> (PushRequest, PushPlan) {
        let items = parse_push(body.as_bytes(), 8).expect("a push");
        plan(TenantId::default(), body.as_bytes(), &items)
    }

    fn payloads(part: &PushPart) -> Vec<&str> {
        (0..part.records.len())
            .map(|index| std::str::from_utf8(part.records.get(index).payload).expect("JSON"))
            .collect()
    }

    #[test]
    fn items_go_to_their_partitions_in_the_order_of_first_appearance() {
        let (request, _) = planned(
            r#"{"items":[{"queue":"b","payload":1},{"queue":"a","payload": [ 2 ] ,"transactionId":"t"},
            {"queue":"b","partition":"p","payload":3},{"queue":"b","payload":4}]}"#,
        );
        let parts: Vec<_> = request.parts.iter().map(|part| (&*part.queue, &*part.partition, payloads(part))).collect();
        assert_eq!(parts, [("b", "Default", vec!["1", "4"]), ("a", "Default", vec!["[ 2 ]"]), ("b", "p", vec!["3"])]);
        assert_eq!(request.parts[1].records.get(0).id, Some(&b"t"[..]));
        assert_eq!(request.parts[0].records.get(0).id, None);
    }

    #[test]
    fn many_partitions_are_told_apart_as_few_are() {
        // Each twice, and round about the number at which names are not compared any more.
        for count in [1, 7, 8, 9, 10, 300] {
            let item = |n: usize| format!(r#"{{"queue":"q{}","partition":"p{n}","payload":{n}}}"#, n % 3);
            let items: Vec<String> = (0..count).chain((0..count).rev()).map(item).collect();
            let (request, plan) = planned(&format!(r#"{{"items":[{}]}}"#, items.join(",")));
            assert_eq!(request.parts.len(), count);
            for (n, part) in request.parts.iter().enumerate() {
                assert_eq!(payloads(part), [n.to_string(), n.to_string()]);
            }
            let places: Vec<usize> = plan.items.iter().map(|item| item.part as usize).collect();
            assert_eq!(places, (0..count).chain((0..count).rev()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let (_, plan) = planned(
            r#"{"items":[{"queue":"b","payload":1},{"queue":"a\"","payload":2,"transactionId":""},
            {"queue":"b","payload":3,"transactionId":"t"}]}"#,
        );
        let part = |number, messages| PushedPart { number, messages };
        let parts = [
            part(
                7,
                vec![
                    Pushed::Queued { offset: 5, stamp_us: 1_000_000 },
                    Pushed::Duplicate { offset: 2, stamp_us: 2_000 },
                ],
            ),
            part(8, vec![Pushed::Queued { offset: 0, stamp_us: 3_000 }]),
        ];
        let mut body = Vec::new();
        assert_eq!(plan.render(&parts, &mut body), 2);
        let ids = [message_id(7, 5, 1_000_000), message_id(8, 0, 3_000), message_id(7, 2, 2_000)];
        assert_eq!(
            String::from_utf8(body).expect("JSON"),
            format!(
                r#"[{{"index":0,"message_id":"{0}","transaction_id":"{0}","queueName":"b","status":"queued","offset":5}},{{"index":1,"message_id":"{1}","transaction_id":"","queueName":"a\"","status":"queued","offset":0}},{{"index":2,"message_id":"{2}","transaction_id":"t","queueName":"b","status":"duplicate","offset":2}}]"#,
                ids[0], ids[1], ids[2]
            )
        );
    }
}
