//! One connection's requests over HTTP, and the answers that come back in their order.

use std::collections::VecDeque;

use memchr::memmem;

use super::{Event, Garbled, Owed, http::Responses, scan::code_of};

/// Between a head and its body.
pub(super) const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// The head of a request with a JSON body, up to the value of the content length.
pub(super) fn post_head(path: &str, host: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: ").into_bytes()
}

/// The requests that wait for an answer, `A` telling what each asked for.
pub(super) struct Exchange<A> {
    responses: Responses,
    asked: VecDeque<A>,
    code: memmem::Finder<'static>,
}

impl<A> Exchange<A> {
    pub(super) fn new() -> Self {
        Self { responses: Responses::default(), asked: VecDeque::new(), code: memmem::Finder::new(b"\"code\":") }
    }

    /// A request went out.
    pub(super) fn owe(&mut self, asked: A) -> Owed {
        self.asked.push_back(asked);
        Owed::Answer
    }

    /// The connection is a new one.
    pub(super) fn clear(&mut self) {
        self.asked.clear();
    }

    /// Cuts answers out of `input`: what went well is for `took` to tell, refusals are told here. Gives the bytes that it
    /// took.
    ///
    /// # Errors
    /// When that is no HTTP, or an answer to nothing.
    pub(super) fn decode(
        &mut self,
        input: &[u8],
        on: &mut dyn FnMut(Event<'_>),
        mut took: impl FnMut(A, &[u8], &mut dyn FnMut(Event<'_>)),
    ) -> Result<usize, Garbled> {
        let mut taken = 0;
        while taken < input.len() {
            let Some(response) = self.responses.cut(&input[taken..])? else { break };
            taken += response.bytes;
            if response.status == 100 {
                continue;
            }
            let asked = self.asked.pop_front().ok_or(Garbled)?;
            if (200..300).contains(&response.status) {
                took(asked, response.body, on);
            } else {
                on(Event::Refused { code: code_of(response.status, response.body, &self.code) });
            }
        }
        Ok(taken)
    }
}
