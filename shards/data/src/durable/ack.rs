//! POST ack and ack/batch: the status is 200 either way, success stands in the body.

use std::{rc::Rc, sync::Arc};

use queen_log::{
    id::Uuid,
    request::{Ack, AckRequest, AckStatus, Acked, Failure, Request},
    row::QUEUE_MODE,
};
use queen_wire::{
    durable::{self, Acks, parse_ack, parse_ack_batch},
    response::append_json_string,
};

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

/// What the answer to acks needs of them.
pub(super) struct AckPlan {
    form: Form,
    /// Their transaction ids as JSON strings, one after the other.
    ids: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
}

/// The two routes, which differ in what they say when the store is away.
#[derive(Clone, Copy)]
enum Form {
    Single,
    Batch,
}

impl Shard {
    pub(crate) fn durable_ack(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let acks = parse_ack(call.request.body, self.node.config.json_depth_max);
        let acks = acks.map_err(|fault| ApiError::bad_request(&fault))?;
        self.settle(call, acks, Form::Single)
    }

    pub(crate) fn durable_ack_batch(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let acks = parse_ack_batch(call.request.body, self.node.config.json_depth_max);
        let acks = acks.map_err(|fault| ApiError::bad_request(&fault))?;
        if acks.acks.is_empty() {
            out.with_body(&call.frame, 200, |body| body.extend_from_slice(b"[]"));
            return Ok(Handled::Done);
        }
        self.settle(call, acks, Form::Batch)
    }

    fn settle(self: &Rc<Self>, call: &Call<'_>, acks: Acks<'_>, form: Form) -> Result<Handled, ApiError> {
        let mut plan = AckPlan { form, ids: Vec::new(), ends: Vec::with_capacity(acks.acks.len()) };
        for ack in &acks.acks {
            append_json_string(&mut plan.ids, ack.transaction_id.as_deref().unwrap_or_default());
            plan.ends.push(plan.ids.len() as u32);
        }
        let request = AckRequest {
            tenant: call.log_tenant(),
            group: acks.group.as_deref().map_or_else(|| Arc::from(QUEUE_MODE), Arc::from),
            acks: acks.acks.into_iter().map(owned).collect(),
        };
        self.serve_stored(call, Request::Ack(request), Plan::Ack(plan))
    }
}

fn owned(ack: durable::Ack<'_>) -> Ack {
    Ack {
        partition: ack.partition_id.as_deref().and_then(Uuid::parse),
        transaction_id: ack.transaction_id.map(|id| id.into_owned().into_boxed_str()),
        status: AckStatus::from_word(ack.status.as_deref()),
        // A message that was delivered with autoAck has the empty lease: it names none.
        lease: ack.lease_id.filter(|lease| !lease.is_empty()).map(|lease| Uuid::parse(&lease)),
        // It may be kept with a dead letter, in a column that takes no U+0000.
        error: ack.error.map(|error| error.replace('\0', "\u{fffd}").into_boxed_str()),
    }
}

impl AckPlan {
    pub(super) fn write(&self, acked: &[Acked], shard: &Shard, frame: &Frame, out: &mut Out) {
        out.with_body(frame, 200, |body| {
            self.render(body, |index, body| append_result(body, &acked[index]));
        });
        let taken = acked.iter().filter(|acked| acked.result.is_ok()).count();
        shard.metrics.durable_acked(taken as u64);
    }

    /// The store is away, or has too much to do: nothing was settled.
    pub(super) fn fail(&self, failure: &Failure, frame: &Frame, out: &mut Out) {
        tracing::debug!(%failure, "acks were not taken");
        let error = match self.form {
            Form::Single => "ack flush failed; lease will expire and redeliver",
            Form::Batch => "pool",
        };
        out.with_body(frame, 200, |body| {
            self.render(body, |_, body| {
                key(body, "success").boolean(false);
                key(body, "error").text(error);
                for flag in ["leaseReleased", "dlq", "noop"] {
                    key(body, flag).boolean(false);
                }
            });
        });
    }

    /// `[{"index","transactionId", …}, …]`, the rest of each by `result`.
    fn render(&self, body: &mut Vec<u8>, mut result: impl FnMut(usize, &mut Vec<u8>)) {
        body.reserve(self.ids.len() + self.ends.len() * 128);
        body.push(b'[');
        let mut start = 0;
        for (index, &end) in self.ends.iter().enumerate() {
            element(body);
            body.push(b'{');
            key(body, "index").number(index as u64);
            key(body, "transactionId").raw(&self.ids[start..end as usize]);
            start = end as usize;
            result(index, body);
            body.push(b'}');
        }
        body.push(b']');
    }
}

fn append_result(body: &mut Vec<u8>, acked: &Acked) {
    key(body, "success").boolean(acked.result.is_ok());
    match acked.result {
        Ok(_) => key(body, "error").raw(b"null"),
        Err(refusal) => key(body, "error").text(&refusal.to_string()),
    }
    let taken = acked.result.unwrap_or_default();
    key(body, "leaseReleased").boolean(acked.lease_released);
    key(body, "dlq").boolean(taken.dead);
    key(body, "noop").boolean(taken.noop);
    if let Some(conflated) = taken.conflated {
        key(body, "conflated").number(conflated);
    }
}

#[cfg(test)]
mod tests {
    use queen_log::request::{AckRefusal, AckTaken};

    use super::*;

    #[test]
    fn each_ack_has_its_result() {
        let plan = AckPlan { form: Form::Batch, ids: b"\"a\"\"b\"".to_vec(), ends: vec![3, 6] };
        let acked = [
            Acked { result: Ok(AckTaken { noop: false, dead: true, conflated: Some(2) }), lease_released: true },
            Acked { result: Err(AckRefusal::Lease), lease_released: false },
        ];
        let mut body = Vec::new();
        plan.render(&mut body, |index, body| append_result(body, &acked[index]));
        assert_eq!(
            String::from_utf8(body).expect("text"),
            r#"[{"index":0,"transactionId":"a","success":true,"error":null,"leaseReleased":true,"dlq":true,"noop":false,"conflated":2},{"index":1,"transactionId":"b","success":false,"error":"invalid or expired lease","leaseReleased":false,"dlq":false,"noop":false}]"#
        );
    }

    #[test]
    fn what_is_no_id_is_none_and_an_empty_lease_names_none() {
        let ack = |partition: &'static str, lease: Option<&'static str>| {
            owned(durable::Ack {
                partition_id: Some(partition.into()),
                lease_id: lease.map(Into::into),
                error: Some("a\0b".into()),
                ..durable::Ack::default()
            })
        };
        let id = "018f3a5b-7c00-7abc-8def-0123456789ab";
        let read = ack(id, Some(id));
        assert_eq!((read.partition, read.lease), (Uuid::parse(id), Some(Uuid::parse(id))));
        assert_eq!(read.error.as_deref(), Some("a\u{fffd}b"));
        assert_eq!((ack("no", Some("no")).partition, ack("no", Some("no")).lease), (None, Some(None)));
        assert_eq!((ack(id, None).lease, ack(id, Some("")).lease), (None, None));
    }
}
