//! Whether a token is good: its signature first, and only then what it claims.
//!
//! The key decides how a token may be signed: HS256 with the secret, RS256 with an RSA key, ES256 with a P-256 key.
//! What the token's header says only chooses among these, so neither `none` nor an HMAC keyed with a public key's text
//! passes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::claims::Claims;
use crate::public_key::PublicKey;
use crate::{Identity, KeySet, Refusal, Secret};

/// The longest token that is looked at. The largest that issuers make are half of it.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// How far the issuer's clock may be off, in both directions.
pub const LEEWAY_S: u64 = 30;

/// With what, and against what, tokens are verified. At least one of the three keys must be there.
#[derive(Clone, Debug, Default)]
pub struct VerifierConfig {
    /// What signs HS256 tokens.
    pub secret: Option<Secret>,
    /// An RSA or P-256 public key in PEM; a line may end in the two characters `\n`.
    pub public_key_pem: Option<String>,
    /// Whether keys are fetched, see [`SharedKeys`](crate::SharedKeys).
    pub has_jwks: bool,
    /// What the claim `iss` must be.
    pub issuer: Option<String>,
    /// What the claim `aud` must be or hold. Unset, tokens for any audience are taken.
    pub audience: Option<String>,
    /// The claim that names the tenant.
    pub tenant_claim: String,
}

/// Why tokens cannot be verified with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifierError {
    /// No key of any kind.
    #[error("no key to verify tokens with")]
    NoKey,
    /// An empty secret would be known to everyone.
    #[error("the secret is empty")]
    EmptySecret,
    /// The PEM text is a private key, a certificate, a key of another type, or nothing.
    #[error("it is no RSA public key of 2048 bits or more and no P-256 public key in PEM")]
    PublicKey,
}

/// Verifies tokens. It never changes, and all shards use the same one.
#[derive(Debug)]
pub struct Verifier {
    secret: Option<DecodingKey>,
    public_key: Option<PublicKey>,
    has_jwks: bool,
    issuer: Option<String>,
    audience: Option<String>,
    tenant_claim: String,
}

/// A token that is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Whose it is.
    pub identity: Identity,
    /// From when on it is good no more, in seconds since 1970, the leeway included; `None` is never.
    pub expires_s: Option<u64>,
}

impl Verifier {
    /// Reads and checks the keys.
    ///
    /// # Errors
    /// See [`VerifierError`].
    pub fn new(config: VerifierConfig) -> Result<Self, VerifierError> {
        let VerifierConfig { secret, public_key_pem, has_jwks, issuer, audience, tenant_claim } = config;
        if secret.is_none() && public_key_pem.is_none() && !has_jwks {
            return Err(VerifierError::NoKey);
        }
        let secret = secret.map(|secret| DecodingKey::from_secret(secret.reveal()));
        let secret = secret.transpose().map_err(|_| VerifierError::EmptySecret)?;
        let public_key = public_key_pem.map(|pem| PublicKey::from_pem(&pem).ok_or(VerifierError::PublicKey));
        Ok(Self { secret, public_key: public_key.transpose()?, has_jwks, issuer, audience, tenant_claim })
    }

    /// Whether `token` is good at `now_s`, seconds since 1970, given the keys that were fetched last.
    ///
    /// # Errors
    /// The first thing that is wrong with it; nothing that it claims counts before its signature does.
    /// [`Refusal::UnknownKey`] may become another answer with other `keys`, and is what there is without any.
    pub fn verify(&self, token: &[u8], keys: Option<&KeySet>, now_s: u64) -> Result<Verified, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        let parts = Parts::split(token).ok_or(Refusal::Malformed)?;
        let header = decode(parts.header).ok_or(Refusal::Malformed)?;
        let header = Header::parse(&header)?;
        self.check_signature(&parts, &header, keys)?;
        let claims = Claims::parse(&decode(parts.claims).ok_or(Refusal::Claims)?)?;
        self.check_claims(&claims, now_s)
    }

    fn check_signature(&self, parts: &Parts<'_>, header: &Header<'_>, keys: Option<&KeySet>) -> Result<(), Refusal> {
        let algorithm = header.algorithm()?;
        if algorithm == Algorithm::HS256 {
            return parts.check(self.secret.as_ref().ok_or(Refusal::Algorithm)?, algorithm);
        }
        let fetched = match keys {
            Some(keys) => keys.find(header.kid.as_deref(), algorithm),
            None if self.has_jwks => Err(Refusal::UnknownKey),
            None => Err(Refusal::Algorithm),
        };
        let configured = self.public_key.as_ref().filter(|key| key.algorithm() == algorithm);
        match (fetched, configured) {
            (Ok(key), _) => parts.check(key.decoding_key(), algorithm),
            // A key that is not known yet may be the right one all the same.
            (Err(refusal), Some(key)) if self.has_jwks => {
                parts.check(key.decoding_key(), algorithm).map_err(|_| refusal)
            }
            (Err(_), Some(key)) => parts.check(key.decoding_key(), algorithm),
            (Err(refusal), None) => Err(refusal),
        }
    }

    fn check_claims(&self, claims: &Claims, now_s: u64) -> Result<Verified, Refusal> {
        let (issuer, audience, subject) = (claims.issuer()?, claims.audience()?, claims.subject()?);
        let expires_s = claims.expires_s()?.map(|time_s| time_s.saturating_add(LEEWAY_S));
        let not_before_s = claims.not_before_s()?.map(|time_s| time_s.saturating_sub(LEEWAY_S));
        if expires_s.is_some_and(|time_s| time_s <= now_s) {
            return Err(Refusal::Expired);
        }
        if not_before_s.is_some_and(|time_s| time_s > now_s) {
            return Err(Refusal::NotYetValid);
        }
        if self.issuer.as_deref().is_some_and(|right| issuer != Some(right)) {
            return Err(Refusal::Issuer);
        }
        if self.audience.as_deref().is_some_and(|right| !audience.contains(&right)) {
            return Err(Refusal::Audience);
        }
        let tenant = claims.tenant(&self.tenant_claim);
        let identity = Identity { roles: claims.roles(), subject: subject.map(Box::from), tenant };
        Ok(Verified { identity, expires_s })
    }
}

/// The parts of a token's text, in base64 still.
struct Parts<'a> {
    header: &'a str,
    claims: &'a str,
    /// Header and claims with the point between them: what is signed.
    signed: &'a str,
    signature: &'a str,
}

impl<'a> Parts<'a> {
    /// Three parts with a point between each two.
    fn split(token: &'a [u8]) -> Option<Self> {
        let token = str::from_utf8(token).ok()?;
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        (!claims.contains('.')).then_some(Self { header, claims, signed, signature })
    }

    /// Whether the signature is this key's.
    fn check(&self, key: &DecodingKey, algorithm: Algorithm) -> Result<(), Refusal> {
        match crypto::verify(self.signature, self.signed.as_bytes(), key, algorithm) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Refusal::Signature),
        }
    }
}

fn decode(part: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part).ok()
}

/// What counts of a token's header.
#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    alg: Cow<'a, str>,
    #[serde(borrow)]
    kid: Option<Cow<'a, str>>,
    crit: Option<IgnoredAny>,
}

impl<'a> Header<'a> {
    fn parse(json: &'a [u8]) -> Result<Self, Refusal> {
        let header: Self = serde_json::from_slice(json).map_err(|_| Refusal::Malformed)?;
        // No extension is known here, so none that is critical is understood.
        if header.crit.is_some() { Err(Refusal::Malformed) } else { Ok(header) }
    }

    /// The algorithm that it names, of the three that there are keys for.
    fn algorithm(&self) -> Result<Algorithm, Refusal> {
        match &*self.alg {
            "HS256" => Ok(Algorithm::HS256),
            "RS256" => Ok(Algorithm::RS256),
            "ES256" => Ok(Algorithm::ES256),
            _ => Err(Refusal::Algorithm),
        }
    }
}
