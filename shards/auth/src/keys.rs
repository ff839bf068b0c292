//! The keys of a JSON Web Key Set, of which a token names one.

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::Jwk;
use serde::Deserialize;
use serde_json::Value;

use crate::Refusal;
use crate::public_key::PublicKey;

/// The usable keys that a set may hold. Issuers have two or three; every token that is not cached looks through them.
pub const KEYS_MAX: usize = 256;

/// The keys that verify tokens, as an issuer publishes them.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySet(Vec<NamedKey>);

/// A key and its `kid`.
#[derive(Clone, Debug, PartialEq)]
struct NamedKey {
    id: Option<Box<str>>,
    key: PublicKey,
}

/// Why a text is no set of keys to verify tokens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// It is no JSON object with an array `keys`.
    #[error("it is no JSON Web Key Set")]
    NoKeySet,
    /// Nothing in it is an RSA key of at least 2048 bits or a P-256 key that is meant for RS256 or ES256 signatures.
    #[error("it holds no RSA key of 2048 bits or more and no P-256 key for signatures")]
    NoUsableKey,
    /// It holds more than [`KEYS_MAX`] such keys.
    #[error("it holds more than {KEYS_MAX} keys")]
    TooManyKeys,
}

/// The outer shape. A key that cannot be read is one that cannot be used, and not a reason to refuse the others.
#[derive(Deserialize)]
struct Published {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a JSON Web Key Set. Keys of other types, for other uses or other algorithms are passed over.
    ///
    /// # Errors
    /// See [`KeySetError`].
    pub fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        let published: Published = serde_json::from_slice(json).map_err(|_| KeySetError::NoKeySet)?;
        let usable = published.keys.into_iter().filter_map(|value| {
            let jwk: Jwk = serde_json::from_value(value).ok()?;
            let key = PublicKey::from_jwk(&jwk)?;
            Some(NamedKey { id: jwk.common.key_id.map(String::into_boxed_str), key })
        });
        // One more than may be, to tell that there are too many, and no work for those behind.
        let keys: Vec<_> = usable.take(KEYS_MAX + 1).collect();
        match keys.len() {
            0 => Err(KeySetError::NoUsableKey),
            1..=KEYS_MAX => Ok(Self(keys)),
            _ => Err(KeySetError::TooManyKeys),
        }
    }

    /// How many keys it holds; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a set without keys is refused")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The key of this `kid` for this algorithm; without a `kid`, the one key that the algorithm fits.
    ///
    /// # Errors
    /// [`Refusal::UnknownKey`] when there is none, or several that nothing tells apart; [`Refusal::Algorithm`] when the
    /// key of this `kid` is for another algorithm.
    pub(crate) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&PublicKey, Refusal> {
        let fits = |named: &&NamedKey| named.key.algorithm() == algorithm;
        let Some(id) = id else {
            let mut fitting = self.0.iter().filter(fits);
            return match (fitting.next(), fitting.next()) {
                (Some(named), None) => Ok(&named.key),
                _ => Err(Refusal::UnknownKey),
            };
        };
        let mut of_this_name = self.0.iter().filter(|named| named.id.as_deref() == Some(id)).peekable();
        if of_this_name.peek().is_none() {
            return Err(Refusal::UnknownKey);
        }
        of_this_name.find(fits).map(|named| &named.key).ok_or(Refusal::Algorithm)
    }
}
