//! Queen's ephemeral queues over HTTP, for any broker that has them.
//!
//! Requests are made of pieces that are rendered once. Answers are not parsed (`driver::scan`): what is looked for
//! in them (`"payload":`, `"replyTo":`, `"pushed":`, `"code":`) can't stand anywhere else.

use memchr::{memchr, memmem};

use super::{
    Batch, Bound, Driver, Event, Garbled, Owed, Place, Replies, Source, append_number, decimal_digits,
    exchange::{END_OF_HEAD, Exchange, post_head},
    scan::{number_behind, quoted, string_behind, value},
};

/// The longest wait that a broker takes, in milliseconds.
const WAIT_MAX_MS: u64 = 300_000;

/// Bytes of a queue that rejects: more than the run leaves in it, cut by the broker to what its node allows.
const QUEUE_BYTES: u64 = 1 << 30;
const QUEUE_LENGTH: u64 = 1_000_000;
/// Messages that a queue keeps that is only pushed to.
const KEPT_LENGTH: u64 = 10_000;

/// What an answer belongs to.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// Something of which only the status counts.
    Plain,
    Push,
    Pop,
    Request,
    Exchange,
}

/// One connection's end of it.
pub(super) struct Queen {
    host: String,
    /// Heads up to the value of the content length.
    push_head: Vec<u8>,
    request_head: Vec<u8>,
    exchange_head: Vec<u8>,
    exchange: Exchange<Asked>,
    finders: Finders,
    /// A body whose length has to be known before it is appended.
    body: Vec<u8>,
}

struct Finders {
    payload: memmem::Finder<'static>,
    reply_to: memmem::Finder<'static>,
    pushed: memmem::Finder<'static>,
    reply: memmem::Finder<'static>,
    code: memmem::Finder<'static>,
}

impl Queen {
    pub(super) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            push_head: post_head("/api/v1/ephemeral/push", host),
            request_head: post_head("/api/v1/ephemeral/request", host),
            exchange_head: post_head("/api/v1/ephemeral/exchange", host),
            exchange: Exchange::new(),
            finders: Finders {
                payload: memmem::Finder::new(b"\"payload\":"),
                reply_to: memmem::Finder::new(b"\"replyTo\":"),
                pushed: memmem::Finder::new(b"\"pushed\":"),
                reply: memmem::Finder::new(b"\"reply\":"),
                code: memmem::Finder::new(b"\"code\":"),
            },
            body: Vec::new(),
        }
    }

    fn bare(&mut self, method_and_path: &str, out: &mut Vec<u8>) -> Owed {
        out.extend_from_slice(format!("{method_and_path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host).as_bytes());
        self.exchange.owe(Asked::Plain)
    }
}

const MESSAGE_BEGIN: &[u8] = b"{\"payload\":";
const QUEUE_BEGIN: &[u8] = b"{\"queue\":\"";
const PARTITION_BEGIN: &[u8] = b"\",\"partition\":\"p";
const MESSAGES_BEGIN: &[u8] = b"\",\"messages\":[";

impl Driver for Queen {
    fn greet(&mut self, _out: &mut Vec<u8>) -> Owed {
        self.exchange.clear();
        Owed::Nothing
    }

    fn probe(&mut self, out: &mut Vec<u8>) -> Owed {
        self.bare("GET /api/v1/ephemeral/queues?limit=1", out)
    }

    fn declare(&mut self, queue: &str, bound: Bound, out: &mut Vec<u8>) -> Owed {
        let (length, policy) = match bound {
            Bound::DropOldest => (KEPT_LENGTH, "dropOldest"),
            Bound::Reject => (QUEUE_LENGTH, "reject"),
        };
        let body = format!(
            "{{\"queue\":\"{queue}\",\"options\":{{\"maxLength\":{length},\"maxBytes\":{QUEUE_BYTES},\"policy\":\"{policy}\"}}}}"
        );
        out.extend_from_slice(&post_head("/api/v1/ephemeral/configure", &self.host));
        out.extend_from_slice(format!("{}\r\n\r\n{body}", body.len()).as_bytes());
        self.exchange.owe(Asked::Plain)
    }

    fn remove(&mut self, queue: &str, _partitions: usize, out: &mut Vec<u8>) -> Owed {
        self.bare(&format!("DELETE /api/v1/ephemeral/queue/{queue}"), out)
    }

    fn push(&mut self, to: Place<'_>, messages: &Batch, out: &mut Vec<u8>) -> Owed {
        let partition_bytes =
            to.partition.map_or(0, |partition| PARTITION_BEGIN.len() + decimal_digits(partition as u64));
        // Each message with its braces and a comma but the last, whose place the closing "]}" takes with one more.
        let body_bytes = QUEUE_BEGIN.len()
            + to.queue.len()
            + partition_bytes
            + MESSAGES_BEGIN.len()
            + messages.bytes()
            + messages.len() * (MESSAGE_BEGIN.len() + 2)
            + 1;
        out.extend_from_slice(&self.push_head);
        append_number(body_bytes as u64, out);
        out.extend_from_slice(END_OF_HEAD);
        let begin = out.len();
        out.extend_from_slice(QUEUE_BEGIN);
        out.extend_from_slice(to.queue.as_bytes());
        if let Some(partition) = to.partition {
            out.extend_from_slice(PARTITION_BEGIN);
            append_number(partition as u64, out);
        }
        out.extend_from_slice(MESSAGES_BEGIN);
        for (number, payload) in messages.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(MESSAGE_BEGIN);
            out.extend_from_slice(payload);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        debug_assert_eq!(out.len() - begin, body_bytes, "the content length is right");
        self.exchange.owe(Asked::Push)
    }

    fn pop(&mut self, from: Source<'_>, max: usize, wait_ms: u64, out: &mut Vec<u8>) -> Owed {
        out.extend_from_slice(b"GET /api/v1/ephemeral/pop?queue=");
        out.extend_from_slice(from.queue.as_bytes());
        if max > 1 {
            out.extend_from_slice(b"&batch=");
            append_number(max as u64, out);
        }
        if let Some(group) = from.group {
            out.extend_from_slice(b"&group=g");
            append_number(group as u64, out);
        }
        out.extend_from_slice(b"&wait=true&timeout=");
        append_number(wait_ms.min(WAIT_MAX_MS), out);
        out.extend_from_slice(b"&autoAck=true HTTP/1.1\r\nHost: ");
        out.extend_from_slice(self.host.as_bytes());
        out.extend_from_slice(END_OF_HEAD);
        self.exchange.owe(Asked::Pop)
    }

    fn request(&mut self, queue: &str, payload: &[u8], timeout_ms: u64, out: &mut Vec<u8>) -> Owed {
        const PAYLOAD: &[u8] = b"\",\"payload\":";
        const TIMEOUT: &[u8] = b",\"timeout\":";
        let timeout_ms = timeout_ms.min(WAIT_MAX_MS);
        let body_bytes = QUEUE_BEGIN.len()
            + queue.len()
            + PAYLOAD.len()
            + payload.len()
            + TIMEOUT.len()
            + decimal_digits(timeout_ms)
            + 1;
        out.extend_from_slice(&self.request_head);
        append_number(body_bytes as u64, out);
        out.extend_from_slice(END_OF_HEAD);
        for piece in [QUEUE_BEGIN, queue.as_bytes(), PAYLOAD, payload, TIMEOUT] {
            out.extend_from_slice(piece);
        }
        append_number(timeout_ms, out);
        out.push(b'}');
        self.exchange.owe(Asked::Request)
    }

    fn exchange(&mut self, replies: &Replies, from: Source<'_>, max: usize, wait_ms: u64, out: &mut Vec<u8>) -> Owed {
        let body = &mut self.body;
        body.clear();
        body.push(b'{');
        if !replies.is_empty() {
            body.extend_from_slice(b"\"pushes\":[");
            for (number, (name, payload)) in replies.iter().enumerate() {
                if number > 0 {
                    body.push(b',');
                }
                for piece in [QUEUE_BEGIN, name, MESSAGES_BEGIN, MESSAGE_BEGIN, payload, b"}]}"] {
                    body.extend_from_slice(piece);
                }
            }
            body.extend_from_slice(b"],");
        }
        body.extend_from_slice(b"\"pop\":{\"queue\":\"");
        body.extend_from_slice(from.queue.as_bytes());
        body.extend_from_slice(b"\",\"batch\":");
        append_number(max as u64, body);
        if let Some(group) = from.group {
            body.extend_from_slice(b",\"group\":\"g");
            append_number(group as u64, body);
            body.push(b'"');
        }
        body.extend_from_slice(b",\"wait\":true,\"timeout\":");
        append_number(wait_ms.min(WAIT_MAX_MS), body);
        body.extend_from_slice(b",\"autoAck\":true}}");
        out.extend_from_slice(&self.exchange_head);
        append_number(self.body.len() as u64, out);
        out.extend_from_slice(END_OF_HEAD);
        out.extend_from_slice(&self.body);
        self.exchange.owe(Asked::Exchange)
    }

    fn decode(&mut self, input: &[u8], on: &mut dyn FnMut(Event<'_>)) -> Result<usize, Garbled> {
        let finders = &self.finders;
        self.exchange.decode(input, on, |asked, body, on| on_success(finders, asked, body, on))
    }
}

fn on_success(finders: &Finders, asked: Asked, body: &[u8], on: &mut dyn FnMut(Event<'_>)) {
    match asked {
        Asked::Plain => on(Event::Answered { pushed: 0 }),
        Asked::Push => on(Event::Answered { pushed: number_behind(&finders.pushed, body).unwrap_or(0) }),
        Asked::Request => {
            if let Some(at) = finders.reply.find(body) {
                let value = body[at + finders.reply.needle().len()..].trim_ascii_start();
                let value = value.strip_suffix(b"}").unwrap_or(value);
                on(Event::Message { payload: value.trim_ascii_end(), reply_to: None });
            }
            on(Event::Answered { pushed: 0 });
        }
        Asked::Pop => {
            on_messages(finders, body, on);
            on(Event::Answered { pushed: 0 });
        }
        Asked::Exchange => {
            for at in finders.code.find_iter(body) {
                let code = quoted(&body[at + finders.code.needle().len()..]);
                if let Some(code) = code.and_then(|code| std::str::from_utf8(code).ok()) {
                    on(Event::PartRefused { code });
                }
            }
            on_messages(finders, body, on);
            on(Event::Answered { pushed: 0 });
        }
    }
}

/// Finds each message by its payload. Where its reply goes may stand before or behind that, in the same object: nothing
/// of ours holds a brace.
fn on_messages(finders: &Finders, body: &[u8], on: &mut dyn FnMut(Event<'_>)) {
    let mut message_begin = 0;
    while let Some(found) = finders.payload.find(&body[message_begin..]) {
        let payload_begin = message_begin + found + finders.payload.needle().len();
        let (payload, behind) = value(&body[payload_begin..]);
        let payload_end = body.len() - behind.len();
        let object_end = payload_end + memchr(b'}', behind).unwrap_or(behind.len());
        let reply_to = string_behind(&finders.reply_to, &body[message_begin..payload_begin])
            .or_else(|| string_behind(&finders.reply_to, &body[payload_end..object_end]));
        on(Event::Message { payload, reply_to });
        message_begin = object_end;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{Seen, assert_decodes},
        *,
    };

    const SOURCE: Source<'_> = Source { queue: "q", partitions: 1, claims: 1, group: None };

    fn batch(payloads: &[&str]) -> Batch {
        let mut batch = Batch::default();
        payloads.iter().for_each(|payload| batch.add(|out| out.extend_from_slice(payload.as_bytes())));
        batch
    }

    fn response(status: u16, body: &str) -> String {
        format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    fn message(payload: &str, reply_to: Option<&str>) -> Seen {
        Seen::Message(payload.into(), reply_to.map(Into::into))
    }

    /// The head and the body of what was appended, whose content length must be right.
    fn split(out: &[u8]) -> (&str, &str) {
        let (head, body) = std::str::from_utf8(out).unwrap().split_once("\r\n\r\n").unwrap();
        let length = head.rsplit_once("Content-Length: ").unwrap().1;
        assert_eq!(length.parse(), Ok(body.len()));
        (head.lines().next().unwrap(), body)
    }

    #[test]
    fn answers_are_found_however_the_bytes_are_cut() {
        let asked = || {
            let mut queen = Queen::new("h");
            let out = &mut Vec::new();
            queen.push(Place { queue: "q", partition: None }, &batch(&["1"]), out);
            (0..3).for_each(|_| {
                queen.pop(SOURCE, 1, 0, out);
            });
            queen.request("q", b"1", 0, out);
            queen.exchange(&Replies::default(), SOURCE, 1, 0, out);
            queen.push(Place { queue: "q", partition: None }, &batch(&["1"]), out);
            queen
        };
        let input = [
            response(201, r#"{"pushed":12}"#),
            response(200, r#"{"queue":"q","messages":[]}"#),
            response(200, r#"{"queue":"q","messages":[{"id":"e:1","payload":"ab"},{"payload": "cd","replyTo":"i"}]}"#),
            // In the order of the alphabet, as some brokers render it, and with a payload that is none of ours.
            response(200, r#"{"messages":[{"payload":12,"replyTo":"i"},{"payload":"c","x":1}],"queue":"q"}"#),
            response(200, r#"{"reply":"xyz"}"#),
            response(
                200,
                r#"{"pushes":[{"status":429,"code":"queue_full"}],"queue":"q","messages":[{"replyTo":"j","payload":"e"}]}"#,
            ),
            response(429, r#"{"error":"the queue is full","code":"queue_full"}"#),
        ]
        .concat();
        let wanted = [
            Seen::Answered(12),
            Seen::Answered(0),
            message("\"ab\"", None),
            message("\"cd\"", Some("i")),
            Seen::Answered(0),
            message("12", Some("i")),
            message("\"c\"", None),
            Seen::Answered(0),
            message("\"xyz\"", None),
            Seen::Answered(0),
            Seen::PartRefused("queue_full".into()),
            message("\"e\"", Some("j")),
            Seen::Answered(0),
            Seen::Refused("queue_full".into()),
        ];
        assert_decodes(asked, input.as_bytes(), &wanted);
    }

    #[test]
    fn a_failure_without_a_code_is_called_by_its_status() {
        let mut queen = Queen::new("h");
        queen.pop(SOURCE, 1, 0, &mut Vec::new());
        let mut codes = Vec::new();
        let input = response(503, "<html>");
        queen
            .decode(input.as_bytes(), &mut |event| match event {
                Event::Refused { code } => codes.push(code.to_owned()),
                other => panic!("{other:?}"),
            })
            .unwrap();
        assert_eq!(codes, ["http_503"]);
    }

    #[test]
    fn an_answer_to_nothing_is_garbled() {
        assert_eq!(Queen::new("h").decode(response(200, "{}").as_bytes(), &mut |_| {}), Err(Garbled));
    }

    #[test]
    fn a_push_has_its_messages_and_its_length() {
        for partition in [None, Some(7), Some(12)] {
            let mut out = Vec::new();
            Queen::new("h").push(Place { queue: "q", partition }, &batch(&["\"a\"", "\"bc\""]), &mut out);
            let (line, body) = split(&out);
            assert_eq!(line, "POST /api/v1/ephemeral/push HTTP/1.1");
            let named = partition.map_or(String::new(), |number| format!(r#","partition":"p{number}""#));
            assert_eq!(body, format!(r#"{{"queue":"q"{named},"messages":[{{"payload":"a"}},{{"payload":"bc"}}]}}"#));
        }
    }

    #[test]
    fn a_queue_is_declared_where_ephemeral_queues_are() {
        let mut out = Vec::new();
        Queen::new("h").declare("q", Bound::Reject, &mut out);
        assert!(out.starts_with(b"POST /api/v1/ephemeral/configure HTTP/1.1\r\nHost: h\r\n"));
    }

    #[test]
    fn a_pop_names_what_it_wants() {
        let mut out = Vec::new();
        let source = Source { group: Some(3), ..SOURCE };
        Queen::new("h:1").pop(source, 10, 400_000, &mut out);
        let wanted = "GET /api/v1/ephemeral/pop?queue=q&batch=10&group=g3&wait=true&timeout=300000&autoAck=true \
                      HTTP/1.1\r\nHost: h:1\r\n\r\n";
        assert_eq!(std::str::from_utf8(&out), Ok(wanted));
    }

    #[test]
    fn the_two_verbs_have_their_parts_and_their_lengths() {
        let mut out = Vec::new();
        Queen::new("h").request("q", b"\"a\"", 2_500, &mut out);
        let (line, body) = split(&out);
        assert_eq!(line, "POST /api/v1/ephemeral/request HTTP/1.1");
        assert_eq!(body, r#"{"queue":"q","payload":"a","timeout":2500}"#);

        let mut replies = Replies::default();
        replies.add(|out| out.extend_from_slice(b"i1"), b"\"r\"");
        replies.add(|out| out.extend_from_slice(b"i2"), b"\"s\"");
        out.clear();
        Queen::new("h").exchange(&replies, SOURCE, 1, 20_000, &mut out);
        let (line, body) = split(&out);
        assert_eq!(line, "POST /api/v1/ephemeral/exchange HTTP/1.1");
        let pushes = r#"{"queue":"i1","messages":[{"payload":"r"}]},{"queue":"i2","messages":[{"payload":"s"}]}"#;
        let pop = r#"{"queue":"q","batch":1,"wait":true,"timeout":20000,"autoAck":true}"#;
        assert_eq!(body, format!(r#"{{"pushes":[{pushes}],"pop":{pop}}}"#));
    }
}
