//! Core NATS: subjects, no acknowledgement, nothing kept.
//!
//! What a connection listens to is subscribed to as it opens, and a PING behind it is answered when the subscription is
//! in force. A push is followed by a PING as well: its PONG says that the server has read it, which is the most that a
//! publisher can learn. Groups are plain subscriptions, one each; sharing is a queue subscription. A request carries the
//! requester's inbox, a new subject under it each time.

use std::collections::VecDeque;

use memchr::memchr;

use super::{Batch, Bound, Driver, Event, Garbled, Listens, Owed, Place, Replies, Source, append_number, parse_number};

/// A line of the protocol is never longer, but for INFO on a large cluster.
const LINE_BYTES_MAX: usize = 64 * 1024;

const PONG: &[u8] = b"PONG\r\n";

/// One connection's end of it.
pub(super) struct Nats {
    listens: Listens,
    /// For each PING that is not answered, how many messages were pushed before it.
    pinged: VecDeque<u64>,
    /// Requests made, which name their inboxes.
    requests: u64,
    /// A PING of the server is answered with the next bytes that leave.
    pongs_owed: usize,
}

impl Nats {
    pub(super) fn new(listens: Listens) -> Self {
        Self { listens, pinged: VecDeque::new(), requests: 0, pongs_owed: 0 }
    }

    fn ping(&mut self, pushed: u64, out: &mut Vec<u8>) -> Owed {
        out.extend_from_slice(b"PING\r\n");
        self.pinged.push_back(pushed);
        Owed::Answer
    }

    /// Answers the server's PINGs. It asks every few minutes, and closes what stays silent.
    fn pong(&mut self, out: &mut Vec<u8>) {
        for _ in 0..std::mem::take(&mut self.pongs_owed) {
            out.extend_from_slice(PONG);
        }
    }
}

fn append_subject(to: Place<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(to.queue.as_bytes());
    if let Some(partition) = to.partition {
        out.push(b'.');
        append_number(partition as u64, out);
    }
}

fn append_message(payload: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    append_number(payload.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

impl Driver for Nats {
    fn greet(&mut self, out: &mut Vec<u8>) -> Owed {
        self.pinged.clear();
        self.pongs_owed = 0;
        out.extend_from_slice(b"CONNECT {\"verbose\":false,\"pedantic\":false,\"name\":\"loadgen\",\"lang\":\"rust\",\"version\":\"1\"}\r\n");
        match &self.listens {
            Listens::No => {}
            Listens::Inbox(name) => out.extend_from_slice(format!("SUB {name}.* 1\r\n").as_bytes()),
            Listens::Queue { queue, partitions, group } => {
                let subject = if *partitions > 1 { format!("{queue}.*") } else { queue.clone() };
                let sharing = if group.is_none() { " shared" } else { "" };
                out.extend_from_slice(format!("SUB {subject}{sharing} 1\r\n").as_bytes());
            }
        }
        self.ping(0, out)
    }

    fn probe(&mut self, out: &mut Vec<u8>) -> Owed {
        self.ping(0, out)
    }

    fn declare(&mut self, _queue: &str, _bound: Bound, _out: &mut Vec<u8>) -> Owed {
        Owed::Nothing
    }

    fn remove(&mut self, _queue: &str, _partitions: usize, _out: &mut Vec<u8>) -> Owed {
        Owed::Nothing
    }

    fn push(&mut self, to: Place<'_>, messages: &Batch, out: &mut Vec<u8>) -> Owed {
        self.pong(out);
        for payload in messages.iter() {
            out.extend_from_slice(b"PUB ");
            append_subject(to, out);
            append_message(payload, out);
        }
        self.ping(messages.len() as u64, out)
    }

    fn pop(&mut self, _from: Source<'_>, _max: usize, _wait_ms: u64, _out: &mut Vec<u8>) -> Owed {
        Owed::Nothing
    }

    fn request(&mut self, queue: &str, payload: &[u8], _timeout_ms: u64, out: &mut Vec<u8>) -> Owed {
        self.pong(out);
        out.extend_from_slice(b"PUB ");
        out.extend_from_slice(queue.as_bytes());
        out.push(b' ');
        if let Listens::Inbox(name) = &self.listens {
            out.extend_from_slice(name.as_bytes());
        }
        out.push(b'.');
        append_number(self.requests, out);
        self.requests += 1;
        append_message(payload, out);
        Owed::Nothing
    }

    fn exchange(
        &mut self,
        replies: &Replies,
        _from: Source<'_>,
        _max: usize,
        _wait_ms: u64,
        out: &mut Vec<u8>,
    ) -> Owed {
        self.pong(out);
        for (name, payload) in replies.iter() {
            out.extend_from_slice(b"PUB ");
            out.extend_from_slice(name);
            append_message(payload, out);
        }
        Owed::Nothing
    }

    fn decode(&mut self, input: &[u8], on: &mut dyn FnMut(Event<'_>)) -> Result<usize, Garbled> {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            let Some(length) = memchr(b'\n', rest) else {
                return if rest.len() > LINE_BYTES_MAX { Err(Garbled) } else { Ok(taken) };
            };
            let line = rest[..length].strip_suffix(b"\r").ok_or(Garbled)?;
            let mut line_bytes = length + 1;
            if let Some(arguments) = line.strip_prefix(b"MSG ") {
                let (reply_to, bytes) = message_head(arguments)?;
                let Some(end) = line_bytes.checked_add(bytes).filter(|end| end + 2 <= rest.len()) else {
                    return Ok(taken);
                };
                let payload = &rest[line_bytes..end];
                if &rest[end..end + 2] != b"\r\n" {
                    return Err(Garbled);
                }
                on(Event::Message { payload, reply_to });
                line_bytes = end + 2;
            } else if line == b"PONG" {
                let pushed = self.pinged.pop_front().ok_or(Garbled)?;
                on(Event::Answered { pushed });
            } else if line == b"PING" {
                self.pongs_owed += 1;
            } else if let Some(text) = line.strip_prefix(b"-ERR ") {
                // The server closes the connection behind most of them; what is owed is answered by that.
                let text = std::str::from_utf8(text).map_err(|_| Garbled)?;
                on(Event::PartRefused { code: text.trim_matches('\'') });
            } else if !line.starts_with(b"INFO ") && line != b"+OK" {
                return Err(Garbled);
            }
            taken += line_bytes;
        }
    }
}

/// The reply subject and the length of a message from `subject sid [reply-to] bytes`.
fn message_head(arguments: &[u8]) -> Result<(Option<&[u8]>, usize), Garbled> {
    let mut words = arguments.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let (_subject, _sid) = (words.next().ok_or(Garbled)?, words.next().ok_or(Garbled)?);
    let third = words.next().ok_or(Garbled)?;
    let (reply_to, bytes) = match words.next() {
        Some(bytes) => (Some(third), bytes),
        None => (None, third),
    };
    let bytes = parse_number(bytes).and_then(|bytes| usize::try_from(bytes).ok()).ok_or(Garbled)?;
    Ok((reply_to, bytes))
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{Seen, assert_decodes},
        *,
    };

    fn inbox() -> Nats {
        Nats::new(Listens::Inbox("in".into()))
    }

    #[test]
    fn messages_and_pongs_are_found_however_the_bytes_are_cut() {
        let input =
            b"INFO {\"max_payload\":1048576}\r\nPONG\r\nMSG in.0 1 2\r\nhi\r\nPING\r\nMSG q 1 back 4\r\n\r\n\r\n\r\n";
        let greeted = || {
            let mut nats = inbox();
            assert_eq!(nats.greet(&mut Vec::new()), Owed::Answer);
            nats
        };
        let wanted = [
            Seen::Answered(0),
            Seen::Message("hi".into(), None),
            Seen::Message("\r\n\r\n".into(), Some("back".into())),
        ];
        assert_decodes(greeted, input, &wanted);
    }

    #[test]
    fn a_push_is_answered_with_what_it_pushed() {
        let mut nats = inbox();
        let mut batch = Batch::default();
        batch.add(|out| out.extend_from_slice(b"\"a\""));
        batch.add(|out| out.extend_from_slice(b"\"bc\""));
        let mut out = Vec::new();
        nats.push(Place { queue: "q", partition: Some(7) }, &batch, &mut out);
        assert_eq!(out, b"PUB q.7 3\r\n\"a\"\r\nPUB q.7 4\r\n\"bc\"\r\nPING\r\n");
        let mut pushes = 0;
        nats.decode(PONG, &mut |event| {
            assert_eq!(event, Event::Answered { pushed: 2 });
            pushes += 1;
        })
        .unwrap();
        assert_eq!(pushes, 1);
    }

    #[test]
    fn a_ping_of_the_server_is_answered_with_the_next_bytes() {
        let mut nats = inbox();
        nats.decode(b"PING\r\n", &mut |_| panic!("no event")).unwrap();
        let mut out = Vec::new();
        nats.request("q", b"\"x\"", 1, &mut out);
        nats.request("q", b"\"x\"", 1, &mut out);
        assert_eq!(out, b"PONG\r\nPUB q in.0 3\r\n\"x\"\r\nPUB q in.1 3\r\n\"x\"\r\n");
    }

    #[test]
    fn what_is_no_nats_is_garbled() {
        for input in ["HTTP/1.1 400 Bad Request\r\n", "PONG\r\n", "MSG q\r\n", "MSG q 1 1\r\nabc\r\n"] {
            assert_eq!(inbox().decode(input.as_bytes(), &mut |_| {}), Err(Garbled), "{input:?}");
        }
    }
}
