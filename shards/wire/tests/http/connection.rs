//! A connection in memory: feeds bytes to a decoder as reads would, and keeps what came out.

use queen_wire::http::{Decoded, Decoder, HttpError, Limits, Method};

/// A request, owned, or the refusal that ended the connection.
pub type Outcome = Result<Seen, HttpError>;

/// What a request said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub query: Option<String>,
    pub keep_alive: bool,
    pub http10: bool,
    pub tenant: Option<Vec<u8>>,
    pub authorization: Option<Vec<u8>>,
    pub upgrade: Option<Vec<u8>>,
    pub body: Vec<u8>,
}

/// Feeds `bytes` in reads that end at `cuts` (ascending) and at the end.
pub fn read_in_pieces(bytes: &[u8], cuts: &[usize], limits: &Limits) -> Vec<Outcome> {
    let mut decoder = Decoder::new();
    let mut outcomes = Vec::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        loop {
            match decoder.decode(&bytes[start..end], limits) {
                Decoded::NeedMore { consumed } => {
                    start += consumed;
                    break;
                }
                Decoded::ExpectContinue => {}
                Decoded::Request { request, consumed } => {
                    assert!(consumed > 0, "a request takes bytes");
                    outcomes.push(Ok(Seen {
                        method: request.method,
                        path: request.path.to_owned(),
                        query: request.query.map(Into::into),
                        keep_alive: request.keep_alive,
                        http10: request.http10,
                        tenant: request.tenant.map(Into::into),
                        authorization: request.authorization.map(Into::into),
                        upgrade: request.upgrade.map(Into::into),
                        body: request.body.to_owned(),
                    }));
                    start += consumed;
                }
                Decoded::Failed(error) => {
                    let again = decoder.decode(&bytes[start..end], limits);
                    assert_eq!(again, Decoded::Failed(error), "a refusal is final");
                    outcomes.push(Err(error));
                    return outcomes;
                }
            }
        }
    }
    outcomes
}

/// Feeds `bytes` in one read.
pub fn read(bytes: &[u8]) -> Vec<Outcome> {
    read_in_pieces(bytes, &[], &Limits::default())
}
