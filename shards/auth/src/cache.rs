//! Tokens that were verified, until they expire: a lookup in place of a signature.
//!
//! Known by the SHA-256 of their text, so that a dump of memory holds no token. Two generations bound it: entries go
//! into the younger one; when that is full, the older one is dropped and the younger takes its place. What is used
//! moves on into the younger, so a token in use stays, and each step is a few table operations.

use std::collections::HashMap;
use std::rc::Rc;

use crate::{Identity, Verified};

/// How many tokens a shard remembers, at most.
pub const TOKENS_CACHED: usize = 10_000;

const GENERATION_MAX: usize = TOKENS_CACHED / 2;

/// The SHA-256 of a token's text.
pub(crate) type TokenDigest = [u8; 32];

/// The tokens that one shard has verified.
#[derive(Debug, Default)]
pub(crate) struct TokenCache {
    younger: HashMap<TokenDigest, Entry>,
    older: HashMap<TokenDigest, Entry>,
}

#[derive(Debug)]
struct Entry {
    identity: Rc<Identity>,
    expires_s: Option<u64>,
}

impl Entry {
    fn is_live(&self, now_s: u64) -> bool {
        self.expires_s.is_none_or(|expires_s| now_s < expires_s)
    }
}

impl TokenCache {
    /// Whose token this is, if it was verified and has not expired at `now_s`.
    pub(crate) fn get(&mut self, token: &TokenDigest, now_s: u64) -> Option<Rc<Identity>> {
        if let Some(entry) = self.younger.get(token) {
            if entry.is_live(now_s) {
                return Some(Rc::clone(&entry.identity));
            }
            self.younger.remove(token);
            return None;
        }
        let entry = self.older.remove(token).filter(|entry| entry.is_live(now_s))?;
        let identity = Rc::clone(&entry.identity);
        self.put(*token, entry);
        Some(identity)
    }

    /// Remembers a token that was verified.
    pub(crate) fn insert(&mut self, token: TokenDigest, verified: Verified) -> Rc<Identity> {
        let identity = Rc::new(verified.identity);
        self.put(token, Entry { identity: Rc::clone(&identity), expires_s: verified.expires_s });
        identity
    }

    /// Forgets everything: the keys are others.
    pub(crate) fn clear(&mut self) {
        self.younger.clear();
        self.older.clear();
    }

    fn put(&mut self, token: TokenDigest, entry: Entry) {
        if self.younger.len() >= GENERATION_MAX {
            std::mem::swap(&mut self.younger, &mut self.older);
            self.younger.clear();
        }
        self.younger.insert(token, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Roles, TenantClaim};

    fn verified(expires_s: Option<u64>) -> Verified {
        Verified { identity: Identity { roles: Roles::NONE, subject: None, tenant: TenantClaim::Absent }, expires_s }
    }

    fn digest(number: usize) -> TokenDigest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_le_bytes());
        digest
    }

    fn held(cache: &TokenCache) -> usize {
        cache.younger.len() + cache.older.len()
    }

    #[test]
    fn a_token_is_known_until_the_second_in_which_it_expires() {
        let mut cache = TokenCache::default();
        cache.insert(digest(1), verified(Some(100)));
        assert!(cache.get(&digest(1), 99).is_some());
        assert!(cache.get(&digest(1), 100).is_none());
        assert_eq!(held(&cache), 0, "what has expired is forgotten");
    }

    #[test]
    fn a_token_that_expired_in_the_older_generation_is_forgotten_too() {
        let mut cache = TokenCache::default();
        cache.insert(digest(0), verified(Some(100)));
        (1..=GENERATION_MAX).for_each(|number| drop(cache.insert(digest(number), verified(None))));
        assert!(cache.older.contains_key(&digest(0)));
        assert!(cache.get(&digest(0), 100).is_none());
        assert!(!cache.older.contains_key(&digest(0)));
    }

    #[test]
    fn a_token_without_an_end_is_known_for_ever() {
        let mut cache = TokenCache::default();
        cache.insert(digest(1), verified(None));
        assert!(cache.get(&digest(1), u64::MAX).is_some());
    }

    #[test]
    fn however_many_tokens_come_no_more_than_the_bound_are_kept() {
        let mut cache = TokenCache::default();
        for number in 0..3 * TOKENS_CACHED {
            cache.insert(digest(number), verified(None));
            assert!(held(&cache) <= TOKENS_CACHED);
        }
        assert!(held(&cache) > GENERATION_MAX);
        assert!(cache.get(&digest(0), 0).is_none(), "the oldest went");
        assert!(cache.get(&digest(3 * TOKENS_CACHED - 1), 0).is_some(), "the newest stayed");
    }

    #[test]
    fn a_token_in_use_outlives_any_number_of_others() {
        let mut cache = TokenCache::default();
        let first = cache.insert(digest(0), verified(None));
        for number in 1..3 * TOKENS_CACHED {
            cache.insert(digest(number), verified(None));
            if number % (GENERATION_MAX / 2) == 0 {
                assert!(Rc::ptr_eq(&cache.get(&digest(0), 0).expect("it is in use"), &first));
            }
        }
    }
}
