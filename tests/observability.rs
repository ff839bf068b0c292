//! What the broker says of itself: health, status, the JSON and Prometheus metrics, and the two
//! reads of ephemeral queues. Totals are compared with traffic that the test knows exactly.

mod common;

use std::collections::HashMap;

use common::{Broker, eventually};
use serde_json::{Value, json};

#[test]
fn health_says_so_and_needs_nothing() {
    let broker = Broker::start(&[]);
    let response = broker.connect().get("/health");
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    let health = response.json();
    assert_eq!((&health["status"], &health["database"]), (&json!("healthy"), &json!("connected")));
    assert!(health["engine"].is_string() && health["version"].is_string(), "{health}");
}

#[test]
fn status_shows_every_role_with_its_core_and_what_it_holds() {
    let broker = Broker::start(&[]);
    let mut waiting = broker.connect();
    waiting.send_pop("queue=q&wait=true&timeout=300000");
    eventually("its parking", || (broker.parked() == 1).then_some(()));

    eventually("two connections: the one that waits and the one that asks", || {
        (broker.connections() == 2).then_some(())
    });

    let status = broker.connect().get("/status").json();
    assert_eq!(status["status"], "ok");
    assert!(status["engine"].is_string());
    let shards = status["shards"].as_array().expect("shards");
    let data: Vec<&Value> = shards.iter().filter(|shard| shard["role"] == "data").collect();
    let cpus: Vec<String> = data.iter().map(|shard| shard["cpu"].to_string()).collect();
    assert_eq!(cpus.join(","), common::cpus(2), "a data shard on each core that was named");
    for role in ["mesh", "store"] {
        assert!(shards.iter().any(|shard| shard["role"] == role), "{role} in {status}");
    }
    for gauge in ["connections", "parked"] {
        let sum: u64 = data.iter().map(|shard| shard[gauge].as_u64().expect("a gauge")).sum();
        assert_eq!(status[gauge], sum, "{gauge} over the shards");
    }
}

#[test]
fn metrics_has_the_keys_that_clients_read() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    client.push_all("q", &[json!(1), json!(2)]);
    client.pop("queue=q&batch=2&autoAck=true");
    let metrics = client.get("/metrics").json();
    for key in [
        "/uptime",
        "/requests/total",
        "/requests/rate",
        "/messages/total",
        "/messages/rate",
        "/database/poolSize",
        "/database/idleConnections",
        "/database/waitingRequests",
        "/memory/rss",
        "/memory/heapTotal",
        "/memory/heapUsed",
        "/memory/external",
        "/memory/arrayBuffers",
        "/cpu/user",
        "/cpu/system",
    ] {
        assert!(metrics.pointer(key).is_some_and(Value::is_number), "{key} in {metrics}");
    }
    assert!(metrics["requests"]["total"].as_u64() >= Some(2), "{metrics}");
    assert!(metrics["memory"]["rss"].as_u64() > Some(0), "{metrics}");
}

/// The samples of a Prometheus page, by name and labels as they are written.
struct Page(HashMap<String, f64>);

impl Page {
    fn read(broker: &Broker) -> Self {
        let response = broker.connect().get("/metrics/prometheus");
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert_eq!(response.header("cache-control"), Some("no-cache"));
        let mut samples = HashMap::new();
        let mut families: HashMap<&str, &str> = HashMap::new();
        for line in response.text().lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').expect("a name and a type");
                assert!(families.insert(name, kind).is_none(), "{name} is a family twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect("a series and a value");
                let name = series.split('{').next().expect("a name");
                let family = ["_bucket", "_sum", "_count"]
                    .iter()
                    .filter_map(|suffix| name.strip_suffix(suffix))
                    .find(|name| families.get(name) == Some(&"histogram"))
                    .unwrap_or(name);
                assert!(families.contains_key(family), "{line} follows the type of its family");
                let value = value.parse().unwrap_or_else(|_| panic!("a number in {line}"));
                assert!(samples.insert(series.to_owned(), value).is_none(), "{series} twice");
            }
        }
        Self(samples)
    }

    fn value(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("{series} is not on the page"))
    }

    /// The sum of a family's samples over its labels.
    fn sum(&self, family: &str) -> f64 {
        let labelled = format!("{family}{{");
        let samples: Vec<f64> =
            self.0.iter().filter(|(series, _)| series.starts_with(&labelled)).map(|(_, &value)| value).collect();
        assert!(!samples.is_empty(), "{family} is not on the page");
        samples.iter().sum()
    }
}

#[test]
fn prometheus_counts_exactly_what_was_done() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    client.configure("bounded", &json!({ "maxLength": 2, "policy": "dropOldest" }));
    client.configure("retried", &json!({ "retryLimit": 1 }));
    client.push_all("bounded", &[json!(1), json!(2), json!(3), json!(4), json!(5)]);
    client.push("retried", json!("again"));
    let bounded = client.pop("queue=bounded&batch=10");
    assert_eq!(bounded.len(), 2);
    client.ack("bounded", None, &[&bounded[0].id, &bounded[1].id], "completed");
    let retried = client.pop("queue=retried");
    client.ack("retried", None, &[&retried[0].id], "retry");

    let page = Page::read(&broker);
    assert_eq!(page.value(r#"queen_ephemeral_messages_total{verb="pushed"}"#), 6.0);
    assert_eq!(page.value(r#"queen_ephemeral_messages_total{verb="popped"}"#), 3.0);
    assert_eq!(page.value(r#"queen_ephemeral_messages_total{verb="acked"}"#), 2.0);
    assert_eq!(page.value(r#"queen_ephemeral_dropped_total{cause="bounds"}"#), 3.0);
    assert_eq!(page.value(r#"queen_ephemeral_dropped_total{cause="retry"}"#), 1.0);
    assert_eq!(page.value(r#"queen_ephemeral_dropped_total{cause="ttl"}"#), 0.0);
    assert_eq!(page.value("queen_ephemeral_queues"), 2.0);
    assert_eq!(page.value("queen_ephemeral_forwarded_total"), 0.0);
    assert_eq!(page.value("queen_ephemeral_wipes_total"), 0.0);
    assert_eq!(page.value("queen_process_push_requests_total"), 2.0);
    assert_eq!(page.value("queen_process_push_messages_total"), 6.0);
    assert_eq!(page.value("queen_process_pop_requests_total"), 2.0);
    assert_eq!(page.value("queen_process_ack_requests_total"), 2.0);

    let durations = |route: &str| {
        let marker = format!(r#"route="{route}""#);
        let counts = page.0.iter().filter(|(series, _)| {
            series.starts_with("queen_shard_request_duration_seconds_count{") && series.contains(&marker)
        });
        counts.map(|(_, count)| count).sum::<f64>()
    };
    assert_eq!((durations("push"), durations("pop"), durations("ack")), (2.0, 2.0, 2.0));
}

#[test]
fn prometheus_has_the_gauges_of_the_process_and_of_every_shard() {
    let broker = Broker::start(&[]);
    let mut waiting = broker.connect();
    waiting.send_pop("queue=q&wait=true&timeout=300000");
    eventually("its parking", || (broker.parked() == 1).then_some(()));
    let page = Page::read(&broker);
    assert!(page.value("queen_process_resident_memory_bytes") > 0.0);
    assert!(page.value("queen_ephemeral_bytes") > 0.0, "the queue that is waited on has a record");
    page.value("queen_uptime_seconds");
    page.value("queen_event_loop_lag_avg_milliseconds");
    assert_eq!(page.value("queen_parked_long_polls"), 1.0);
    assert_eq!(page.sum("queen_shard_parked_pops"), 1.0);
    for family in [
        "queen_shard_requests_total",
        "queen_shard_executor_stalls_total",
        "queen_shard_sleeps_total",
        "queen_shard_foreign_wakes_total",
        "queen_shard_lane_depth",
        "queen_shard_lane_full_total",
        "queen_shard_credits_refused_total",
    ] {
        page.sum(family);
    }
}

#[test]
fn the_parked_gauge_follows_every_end_of_a_wait() {
    let broker = Broker::start(&[]);
    let pop = |queue: &str, timeout_ms: u32| {
        let mut connection = broker.connect();
        connection.send_pop(&format!("queue={queue}&wait=true&timeout={timeout_ms}&autoAck=true"));
        connection
    };
    let mut pushed_to = pop("pushed-to", 300_000);
    let gone = pop("gone", 300_000);
    let mut timed_out = pop("timed-out", 300);
    assert!(timed_out.popped().is_empty());
    eventually("two that wait", || (broker.parked() == 2).then_some(()));
    broker.connect().push("pushed-to", json!(1));
    assert_eq!(pushed_to.popped().len(), 1);
    assert_eq!(broker.parked(), 1);
    drop(gone);
    eventually("nobody that waits", || (broker.parked() == 0).then_some(()));
}

#[test]
fn the_listing_shows_each_queue_with_its_counts_and_the_options_in_force() {
    let broker = Broker::start(&[("QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH", "50")]);
    let mut client = broker.connect();
    client.configure("declared", &json!({ "maxLength": 1000, "windowBuffer": { "ms": 20, "count": 3 } }));
    client.push_to("implicit", "one", json!("abc"));
    client.push_to("implicit", "two", json!(12));
    client.pop("queue=implicit&group=g");

    let declared = broker.row("declared").expect("a row");
    assert_eq!(
        declared,
        json!({
            "queue": "declared", "tier": "declared", "depth": 0, "bytes": 0, "partitions": 0, "groups": 0,
            "drops": { "bounds": 0, "ttl": 0, "retry": 0 },
            "options": {
                "maxBytes": 16_777_216, "maxLength": 50, "policy": "reject", "ttlSeconds": 0, "leaseSeconds": 30,
                "retryLimit": 5, "windowBuffer": { "ms": 20, "count": 3 },
            },
        }),
    );
    let implicit = broker.row("implicit").expect("a row");
    let counts: Vec<&Value> =
        ["tier", "depth", "bytes", "partitions", "groups"].iter().map(|key| &implicit[key]).collect();
    // Five bytes with the quotes, and two.
    assert_eq!(counts, [&json!("implicit"), &json!(2), &json!(7), &json!(2), &json!(1)]);

    let listing = client.get("/api/v1/ephemeral/queues").json();
    assert_eq!(listing["count"], 2);
    assert!(listing["cellBytes"].is_u64(), "{listing}");
}

#[test]
fn a_listing_in_pages_shows_every_queue_once() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let mut expected: Vec<String> = (0..250).map(|index| format!("page {index:03}")).collect();
    for queue in &expected {
        client.push(queue, json!(1));
    }
    let mut found = Vec::new();
    let mut target = "/api/v1/ephemeral/queues?limit=40".to_owned();
    loop {
        let page = client.get(&target).json();
        let queues: Vec<String> = page["queues"]
            .as_array()
            .expect("queues")
            .iter()
            .map(|row| row["queue"].as_str().expect("a name").to_owned())
            .collect();
        assert!(queues.len() <= 40, "{} rows", queues.len());
        let Some(last) = queues.last() else { break };
        target = format!("/api/v1/ephemeral/queues?limit=40&after={}", last.replace(' ', "%20"));
        found.extend(queues);
    }
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let everything = client.get("/api/v1/ephemeral/queues").json();
    assert_eq!(everything["queues"].as_array().map(Vec::len), Some(250));
}

#[test]
fn depth_counts_what_each_partition_and_group_has_before_it() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    // Both groups are there before the messages: what the only group has consumed is freed.
    for group in ["fast", "slow"] {
        assert!(client.pop(&format!("queue=q&group={group}")).is_empty());
    }
    for n in 0..3 {
        client.push_to("q", "a", json!(n));
    }
    client.push_to("q", "b", json!("xy"));
    client.pop("queue=q&partition=a&group=fast&batch=2&autoAck=true");
    client.pop("queue=q&partition=a&group=slow&autoAck=true");

    let depth = client.depth("q");
    assert_eq!((&depth["queue"], &depth["group"], &depth["tier"]), (&json!("q"), &Value::Null, &json!("implicit")));
    // Only the first message is consumed by both groups, and so freed.
    assert_eq!(depth["pending"], 3, "{depth}");
    assert_eq!(depth["partitionsPending"], 2, "{depth}");
    assert_eq!(depth["bytes"], 2 + 4, "{depth}");
    let mut partitions = depth["partitions"].as_array().expect("partitions").clone();
    partitions.sort_by_key(|row| row["partition"].to_string());
    assert_eq!(
        partitions,
        [json!({ "partition": "a", "pending": 2, "bytes": 2 }), json!({ "partition": "b", "pending": 1, "bytes": 4 })],
    );
    let pending = |group: &str| {
        let groups = depth["groups"].as_array().expect("groups");
        groups.iter().find(|row| row["group"] == group).unwrap_or_else(|| panic!("{group} in {depth}"))["pending"]
            .clone()
    };
    assert_eq!((pending("fast"), pending("slow")), (json!(2), json!(3)));

    let of_group = client.get("/api/v1/ephemeral/queues/q/depth?group=fast").json();
    assert_eq!((&of_group["group"], &of_group["pending"]), (&json!("fast"), &json!(2)), "{of_group}");
}

#[test]
fn the_depth_of_a_queue_that_is_not_there_is_404() {
    let broker = Broker::start(&[]);
    let response = broker.connect().get("/api/v1/ephemeral/queues/nowhere/depth");
    assert_eq!(response.failure(), (404, "ephemeral_queue_not_found".to_owned()));
}
