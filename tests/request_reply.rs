//! The two verbs that save round trips: a request that waits for its reply, and an exchange that settles, pushes and
//! pops. Requesters and workers that go at every step, replies that come late, full queues, ten thousand requests at
//! once. Queues have names of their own in every round, so that both shards own some of them.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Broker, Connection, Response, eventually, request, unique};
use serde_json::{Value, json};

const REQUEST: &str = "/api/v1/ephemeral/request";
const EXCHANGE: &str = "/api/v1/ephemeral/exchange";

/// Enough that both shards own queues, and have requesters and workers.
const ROUNDS: usize = 24;

const LATE_REPLIES: &str = "queen_ephemeral_late_replies_total";

/// What a worker has taken.
struct Job {
    id: String,
    attempts: u64,
    payload: Value,
    reply_to: String,
}

fn send_request(connection: &mut Connection, queue: &str, payload: &Value, timeout_ms: u64) {
    let body = json!({ "queue": queue, "payload": payload, "timeout": timeout_ms });
    connection.send(request("POST", REQUEST, &[], body.to_string().as_bytes()));
}

fn send_exchange(connection: &mut Connection, body: &Value) {
    connection.send(request("POST", EXCHANGE, &[], body.to_string().as_bytes()));
}

fn exchange(connection: &mut Connection, body: &Value) -> Value {
    send_exchange(connection, body);
    exchanged(&connection.response())
}

fn exchanged(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

fn pop_of(queue: &str) -> Value {
    json!({ "queue": queue, "wait": true, "timeout": 30_000, "autoAck": true })
}

fn push_of(queue: &str, payload: &Value) -> Value {
    json!({ "queue": queue, "messages": [{ "payload": payload }] })
}

/// The job in an exchange's answer.
fn job(answer: &Value) -> Job {
    let messages = answer["messages"].as_array().unwrap_or_else(|| panic!("messages in {answer}"));
    assert_eq!(messages.len(), 1, "one job in {answer}");
    let message = &messages[0];
    Job {
        id: message["id"].as_str().expect("an id").to_owned(),
        attempts: message["attempts"].as_u64().expect("attempts"),
        payload: message["payload"].clone(),
        reply_to: message["replyTo"].as_str().unwrap_or_else(|| panic!("replyTo in {message}")).to_owned(),
    }
}

/// Waits for a job of `queue`.
fn take(connection: &mut Connection, queue: &str) -> Job {
    job(&exchange(connection, &json!({ "pop": pop_of(queue) })))
}

fn reply_in(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["reply"].clone()
}

fn settled(broker: &Broker) {
    eventually("the end of every request and pop", || {
        (broker.open_requests() == 0 && broker.parked() == 0).then_some(())
    });
}

#[test]
fn a_round_trip_is_one_request_on_either_side() {
    let broker = Broker::start(&[]);
    for round in 0..ROUNDS {
        let queue = unique("rpc");
        let (mut requester, mut worker) = (broker.connect(), broker.connect());
        // In turns: the worker waits first, or the request does.
        if round % 2 == 0 {
            send_exchange(&mut worker, &json!({ "pop": pop_of(&queue) }));
            eventually("a waiting worker", || (broker.parked() == 1).then_some(()));
            send_request(&mut requester, &queue, &json!({ "n": round }), 30_000);
        } else {
            send_request(&mut requester, &queue, &json!({ "n": round }), 30_000);
            eventually("an open request", || (broker.open_requests() == 1).then_some(()));
            send_exchange(&mut worker, &json!({ "pop": pop_of(&queue) }));
        }
        let taken = job(&exchanged(&worker.response()));
        assert_eq!(taken.payload, json!({ "n": round }));
        send_exchange(
            &mut worker,
            &json!({ "pushes": [push_of(&taken.reply_to, &json!([round]))], "pop": pop_of(&queue) }),
        );
        assert_eq!(reply_in(&requester.response()), json!([round]));
        drop(worker);
        settled(&broker);
    }
    assert_eq!(broker.counter(LATE_REPLIES), 0);
    let inboxes = broker.listing().into_iter().filter(|row| row["queue"].as_str() > Some("_inbox")).count();
    assert_eq!(inboxes, ROUNDS, "only the queues of the requests are listed: rpc-… sorts behind _inbox");
}

#[test]
fn payload_and_reply_pass_byte_for_byte() {
    let broker = Broker::start(&[]);
    for spelled in [r#"{"b" : 1e999,"a":"\ud800"}"#, "1.0", "null", r#""\u0041""#, "[ 1 , 2 ]"] {
        let queue = unique("bytes");
        let (mut requester, mut worker) = (broker.connect(), broker.connect());
        let body = format!(r#"{{"queue":"{queue}","payload": {spelled} ,"timeout":30000}}"#);
        requester.send(request("POST", REQUEST, &[], body.as_bytes()));
        worker.send(request("POST", EXCHANGE, &[], json!({ "pop": pop_of(&queue) }).to_string().as_bytes()));
        let taken = worker.response();
        assert!(taken.text().contains(&format!("\"payload\":{spelled},\"replyTo\":\"_inbox.")), "{}", taken.text());
        let inbox =
            taken.text().split("\"replyTo\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an inbox");
        let push = format!(r#"{{"queue":"{inbox}","messages":[{{"payload": {spelled}}}]}}"#);
        assert_eq!(worker.post("/api/v1/ephemeral/push", push).text(), "{\"pushed\":1}");
        assert_eq!(requester.response().text(), format!("{{\"reply\":{spelled}}}"));
    }
}

#[test]
fn a_reply_that_comes_too_late_is_counted_and_creates_nothing() {
    let broker = Broker::start(&[]);
    for round in 0..ROUNDS {
        let queue = unique("late");
        let (mut requester, mut worker) = (broker.connect(), broker.connect());
        send_request(&mut requester, &queue, &json!(1), 1);
        assert_eq!(requester.response().failure(), (504, "no_reply".into()));
        // The request stays, as any message does; its inbox is gone.
        let taken = take(&mut worker, &queue);
        worker.push(&taken.reply_to, json!("too late"));
        assert_eq!(broker.counter(LATE_REPLIES), round as u64 + 1);
        assert_eq!(broker.row(&taken.reply_to), None);
        let depth = worker.get(&format!("/api/v1/ephemeral/queues/{}/depth", taken.reply_to));
        assert_eq!(depth.failure(), (403, "reserved_name".into()));
    }
    // The first of several is the reply.
    let queue = unique("late");
    let (mut requester, mut worker) = (broker.connect(), broker.connect());
    send_request(&mut requester, &queue, &json!(1), 30_000);
    let taken = take(&mut worker, &queue);
    worker.push_all(&taken.reply_to, &[json!("first"), json!("second"), json!("third")]);
    assert_eq!(reply_in(&requester.response()), json!("first"));
    assert_eq!(broker.counter(LATE_REPLIES), ROUNDS as u64 + 2);
    settled(&broker);
}

/// How a client goes.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    Fin,
    Reset,
    AfterAStrayByte,
}

fn leave(mut connection: Connection, how: Leaving) {
    match how {
        Leaving::Fin => {}
        Leaving::Reset => connection.reset(),
        Leaving::AfterAStrayByte => connection.send(b"G"),
    }
}

#[test]
fn a_requester_that_goes_takes_its_inbox_with_it() {
    let broker = Broker::start(&[]);
    let mut late = 0;
    for how in [Leaving::Fin, Leaving::Reset, Leaving::AfterAStrayByte] {
        for taken_before in [false, true] {
            for _ in 0..ROUNDS / 3 {
                let queue = unique("gone");
                let (mut requester, mut worker) = (broker.connect(), broker.connect());
                send_request(&mut requester, &queue, &json!(1), 300_000);
                let before = taken_before.then(|| take(&mut worker, &queue));
                eventually("an open request", || (broker.open_requests() == 1).then_some(()));
                leave(requester, how);
                eventually("the end of the request", || (broker.open_requests() == 0).then_some(()));
                let taken = before.unwrap_or_else(|| take(&mut worker, &queue));
                worker.push(&taken.reply_to, json!("nobody reads this"));
                late += 1;
                assert_eq!(broker.counter(LATE_REPLIES), late, "{how:?}");
            }
        }
    }
    settled(&broker);
}

#[test]
fn a_requester_that_stops_sending_is_told_that_no_reply_came() {
    let broker = Broker::start(&[]);
    for _ in 0..4 {
        let mut requester = broker.connect();
        send_request(&mut requester, &unique("half"), &json!(1), 300_000);
        eventually("an open request", || (broker.open_requests() == 1).then_some(()));
        requester.finish_sending();
        assert_eq!(requester.response().failure(), (504, "no_reply".into()));
        assert!(requester.is_closed_by_peer());
        settled(&broker);
    }
}

#[test]
fn a_job_outlives_the_worker_that_goes() {
    let broker = Broker::start(&[("QUEEN_EPHEMERAL_LEASE_S", "1")]);
    for how in [Leaving::Fin, Leaving::Reset, Leaving::AfterAStrayByte] {
        let queue = unique("job");
        let (mut requester, mut first, mut second) = (broker.connect(), broker.connect(), broker.connect());
        // It goes while it waits: the job is for the next.
        send_exchange(&mut first, &json!({ "pop": pop_of(&queue) }));
        eventually("a waiting worker", || (broker.parked() == 1).then_some(()));
        leave(first, how);
        send_request(&mut requester, &queue, &json!("work"), 30_000);
        // It goes with the job, leased: the lease runs out, and the next has it.
        let leased = json!({ "pop": { "queue": queue, "wait": true, "timeout": 30_000 } });
        let mut dying = broker.connect();
        let taken = job(&exchange(&mut dying, &leased));
        assert_eq!(taken.attempts, 1);
        leave(dying, how);
        let again = job(&exchange(&mut second, &leased));
        assert_eq!((again.attempts, &again.payload, &again.reply_to), (2, &json!("work"), &taken.reply_to));
        // Ack, reply and the end of the wait in one.
        let answer = exchange(
            &mut second,
            &json!({
                "acks": { "queue": queue, "acks": [{ "id": taken.id }, { "id": again.id }] },
                "pushes": [push_of(&again.reply_to, &json!("done"))],
                "pop": { "queue": queue },
            }),
        );
        let outcomes: Vec<_> = answer["results"].as_array().expect("results").iter().map(|r| &r["outcome"]).collect();
        assert_eq!(outcomes, ["unknown", "acked"]);
        assert_eq!((&answer["queue"], &answer["messages"]), (&json!(queue), &json!([])));
        assert_eq!(reply_in(&requester.response()), json!("done"));
        settled(&broker);
    }
}

#[test]
fn the_parts_of_an_exchange_fail_on_their_own() {
    let broker = Broker::start(&[]);
    for _ in 0..ROUNDS {
        let mut client = broker.connect();
        let (full, other, jobs) = (unique("full"), unique("other"), unique("jobs"));
        client.configure(&full, &json!({ "maxLength": 1 }));
        client.push(&full, json!(0));
        client.push(&jobs, json!("job"));
        let answer = exchange(
            &mut client,
            &json!({
                "acks": { "queue": jobs, "acks": [{ "id": "no such id" }] },
                "pushes": [
                    push_of(&full, &json!(1)),
                    { "queue": other, "messages": [{ "payload": 1 }, { "payload": 2 }] },
                    { "queue": other, "messages": [] },
                    push_of("_inbox.nobody", &json!(3)),
                ],
                "pop": { "queue": jobs, "batch": 5, "autoAck": true },
            }),
        );
        assert_eq!(answer["results"], json!([{ "id": "no such id", "outcome": "unknown" }]));
        let pushes = answer["pushes"].as_array().expect("pushes");
        assert_eq!((&pushes[0]["status"], &pushes[0]["code"]), (&json!(429), &json!("queue_full")));
        assert!(pushes[0]["error"].as_str().is_some_and(|text| text.contains(&full)), "{answer}");
        assert_eq!(pushes[1..], [2, 0, 1].map(|pushed| json!({ "status": 201, "pushed": pushed })));
        assert_eq!(answer["messages"][0]["payload"], json!("job"));
        assert_eq!(client.depth(&other)["pending"], json!(2));

        let refused = exchange(&mut client, &json!({ "pop": { "queue": "_inbox.nobody" } }));
        let keys: Vec<&String> = refused.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["popError"], "parts that were not asked for are absent");
        assert_eq!(refused["popError"]["code"], json!("reserved_name"));
    }
    assert_eq!(exchange(&mut broker.connect(), &json!({})), json!({}));
}

#[test]
fn what_an_exchange_pushes_it_may_pop() {
    let broker = Broker::start(&[]);
    for round in 0..ROUNDS {
        let queue = unique("order");
        let mut client = broker.connect();
        let answer =
            exchange(&mut client, &json!({ "pushes": [push_of(&queue, &json!(round))], "pop": pop_of(&queue) }));
        assert_eq!(answer["messages"][0]["payload"], json!(round), "the push comes before the pop");
    }
}

#[test]
fn an_exchange_that_cannot_be_read_does_nothing() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for (body, field) in [
        (json!({ "pushes": [push_of("q", &json!(1)), { "queue": "q" }] }), "pushes[1]"),
        (json!({ "pushes": [push_of("q", &json!(1))], "pop": { "queue": "q", "batch": 0 } }), "pop"),
        (json!({ "pushes": [push_of("q", &json!(1))], "acks": { "acks": [] } }), "acks"),
    ] {
        let response = client.post(EXCHANGE, body.to_string());
        assert_eq!(response.failure(), (400, "ephemeral_bad_request".into()));
        assert!(response.text().contains(&format!("`{field}`")), "{}", response.text());
    }
    assert_eq!(client.get("/api/v1/ephemeral/queues/q/depth").status, 404);
}

#[test]
fn a_request_that_cannot_be_pushed_leaves_no_inbox() {
    let broker = Broker::start(&[("QUEEN_EPHEMERAL_MAX_PARKED", "2")]);
    for _ in 0..ROUNDS {
        let queue = unique("full");
        let mut client = broker.connect();
        client.configure(&queue, &json!({ "maxLength": 1 }));
        client.push(&queue, json!(0));
        for reply_to in [Value::Null, json!(unique("_inbox.mine"))] {
            let body = json!({ "queue": queue, "payload": 1, "replyTo": reply_to });
            let refused = client.post(REQUEST, body.to_string());
            assert_eq!(refused.failure(), (429, "queue_full".into()));
        }
    }
    settled(&broker);
    let (mut first, mut second) = (broker.connect(), broker.connect());
    send_request(&mut first, "q", &json!(1), 300_000);
    send_request(&mut second, "q", &json!(1), 300_000);
    eventually("two open requests", || (broker.open_requests() == 2).then_some(()));
    let refused = broker.connect().post(REQUEST, r#"{"queue":"q","payload":1}"#);
    assert_eq!(refused.failure(), (429, "parked_limit".into()));
}

#[test]
fn a_requester_may_choose_its_inbox() {
    let broker = Broker::start(&[]);
    for round in 0..ROUNDS {
        let (queue, inbox) = (unique("chosen"), unique("_inbox.chosen"));
        let body =
            json!({ "queue": queue, "payload": { "me": inbox }, "replyTo": inbox, "timeout": 30_000 }).to_string();
        let (mut requester, mut worker) = (broker.connect(), broker.connect());
        requester.send(request("POST", REQUEST, &[], body.as_bytes()));
        let taken = take(&mut worker, &queue);
        assert_eq!((&taken.payload, &taken.reply_to), (&json!({ "me": inbox }), &inbox));
        assert_eq!(broker.connect().post(REQUEST, &body).failure(), (409, "inbox_in_use".into()));
        worker.push(&inbox, json!(round));
        assert_eq!(reply_in(&requester.response()), json!(round));
        worker.push(&inbox, json!("late"));
    }
    assert_eq!(broker.counter(LATE_REPLIES), ROUNDS as u64);
    let mut client = broker.connect();
    for name in ["mine", "_inbox.", "_inbox.00000000000000aa.0.0.1", "_inbox"] {
        let response = client.post(REQUEST, json!({ "queue": "q", "payload": 1, "replyTo": name }).to_string());
        assert_eq!(response.failure(), (400, "ephemeral_bad_request".into()), "{name}");
        assert!(response.text().contains("`replyTo`"), "{}", response.text());
    }
    settled(&broker);
}

#[test]
fn an_inbox_can_be_pushed_to_and_nothing_else() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let body = r#"{"queue":"_inbox.x","payload":1,"options":{}}"#;
    for (method, target) in [
        ("POST", REQUEST),
        ("POST", "/api/v1/ephemeral/configure"),
        ("POST", "/api/v1/ephemeral/reset"),
        ("GET", "/api/v1/ephemeral/pop?queue=_inbox.x"),
        ("GET", "/api/v1/ephemeral/queues/_inbox.x/depth"),
        ("DELETE", "/api/v1/ephemeral/queue/_inbox.x"),
    ] {
        let body = if method == "POST" { body } else { "" };
        assert_eq!(
            client.request(method, target, body.as_bytes()).failure(),
            (403, "reserved_name".into()),
            "{target}"
        );
    }
    client.push("_inbox.x", json!(1));
    assert_eq!(broker.listing(), Vec::<Value>::new());
}

#[test]
fn a_stop_ends_every_request_and_answers_it() {
    let mut broker = Broker::start(&[]);
    let mut requesters: Vec<Connection> = (0..16).map(|_| broker.connect()).collect();
    for (number, requester) in requesters.iter_mut().enumerate() {
        send_request(requester, &format!("stop-{number}"), &json!(1), 300_000);
    }
    let mut worker = broker.connect();
    send_exchange(&mut worker, &json!({ "pushes": [push_of("z", &json!(1))], "pop": pop_of("nothing") }));
    eventually("open requests", || (broker.open_requests() == 16 && broker.parked() == 1).then_some(()));
    let status = broker.sigterm();
    assert!(status.success(), "{status}");
    for requester in &mut requesters {
        assert_eq!(requester.response().failure(), (504, "no_reply".into()));
    }
    let answer = exchanged(&worker.response());
    assert_eq!((&answer["pushes"][0]["pushed"], &answer["messages"]), (&json!(1), &json!([])));
}

const OPEN: usize = 10_000;

/// What an open request may cost with its connection, bytes: what a parked pop may, and the message that waits.
const BYTES_EACH_MAX: u64 = 2 * 4096;

#[test]
fn ten_thousand_open_requests_all_get_their_replies() {
    let open = (common::allow_open_files(20_000) as usize).saturating_sub(500).min(OPEN);
    let broker = Broker::start(&[]);
    let resident_before = broker.resident_bytes();
    let mut requesters: Vec<Connection> = (0..open).map(|_| broker.connect()).collect();
    for (number, requester) in requesters.iter_mut().enumerate() {
        // Eight queues, of which each shard owns some; the default bound of a queue is 10,000.
        send_request(requester, &format!("many-{}", number % 8), &json!(number), 300_000);
    }
    eventually("every open request", || (broker.open_requests() == open as u64).then_some(()));
    let each = (broker.resident_bytes() - resident_before) / open as u64;
    println!("{open} open requests: {each} bytes of resident memory each, connection and message included");
    assert!(each <= BYTES_EACH_MAX, "an open request costs {each} bytes");

    let mut worker = broker.connect();
    let mut served = 0;
    for queue in 0..8 {
        let pop = json!({ "queue": format!("many-{queue}"), "batch": 100, "autoAck": true });
        let mut answer = exchange(&mut worker, &json!({ "pop": pop }));
        while let Some(jobs) = answer["messages"].as_array().filter(|jobs| !jobs.is_empty()) {
            served += jobs.len();
            let reply = |job: &Value| push_of(job["replyTo"].as_str().expect("an inbox"), &json!([job["payload"]]));
            let pushes: Vec<Value> = jobs.iter().map(reply).collect();
            answer = exchange(&mut worker, &json!({ "pushes": pushes, "pop": pop }));
            assert!(answer["pushes"].as_array().expect("pushes").iter().all(|push| push["status"] == 201));
        }
    }
    assert_eq!(served, open);
    for (number, requester) in requesters.iter_mut().enumerate() {
        assert_eq!(reply_in(&requester.response()), json!([number]));
    }
    assert_eq!((broker.open_requests(), broker.counter(LATE_REPLIES)), (0, 0));
}

const PAIRS: usize = 32;
const CHAOS: Duration = Duration::from_secs(10);

/// Numbers that look like chance and are the same in every run.
struct Chance(u64);

impl Chance {
    fn one_in(&mut self, n: u64) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.is_multiple_of(n)
    }
}

#[test]
fn clients_that_die_at_every_step_hang_nobody_else() {
    let broker = Broker::start(&[("QUEEN_EPHEMERAL_LEASE_S", "1"), ("QUEEN_EPHEMERAL_RETRY_LIMIT", "1000")]);
    let stop = AtomicBool::new(false);
    let (replies, deaths) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for pair in 0..PAIRS {
            let (broker, stop, replies, deaths) = (&broker, &stop, &replies, &deaths);
            let queue = format!("chaos-{}", pair % 4);
            let worker_queue = queue.clone();
            let dies = move |chance: &mut Chance, connection: &mut Connection| {
                if !chance.one_in(10) {
                    return false;
                }
                let dying = std::mem::replace(connection, broker.connect());
                let how = if chance.one_in(2) { Leaving::Fin } else { Leaving::Reset };
                leave(dying, how);
                deaths.fetch_add(1, Ordering::Relaxed);
                true
            };
            scope.spawn(move || {
                let mut chance = Chance(pair as u64 + 1);
                let mut connection = broker.connect();
                let mut number = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    let question = json!([pair, number]);
                    send_request(&mut connection, &queue, &question, 300_000);
                    if dies(&mut chance, &mut connection) {
                        continue;
                    }
                    assert_eq!(reply_in(&connection.response()), json!({ "to": question }));
                    replies.fetch_add(1, Ordering::Relaxed);
                }
            });
            scope.spawn(move || {
                let mut chance = Chance(0x9e37_79b9 + pair as u64);
                let mut connection = broker.connect();
                let pop = json!({ "queue": worker_queue, "wait": true, "timeout": 500 });
                let mut body = json!({ "pop": pop });
                // Those who wait are served until nobody waits any more.
                while !stop.load(Ordering::Relaxed) || broker.open_requests() > 0 {
                    send_exchange(&mut connection, &body);
                    if dies(&mut chance, &mut connection) {
                        body = json!({ "pop": pop });
                        continue;
                    }
                    let answer = exchanged(&connection.response());
                    body = json!({ "pop": pop });
                    if answer["messages"].as_array().is_some_and(|messages| !messages.is_empty()) {
                        let taken = job(&answer);
                        body["acks"] = json!({ "queue": worker_queue, "acks": [{ "id": taken.id }] });
                        body["pushes"] = json!([push_of(&taken.reply_to, &json!({ "to": taken.payload }))]);
                    }
                }
            });
        }
        std::thread::sleep(CHAOS);
        stop.store(true, Ordering::Relaxed);
    });
    let (replies, deaths) = (replies.into_inner(), deaths.into_inner());
    println!("{replies} replies, {deaths} clients died, {} replies came late", broker.counter(LATE_REPLIES));
    assert!(replies > 100 && deaths > 100, "chance reached both");
    settled(&broker);
}
