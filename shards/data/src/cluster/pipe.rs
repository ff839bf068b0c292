//! The bytes of a peer link: what came in and is no whole frame, what the socket has not taken yet.

use std::{
    io,
    task::{Context, Poll, ready},
};

use crate::connection::Stream;

/// Bytes that are taken from a link at a time to be written.
const OUTPUT_BYTES: usize = 256 << 10;

/// What a link keeps of its buffer for what comes out, when it is empty.
const KEPT_BYTES: usize = 64 << 10;

/// A socket and its two buffers.
pub(super) struct Pipe<'s> {
    stream: &'s mut Stream,
    /// Bytes of frames that are not whole.
    pub(super) input: Vec<u8>,
    out: Vec<u8>,
    written: usize,
}

impl<'s> Pipe<'s> {
    /// Goes on with a connection of which these bytes were read already.
    pub(super) fn new(stream: &'s mut Stream, early: Vec<u8>) -> Self {
        Self { stream, input: early, out: Vec::new(), written: 0 }
    }

    /// Writes what `output` appends, as far as the socket takes it. Ready when there is no more.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        mut output: impl FnMut(&mut Vec<u8>, usize),
    ) -> Poll<io::Result<()>> {
        loop {
            if self.written == self.out.len() {
                self.out.clear();
                self.out.shrink_to(KEPT_BYTES);
                self.written = 0;
                output(&mut self.out, OUTPUT_BYTES);
                if self.out.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
            self.written += ready!(self.stream.poll_write(cx, &self.out[self.written..]))?;
        }
    }

    /// Reads what is there behind what was kept; false at the end of what the peer sends.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<io::Result<bool>> {
        let read = ready!(self.stream.poll_read(cx, scratch))?;
        self.input.extend_from_slice(&scratch[..read]);
        Poll::Ready(Ok(read > 0))
    }

    /// Forgets the first bytes of what came in; an idle link holds no memory.
    pub(super) fn consumed(&mut self, bytes: usize) {
        if bytes == self.input.len() {
            self.input = Vec::new();
        } else {
            self.input.drain(..bytes);
        }
    }
}
