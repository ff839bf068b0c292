//! The frames of a peer link: their types, and what is in their payloads.
//!
//! | type | frame | from | payload |
//! |---|---|---|---|
//! | 64 | REQUEST | dialer | u32 id, u8 flags (1: it waits), 16 bytes tenant, u8 access, u8 kind, fields of the kind |
//! | 65 | ANSWER | listener | u32 id, u8 kind, fields of the kind |
//! | 66 | CANCEL | dialer | u32 id |
//! | 67 | SETTLED | dialer | u32 id |
//! | 68 | GIVE_BACK | dialer | u32 id |
//! | 69 | CREDIT | listener | u32 requests |
//! | 70 | PART | both | the beginning of the next other frame's payload |
//!
//! For rolling upgrades: a frame of an unknown type is passed over, a request of an unknown kind is refused, flags that are
//! not known mean nothing, and bytes behind the last field that is known are ignored, so that later versions can put
//! fields behind the others. What is in between never changes.

use super::{
    answer::Answer,
    ask::{Ask, Request},
    codec::{FieldError, Reader, Writer},
};

const REQUEST: u8 = 64;
const ANSWER: u8 = 65;
const CANCEL: u8 = 66;
const SETTLED: u8 = 67;
const GIVE_BACK: u8 = 68;
const CREDIT: u8 = 69;
/// Collected below this, see [`Link`](super::link::Link).
pub(super) const PART: u8 = 70;

/// The flag of a request whose answer may take as long as somebody else likes.
const WAITS: u8 = 1;

/// One frame's meaning, after the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A request.
    Request {
        /// Its number, which its answer carries.
        id: u32,
        /// Whether it went without a credit.
        waits: bool,
        /// What is asked.
        request: Request,
    },
    /// A request of a kind that is not known.
    UnknownRequest {
        /// Its number.
        id: u32,
        /// Whether it went without a credit.
        waits: bool,
    },
    /// The answer to a request; each gets one.
    Answer {
        /// The request.
        id: u32,
        /// What became of it.
        answer: Answer,
    },
    /// An answer of a kind that is not known.
    UnknownAnswer {
        /// The request.
        id: u32,
    },
    /// Nobody waits for the answer any more. It comes nevertheless.
    Cancel {
        /// The request.
        id: u32,
    },
    /// The messages of an answer reached the client.
    Settled {
        /// The request.
        id: u32,
    },
    /// They did not: they go back to where they were.
    GiveBack {
        /// The request.
        id: u32,
    },
    /// So many more requests that do not wait may be sent.
    Credit {
        /// How many.
        requests: u32,
    },
}

impl Frame {
    /// Reads a frame; `None` where its type is not known.
    ///
    /// # Errors
    /// See [`FieldError`].
    pub fn parse(tag: u8, payload: &[u8]) -> Result<Option<Self>, FieldError> {
        let reader = &mut Reader::new(payload);
        Ok(Some(match tag {
            REQUEST => {
                let (id, flags) = (reader.u32()?, reader.u8()?);
                let waits = flags & WAITS != 0;
                let (tenant, access) = (reader.tenant()?, reader.u8()?);
                match Ask::read(reader)? {
                    Some(ask) => Self::Request { id, waits, request: Request { tenant, access, ask } },
                    None => Self::UnknownRequest { id, waits },
                }
            }
            ANSWER => {
                let id = reader.u32()?;
                match Answer::read(reader)? {
                    Some(answer) => Self::Answer { id, answer },
                    None => Self::UnknownAnswer { id },
                }
            }
            CANCEL => Self::Cancel { id: reader.u32()? },
            SETTLED => Self::Settled { id: reader.u32()? },
            GIVE_BACK => Self::GiveBack { id: reader.u32()? },
            CREDIT => Self::Credit { requests: reader.u32()? },
            _ => return Ok(None),
        }))
    }

    /// Its type and payload.
    ///
    /// # Errors
    /// See [`FieldError`]: a field is longer than it may be, or what is not known would have to be made up.
    pub fn render(&self) -> Result<(u8, Vec<u8>), FieldError> {
        let number = |tag, number: u32| Ok((tag, number.to_be_bytes().to_vec()));
        match self {
            Self::Request { id, waits, request } => render_request(*id, *waits, request),
            Self::Answer { id, answer } => render_answer(*id, answer),
            Self::UnknownRequest { .. } | Self::UnknownAnswer { .. } => Err(FieldError::Value),
            Self::Cancel { id } => number(CANCEL, *id),
            Self::Settled { id } => number(SETTLED, *id),
            Self::GiveBack { id } => number(GIVE_BACK, *id),
            Self::Credit { requests } => number(CREDIT, *requests),
        }
    }
}

pub(super) fn render_request(id: u32, waits: bool, request: &Request) -> Result<(u8, Vec<u8>), FieldError> {
    let mut writer = Writer::default();
    writer.u32(id);
    writer.u8(if waits { WAITS } else { 0 });
    writer.tenant(&request.tenant);
    writer.u8(request.access);
    request.ask.write(&mut writer);
    Ok((REQUEST, writer.finish()?))
}

pub(super) fn render_answer(id: u32, answer: &Answer) -> Result<(u8, Vec<u8>), FieldError> {
    let mut writer = Writer::default();
    writer.u32(id);
    answer.write(&mut writer);
    Ok((ANSWER, writer.finish()?))
}
