//! The memory payloads live in: append-only chunks that belong to one queue.
//!
//! A payload is copied in once, however many groups read it. A chunk counts the payloads that are
//! alive in it and is freed with the last. The first chunk fits what came (most inboxes hold one
//! message in their life), later ones double up to [`CHUNK_MAX_BYTES`]; a larger payload has a
//! chunk of its own. A payload that stays behind can pin its chunk, so when the chunks are much
//! larger than what is alive in them ([`Chunks::is_sparse`]) the owner copies the survivors together.

use crate::slab::NONE;

/// Where chunks stop doubling: large enough to make allocation rare, small enough to be freed soon.
const CHUNK_MAX_BYTES: usize = 64 * 1024;
/// Sparse means: more than four times what is alive, and this much.
const SLACK_BYTES: u64 = 128 * 1024;

/// The longest payload: a span's top bit says something else.
pub(crate) const PAYLOAD_MAX_BYTES: u64 = HAS_REPLY_TO as u64 - 1;
/// The name of an inbox stands behind the payload.
const HAS_REPLY_TO: u32 = 1 << 31;
/// The length in front of that name.
const NAME_LENGTH_BYTES: usize = size_of::<u16>();

/// Where a payload is.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Span {
    pub(crate) chunk: u32,
    offset: u32,
    /// The payload's length, and whether an inbox is named behind it.
    len: u32,
}

impl Span {
    #[cfg(test)]
    pub(crate) const EMPTY: Self = Self { chunk: 0, offset: 0, len: 0 };

    /// Bytes of the payload.
    pub(crate) const fn payload_bytes(self) -> u64 {
        (self.len & !HAS_REPLY_TO) as u64
    }

    const fn end(self) -> usize {
        self.offset as usize + self.payload_bytes() as usize
    }
}

/// Bytes that a message's inbox takes in its queue's memory.
pub(crate) fn reply_to_bytes(reply_to: Option<&str>) -> usize {
    reply_to.map_or(0, |name| NAME_LENGTH_BYTES + name.len())
}

#[derive(Default)]
struct Chunk {
    data: Vec<u8>,
    alive: u32,
}

pub(crate) struct Chunks {
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    current: u32,
    next_bytes: usize,
    allocated_bytes: u64,
    alive_bytes: u64,
}

impl Chunks {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), current: NONE, next_bytes: 0, allocated_bytes: 0, alive_bytes: 0 }
    }

    /// Makes the next chunk large enough for payloads that are about to come, up to the usual size.
    pub(crate) fn expect(&mut self, bytes: u64) {
        let room = self.chunks.get(self.current as usize).map_or(0, |chunk| chunk.data.capacity() - chunk.data.len());
        if bytes > room as u64 {
            self.next_bytes = self.next_bytes.max((bytes.min(CHUNK_MAX_BYTES as u64)) as usize);
        }
    }

    /// Copies a payload in, and the name of the inbox that its reply goes to.
    pub(crate) fn insert(&mut self, payload: &[u8], reply_to: Option<&str>) -> Span {
        let bytes = payload.len() + reply_to_bytes(reply_to);
        let index = match self.chunks.get(self.current as usize) {
            Some(chunk) if chunk.data.capacity() - chunk.data.len() >= bytes => self.current,
            _ => self.make_room(bytes),
        };
        let chunk = &mut self.chunks[index as usize];
        let offset = chunk.data.len() as u32;
        let mut len = payload.len() as u32;
        chunk.data.extend_from_slice(payload);
        if let Some(name) = reply_to {
            len |= HAS_REPLY_TO;
            let name_bytes = u16::try_from(name.len()).expect("a name is at most 512 bytes");
            chunk.data.extend_from_slice(&name_bytes.to_ne_bytes());
            chunk.data.extend_from_slice(name.as_bytes());
        }
        chunk.alive += 1;
        self.alive_bytes += bytes as u64;
        Span { chunk: index, offset, len }
    }

    pub(crate) fn get(&self, span: Span) -> &[u8] {
        &self.chunks[span.chunk as usize].data[span.offset as usize..span.end()]
    }

    /// The inbox that the message's reply goes to.
    pub(crate) fn reply_to(&self, span: Span) -> Option<&str> {
        if span.len & HAS_REPLY_TO == 0 {
            return None;
        }
        let behind = &self.chunks[span.chunk as usize].data[span.end()..];
        let (length, name) = behind.split_first_chunk().expect("its length stands before a name");
        let name = &name[..usize::from(u16::from_ne_bytes(*length))];
        Some(std::str::from_utf8(name).expect("a name is text"))
    }

    /// What the span takes of the queue's memory: the payload, and the inbox named behind it.
    pub(crate) fn held_bytes(&self, span: Span) -> u64 {
        span.payload_bytes() + reply_to_bytes(self.reply_to(span)) as u64
    }

    /// Lets the span's bytes go, and says how many.
    pub(crate) fn free(&mut self, span: Span) -> u64 {
        let held_bytes = self.held_bytes(span);
        self.alive_bytes -= held_bytes;
        let chunk = &mut self.chunks[span.chunk as usize];
        chunk.alive -= 1;
        if chunk.alive == 0 {
            if span.chunk == self.current {
                chunk.data.clear();
            } else {
                self.allocated_bytes -= chunk.data.capacity() as u64;
                chunk.data = Vec::new();
                self.free.push(span.chunk);
            }
        }
        held_bytes
    }

    /// What is alive is so little of what is allocated that copying it together is worth it.
    pub(crate) const fn is_sparse(&self) -> bool {
        self.allocated_bytes > 4 * self.alive_bytes + SLACK_BYTES
    }

    /// Bytes of all chunks, used or not.
    #[cfg(any(test, feature = "invariants"))]
    pub(crate) const fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Bytes of the spans that are alive.
    pub(crate) const fn alive_bytes(&self) -> u64 {
        self.alive_bytes
    }

    /// Opens a chunk with room for `len` bytes and returns its index.
    fn make_room(&mut self, len: usize) -> u32 {
        let own = len >= CHUNK_MAX_BYTES;
        let bytes = if own { len } else { self.next_bytes.max(len) };
        let chunk = Chunk { data: Vec::with_capacity(bytes), alive: 0 };
        self.allocated_bytes += chunk.data.capacity() as u64;
        let index = match self.free.pop() {
            Some(index) => {
                self.chunks[index as usize] = chunk;
                index
            }
            None => {
                if self.chunks.capacity() == 0 {
                    self.chunks.reserve_exact(1);
                }
                self.chunks.push(chunk);
                (self.chunks.len() - 1) as u32
            }
        };
        if !own {
            self.next_bytes = (bytes * 2).clamp(64, CHUNK_MAX_BYTES);
            let last = std::mem::replace(&mut self.current, index);
            self.retire(last);
        }
        index
    }

    /// Frees the chunk that was current if nothing is alive in it.
    fn retire(&mut self, index: u32) {
        if let Some(chunk) = self.chunks.get_mut(index as usize)
            && chunk.alive == 0
        {
            self.allocated_bytes -= chunk.data.capacity() as u64;
            chunk.data = Vec::new();
            self.free.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_payload_takes_no_more_than_itself() {
        let mut chunks = Chunks::new();
        let span = chunks.insert(b"hello", None);
        assert_eq!(chunks.get(span), b"hello");
        assert_eq!((chunks.alive_bytes(), chunks.allocated_bytes()), (5, 5));
    }

    #[test]
    fn an_inbox_stands_behind_its_payload_and_goes_with_it() {
        let mut chunks = Chunks::new();
        let named = chunks.insert(b"ask", Some("_inbox.a"));
        let plain = chunks.insert(b"tell", None);
        let bare = chunks.insert(b"", Some("_inbox.b"));
        assert_eq!((chunks.get(named), chunks.reply_to(named)), (&b"ask"[..], Some("_inbox.a")));
        assert_eq!((chunks.get(plain), chunks.reply_to(plain)), (&b"tell"[..], None));
        assert_eq!((chunks.get(bare), chunks.reply_to(bare)), (&b""[..], Some("_inbox.b")));
        assert_eq!((named.payload_bytes(), bare.payload_bytes()), (3, 0));
        assert_eq!([named, plain, bare].map(|span| chunks.free(span)), [13, 4, 10]);
        assert_eq!(chunks.alive_bytes(), 0);
    }

    #[test]
    fn a_chunk_goes_with_its_last_payload() {
        let mut chunks = Chunks::new();
        let spans: Vec<Span> = (0..10_000).map(|_| chunks.insert(&[7; 100], None)).collect();
        for span in spans {
            chunks.free(span);
        }
        assert_eq!(chunks.alive_bytes(), 0);
        assert!(chunks.allocated_bytes() <= CHUNK_MAX_BYTES as u64);
        assert!(!chunks.is_sparse());
    }

    #[test]
    fn a_payload_larger_than_a_chunk_has_its_own() {
        let mut chunks = Chunks::new();
        let small = chunks.insert(b"a", None);
        let large = chunks.insert(&vec![1; 300_000], None);
        let other = chunks.insert(b"b", None);
        assert_ne!(large.chunk, other.chunk);
        chunks.free(large);
        assert_eq!((chunks.get(small), chunks.get(other)), (&b"a"[..], &b"b"[..]));
        assert!(chunks.allocated_bytes() < 300_000);
    }
}
