//! A broker in memory that does wrong on purpose, to see whether a run against it finds that out: from the load over the
//! audit to the verdict.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    audit,
    broker::free_address,
    judge::{Broken, judge},
    load::{Load, Shape},
};

/// What it does wrong, to each fiftieth message, pop or ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A message is answered and not stored.
    Lose,
    /// A message is stored twice.
    Double,
    /// A message is stored behind the one that comes after it.
    Reorder,
    /// A message is stored with another letter in it.
    Corrupt,
    /// An ack is answered and not carried out.
    ForgetAck,
    /// A pop does not look whether the partition is leased.
    IgnoreLease,
    /// A pop leaves a message out.
    Skip,
}

const EACH: u64 = 50;

#[derive(Default)]
struct State {
    partitions: BTreeMap<String, Partition>,
    /// Messages, pops and acks, to know the fiftieth.
    counted: u64,
    ids: u64,
}

#[derive(Default)]
struct Partition {
    log: Vec<Stored>,
    /// Transaction ids and the message ids that they were answered.
    known: HashMap<String, String>,
    held: Option<Stored>,
    cursors: HashMap<String, Cursor>,
}

#[derive(Clone)]
struct Stored {
    transaction_id: String,
    message_id: String,
    payload: Value,
}

#[derive(Default)]
struct Cursor {
    next: usize,
    lease: Option<Lease>,
}

struct Lease {
    id: String,
    end: usize,
    until: Instant,
}

impl State {
    fn is_chosen(&mut self) -> bool {
        self.counted += 1;
        self.counted.is_multiple_of(EACH)
    }

    fn id(&mut self) -> String {
        self.ids += 1;
        format!("id-{}", self.ids)
    }

    fn push(&mut self, body: &Value, fault: Fault) -> Value {
        let items = body["items"].as_array().unwrap();
        items.iter().map(|item| self.push_one(item, fault)).collect()
    }

    fn push_one(&mut self, item: &Value, fault: Fault) -> Value {
        let (is_chosen, message_id, second_id) = (self.is_chosen(), self.id(), self.id());
        let transaction_id = item["transactionId"].as_str().unwrap().to_owned();
        let partition = self.partitions.entry(item["partition"].as_str().unwrap().to_owned()).or_default();
        if let Some(message_id) = partition.known.get(&transaction_id) {
            return json!({"status": "duplicate", "message_id": message_id});
        }
        partition.known.insert(transaction_id.clone(), message_id.clone());
        let mut stored = Stored { transaction_id, message_id: message_id.clone(), payload: item["payload"].clone() };
        match fault {
            Fault::Lose if is_chosen => {}
            Fault::Double if is_chosen => {
                partition.log.extend([stored.clone(), Stored { message_id: second_id, ..stored }]);
            }
            Fault::Reorder if is_chosen && partition.held.is_none() => partition.held = Some(stored),
            Fault::Corrupt if is_chosen => {
                let pad = stored.payload["pad"].as_str().unwrap().to_owned();
                stored.payload["pad"] = format!("{pad}a").into();
                partition.log.push(stored);
            }
            _ => {
                partition.log.push(stored);
                partition.log.extend(partition.held.take());
            }
        }
        json!({"status": "queued", "message_id": message_id})
    }

    fn pop(&mut self, query: &HashMap<&str, &str>, fault: Fault) -> Value {
        let number = |key: &str| query.get(key).and_then(|text| text.parse::<usize>().ok());
        let (mut left, mut claims) = (number("batch").unwrap(), number("partitions").unwrap());
        let (is_chosen, lease_id) = (self.is_chosen(), self.id());
        let mut messages = Vec::new();
        for (name, partition) in &mut self.partitions {
            let cursor = partition.cursors.entry(query["consumerGroup"].to_owned()).or_default();
            let is_leased = cursor.lease.as_ref().is_some_and(|lease| lease.until > Instant::now());
            let is_open = !is_leased || (fault == Fault::IgnoreLease && is_chosen);
            let end = partition.log.len().min(cursor.next + left);
            if !is_open || claims == 0 || end <= cursor.next {
                continue;
            }
            let message = |stored: &Stored| {
                json!({"id": stored.message_id, "transactionId": stored.transaction_id, "data": stored.payload,
                    "partition": name, "partitionId": name})
            };
            let from = messages.len();
            messages.extend(partition.log[cursor.next..end].iter().map(message));
            if fault == Fault::Skip && is_chosen && messages.len() > from + 2 {
                messages.remove(from + 1);
            }
            (left, claims) = (left - (end - cursor.next), claims - 1);
            match number("leaseSeconds") {
                Some(seconds) => {
                    let until = Instant::now() + Duration::from_secs(seconds as u64);
                    cursor.lease = Some(Lease { id: lease_id.clone(), end, until });
                }
                None => cursor.next = end,
            }
        }
        json!({"leaseId": lease_id, "messages": messages})
    }

    /// Acks of one call, which are all of one partition and lease.
    fn ack(&mut self, acks: &[Value], group: &str, fault: Fault) -> Value {
        let is_chosen = self.is_chosen();
        let answer = |success: bool| acks.iter().map(|_| json!({"success": success})).collect::<Value>();
        let partition = self.partitions.get_mut(acks[0]["partitionId"].as_str().unwrap()).unwrap();
        let cursor = partition.cursors.get_mut(group).unwrap();
        let lease = cursor.lease.take_if(|lease| lease.id == acks[0]["leaseId"] && lease.until > Instant::now());
        let Some(lease) = lease else { return answer(false) };
        if fault == Fault::ForgetAck && is_chosen {
            return answer(true);
        }
        // Of one that is stored twice, the second: else nobody would come past it.
        let log = &partition.log[..lease.end];
        let at = |ack: &Value| log.iter().rposition(|stored| stored.transaction_id == ack["transactionId"]);
        let positions = |is_completed: bool| {
            acks.iter().filter(move |ack| (ack["status"] == "completed") == is_completed).filter_map(at)
        };
        let stop = positions(false).min();
        let completed = positions(true).filter(|&position| stop.is_none_or(|stop| position < stop)).max();
        cursor.next = completed.map_or(cursor.next, |last| cursor.next.max(last + 1));
        if stop.is_none() && cursor.next < lease.end {
            cursor.lease = Some(lease);
        }
        answer(true)
    }

    fn answer(&mut self, target: &str, body: &Value, fault: Fault) -> Value {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        match path {
            "/api/v1/push" => self.push(body, fault),
            "/api/v1/ack" => self.ack(std::slice::from_ref(body), body["consumerGroup"].as_str().unwrap(), fault),
            "/api/v1/ack/batch" => {
                let acks = body["acknowledgments"].as_array().unwrap();
                self.ack(acks, body["consumerGroup"].as_str().unwrap(), fault)
            }
            path if path.starts_with("/api/v1/pop/") => {
                self.pop(&query.split('&').filter_map(|pair| pair.split_once('=')).collect(), fault)
            }
            _ => json!({}),
        }
    }
}

/// Starts it. It ends with the test's process.
fn start(fault: Fault) -> SocketAddr {
    let address = free_address().unwrap();
    let listener = TcpListener::bind(address).unwrap();
    let state = Arc::new(Mutex::new(State::default()));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            thread::spawn(move || serve(stream, &state, fault));
        }
    });
    address
}

fn serve(stream: TcpStream, state: &Mutex<State>, fault: Fault) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut output = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            line.clear();
            input.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some(("Content-Length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let answer = state.lock().unwrap().answer(&target, &body, fault).to_string();
        output.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).as_bytes())?;
    }
}

/// What a run of two seconds finds.
fn found(fault: Fault) -> Vec<Broken> {
    const SHAPE: Shape = Shape { partitions: 3, producers: 2, consumers: [2, 1], has_auto_ack: true };
    let address = start(fault);
    let load = Load::start(&[address], 1, SHAPE).unwrap();
    thread::sleep(Duration::from_secs(2));
    let history = load.finish().unwrap();
    assert!(history.messages.len() as u64 > 4 * EACH, "{} messages", history.messages.len());
    let log = audit::read(address, SHAPE.partitions, &history).unwrap();
    let mut found: Vec<_> = judge(&history, &log).violations.iter().map(|violation| violation.broken).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn a_broker_that_does_nothing_wrong_is_not_blamed() {
    assert_eq!(found(Fault::None), []);
}

#[test]
fn a_broker_that_loses_messages_is_found_out() {
    assert_eq!(found(Fault::Lose), [Broken::Lost]);
}

#[test]
fn a_broker_that_stores_messages_twice_is_found_out() {
    assert!(found(Fault::Double).contains(&Broken::Doubled));
}

#[test]
fn a_broker_that_changes_the_order_is_found_out() {
    assert!(found(Fault::Reorder).contains(&Broken::Reordered));
}

#[test]
fn a_broker_that_changes_bytes_is_found_out() {
    assert!(found(Fault::Corrupt).contains(&Broken::Corrupted));
}

#[test]
fn a_broker_that_forgets_acks_is_found_out() {
    assert!(found(Fault::ForgetAck).contains(&Broken::CameAgain));
}

#[test]
fn a_broker_that_ignores_leases_is_found_out() {
    assert!(found(Fault::IgnoreLease).contains(&Broken::TwoHolders));
}

#[test]
fn a_broker_that_leaves_messages_out_is_found_out() {
    assert!(found(Fault::Skip).contains(&Broken::Skipped));
}
