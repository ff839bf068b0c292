//! Redis lists: a queue is a list for each partition, pushed to at its left end and popped from its right.
//!
//! A pop of one message is a BRPOP over all of the queue's lists, of more a BLMPOP (Redis 7). Lists know no groups. A
//! list that is only pushed to is cut to its newest messages every so often, in the same write as a push.

use std::collections::VecDeque;

use memchr::memchr;

use super::{Batch, Bound, Driver, Event, Garbled, Owed, Place, Replies, Source, append_number, parse_number};

/// Messages that are kept of a list that is only pushed to.
const KEPT_LENGTH: u64 = 10_000;

/// It is cut once for so many messages that a connection pushes.
const TRIM_EVERY: u64 = 1_000;

/// Arrays within arrays that an answer may have: BLMPOP has one level.
const DEPTH_MAX: usize = 4;

/// What an answer belongs to.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Plain,
    Push { messages: u64 },
    Trim,
    Pop,
}

/// One connection's end of it.
#[derive(Default)]
pub(super) struct Redis {
    asked: VecDeque<Asked>,
    /// The lists are only pushed to, and are cut on the way.
    is_trimming: bool,
    pushed_since_trim: u64,
    /// Rendered list names of a pop.
    key: Vec<u8>,
}

impl Redis {
    pub(super) fn new(bound: Bound) -> Self {
        Self { is_trimming: bound == Bound::DropOldest, ..Self::default() }
    }

    fn render_key(&mut self, queue: &str, partition: Option<usize>) {
        self.key.clear();
        self.key.extend_from_slice(queue.as_bytes());
        if let Some(partition) = partition {
            self.key.push(b':');
            append_number(partition as u64, &mut self.key);
        }
    }

    fn append_keys(&mut self, queue: &str, partitions: usize, out: &mut Vec<u8>) {
        for partition in 0..partitions {
            self.render_key(queue, (partitions > 1).then_some(partition));
            append_bulk(&self.key, out);
        }
    }
}

fn append_head(words: usize, out: &mut Vec<u8>) {
    out.push(b'*');
    append_number(words as u64, out);
    out.extend_from_slice(b"\r\n");
}

fn append_bulk(word: &[u8], out: &mut Vec<u8>) {
    out.push(b'$');
    append_number(word.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn append_bulk_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = Vec::with_capacity(20);
    append_number(number, &mut digits);
    append_bulk(&digits, out);
}

/// A wait in seconds with its fraction, which is how Redis 6 and later take it.
fn append_wait(wait_ms: u64, out: &mut Vec<u8>) {
    append_bulk(format!("{}.{:03}", wait_ms / 1_000, wait_ms % 1_000).as_bytes(), out);
}

impl Driver for Redis {
    fn greet(&mut self, _out: &mut Vec<u8>) -> Owed {
        self.asked.clear();
        Owed::Nothing
    }

    fn probe(&mut self, out: &mut Vec<u8>) -> Owed {
        out.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
        self.asked.push_back(Asked::Plain);
        Owed::Answer
    }

    fn declare(&mut self, _queue: &str, _bound: Bound, _out: &mut Vec<u8>) -> Owed {
        Owed::Nothing
    }

    fn remove(&mut self, queue: &str, partitions: usize, out: &mut Vec<u8>) -> Owed {
        append_head(1 + partitions, out);
        append_bulk(b"DEL", out);
        self.append_keys(queue, partitions, out);
        self.asked.push_back(Asked::Plain);
        Owed::Answer
    }

    fn push(&mut self, to: Place<'_>, messages: &Batch, out: &mut Vec<u8>) -> Owed {
        self.render_key(to.queue, to.partition);
        self.pushed_since_trim += messages.len() as u64;
        if self.is_trimming && self.pushed_since_trim >= TRIM_EVERY {
            self.pushed_since_trim = 0;
            append_head(4, out);
            append_bulk(b"LTRIM", out);
            append_bulk(&self.key, out);
            append_bulk(b"0", out);
            append_bulk_number(KEPT_LENGTH - 1, out);
            self.asked.push_back(Asked::Trim);
        }
        append_head(2 + messages.len(), out);
        append_bulk(b"LPUSH", out);
        append_bulk(&self.key, out);
        messages.iter().for_each(|payload| append_bulk(payload, out));
        self.asked.push_back(Asked::Push { messages: messages.len() as u64 });
        Owed::Answer
    }

    fn pop(&mut self, from: Source<'_>, max: usize, wait_ms: u64, out: &mut Vec<u8>) -> Owed {
        if max == 1 {
            append_head(2 + from.partitions, out);
            append_bulk(b"BRPOP", out);
            self.append_keys(from.queue, from.partitions, out);
            append_wait(wait_ms, out);
        } else {
            append_head(6 + from.partitions, out);
            append_bulk(b"BLMPOP", out);
            append_wait(wait_ms, out);
            append_bulk_number(from.partitions as u64, out);
            self.append_keys(from.queue, from.partitions, out);
            append_bulk(b"RIGHT", out);
            append_bulk(b"COUNT", out);
            append_bulk_number(max as u64, out);
        }
        self.asked.push_back(Asked::Pop);
        Owed::Answer
    }

    fn request(&mut self, _queue: &str, _payload: &[u8], _timeout_ms: u64, _out: &mut Vec<u8>) -> Owed {
        unreachable!("a round trip of Redis goes in two steps")
    }

    fn exchange(&mut self, _: &Replies, _: Source<'_>, _max: usize, _wait_ms: u64, _out: &mut Vec<u8>) -> Owed {
        unreachable!("a round trip of Redis goes in two steps")
    }

    fn decode(&mut self, input: &[u8], on: &mut dyn FnMut(Event<'_>)) -> Result<usize, Garbled> {
        let mut taken = 0;
        while taken < input.len() {
            let Some(bytes) = answer_bytes(&input[taken..], 0)? else { break };
            let answer = &input[taken..taken + bytes];
            taken += bytes;
            let asked = self.asked.pop_front().ok_or(Garbled)?;
            if let Some(text) = answer.strip_prefix(b"-") {
                let word = text.split(|&byte| byte == b' ' || byte == b'\r').next().unwrap_or(text);
                let code = std::str::from_utf8(word).map_err(|_| Garbled)?;
                on(match asked {
                    Asked::Trim => Event::PartRefused { code },
                    _ => Event::Refused { code },
                });
                continue;
            }
            match asked {
                Asked::Plain => on(Event::Answered { pushed: 0 }),
                Asked::Push { messages } => on(Event::Answered { pushed: messages }),
                Asked::Trim => {}
                Asked::Pop => {
                    on_popped(answer, on)?;
                    on(Event::Answered { pushed: 0 });
                }
            }
        }
        Ok(taken)
    }
}

/// How many bytes the answer takes that `input` begins with, or `None` while it is not all there.
fn answer_bytes(input: &[u8], depth: usize) -> Result<Option<usize>, Garbled> {
    if depth > DEPTH_MAX {
        return Err(Garbled);
    }
    let Some((kind, line, behind)) = line(input)? else { return Ok(None) };
    let head_bytes = input.len() - behind.len();
    match kind {
        b'+' | b'-' | b':' => Ok(Some(head_bytes)),
        b'$' | b'*' if line == b"-1" => Ok(Some(head_bytes)),
        b'$' => {
            let end = length(line)?.checked_add(head_bytes + 2).ok_or(Garbled)?;
            Ok((end <= input.len()).then_some(end))
        }
        b'*' => {
            let mut at = head_bytes;
            for _ in 0..length(line)? {
                let Some(bytes) = answer_bytes(&input[at..], depth + 1)? else { return Ok(None) };
                at += bytes;
            }
            Ok(Some(at))
        }
        _ => Err(Garbled),
    }
}

/// The first line of an answer or of a part of one: its first byte, its rest, and what follows it.
type Line<'a> = (u8, &'a [u8], &'a [u8]);

fn line(input: &[u8]) -> Result<Option<Line<'_>>, Garbled> {
    let Some(&kind) = input.first() else { return Ok(None) };
    if !matches!(kind, b'+' | b'-' | b':' | b'$' | b'*') {
        return Err(Garbled);
    }
    let Some(end) = memchr(b'\n', input) else { return Ok(None) };
    let line = input[1..end].strip_suffix(b"\r").ok_or(Garbled)?;
    Ok(Some((kind, line, &input[end + 1..])))
}

fn length(digits: &[u8]) -> Result<usize, Garbled> {
    parse_number(digits).and_then(|length| usize::try_from(length).ok()).ok_or(Garbled)
}

/// The messages of a whole answer to a pop: `[list, message]` of BRPOP, `[list, [messages]]` of BLMPOP, or nothing.
fn on_popped(answer: &[u8], on: &mut dyn FnMut(Event<'_>)) -> Result<(), Garbled> {
    let Some((b'*', b"2", rest)) = line(answer)? else { return Ok(()) };
    let key_bytes = answer_bytes(rest, 1)?.ok_or(Garbled)?;
    let mut messages = &rest[key_bytes..];
    while let Some((kind, head, behind)) = line(messages)? {
        messages = behind;
        if kind == b'$' {
            let bytes = length(head)?;
            on(Event::Message { payload: &behind[..bytes], reply_to: None });
            messages = &behind[bytes + 2..];
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{Seen, assert_decodes},
        *,
    };

    const SOURCE: Source<'_> = Source { queue: "q", partitions: 1, claims: 1, group: None };

    fn batch() -> Batch {
        let mut batch = Batch::default();
        batch.add(|out| out.extend_from_slice(b"\"a\""));
        batch
    }

    fn asked(popped: usize) -> Redis {
        let mut redis = Redis::new(Bound::Reject);
        redis.push(Place { queue: "q", partition: None }, &batch(), &mut Vec::new());
        (0..popped).for_each(|_| {
            redis.pop(SOURCE, 1, 1_000, &mut Vec::new());
        });
        redis
    }

    #[test]
    fn pushes_and_pops_are_answered_however_the_bytes_are_cut() {
        let input = b":12\r\n*2\r\n$1\r\nq\r\n$4\r\n\r\n\r\n\r\n*-1\r\n*2\r\n$1\r\nq\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n-OOM command not allowed\r\n";
        let message = |text: &str| Seen::Message(text.into(), None);
        let wanted = [
            Seen::Answered(1),
            message("\r\n\r\n"),
            Seen::Answered(0),
            Seen::Answered(0),
            message("a"),
            message("b"),
            Seen::Answered(0),
            Seen::Refused("OOM".into()),
        ];
        assert_decodes(|| asked(4), input, &wanted);
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        let mut redis = Redis::new(Bound::Reject);
        redis.push(Place { queue: "q", partition: Some(2) }, &batch(), &mut out);
        assert_eq!(out, b"*3\r\n$5\r\nLPUSH\r\n$3\r\nq:2\r\n$3\r\n\"a\"\r\n");
        out.clear();
        redis.pop(Source { partitions: 2, ..SOURCE }, 1, 1_500, &mut out);
        assert_eq!(out, b"*4\r\n$5\r\nBRPOP\r\n$3\r\nq:0\r\n$3\r\nq:1\r\n$5\r\n1.500\r\n");
        out.clear();
        redis.pop(SOURCE, 10, 1_000, &mut out);
        let wanted =
            b"*7\r\n$6\r\nBLMPOP\r\n$5\r\n1.000\r\n$1\r\n1\r\n$1\r\nq\r\n$5\r\nRIGHT\r\n$5\r\nCOUNT\r\n$2\r\n10\r\n";
        assert_eq!(out, wanted);
    }

    #[test]
    fn a_list_that_only_grows_is_cut_and_the_answer_to_that_is_no_push() {
        let mut redis = Redis::new(Bound::DropOldest);
        let mut out = Vec::new();
        (0..TRIM_EVERY).for_each(|_| {
            redis.push(Place { queue: "q", partition: None }, &batch(), &mut out);
        });
        assert_eq!(memchr::memmem::find_iter(&out, b"LTRIM").count(), 1);
        let input = [b":1\r\n".repeat(TRIM_EVERY as usize - 1), b"+OK\r\n:1\r\n".to_vec()].concat();
        let mut pushes = 0;
        redis.decode(&input, &mut |_| pushes += 1).unwrap();
        assert_eq!(pushes, TRIM_EVERY);
    }

    #[test]
    fn what_is_no_redis_is_garbled() {
        for input in ["HTTP/1.1 400 Bad Request\r\n", "INFO {}\r\n", ":1\n", "$x\r\n"] {
            assert_eq!(asked(0).decode(input.as_bytes(), &mut |_| {}), Err(Garbled), "{input:?}");
        }
    }
}
