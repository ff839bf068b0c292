//! A broker over HTTP that does wrong on purpose.
//!
//! It knows pushes and pops of one message, ephemeral and durable, keeps its queues in memory, and serves each connection
//! on a thread of its own. What else it is asked it answers with 200.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

/// What it does wrong, to each hundredth message from the fiftieth to the 450th where it is done to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// From one time after the first push to another, no push is answered.
    Stall {
        /// Since the first push.
        from: Duration,
        /// Since the first push.
        until: Duration,
    },
    /// A message is taken and forgotten.
    Drop,
    /// A message is delivered twice.
    Repeat,
    /// A message is delivered after the one that was pushed after it.
    Swap,
    /// A message is delivered with another byte in it.
    Corrupt,
    /// The connection that pushes the message is closed instead of answered.
    HangUp,
}

/// How many messages [`Fault`] is done to.
pub const FAULTS: u64 = 5;

#[derive(Default)]
struct State {
    queues: HashMap<String, VecDeque<String>>,
    first_push: Option<Instant>,
    pushes: u64,
    /// A message that goes behind the next one, of any queue.
    held: Option<String>,
}

/// The running stub. It ends with the test's process.
pub struct Stub {
    pub address: SocketAddr,
}

impl Stub {
    pub fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(stream, fault, &shared));
            }
        });
        Self { address }
    }
}

struct Request {
    target: String,
    body: String,
}

/// Serves until the client goes, or is sent away.
fn serve(stream: TcpStream, fault: Fault, shared: &(Mutex<State>, Condvar)) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut output = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    while let Some(request) = read(&mut input)? {
        let answer = if request.target.ends_with("/push") {
            let is_durable = !request.target.contains("/ephemeral/");
            push(&request.body, fault, shared).map(|count| {
                let queued = || format!("[{}]", vec!["{\"status\":\"queued\"}"; count].join(","));
                (201, if is_durable { queued() } else { format!("{{\"pushed\":{count}}}") })
            })
        } else if request.target.contains("/pop?") {
            Some((200, pop(&request.target, shared)))
        } else if request.target.contains("/pop/queue/") {
            Some((200, durable_pop(&request.target, shared)))
        } else {
            Some((200, "{}".to_owned()))
        };
        let Some((status, body)) = answer else { return Ok(()) };
        let answer = format!("HTTP/1.1 {status} OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        output.write_all(answer.as_bytes())?;
    }
    Ok(())
}

fn read(input: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        line.clear();
        input.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some(Request { target, body: String::from_utf8(body).unwrap() }))
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let from = text.find(begin).unwrap() + begin.len();
    let length = text[from..].find(end).unwrap_or(text.len() - from);
    &text[from..from + length]
}

/// Takes the messages of a push, and says how many. `None` when it is to be left without an answer.
fn push(body: &str, fault: Fault, (state, changed): &(Mutex<State>, Condvar)) -> Option<usize> {
    let queue = between(body, "\"queue\":\"", "\"").to_owned();
    let payloads: Vec<_> =
        body.split("\"payload\":").skip(1).map(|rest| rest[..rest.find('}').unwrap()].to_owned()).collect();
    let count = payloads.len();
    let mut state = state.lock().unwrap();
    let since = state.first_push.get_or_insert_with(Instant::now).elapsed();
    let state = &mut *state;
    let messages = state.queues.entry(queue).or_default();
    for payload in payloads {
        let number = state.pushes;
        state.pushes += 1;
        let is_chosen = number % 100 == 50 && number < 100 * FAULTS;
        match fault {
            Fault::Stall { from, until } if since >= from && since < until => thread::sleep(until - since),
            Fault::Drop if is_chosen => {}
            Fault::HangUp if is_chosen => return None,
            Fault::Repeat if is_chosen => messages.extend([payload.clone(), payload]),
            Fault::Swap if is_chosen => state.held = Some(payload),
            Fault::Corrupt if is_chosen => messages.push_back(payload.replacen('x', "y", 1)),
            _ => messages.push_back(payload),
        }
        if !(fault == Fault::Swap && is_chosen) {
            messages.extend(state.held.take());
        }
    }
    changed.notify_all();
    Some(count)
}

fn pop(target: &str, shared: &(Mutex<State>, Condvar)) -> String {
    let queue = between(target, "queue=", "&");
    let messages = take(queue, Duration::from_secs(1), shared).map(|payload| {
        format!("{{\"id\":\"e:0:Default:1\",\"partition\":\"Default\",\"attempts\":1,\"payload\":{payload}}}")
    });
    format!("{{\"queue\":\"{queue}\",\"messages\":[{}]}}", messages.unwrap_or_default())
}

fn durable_pop(target: &str, shared: &(Mutex<State>, Condvar)) -> String {
    let wait = if target.contains("wait=true") { Duration::from_secs(1) } else { Duration::ZERO };
    let message = take(between(target, "/pop/queue/", "?"), wait, shared);
    let messages =
        message.map(|payload| format!("{{\"id\":\"a\",\"traceId\":null,\"data\":{payload},\"leaseId\":\"\"}}"));
    format!("{{\"success\":true,\"messages\":[{}]}}", messages.unwrap_or_default())
}

/// The next message of a queue, if one comes in time.
fn take(queue: &str, wait: Duration, (state, changed): &(Mutex<State>, Condvar)) -> Option<String> {
    let is_empty = |state: &mut State| state.queues.get(queue).is_none_or(VecDeque::is_empty);
    let (mut state, _) = changed.wait_timeout_while(state.lock().unwrap(), wait, is_empty).unwrap();
    state.queues.get_mut(queue).and_then(VecDeque::pop_front)
}
