//! Queen's durable queues over HTTP, for any broker that has them.
//!
//! Pops acknowledge as they take, so that a message is delivered once and what is measured of a pop is one request.
//! Answers are not parsed (`driver::scan`).

use memchr::memmem;

use super::{
    Batch, Bound, Driver, Event, Garbled, Owed, Place, Replies, Source, append_number,
    exchange::{END_OF_HEAD, Exchange, post_head},
    scan::value,
};

/// What an answer belongs to.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// Something of which only the status counts.
    Plain,
    Push,
    Pop,
}

/// One connection's end of it.
pub(super) struct Durable {
    host: String,
    /// The head of a push up to the value of the content length.
    push_head: Vec<u8>,
    exchange: Exchange<Asked>,
    data: memmem::Finder<'static>,
    queued: memmem::Finder<'static>,
    /// A body whose length has to be known before it is appended.
    body: Vec<u8>,
}

impl Durable {
    pub(super) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            push_head: post_head("/api/v1/push", host),
            exchange: Exchange::new(),
            data: memmem::Finder::new(b"\"data\":"),
            queued: memmem::Finder::new(b"\"status\":\"queued\""),
            body: Vec::new(),
        }
    }

    fn bare(&mut self, method_and_path: &str, out: &mut Vec<u8>) -> Owed {
        out.extend_from_slice(format!("{method_and_path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host).as_bytes());
        self.exchange.owe(Asked::Plain)
    }

    /// Appends a push of all messages, each to the partition that comes next in `partitions`.
    fn push_items(
        &mut self,
        queue: &str,
        mut partitions: impl Iterator<Item = Option<usize>>,
        messages: &Batch,
        out: &mut Vec<u8>,
    ) -> Owed {
        let body = &mut self.body;
        body.clear();
        body.extend_from_slice(b"{\"items\":[");
        for (number, payload) in messages.iter().enumerate() {
            if number > 0 {
                body.push(b',');
            }
            body.extend_from_slice(b"{\"queue\":\"");
            body.extend_from_slice(queue.as_bytes());
            if let Some(partition) = partitions.next().flatten() {
                body.extend_from_slice(b"\",\"partition\":\"p");
                append_number(partition as u64, body);
            }
            body.extend_from_slice(b"\",\"payload\":");
            body.extend_from_slice(payload);
            body.push(b'}');
        }
        body.extend_from_slice(b"]}");
        out.extend_from_slice(&self.push_head);
        append_number(self.body.len() as u64, out);
        out.extend_from_slice(END_OF_HEAD);
        out.extend_from_slice(&self.body);
        self.exchange.owe(Asked::Push)
    }
}

impl Driver for Durable {
    fn greet(&mut self, _out: &mut Vec<u8>) -> Owed {
        self.exchange.clear();
        Owed::Nothing
    }

    fn probe(&mut self, out: &mut Vec<u8>) -> Owed {
        self.bare("GET /health", out)
    }

    fn declare(&mut self, queue: &str, _bound: Bound, out: &mut Vec<u8>) -> Owed {
        let body = format!("{{\"queue\":\"{queue}\",\"options\":{{}}}}");
        out.extend_from_slice(&post_head("/api/v1/configure", &self.host));
        out.extend_from_slice(format!("{}\r\n\r\n{body}", body.len()).as_bytes());
        self.exchange.owe(Asked::Plain)
    }

    fn remove(&mut self, queue: &str, _partitions: usize, out: &mut Vec<u8>) -> Owed {
        self.bare(&format!("DELETE /api/v1/resources/queues/{queue}"), out)
    }

    fn push(&mut self, to: Place<'_>, messages: &Batch, out: &mut Vec<u8>) -> Owed {
        self.push_items(to.queue, std::iter::repeat(to.partition), messages, out)
    }

    fn push_across(&mut self, queue: &str, partitions: &[usize], messages: &Batch, out: &mut Vec<u8>) -> Owed {
        self.push_items(queue, partitions.iter().copied().map(Some).cycle(), messages, out)
    }

    fn pop(&mut self, from: Source<'_>, max: usize, wait_ms: u64, out: &mut Vec<u8>) -> Owed {
        out.extend_from_slice(b"GET /api/v1/pop/queue/");
        out.extend_from_slice(from.queue.as_bytes());
        out.extend_from_slice(b"?autoAck=true&batch=");
        append_number(max as u64, out);
        out.extend_from_slice(b"&partitions=");
        append_number(from.claims as u64, out);
        if wait_ms > 0 {
            out.extend_from_slice(b"&wait=true&timeout=");
            append_number(wait_ms, out);
        }
        if let Some(group) = from.group {
            out.extend_from_slice(b"&subscriptionMode=all&consumerGroup=g");
            append_number(group as u64, out);
        }
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(self.host.as_bytes());
        out.extend_from_slice(END_OF_HEAD);
        self.exchange.owe(Asked::Pop)
    }

    fn request(&mut self, _queue: &str, _payload: &[u8], _timeout_ms: u64, _out: &mut Vec<u8>) -> Owed {
        unreachable!("a round trip of durable queues goes in two steps")
    }

    fn exchange(&mut self, _: &Replies, _: Source<'_>, _max: usize, _wait_ms: u64, _out: &mut Vec<u8>) -> Owed {
        unreachable!("a round trip of durable queues goes in two steps")
    }

    fn decode(&mut self, input: &[u8], on: &mut dyn FnMut(Event<'_>)) -> Result<usize, Garbled> {
        let (queued, data) = (&self.queued, &self.data);
        self.exchange.decode(input, on, |asked, body, on| {
            let pushed = match asked {
                Asked::Plain => 0,
                // What is `buffered` or `duplicate` is not what was asked for.
                Asked::Push => queued.find_iter(body).count() as u64,
                Asked::Pop => {
                    for at in data.find_iter(body) {
                        let (payload, _) = value(&body[at + data.needle().len()..]);
                        on(Event::Message { payload, reply_to: None });
                    }
                    0
                }
            };
            on(Event::Answered { pushed });
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{Seen, assert_decodes},
        *,
    };

    const SOURCE: Source<'_> = Source { queue: "q", partitions: 8, claims: 2, group: None };

    fn batch(payloads: &[&str]) -> Batch {
        let mut batch = Batch::default();
        payloads.iter().for_each(|payload| batch.add(|out| out.extend_from_slice(payload.as_bytes())));
        batch
    }

    fn response(status: u16, body: &str) -> String {
        format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    /// The body of a push, whose content length must be right.
    fn body(out: &[u8]) -> &str {
        let (head, body) = std::str::from_utf8(out).unwrap().split_once("\r\n\r\n").unwrap();
        assert_eq!(head.rsplit_once("Content-Length: ").unwrap().1.parse(), Ok(body.len()));
        assert!(head.starts_with("POST /api/v1/push HTTP/1.1\r\n"), "{head}");
        body
    }

    #[test]
    fn answers_are_found_however_the_bytes_are_cut() {
        let asked = || {
            let mut durable = Durable::new("h");
            let out = &mut Vec::new();
            durable.push(Place { queue: "q", partition: None }, &batch(&["1"]), out);
            (0..2).for_each(|_| {
                durable.pop(SOURCE, 2, 0, out);
            });
            (0..2).for_each(|_| {
                durable.push(Place { queue: "q", partition: None }, &batch(&["1"]), out);
            });
            durable
        };
        let input = [
            response(
                201,
                r#"[{"index":0,"message_id":"a","status":"queued"},{"index":1,"status":"duplicate"},{"index":2,"status":"queued"}]"#,
            ),
            "HTTP/1.1 204 No Content\r\n\r\n".into(),
            response(
                200,
                r#"{"success":true,"messages":[{"id":"a","data":"ab","leaseId":""},{"data": "cd","x":null}],"partitionsClaimed":1}"#,
            ),
            response(503, r#"{"error":"the store is away","code":"store_unavailable"}"#),
            response(500, r#"{"error":"pool"}"#),
        ]
        .concat();
        let message = |payload: &str| Seen::Message(payload.into(), None);
        let wanted = [
            Seen::Answered(2),
            Seen::Answered(0),
            message("\"ab\""),
            message("\"cd\""),
            Seen::Answered(0),
            Seen::Refused("store_unavailable".into()),
            Seen::Refused("http_5xx".into()),
        ];
        assert_decodes(asked, input.as_bytes(), &wanted);
    }

    #[test]
    fn a_push_names_its_partitions_message_by_message() {
        let (messages, mut out) = (batch(&["\"a\"", "\"b\"", "\"c\""]), Vec::new());
        Durable::new("h").push(Place { queue: "q", partition: None }, &messages, &mut out);
        let items = r#"{"queue":"q","payload":"a"},{"queue":"q","payload":"b"},{"queue":"q","payload":"c"}"#;
        assert_eq!(body(&out), format!(r#"{{"items":[{items}]}}"#));
        out.clear();
        Durable::new("h").push_across("q", &[12, 3], &messages, &mut out);
        let item = |partition, payload| format!(r#"{{"queue":"q","partition":"p{partition}","payload":"{payload}"}}"#);
        assert_eq!(body(&out), format!(r#"{{"items":[{},{},{}]}}"#, item(12, 'a'), item(3, 'b'), item(12, 'c')));
    }

    #[test]
    fn a_queue_is_declared_where_durable_queues_are() {
        let mut out = Vec::new();
        Durable::new("h").declare("q", Bound::Reject, &mut out);
        assert!(out.starts_with(b"POST /api/v1/configure HTTP/1.1\r\nHost: h\r\n"));
    }

    #[test]
    fn a_pop_names_what_it_wants() {
        let mut out = Vec::new();
        Durable::new("h").pop(Source { group: Some(3), ..SOURCE }, 10, 20_000, &mut out);
        let wanted = "GET /api/v1/pop/queue/q?autoAck=true&batch=10&partitions=2&wait=true&timeout=20000\
                      &subscriptionMode=all&consumerGroup=g3 HTTP/1.1\r\nHost: h\r\n\r\n";
        assert_eq!(std::str::from_utf8(&out), Ok(wanted));
    }
}
