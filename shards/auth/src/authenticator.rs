//! From the header of a request to the identity behind it, for one data shard.

use std::rc::Rc;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};

use crate::cache::{TokenCache, TokenDigest};
use crate::shared::{Cooling, Fetched};
use crate::{Identity, KeySet, Refusal, SharedKeys, TOKEN_BYTES_MAX, Verifier};

/// The word before the token, in any case.
const SCHEME: &[u8] = b"bearer";

/// Authenticates the requests of one shard. It remembers the tokens that it has verified.
#[derive(Debug)]
pub struct Authenticator {
    shared: Option<Arc<SharedKeys>>,
    memory: Memory,
}

/// What tokens are verified with, and those that were.
#[derive(Debug)]
struct Memory {
    verifier: Arc<Verifier>,
    /// The fetched keys that the remembered tokens were verified with.
    keys: Option<Arc<KeySet>>,
    cache: TokenCache,
}

/// Why a request has no identity, as yet or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The token is refused: 401.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The token's key may be among those that are being fetched: ask again when [`SharedKeys::fetches_done`] has
    /// reached `until`.
    #[error("Signing keys are being fetched")]
    Wait {
        /// A count of fetches.
        until: u64,
    },
    /// No keys were ever had, and none are to be had now: 503.
    #[error("Signing keys cannot be fetched")]
    Unavailable,
}

impl Authenticator {
    /// An authenticator that remembers nothing yet. `shared` is there if and only if the verifier was told that keys
    /// are fetched.
    #[must_use]
    pub fn new(verifier: Arc<Verifier>, shared: Option<Arc<SharedKeys>>) -> Self {
        Self { shared, memory: Memory { verifier, keys: None, cache: TokenCache::default() } }
    }

    /// Who sends the `Authorization` header of this value, `Bearer` and a token or the token alone, at `now_s`, seconds
    /// since 1970.
    ///
    /// # Errors
    /// See [`Denial`].
    pub fn authenticate(&mut self, header: Option<&[u8]>, now_s: u64) -> Result<Rc<Identity>, Denial> {
        let token = header.map(token_of).filter(|token| !token.is_empty()).ok_or(Refusal::Missing)?;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::TooLong.into());
        }
        let Some(shared) = &self.shared else { return Ok(self.memory.identity(token, now_s)?) };
        let latest = shared.latest();
        self.memory.adopt(&latest);
        match self.memory.identity(token, now_s) {
            Err(Refusal::UnknownKey) => Err(match shared.wait_or_cool(&latest, now_s) {
                Ok(until) => Denial::Wait { until },
                Err(Cooling) if latest.keys.is_none() => Denial::Unavailable,
                Err(Cooling) => Refusal::UnknownKey.into(),
            }),
            outcome => Ok(outcome?),
        }
    }
}

impl Memory {
    /// A token that was verified with other keys may be one that is not to be trusted any more.
    fn adopt(&mut self, latest: &Fetched) {
        let same = match (&self.keys, &latest.keys) {
            (Some(held), Some(keys)) => Arc::ptr_eq(held, keys),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.keys.clone_from(&latest.keys);
            self.cache.clear();
        }
    }

    /// Whose token this is: remembered, or verified now.
    fn identity(&mut self, token: &[u8], now_s: u64) -> Result<Rc<Identity>, Refusal> {
        let digest = digest_of(token);
        if let Some(identity) = self.cache.get(&digest, now_s) {
            return Ok(identity);
        }
        let verified = self.verifier.verify(token, self.keys.as_deref(), now_s)?;
        Ok(self.cache.insert(digest, verified))
    }
}

/// The token in a header's value: what follows `Bearer` and white space, or all of it.
fn token_of(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    match value.split_at_checked(SCHEME.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => match rest {
            [] => &[],
            [b' ' | b'\t', token @ ..] => token.trim_ascii_start(),
            _ => value,
        },
        _ => value,
    }
}

fn digest_of(token: &[u8]) -> TokenDigest {
    digest(&SHA256, token).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_with_the_word_bearer_in_any_case_or_without_it() {
        for value in ["Bearer a.b.c", "bearer a.b.c", "BEARER \t a.b.c ", "a.b.c", "  a.b.c"] {
            assert_eq!(token_of(value.as_bytes()), b"a.b.c", "{value}");
        }
        assert_eq!(token_of(b"bearera.b.c"), b"bearera.b.c");
        assert_eq!(token_of(b"Basic YTpi"), b"Basic YTpi");
        for value in ["", " ", "Bearer", "Bearer  "] {
            assert_eq!(token_of(value.as_bytes()), b"", "{value}");
        }
    }
}
