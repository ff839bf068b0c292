//! Fifteen thousand pops that wait on fifteen thousand queues, a connection each, with both sides
//! under an open-file limit of 20,000: what one costs in memory, that a push wakes every one, and
//! that a client which goes while it waits, in any of three ways, leaves no trace and takes no
//! message.

mod common;

use std::time::{Duration, Instant};

use common::{Broker, Connection, payloads};
use serde_json::json;

const OPEN_FILES: u64 = 20_000;
const PARKED: usize = 15_000;

/// What a parked pop may cost with its connection, bytes. The number to meet is half of it; the
/// test prints the exact one, and leaves room for an allocator's mood.
const BYTES_EACH_MAX: u64 = 2 * 4096;

/// How long the place of a client that has gone may stay taken. The product promises one second;
/// the rest is for a machine that does something else at the same time.
const PLACES_FREE_WITHIN: Duration = Duration::from_secs(10);

/// How a client goes while its pop waits.
#[derive(Clone, Copy)]
enum Leaving {
    /// It closes, and the broker reads an end of file.
    Fin,
    /// It is killed, and the broker reads a reset.
    Reset,
    /// It sends the first byte of a next request, and closes.
    AfterAStrayByte,
}

#[test]
fn every_parked_pop_is_woken_and_gone_clients_leave_no_trace() {
    let parked = may_park();
    let broker = Broker::start(&[]);
    broker.limit_open_files(OPEN_FILES);

    let resident_before = broker.resident_bytes();
    let waiting = park(&broker, parked);
    let each = (broker.resident_bytes() - resident_before) / parked as u64;
    println!("{parked} parked pops: {each} bytes of resident memory each, queue and connection included");
    assert!(each <= BYTES_EACH_MAX, "a parked pop costs {each} bytes");

    wake_all(&broker, waiting);
    assert_eq!(broker.parked(), 0);

    let waiting = park(&broker, parked);
    let (living, dead) = half_leave(waiting);
    let left_at = Instant::now();
    common::eventually("the end of the places of the gone", || (broker.parked() == living.len() as u64).then_some(()));
    let freed_after = left_at.elapsed();
    println!("{} places were free {freed_after:?} after their clients had gone", dead.len());
    assert!(freed_after < PLACES_FREE_WITHIN, "the places were free only after {freed_after:?}");

    wake_all(&broker, living);
    leave_messages_that_a_later_pop_finds(&broker, &dead);
    assert_eq!(broker.parked(), 0);
}

/// How many pops the open-file limits of both sides let wait: [`PARKED`], unless the machine gives
/// a process fewer files.
fn may_park() -> usize {
    let files = common::allow_open_files(OPEN_FILES);
    let parked = PARKED.min(files as usize * 3 / 4);
    if parked < PARKED {
        println!("the hard limit of open files is {files}: {parked} pops wait, not {PARKED}");
    }
    parked
}

/// Parks a pop on each of `count` queues and waits until the broker counts them all.
fn park(broker: &Broker, count: usize) -> Vec<(usize, Connection)> {
    let waiting: Vec<(usize, Connection)> = (0..count)
        .map(|index| {
            let mut connection = broker.connect();
            connection.send_pop(&format!("queue={}&wait=true&timeout=300000&autoAck=true", queue(index)));
            (index, connection)
        })
        .collect();
    common::eventually("the parking of every pop", || (broker.parked() == count as u64).then_some(()));
    waiting
}

/// Pushes to the queue of every waiting pop, and reads what each got: its own message.
fn wake_all(broker: &Broker, waiting: Vec<(usize, Connection)>) {
    let mut pusher = broker.connect();
    for (index, _) in &waiting {
        pusher.push(&queue(*index), json!(index));
    }
    for (index, mut connection) in waiting {
        assert_eq!(payloads(&connection.popped()), [json!(index)], "the pop on {}", queue(index));
    }
}

/// Every second client goes, in all ways in turn: those that stay, and the queues of those that
/// went.
fn half_leave(waiting: Vec<(usize, Connection)>) -> (Vec<(usize, Connection)>, Vec<usize>) {
    let ways = [Leaving::Fin, Leaving::Reset, Leaving::AfterAStrayByte];
    let (leaving, living): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(index, _)| index % 2 == 0);
    let dead = leaving.iter().map(|&(index, _)| index).collect();
    for ((_, mut connection), way) in leaving.into_iter().zip(ways.into_iter().cycle()) {
        match way {
            Leaving::Fin => drop(connection),
            Leaving::Reset => connection.reset(),
            Leaving::AfterAStrayByte => connection.send("G"),
        }
    }
    (living, dead)
}

/// A push to a queue whose client has gone waits for the next one.
fn leave_messages_that_a_later_pop_finds(broker: &Broker, dead: &[usize]) {
    let mut pusher = broker.connect();
    let mut consumer = broker.connect();
    for &index in dead {
        pusher.push(&queue(index), json!(index));
        let found = consumer.pop(&format!("queue={}&autoAck=true", queue(index)));
        assert_eq!(payloads(&found), [json!(index)], "the message on {}", queue(index));
        assert_eq!(found[0].attempts, 1, "nobody had it before");
    }
}

fn queue(index: usize) -> String {
    format!("parked-{index}")
}
