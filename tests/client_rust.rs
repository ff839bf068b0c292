//! The published Rust client, unmodified, against two data shards: request and reply as the guide
//! shows them, and every ephemeral verb that the client has.

mod common;

use std::time::{Duration, Instant};

use common::{Broker, PATIENCE, unique};
use queen_mq::{
    BufferOptions, Config, EphemeralAck, EphemeralBatch, EphemeralOptions, EphemeralOutcome, EphemeralPolicy,
    EphemeralStatus, Queen, Result, Retry429, ephemeral,
};
use serde_json::{Value, json};

/// A broker and a client of it.
struct Setting {
    broker: Broker,
    queen: Queen,
}

impl Setting {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(settings: &[(&str, &str)]) -> Self {
        let broker = Broker::start(settings);
        let queen = connect(&broker);
        Self { broker, queen }
    }

    fn ephemeral(&self) -> ephemeral::Ephemeral {
        self.queen.ephemeral()
    }
}

/// A client that reports a 429 at once, where its default is to try for half a minute.
fn connect(broker: &Broker) -> Queen {
    let impatient = Retry429 { max_attempts: Some(1), ..Default::default() };
    Queen::connect(Config::new(broker.url()).retry_429(impatient)).expect("a client")
}

/// Asks again and again until `probe` says yes, without holding up the client's own tasks.
async fn until(what: &str, mut probe: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !probe().await? {
        assert!(started.elapsed() < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn payloads(batch: &EphemeralBatch) -> Vec<Value> {
    batch.messages.iter().map(|message| message.payload.clone()).collect()
}

fn outcomes(results: &[queen_mq::EphemeralAckResult]) -> Vec<EphemeralOutcome> {
    results.iter().map(|result| result.outcome).collect()
}

/// Refused with this status and code.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T>, status: u16, code: &str) {
    let error = result.expect_err("a refusal");
    assert_eq!((error.status(), error.code().map(|code| code.as_str())), (Some(status), Some(code)), "{error}");
}

#[tokio::test]
async fn the_guides_request_and_reply_works() -> Result<()> {
    let setting = Setting::new();

    let workers: Vec<_> = (0..2)
        .map(|_| {
            let ephemeral = setting.ephemeral();
            tokio::spawn(async move {
                loop {
                    let batch = ephemeral.pop("rpc-requests").group("workers").batch(10).wait(true).send().await?;
                    for message in &batch.messages {
                        let n = message.payload["n"].as_i64().expect("a number");
                        let inbox = message.payload["replyTo"].as_str().expect("an inbox");
                        ephemeral.push(inbox, json!({ "squared": n * n })).send().await?;
                    }
                    ephemeral.ack(&batch).await?;
                    if batch.messages.iter().any(|message| message.payload["n"] == 0) {
                        return Result::Ok(());
                    }
                }
            })
        })
        .collect();

    let ephemeral = setting.ephemeral();
    let ask = async |n: i64| -> Result<Value> {
        let inbox = unique("rpc-inbox");
        ephemeral.push("rpc-requests", json!({ "n": n, "replyTo": inbox })).send().await?;
        let reply = ephemeral
            .pop(&inbox)
            .wait(true)
            .poll_timeout(Duration::from_secs(30))
            .commit_on_delivery(true)
            .send()
            .await?;
        assert_eq!(reply.len(), 1, "no reply within 30 s");
        Ok(reply.messages[0].payload.clone())
    };
    for n in 1..=200 {
        assert_eq!(ask(n).await?, json!({ "squared": n * n }));
    }
    // Zero sends a worker home.
    ask(0).await?;
    ask(0).await?;
    for worker in workers {
        worker.await.expect("a worker")?;
    }
    Ok(())
}

#[tokio::test]
async fn a_waiting_pop_is_woken_by_a_push() -> Result<()> {
    let setting = Setting::new();
    let waiting = {
        let ephemeral = setting.ephemeral();
        tokio::spawn(async move { ephemeral.pop("q").wait(true).poll_timeout(Duration::from_secs(60)).send().await })
    };
    until("its parking", async || Ok(setting.broker.parked() == 1)).await?;
    let pushed = setting.ephemeral().push("q", "wake up").send().await?;
    assert_eq!((pushed.pushed, pushed.buffered), (1, false));
    assert_eq!(payloads(&waiting.await.expect("the waiting task")?), [json!("wake up")]);
    Ok(())
}

#[tokio::test]
async fn a_waiting_pop_without_a_message_ends_empty_at_its_timeout() -> Result<()> {
    let setting = Setting::new();
    let batch = setting.ephemeral().pop("q").wait(true).poll_timeout(Duration::from_millis(200)).send().await?;
    assert!(batch.is_empty());
    assert_eq!(batch.queue, "q");
    Ok(())
}

#[tokio::test]
async fn consumers_of_one_group_compete_and_every_group_sees_everything() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    // Both groups exist before the messages, so that none is freed by the one alone.
    for group in ["a", "b"] {
        assert!(ephemeral.pop("q").group(group).send().await?.is_empty());
    }
    ephemeral.push_many("q", 0..10).send().await?;

    let first = ephemeral.pop("q").group("a").batch(6).send().await?;
    let second = ephemeral.pop("q").group("a").batch(6).send().await?;
    let other = ephemeral.pop("q").group("b").batch(100).send().await?;
    let numbers = |range: std::ops::Range<i32>| range.map(|n| json!(n)).collect::<Vec<_>>();
    assert_eq!(payloads(&first), numbers(0..6));
    assert_eq!(payloads(&second), numbers(6..10));
    assert_eq!(payloads(&other), numbers(0..10));

    for batch in [&first, &second] {
        assert!(outcomes(&ephemeral.ack(batch).await?).iter().all(|&outcome| outcome == EphemeralOutcome::Acked));
    }
    assert_eq!(ephemeral.depth("q").await?["pending"], 10, "group b has not acked");
    ephemeral.ack(&other).await?;
    assert_eq!(ephemeral.depth("q").await?["pending"], 0);
    Ok(())
}

#[tokio::test]
async fn a_pop_without_a_group_is_queue_mode() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    ephemeral.push_many("q", ["x", "y"]).send().await?;
    let one = ephemeral.pop("q").send().await?;
    let two = ephemeral.pop("q").group("__QUEUE_MODE__").send().await?;
    assert_eq!((payloads(&one), payloads(&two)), (vec![json!("x")], vec![json!("y")]));
    Ok(())
}

#[tokio::test]
async fn order_holds_within_a_partition() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    for n in 0..50 {
        for partition in ["room-1", "room-2"] {
            ephemeral.push("q", n).partition(partition).send().await?;
        }
    }
    let named = ephemeral.pop("q").partition("room-1").batch(1000).commit_on_delivery(true).send().await?;
    assert_eq!(payloads(&named), (0..50).map(|n| json!(n)).collect::<Vec<_>>());
    assert!(named.messages.iter().all(|message| message.partition == "room-1"));
    let any = ephemeral.pop("q").batch(1000).commit_on_delivery(true).send().await?;
    assert_eq!(payloads(&any), (0..50).map(|n| json!(n)).collect::<Vec<_>>());
    assert!(any.messages.iter().all(|message| message.partition == "room-2"));
    Ok(())
}

#[tokio::test]
async fn an_acked_message_is_gone_and_a_second_ack_is_unknown() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    ephemeral.push("q", 1).send().await?;
    let batch = ephemeral.pop("q").send().await?;
    assert_eq!(batch.messages[0].attempts, 1);
    assert!(ephemeral.pop("q").send().await?.is_empty(), "leased");
    assert_eq!(outcomes(&ephemeral.ack(&batch).await?), [EphemeralOutcome::Acked]);
    assert_eq!(outcomes(&ephemeral.ack(&batch).await?), [EphemeralOutcome::Unknown]);
    let hand_built = vec![EphemeralAck::new("e:0000000000000001:Default:0"), EphemeralAck::new("no id of ours")];
    assert_eq!(
        outcomes(&ephemeral.ack_ids("q", hand_built).send().await?),
        [EphemeralOutcome::Stale, EphemeralOutcome::Unknown]
    );
    Ok(())
}

#[tokio::test]
async fn a_message_that_is_retried_to_exhaustion_is_dropped_and_counted() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    let options = EphemeralOptions { retry_limit: Some(3), ..Default::default() };
    ephemeral.configure("q", options).await?;
    ephemeral.push_many("q", ["poison", "sound"]).send().await?;

    for attempt in 1..=3 {
        let batch = ephemeral.pop("q").send().await?;
        assert_eq!(payloads(&batch), [json!("poison")], "it comes back ahead of newer messages");
        assert_eq!(batch.messages[0].attempts, attempt);
        let results = if attempt == 2 {
            ephemeral.ack_with(&batch, EphemeralStatus::Retry, None).await?
        } else {
            ephemeral.nack(&batch, "cannot be done").await?
        };
        let expected = if attempt < 3 { EphemeralOutcome::Redelivered } else { EphemeralOutcome::Acked };
        assert_eq!(outcomes(&results), [expected]);
    }
    assert_eq!(payloads(&ephemeral.pop("q").send().await?), [json!("sound")]);
    let row = setting.broker.row("q").expect("a row");
    assert_eq!(row["drops"], json!({ "bounds": 0, "ttl": 0, "retry": 1 }));
    Ok(())
}

#[tokio::test]
async fn a_lease_that_runs_out_hands_the_message_to_a_pop_that_waits() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    ephemeral.configure("q", EphemeralOptions { lease_seconds: Some(1), ..Default::default() }).await?;
    ephemeral.push("q", "slow work").send().await?;
    let first = ephemeral.pop("q").send().await?;
    assert_eq!(first.len(), 1);

    // The pop waits far longer than the lease lasts: what it gets, the end of the lease gave it.
    let started = Instant::now();
    let second = ephemeral.pop("q").wait(true).poll_timeout(Duration::from_secs(120)).send().await?;
    assert_eq!(payloads(&second), [json!("slow work")]);
    assert_eq!(second.messages[0].attempts, 2);
    assert!(started.elapsed() < Duration::from_secs(60), "it sat for {:?}", started.elapsed());

    assert_eq!(outcomes(&ephemeral.ack(&first).await?), [EphemeralOutcome::Unknown], "the old delivery is over");
    assert_eq!(outcomes(&ephemeral.ack(&second).await?), [EphemeralOutcome::Acked]);
    Ok(())
}

#[tokio::test]
async fn a_message_past_its_ttl_is_dropped_consumed_or_not() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    ephemeral.configure("q", EphemeralOptions { ttl_seconds: Some(1), ..Default::default() }).await?;
    ephemeral.push_many("q", ["leased", "pending"]).send().await?;
    let leased = ephemeral.pop("q").send().await?;
    until("the end of its time", async || Ok(ephemeral.depth("q").await?["pending"] == 0)).await?;
    assert!(ephemeral.pop("q").send().await?.is_empty());
    assert_eq!(outcomes(&ephemeral.ack(&leased).await?), [EphemeralOutcome::Unknown]);
    assert_eq!(setting.broker.row("q").expect("a row")["drops"], json!({ "bounds": 0, "ttl": 2, "retry": 0 }));
    Ok(())
}

#[tokio::test]
async fn a_full_queue_rejects_the_whole_push() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    let options = EphemeralOptions { max_length: Some(3), policy: Some(EphemeralPolicy::Reject), ..Default::default() };
    ephemeral.configure("q", options).await?;
    ephemeral.push_many("q", [1, 2]).send().await?;
    assert_refused(ephemeral.push_many("q", [3, 4]).send().await, 429, "queue_full");
    ephemeral.push("q", 3).send().await?;
    let batch = ephemeral.pop("q").batch(10).send().await?;
    assert_eq!(payloads(&batch), [json!(1), json!(2), json!(3)]);
    assert_refused(ephemeral.push("q", 4).send().await, 429, "queue_full");
    ephemeral.ack(&batch).await?;
    ephemeral.push("q", 4).send().await?;
    Ok(())
}

#[tokio::test]
async fn a_queue_that_drops_its_oldest_takes_every_push() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    let options =
        EphemeralOptions { max_length: Some(3), policy: Some(EphemeralPolicy::DropOldest), ..Default::default() };
    ephemeral.configure("q", options).await?;
    ephemeral.push_many("q", [1, 2]).send().await?;
    let pushed = ephemeral.push_many("q", [3, 4, 5, 6, 7]).send().await?;
    assert_eq!(pushed.pushed, 5, "what was sent, not what is left");
    ephemeral.push("q", 8).partition("other").send().await?;
    let kept = ephemeral.pop("q").batch(10).commit_on_delivery(true).send().await?;
    let mut kept = payloads(&kept);
    kept.sort_by_key(Value::as_i64);
    assert_eq!(kept, [json!(6), json!(7), json!(8)]);
    assert_eq!(setting.broker.row("q").expect("a row")["drops"]["bounds"], 5);
    Ok(())
}

#[tokio::test]
async fn bytes_are_bounded_exactly() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    ephemeral.configure("q", EphemeralOptions { max_bytes: Some(20), ..Default::default() }).await?;
    ephemeral.push("q", "12345678").send().await?;
    ephemeral.push("q", "12345678").send().await?;
    assert_refused(ephemeral.push("q", 1).send().await, 429, "queue_full");
    assert_refused(ephemeral.push("q", "x".repeat(19)).send().await, 413, "payload_too_large");
    assert_eq!(setting.broker.row("q").expect("a row")["bytes"], 20);
    Ok(())
}

#[tokio::test]
async fn configure_echoes_and_replaces_and_the_listing_shows_what_is_in_force() -> Result<()> {
    let setting = Setting::with(&[("QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH", "100")]);
    let ephemeral = setting.ephemeral();
    let options = EphemeralOptions { max_length: Some(1_000), ttl_seconds: Some(30), ..Default::default() };
    let answer = ephemeral.configure("q", options).await?;
    assert_eq!(answer["queue"], "q");
    assert_eq!(answer["options"], json!({ "maxLength": 1_000, "ttlSeconds": 30 }), "as sent");
    assert!(!answer["updatedAt"].is_null(), "{answer}");
    let row = setting.broker.row("q").expect("a row");
    assert_eq!((&row["options"]["maxLength"], &row["options"]["ttlSeconds"]), (&json!(100), &json!(30)));

    ephemeral.configure("q", EphemeralOptions { lease_seconds: Some(7), ..Default::default() }).await?;
    let row = setting.broker.row("q").expect("a row");
    assert_eq!((&row["options"]["leaseSeconds"], &row["options"]["ttlSeconds"]), (&json!(7), &json!(0)));
    Ok(())
}

#[tokio::test]
async fn a_window_lets_a_waiting_pop_gather_its_batch() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    let window = queen_mq::EphemeralWindowBuffer { ms: 60_000, count: 3 };
    ephemeral.configure("q", EphemeralOptions { window_buffer: Some(window), ..Default::default() }).await?;
    let waiting = {
        let ephemeral = setting.ephemeral();
        tokio::spawn(async move {
            ephemeral.pop("q").batch(10).wait(true).poll_timeout(Duration::from_secs(120)).send().await
        })
    };
    until("its parking", async || Ok(setting.broker.parked() == 1)).await?;
    for n in 1..=3 {
        ephemeral.push("q", n).send().await?;
    }
    assert_eq!(payloads(&waiting.await.expect("the waiting task")?), [json!(1), json!(2), json!(3)]);
    Ok(())
}

#[tokio::test]
async fn reset_drops_the_messages_and_keeps_the_declaration() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    ephemeral.configure("q", EphemeralOptions { max_length: Some(5), ..Default::default() }).await?;
    ephemeral.push_many("q", [1, 2, 3]).send().await?;
    let leased = ephemeral.pop("q").send().await?;
    assert_eq!(ephemeral.reset("q").await?, 3);
    assert_eq!(outcomes(&ephemeral.ack(&leased).await?), [EphemeralOutcome::Unknown]);
    assert!(ephemeral.pop("q").batch(10).send().await?.is_empty());
    let row = setting.broker.row("q").expect("a row");
    assert_eq!((&row["tier"], &row["options"]["maxLength"]), (&json!("declared"), &json!(5)));
    assert_eq!(ephemeral.reset("nowhere").await?, 0);
    Ok(())
}

#[tokio::test]
async fn delete_removes_the_declaration_too_and_says_what_was_there() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    ephemeral.configure("declared", EphemeralOptions { max_length: Some(5), ..Default::default() }).await?;
    ephemeral.push("implicit", 1).send().await?;

    let declared = ephemeral.delete("declared").await?;
    assert_eq!((declared.deleted, declared.declared), (true, true));
    let implicit = ephemeral.delete("implicit").await?;
    assert_eq!((implicit.deleted, implicit.declared), (true, false));
    let nowhere = ephemeral.delete("nowhere").await?;
    assert_eq!((nowhere.deleted, nowhere.declared), (false, false));
    assert!(setting.broker.listing().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_buffered_push_arrives_in_order_when_it_is_flushed() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    let never_by_itself =
        BufferOptions { message_count: 1_000, time: Duration::from_secs(3_600), ..Default::default() };
    for n in 0..300 {
        let pushed = ephemeral.push("q", n).buffered(never_by_itself).send().await?;
        assert!(pushed.buffered && pushed.count == 1);
    }
    assert!(ephemeral.pop("q").send().await?.is_empty(), "nothing has left the client");
    ephemeral.flush_buffer("q", None).await?;
    let batch = ephemeral.pop("q").batch(1_000).commit_on_delivery(true).send().await?;
    assert_eq!(payloads(&batch), (0..300).map(|n| json!(n)).collect::<Vec<_>>());

    // By count, without a flush: two batches of fifty, each of its own request.
    let by_count = BufferOptions { message_count: 50, time: Duration::from_secs(3_600), ..Default::default() };
    ephemeral.push_many("q2", 0..100).partition("p").buffered(by_count).send().await?;
    let mut seen = Vec::new();
    while seen.len() < 100 {
        let batch = ephemeral
            .pop("q2")
            .partition("p")
            .batch(1_000)
            .wait(true)
            .poll_timeout(Duration::from_secs(60))
            .commit_on_delivery(true)
            .send()
            .await?;
        assert!(!batch.is_empty(), "the buffer flushes by count");
        seen.extend(payloads(&batch));
    }
    assert_eq!(seen, (0..100).map(|n| json!(n)).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn commit_on_delivery_leaves_nothing_to_ack() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    ephemeral.configure("q", EphemeralOptions { lease_seconds: Some(1), ..Default::default() }).await?;
    ephemeral.push("q", 1).send().await?;
    let batch = ephemeral.pop("q").commit_on_delivery(true).send().await?;
    assert_eq!(batch.len(), 1);
    assert_eq!(ephemeral.depth("q").await?["pending"], 0);
    assert_eq!(outcomes(&ephemeral.ack(&batch).await?), [EphemeralOutcome::Unknown]);
    // Longer than a lease would have lasted, and the message does not come back.
    let later = ephemeral.pop("q").wait(true).poll_timeout(Duration::from_millis(1_500)).send().await?;
    assert!(later.is_empty());
    Ok(())
}

#[tokio::test]
async fn the_two_reads_show_the_queues() -> Result<()> {
    let setting = Setting::new();
    let ephemeral = setting.ephemeral();
    ephemeral.push_many("a b/ü", [1, 2]).partition("p").send().await?;
    ephemeral.push("c", 3).send().await?;
    let listing = ephemeral.queues().await?;
    assert_eq!(listing["count"], 2);
    let mut names: Vec<&str> =
        listing["queues"].as_array().expect("queues").iter().filter_map(|row| row["queue"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a b/ü", "c"]);

    let depth = ephemeral.depth("a b/ü").await?;
    assert_eq!((&depth["queue"], &depth["pending"]), (&json!("a b/ü"), &json!(2)));
    let missing = ephemeral.depth("nowhere").await.expect_err("no such queue");
    assert!(ephemeral::is_queue_not_found(&missing), "{missing}");
    Ok(())
}

#[tokio::test]
async fn an_implicit_queue_that_is_idle_and_empty_is_collected() -> Result<()> {
    let setting = Setting::with(&[("QUEEN_EPHEMERAL_IMPLICIT_IDLE_S", "1")]);
    let ephemeral = setting.ephemeral();
    ephemeral.push("drained", 1).send().await?;
    ephemeral.pop("drained").commit_on_delivery(true).send().await?;
    ephemeral.push("full", 1).send().await?;
    ephemeral.configure("declared", EphemeralOptions::default()).await?;
    until("the collection", async || Ok(setting.broker.row("drained").is_none())).await?;
    assert!(setting.broker.row("full").is_some() && setting.broker.row("declared").is_some());
    Ok(())
}
