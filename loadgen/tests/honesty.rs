//! The load generator against a broker that does wrong: what it says must be what was done.

mod support;

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread,
    time::Duration,
};

use loadgen::{
    Outcome, Plan,
    outcome::Findings,
    plan::{Arrivals, DriverKind, Pacing, Scenario, Size, Spread, Style, Target},
    run::{self, RunError},
};
use support::{FAULTS, Fault, Stub};

const RATE_PER_S: f64 = 1_000.0;
const OPEN: Pacing = Pacing::Open { rate_per_s: RATE_PER_S, arrivals: Arrivals::Constant };

fn plan(scenario: Scenario, address: SocketAddr) -> Plan {
    Plan {
        scenario,
        driver: DriverKind::Queen,
        target: Target { url: format!("http://{address}"), address, host: address.to_string() },
        pacing: OPEN,
        duration: Duration::from_secs(1),
        warmup: Duration::ZERO,
        connections: 1,
        pairs: 2,
        depth: 1,
        batch: 1,
        queues: 1,
        partitions: 1,
        spread: Spread::Uniform,
        groups: 1,
        parked: 50,
        across: 1,
        prefill: 1_000,
        size: Size::Fixed(128),
        incompressible: 0.5,
        style: Style::PushPop,
        seed: 1,
        cpus: Vec::new(),
    }
}

fn outcome(plan: Plan) -> Outcome {
    run::start(plan).unwrap().join().unwrap()
}

/// What is found when a thousand messages go through a broker with this fault.
fn findings(fault: Fault) -> Findings {
    let outcome = outcome(plan(Scenario::PushPop, Stub::start(fault).address));
    assert_eq!(outcome.sent, RATE_PER_S as u64, "every message that is due is sent");
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    outcome.findings
}

fn p999(outcome: &Outcome) -> Duration {
    Duration::from_nanos(outcome.latency_ns.value_at_quantile(0.999))
}

const STALL: Duration = Duration::from_secs(1);

fn stalled(pacing: Pacing) -> Outcome {
    let fault = Fault::Stall { from: Duration::from_secs(1), until: Duration::from_secs(1) + STALL };
    let address = Stub::start(fault).address;
    outcome(Plan { pacing, duration: Duration::from_secs(4), ..plan(Scenario::Push, address) })
}

#[test]
fn a_stall_shows_in_the_tail_of_an_open_loop() {
    let outcome = stalled(OPEN);
    assert_eq!(outcome.sent, 4 * RATE_PER_S as u64, "what a stall delays is sent after all");
    assert_eq!(outcome.received, outcome.sent);
    assert!(p999(&outcome) > STALL * 9 / 10, "{:?}", p999(&outcome));
    let waited = outcome.latency_ns.count_between(STALL.as_nanos() as u64 / 2, u64::MAX);
    assert!(waited >= RATE_PER_S as u64 / 3, "{waited} requests waited for half of the stall or more");
}

#[test]
fn a_closed_loop_is_blind_to_a_stall() {
    let outcome = stalled(Pacing::Closed);
    assert!(outcome.received > 1_000, "{} are enough for one to hide among", outcome.received);
    assert!(p999(&outcome) < STALL / 2, "{:?}", p999(&outcome));
    let longest = Duration::from_nanos(outcome.latency_ns.max());
    assert!(longest > STALL * 9 / 10, "one request has waited: {longest:?}");
}

#[test]
fn a_broker_that_does_nothing_wrong_is_not_blamed() {
    assert_eq!(findings(Fault::None), Findings::default());
}

#[test]
fn dropped_messages_are_lost() {
    assert_eq!(findings(Fault::Drop), Findings { lost: FAULTS, ..Findings::default() });
}

#[test]
fn repeated_messages_are_duplicated() {
    assert_eq!(findings(Fault::Repeat), Findings { duplicated: FAULTS, ..Findings::default() });
}

#[test]
fn swapped_messages_are_reordered() {
    assert_eq!(findings(Fault::Swap), Findings { reordered: FAULTS, ..Findings::default() });
}

#[test]
fn changed_messages_are_corrupted() {
    assert_eq!(findings(Fault::Corrupt), Findings { corrupted: FAULTS, ..Findings::default() });
}

/// Faults by what is found of them, once for each time they are made.
const BLAMED: [(Fault, Findings); 5] = [
    (Fault::None, CLEAN),
    (Fault::Drop, Findings { lost: FAULTS, ..CLEAN }),
    (Fault::Repeat, Findings { duplicated: FAULTS, ..CLEAN }),
    (Fault::Swap, Findings { reordered: FAULTS, ..CLEAN }),
    (Fault::Corrupt, Findings { corrupted: FAULTS, ..CLEAN }),
];

const CLEAN: Findings = Findings { lost: 0, duplicated: 0, reordered: 0, corrupted: 0 };

/// The plan of a durable scenario at a broker with this fault.
fn durable(scenario: Scenario, fault: Fault) -> Plan {
    Plan { driver: DriverKind::Durable, ..plan(scenario, Stub::start(fault).address) }
}

#[test]
fn a_log_that_is_read_back_shows_each_fault() {
    for (fault, wanted) in BLAMED {
        let outcome = outcome(durable(Scenario::DurablePush, fault));
        assert_eq!((outcome.sent, outcome.received), (RATE_PER_S as u64, RATE_PER_S as u64), "{fault:?}");
        assert_eq!(outcome.findings, wanted, "{fault:?}");
    }
}

#[test]
fn a_backlog_that_is_popped_shows_each_fault() {
    for (fault, wanted) in BLAMED {
        let duration = Duration::from_secs(2);
        let plan = Plan { pacing: Pacing::Closed, duration, ..durable(Scenario::DurablePop, fault) };
        let outcome = outcome(plan);
        assert_eq!(outcome.findings, wanted, "{fault:?}");
        // One that lacks messages is waited for until the end.
        let is_short = fault == Fault::Drop;
        assert_eq!(outcome.measured == duration, is_short, "{fault:?}: {:?}", outcome.measured);
        assert_eq!(outcome.received < 1_000, is_short, "{fault:?}: {}", outcome.received);
    }
}

#[test]
fn a_pipe_has_one_message_under_way_and_sees_each_of_them() {
    let outcome = outcome(Plan { pacing: Pacing::Closed, ..durable(Scenario::DurablePipe, Fault::None) });
    assert_eq!(outcome.findings, Findings::default());
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    assert!(outcome.sent > 0 && outcome.received == outcome.sent, "{} of {}", outcome.received, outcome.sent);
    // Two pairs that rest for five milliseconds behind each message.
    assert!(outcome.sent <= 2 * 201, "{}", outcome.sent);
}

#[test]
fn a_message_that_a_pipe_loses_stops_it_and_is_told() {
    let outcome = outcome(Plan { pacing: Pacing::Closed, ..durable(Scenario::DurablePipe, Fault::Drop) });
    assert!((1..=2).contains(&outcome.findings.lost), "of two pairs: {:?}", outcome.findings);
}

#[test]
fn lost_connections_are_errors_and_the_run_goes_on() {
    let outcome = outcome(plan(Scenario::PushPop, Stub::start(Fault::HangUp).address));
    assert_eq!(outcome.sent, RATE_PER_S as u64);
    assert_eq!(outcome.errors.get("disconnected"), Some(&FAULTS), "{:?}", outcome.errors);
    assert_eq!(outcome.received, outcome.sent - FAULTS);
    assert_eq!(outcome.findings, Findings::default(), "what was never confirmed is not lost");
}

#[test]
fn every_request_gets_its_own_reply() {
    let outcome = outcome(plan(Scenario::Churn, Stub::start(Fault::None).address));
    assert_eq!((outcome.sent, outcome.received), (RATE_PER_S as u64, RATE_PER_S as u64));
    assert_eq!(outcome.findings, Findings::default());
}

#[test]
fn every_parked_pop_is_woken() {
    let plan = plan(Scenario::Parked, Stub::start(Fault::None).address);
    let parked = plan.parked as u64;
    let outcome = outcome(plan);
    assert_eq!((outcome.sent, outcome.received), (parked, parked));
    assert_eq!(outcome.findings, Findings::default());
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn a_run_that_is_stopped_tells_what_it_has_measured() {
    let plan = plan(Scenario::PushPop, Stub::start(Fault::None).address);
    let running = run::start(Plan { duration: Duration::from_secs(3_600), ..plan }).unwrap();
    while running.snapshot().received == 0 {
        thread::sleep(Duration::from_millis(10));
    }
    running.stop();
    let outcome = running.join().unwrap();
    assert!(outcome.interrupted);
    assert!(outcome.measured < Duration::from_secs(60));
    // What left while the end was being set came after it: sent, not measured, and not lost.
    let at_the_edge = outcome.sent - outcome.received;
    assert!(at_the_edge <= 2, "{at_the_edge} of {}", outcome.sent);
    assert_eq!(outcome.findings, Findings::default());
    assert!(!outcome.seconds.is_empty());
}

#[test]
fn seconds_add_up_to_the_whole() {
    let plan = plan(Scenario::PushPop, Stub::start(Fault::None).address);
    let outcome = outcome(Plan { duration: Duration::from_secs(2), cpus: Vec::new(), ..plan });
    assert_eq!(outcome.seconds.iter().map(|second| second.sent).sum::<u64>(), outcome.sent);
    assert_eq!(outcome.seconds.iter().map(|second| second.received).sum::<u64>(), outcome.received);
}

fn unreachable(plan: Plan) -> String {
    match run::start(plan) {
        Err(RunError::Unreachable(text)) => text,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it has started"),
    }
}

#[test]
fn a_target_where_nobody_listens_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let text = unreachable(plan(Scenario::Push, address));
    assert!(text.contains(&address.to_string()) && text.contains("start the broker"), "{text}");
}

#[test]
fn a_target_that_speaks_something_else_is_told_apart() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"220 mail.example ready\r\n").unwrap();
    });
    let text = unreachable(plan(Scenario::Push, address));
    assert!(text.contains("does not speak HTTP") && text.contains("--driver"), "{text}");
}

#[test]
fn what_a_driver_can_not_do_is_refused_with_a_sentence() {
    let address = (Ipv4Addr::LOCALHOST, 1).into();
    let refused = [
        Plan { driver: DriverKind::Nats, ..plan(Scenario::Pop, address) },
        Plan { driver: DriverKind::Redis, ..plan(Scenario::FanOut, address) },
        Plan { size: Size::Fixed(10), ..plan(Scenario::Push, address) },
        Plan { connections: 0, ..plan(Scenario::Push, address) },
    ];
    for plan in refused {
        let error = run::start(plan).err().expect("it has started");
        assert!(matches!(error, RunError::Unsupported(_)), "{error}");
    }
}
