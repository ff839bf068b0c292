//! GET pop: from a queue, a partition, or all queues of a namespace and task.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    rc::Rc,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use queen_log::{
    id::Uuid,
    request::{Conflation, PopRequest, Popped, Request, Scope, Start},
    row::QUEUE_MODE,
};
use queen_wire::{
    durable::{self, PopQuery},
    name,
    response::append_json_string,
};

use super::{
    Plan,
    render::{append_run, key},
};
use crate::{
    connection::{Frame, Later, Out, Waits},
    dispatch::{Call, Handled},
    error::{ApiError, Code},
    reply::Reply,
    routes::Route,
    shard::Shard,
    store::Leased,
};

/// What a pop that left its size to the broker is told of waiting: the reference's figure, which clients only log.
const AUTOPILOT_WAIT_MS: u64 = 100;

/// What the answer to a pop needs of its request.
pub(super) struct PopPlan {
    /// Where it popped from.
    queue: Option<Arc<str>>,
    group: Arc<str>,
    /// It asked for the newest message of each partition only.
    conflates: bool,
    /// Partitions and batch, where the broker chose one of them.
    autopilot: Option<(u32, u32)>,
}

impl Shard {
    pub(crate) fn durable_pop(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        match pop_of(call) {
            Ok((pop, plan)) => self.start_pop(call, pop, plan),
            Err(sentence) => {
                out.reply(&call.frame, &refused(&sentence));
                Ok(Handled::Done)
            }
        }
    }

    fn start_pop(self: &Rc<Self>, call: &Call<'_>, mut pop: PopRequest, plan: PopPlan) -> Result<Handled, ApiError> {
        if self.node.is_stopping() {
            pop.wait_ms = 0;
        }
        if pop.wait_ms == 0 {
            return self.serve_stored(call, Request::Pop(pop), Plan::Pop(plan));
        }
        let operation = self.ask_store_parked(Request::Pop(pop), Plan::Pop(plan))?;
        let frame = Frame { route: Route::DurableWaitingPop, ..call.frame };
        Ok(Handled::Later(Later { operation, frame, waits: Waits::ForStore }))
    }
}

/// The pop that a call asks for, or what is wrong with it.
fn pop_of(call: &Call<'_>) -> Result<(PopRequest, PopPlan), String> {
    let queue = call.named(0, "queue", name::check_queue).map_err(|fault| fault.to_string())?;
    let partition = call.named(1, "partition", name::check_partition).map_err(|fault| fault.to_string())?;
    let query = PopQuery::parse(call.request.query, partition.is_some()).map_err(|fault| fault.to_string())?;
    let scope = match (&queue, partition) {
        (Some(queue), Some(partition)) => Scope::Partition(Arc::clone(queue), partition),
        (Some(queue), None) => Scope::Queue(Arc::clone(queue)),
        (None, _) if query.namespace.is_none() && query.task.is_none() => {
            return Err("namespace or task is required".to_owned());
        }
        (None, _) => Scope::Discover {
            namespace: query.namespace.as_deref().map(Arc::from),
            task: query.task.as_deref().map(Arc::from),
        },
    };
    let group: Arc<str> = query.group.as_deref().unwrap_or(QUEUE_MODE).into();
    let plan = PopPlan {
        queue,
        group: Arc::clone(&group),
        conflates: query.conflation == Some(true),
        autopilot: query.autopilot.then_some((query.partitions, query.batch)),
    };
    let pop = PopRequest {
        tenant: call.log_tenant(),
        scope,
        group,
        batch: query.batch,
        partitions: query.partitions,
        wait_ms: if query.wait { query.timeout_ms } else { 0 },
        auto_ack: query.auto_ack,
        lease_s: query.lease_s,
        start: match query.start {
            durable::Start::All => Start::All,
            durable::Start::New => Start::New,
            durable::Start::From(us) => Start::From(us),
        },
        conflation: query.conflation,
    };
    Ok((pop, plan))
}

/// The form that a pop's 400 has of its own.
fn refused(sentence: &str) -> Reply {
    let mut body = b"{".to_vec();
    key(&mut body, "success").boolean(false);
    key(&mut body, "error").text(sentence);
    key(&mut body, "code").text(Code::BadRequest.word());
    key(&mut body, "messages").raw(b"[]");
    body.push(b'}');
    Reply::json(400, body)
}

impl PopPlan {
    /// 200 with messages, 204 without, but for a group that conflates, and who asks for one while pops are paused.
    pub(super) fn write(&self, popped: &Popped, shard: &Shard, frame: &Frame, out: &mut Out) {
        if popped.paused && self.conflates {
            return out.with_body(frame, 200, |body| {
                body.extend_from_slice(br#"{"messages":[],"paused":true,"conflation":true}"#);
            });
        }
        let conflates = self.conflates || popped.conflation != Conflation::No;
        if popped.runs.is_empty() && (popped.paused || !conflates) {
            return out.no_content(frame);
        }
        let mut count = 0;
        out.with_body(frame, 200, |body| count = self.render(popped, conflates, body));
        shard.metrics.durable_popped(count);
        if let Some(leased) = Leased::of(popped) {
            out.hand_leased(leased);
        }
    }

    /// Returns how many messages it holds.
    fn render(&self, popped: &Popped, conflates: bool, body: &mut Vec<u8>) -> u64 {
        let mut group = Vec::with_capacity(self.group.len() + 2);
        append_json_string(&mut group, &self.group);
        let lease = popped.lease.or_else(|| popped.runs.is_empty().then(minted)).map(Uuid::text);
        let lease = lease.as_ref().map_or(&b""[..], |text| text);
        body.push(b'{');
        key(body, "success").boolean(true);
        key(body, "queue").text(self.queue.as_deref().unwrap_or_default());
        match popped.runs.first() {
            Some(run) => {
                key(body, "partition").text(&run.partition);
                key(body, "partitionId").id(run.partition_id);
            }
            None => {
                key(body, "partition").text("");
                key(body, "partitionId").text("");
            }
        }
        key(body, "leaseId").raw(b"\"");
        body.extend_from_slice(lease);
        body.push(b'"');
        key(body, "consumerGroup").raw(&group);
        key(body, "messages").raw(b"[");
        let count = popped.runs.iter().map(|run| append_run(body, run, lease, &group)).sum();
        body.push(b']');
        key(body, "partitionsClaimed").number(popped.runs.len() as u64);
        if conflates {
            key(body, "conflation").boolean(true);
        }
        if popped.conflation == Conflation::Conflict {
            key(body, "conflationConflict").boolean(true);
        }
        if let Some((partitions, batch)) = self.autopilot {
            key(body, "autopilot").raw(b"{");
            key(body, "partitions").number(partitions.into());
            key(body, "batch").number(batch.into());
            key(body, "waitMs").number(AUTOPILOT_WAIT_MS);
            body.push(b'}');
        }
        body.push(b'}');
        count
    }
}

/// The lease of an empty answer that has to name one: of nothing.
fn minted() -> Uuid {
    let ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let random = RandomState::new();
    Uuid::v7(ms, u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1)))
}

#[cfg(test)]
mod tests {
    use queen_log::{record::Record, request::Run};

    use super::{
        super::render::tests::{run, slice},
        *,
    };

    fn plan() -> PopPlan {
        PopPlan { queue: Some("q".into()), group: "g".into(), conflates: false, autopilot: None }
    }

    fn claimed(count: usize) -> Run {
        run(vec![slice(0, 0, &vec![Record { payload: b"1", ..Record::default() }; count])])
    }

    fn rendered(plan: &PopPlan, popped: &Popped, conflates: bool) -> (u64, String) {
        let mut body = Vec::new();
        let count = plan.render(popped, conflates, &mut body);
        (count, String::from_utf8(body).expect("text"))
    }

    #[test]
    fn an_answer_names_its_first_partition_and_counts_them_all() {
        let popped = Popped { lease: Some(Uuid([0x33; 16])), runs: vec![claimed(2), claimed(1)], ..Popped::default() };
        let (count, text) = rendered(&plan(), &popped, false);
        assert_eq!(count, 3);
        let lease = "33333333-3333-3333-3333-333333333333";
        let head = format!(
            r#"{{"success":true,"queue":"q","partition":"p\"","partitionId":"11111111-1111-1111-1111-111111111111","leaseId":"{lease}","consumerGroup":"g","messages":[{{"#
        );
        assert!(text.starts_with(&head), "{text}");
        assert!(text.ends_with(r#"}],"partitionsClaimed":2}"#), "{text}");
        assert_eq!(text.matches(lease).count(), 4, "at the top and in every message");
    }

    #[test]
    fn auto_ack_has_the_empty_lease_and_discovery_the_empty_queue() {
        let plan = PopPlan { queue: None, autopilot: Some((8, 100)), ..plan() };
        let (_, text) = rendered(&plan, &Popped { runs: vec![claimed(1)], ..Popped::default() }, false);
        assert!(text.contains(r#""queue":"""#) && text.matches(r#""leaseId":"""#).count() == 2, "{text}");
        assert!(text.ends_with(r#","autopilot":{"partitions":8,"batch":100,"waitMs":100}}"#), "{text}");
    }

    #[test]
    fn a_conflating_group_is_told_of_nothing_in_a_body() {
        let popped = Popped { conflation: Conflation::Conflict, ..Popped::default() };
        let (count, text) = rendered(&plan(), &popped, true);
        assert_eq!(count, 0);
        let (head, rest) = text.split_once(r#""leaseId":""#).expect("a lease");
        let (lease, rest) = rest.split_at(36);
        assert_eq!(head, r#"{"success":true,"queue":"q","partition":"","partitionId":"","#);
        assert!(Uuid::parse(lease).and_then(Uuid::v7_ms).is_some(), "{lease}");
        assert_eq!(
            rest,
            r#"","consumerGroup":"g","messages":[],"partitionsClaimed":0,"conflation":true,"conflationConflict":true}"#
        );
    }

    #[test]
    fn a_refusal_has_the_form_of_a_pop() {
        let reply = refused("namespace or task is required");
        assert_eq!(reply.status, 400);
        assert_eq!(
            String::from_utf8(reply.body).expect("text"),
            r#"{"success":false,"error":"namespace or task is required","code":"bad_request","messages":[]}"#
        );
    }
}
