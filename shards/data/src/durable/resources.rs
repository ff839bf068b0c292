//! GET of the resources: queues, partitions, depths and lags, and what is folded from the list of queues.

use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use queen_log::{
    read::{Counts, Depth, PartitionLag, PartitionStats, QueueStats, Read, ReadAnswer},
    request::Request,
    row::QueueRow,
};
use queen_wire::target::Query;

use super::{
    Plan,
    render::{element, key},
};
use crate::{
    connection::{Frame, Out},
    dispatch::{Call, Handled},
    error::{ApiError, Code},
    routes::Route,
    shard::Shard,
};

/// Rows of `resources/partitions` that names no limit, and the most that it may name.
const LAGS: u32 = 610;
const LAGS_MAX: u32 = 10_000;

const US_PER_S: i64 = 1_000_000;

/// Which resource was asked for.
pub(super) enum ReadPlan {
    Queues {
        /// `stats=cached`: without what takes counting.
        cached: bool,
    },
    Queue,
    Depth {
        queue: Arc<str>,
        group: Option<Arc<str>>,
    },
    Namespaces,
    Tasks,
    Overview,
    Partitions,
}

impl Shard {
    pub(crate) fn read_resource(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let tenant = call.log_tenant();
        let query = Query::new(call.request.query);
        let once = |parameter| query.once(parameter).map_err(|fault| ApiError::bad_request(&fault));
        // Of a name, which the store would refuse with words of its own.
        let name = |parameter: &'static str| {
            let name = once(parameter)?;
            if let Some(name) = &name {
                queen_wire::name::check_partition(parameter, name).map_err(|fault| ApiError::bad_request(&fault))?;
            }
            Ok::<Option<Arc<str>>, ApiError>(name.map(|name| Arc::from(&*name)))
        };
        let (read, plan) = match call.frame.route {
            Route::DurableQueues => {
                let cached = once("stats")?.as_deref() == Some("cached");
                (Read::Queues { tenant }, ReadPlan::Queues { cached })
            }
            Route::DurableQueue => (Read::Queue { tenant, queue: call.durable_queue()? }, ReadPlan::Queue),
            Route::DurableDepth => {
                let queue = call.durable_queue()?;
                let group = name("group")?;
                let read = Read::Depth { tenant, queue: Arc::clone(&queue), group: group.clone() };
                (read, ReadPlan::Depth { queue, group })
            }
            Route::Namespaces => (Read::Queues { tenant }, ReadPlan::Namespaces),
            Route::Tasks => (Read::Queues { tenant }, ReadPlan::Tasks),
            Route::Overview => (Read::Queues { tenant }, ReadPlan::Overview),
            _ => {
                let queue = name("queue")?;
                // Listings take what cannot be read for the default.
                let limit = once("limit")?.and_then(|limit| limit.parse().ok()).unwrap_or(LAGS).min(LAGS_MAX);
                (Read::Lags { tenant, queue, limit }, ReadPlan::Partitions)
            }
        };
        self.serve_stored(call, Request::Read(read), Plan::Read(plan))
    }
}

impl ReadPlan {
    pub(super) fn write(&self, answer: ReadAnswer, frame: &Frame, out: &mut Out) {
        let found = match (self, answer) {
            (Self::Queues { cached }, ReadAnswer::Queues(queues)) => {
                Some(object(|body| append_queues(body, &queues, *cached)))
            }
            (Self::Namespaces, ReadAnswer::Queues(queues)) => {
                Some(object(|body| append_folded(body, &queues, ["namespaces", "namespace"], |row| &row.namespace)))
            }
            (Self::Tasks, ReadAnswer::Queues(mut queues)) => {
                queues.retain(|queue| !queue.row.task.is_empty());
                Some(object(|body| append_folded(body, &queues, ["tasks", "task"], |row| &row.task)))
            }
            (Self::Overview, ReadAnswer::Queues(queues)) => Some(object(|body| append_overview(body, &queues))),
            (Self::Queue, ReadAnswer::Queue(found)) => {
                found.map(|found| object(|body| append_queue(body, &found.0, &found.1)))
            }
            (Self::Depth { queue, group }, ReadAnswer::Depth(found)) => {
                found.map(|depth| object(|body| append_depth(body, queue, group.as_deref(), &depth)))
            }
            (Self::Partitions, ReadAnswer::Lags(rows)) => Some(object(|body| append_lags(body, &rows))),
            _ => unreachable!("the store answers what it was asked"),
        };
        match found {
            Some(body) => out.with_body(frame, 200, |out| out.extend_from_slice(&body)),
            None => out.reply(frame, &ApiError::new(Code::QueueNotFound, "Queue not found").into()),
        }
    }
}

/// An object whose members `append` writes.
fn object(append: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::with_capacity(1024);
    body.push(b'{');
    append(&mut body);
    body.push(b'}');
    body
}

/// Appends an array member with an object for each item.
fn append_array<T>(body: &mut Vec<u8>, name: &str, items: &[T], mut append: impl FnMut(&mut Vec<u8>, &T)) {
    key(body, name).raw(b"[");
    for item in items {
        element(body);
        body.push(b'{');
        append(body, item);
        body.push(b'}');
    }
    body.push(b']');
}

/// Appends the six counters.
fn append_counts(body: &mut Vec<u8>, name: &str, counts: Counts) {
    key(body, name).raw(b"{");
    key(body, "total").number(counts.total);
    key(body, "pending").number(counts.pending);
    key(body, "processing").number(counts.processing);
    key(body, "completed").number(completed(counts));
    key(body, "failed").raw(b"null");
    key(body, "deadLetter").number(counts.dead);
    body.push(b'}');
}

fn completed(counts: Counts) -> u64 {
    counts.total.saturating_sub(counts.pending).saturating_sub(counts.dead)
}

fn append_identity(body: &mut Vec<u8>, row: &QueueRow) {
    key(body, "id").id(row.id);
    key(body, "name").text(&row.name);
    key(body, "namespace").text(&row.namespace);
    key(body, "task").text(&row.task);
    key(body, "createdAt").time_ms(Some(row.created_us));
}

fn append_segments(body: &mut Vec<u8>, queue: &QueueStats) {
    key(body, "segments").raw(b"{");
    key(body, "segments").number(queue.segments);
    key(body, "messages").number(queue.counts.total);
    body.push(b'}');
}

fn append_queues(body: &mut Vec<u8>, queues: &[QueueStats], cached: bool) {
    append_array(body, "queues", queues, |body, queue| {
        append_identity(body, &queue.row);
        key(body, "partitions").number(queue.partitions);
        key(body, "retainedBytes").number(queue.retained_bytes);
        key(body, "messages").raw(b"{");
        key(body, "total").number(queue.counts.total);
        key(body, "pending").number(queue.counts.pending);
        key(body, "processing").number(queue.counts.processing);
        body.push(b'}');
        if !cached {
            append_segments(body, queue);
        }
    });
    for name in ["kvRows", "kvBytes", "timerRows", "timerBytes"] {
        key(body, name).number(0);
    }
}

fn append_queue(body: &mut Vec<u8>, queue: &QueueStats, partitions: &[PartitionStats]) {
    append_identity(body, &queue.row);
    key(body, "retainedBytes").number(queue.retained_bytes);
    append_segments(body, queue);
    append_counts(body, "totals", queue.counts);
    append_array(body, "partitions", partitions, |body, partition| {
        key(body, "id").id(partition.id);
        key(body, "name").text(&partition.name);
        key(body, "createdAt").time_ms(Some(partition.created_us));
        key(body, "oldestMessage").time_ms(partition.oldest_us);
        key(body, "newestMessage").time_ms(partition.newest_us);
        append_counts(body, "stats", partition.counts);
    });
}

fn append_depth(body: &mut Vec<u8>, queue: &str, group: Option<&str>, depth: &Depth) {
    let pending: u64 = depth.pending.iter().map(|(_, pending)| pending).sum();
    let partitions = depth.pending.len() as u64;
    key(body, "queue").text(queue);
    match group {
        Some(group) => key(body, "group").text(group),
        None => key(body, "group").raw(b"null"),
    }
    key(body, "pending").number(pending);
    key(body, "partitionsPending").number(partitions);
    key(body, "conflation").boolean(depth.conflation);
    // A conflating group has one message before it in each partition.
    key(body, "effectivePending").number(if depth.conflation { partitions } else { pending });
    append_array(body, "partitions", &depth.pending, |body, (partition, pending)| {
        key(body, "partition").text(partition);
        key(body, "pending").number(*pending);
    });
}

/// Queues counted together that have the same namespace or task, `[list, item]` being what they are called.
fn append_folded(
    body: &mut Vec<u8>,
    queues: &[QueueStats],
    [list, item]: [&str; 2],
    of: impl Fn(&QueueRow) -> &Arc<str>,
) {
    #[derive(Default)]
    struct Sum {
        queues: u64,
        partitions: u64,
        total: u64,
        pending: u64,
    }
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for queue in queues {
        let sum = sums.entry(of(&queue.row)).or_default();
        sum.queues += 1;
        sum.partitions += queue.partitions;
        sum.total += queue.counts.total;
        sum.pending += queue.counts.pending;
    }
    let sums: Vec<(&str, Sum)> = sums.into_iter().collect();
    append_array(body, list, &sums, |body, (name, sum)| {
        key(body, item).text(name);
        key(body, "queues").number(sum.queues);
        key(body, "partitions").number(sum.partitions);
        key(body, "messages").raw(b"{");
        key(body, "total").number(sum.total);
        key(body, "pending").number(sum.pending);
        body.push(b'}');
    });
}

fn append_overview(body: &mut Vec<u8>, queues: &[QueueStats]) {
    let distinct = |of: fn(&QueueRow) -> &Arc<str>| {
        let mut names: Vec<&str> =
            queues.iter().map(|queue| &**of(&queue.row)).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        names.len() as u64
    };
    let mut counts = Counts::default();
    for queue in queues {
        counts.total += queue.counts.total;
        counts.pending += queue.counts.pending;
        counts.processing += queue.counts.processing;
        counts.dead += queue.counts.dead;
    }
    key(body, "queues").number(queues.len() as u64);
    key(body, "partitions").number(queues.iter().map(|queue| queue.partitions).sum());
    key(body, "namespaces").number(distinct(|row| &row.namespace));
    key(body, "tasks").number(distinct(|row| &row.task));
    append_counts(body, "messages", counts);
    key(body, "lag").raw(b"{");
    for name in ["time", "offset"] {
        key(body, name).raw(b"{\"avg\":0,\"min\":0,\"max\":0,\"median\":0}");
    }
    body.push(b'}');
    key(body, "throughput").raw(b"{\"ingestedPerSecond\":0,\"processedPerSecond\":0}");
    key(body, "statsAge").number(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    key(body, "timestamp").time_ms(Some(now.as_micros() as i64));
}

fn append_lags(body: &mut Vec<u8>, rows: &[PartitionLag]) {
    append_array(body, "partitions", rows, |body, row| {
        key(body, "queue").text(&row.queue);
        key(body, "partition").text(&row.partition);
        key(body, "id").id(row.id);
        key(body, "pending").number(row.counts.pending);
        key(body, "processing").number(row.counts.processing);
        match row.lag_us {
            Some(us) => key(body, "lagSeconds").number(us.max(0).unsigned_abs() / US_PER_S.unsigned_abs()),
            None => key(body, "lagSeconds").raw(b"null"),
        }
    });
}

#[cfg(test)]
mod tests {
    use queen_log::{id::Uuid, options::QueueOptions};

    use super::*;

    fn queue(name: &str, namespace: &str, task: &str, counts: Counts) -> QueueStats {
        let row = QueueRow {
            id: Uuid([0x11; 16]),
            tenant: Uuid::default(),
            name: name.into(),
            namespace: namespace.into(),
            task: task.into(),
            created_us: 1_500_999,
            options: QueueOptions::default(),
        };
        QueueStats { row, partitions: 2, retained_bytes: 9, segments: 3, counts }
    }

    fn text(append: impl FnOnce(&mut Vec<u8>)) -> String {
        String::from_utf8(object(append)).expect("text")
    }

    const COUNTS: Counts = Counts { total: 10, pending: 4, processing: 2, dead: 1 };

    #[test]
    fn the_list_of_queues_can_leave_counting_out() {
        let queues = [queue("q", "n", "t", COUNTS)];
        let identity = r#""id":"11111111-1111-1111-1111-111111111111","name":"q","namespace":"n","task":"t","createdAt":"1970-01-01T00:00:01.500Z""#;
        let row = format!(
            r#"{identity},"partitions":2,"retainedBytes":9,"messages":{{"total":10,"pending":4,"processing":2}}"#
        );
        let behind = r#"}],"kvRows":0,"kvBytes":0,"timerRows":0,"timerBytes":0}"#;
        assert_eq!(
            text(|body| append_queues(body, &queues, false)),
            format!(r#"{{"queues":[{{{row},"segments":{{"segments":3,"messages":10}}{behind}"#)
        );
        assert_eq!(text(|body| append_queues(body, &queues, true)), format!(r#"{{"queues":[{{{row}{behind}"#));
    }

    #[test]
    fn queues_of_one_namespace_are_counted_together() {
        let queues = [queue("a", "n", "", COUNTS), queue("b", "m", "", COUNTS), queue("c", "n", "", COUNTS)];
        assert_eq!(
            text(|body| append_folded(body, &queues, ["namespaces", "namespace"], |row| &row.namespace)),
            r#"{"namespaces":[{"namespace":"m","queues":1,"partitions":2,"messages":{"total":10,"pending":4}},{"namespace":"n","queues":2,"partitions":4,"messages":{"total":20,"pending":8}}]}"#
        );
    }

    #[test]
    fn the_overview_sums_everything() {
        let queues = [queue("a", "n", "t", COUNTS), queue("b", "n", "", COUNTS)];
        let text = text(|body| append_overview(body, &queues));
        let expected = r#"{"queues":2,"partitions":4,"namespaces":1,"tasks":1,"messages":{"total":20,"pending":8,"processing":4,"completed":10,"failed":null,"deadLetter":2},"lag":{"time":{"avg":0,"#;
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn a_conflating_group_has_one_message_per_partition_before_it() {
        let depth = |conflation| Depth { pending: vec![("p".into(), 3), ("q".into(), 4)], conflation };
        let text = |conflation| text(|body| append_depth(body, "q", Some("g"), &depth(conflation)));
        let partitions = r#""partitions":[{"partition":"p","pending":3},{"partition":"q","pending":4}]}"#;
        assert_eq!(
            text(false),
            format!(
                r#"{{"queue":"q","group":"g","pending":7,"partitionsPending":2,"conflation":false,"effectivePending":7,{partitions}"#
            )
        );
        assert!(text(true).contains(r#""conflation":true,"effectivePending":2"#), "{}", text(true));
    }

    #[test]
    fn a_partition_that_is_caught_up_has_no_lag() {
        let lag = |lag_us| PartitionLag {
            queue: "q".into(),
            partition: "p".into(),
            id: Uuid([0x11; 16]),
            counts: COUNTS,
            lag_us,
        };
        let text = text(|body| append_lags(body, &[lag(Some(2_900_000)), lag(None)]));
        assert!(text.contains(r#""lagSeconds":2}"#) && text.contains(r#""lagSeconds":null}"#), "{text}");
    }
}
