//! A public key that verifies tokens: where it may come from, and what it must be.
//!
//! Every key is checked in full when it is read, so that one that cannot verify anything is noticed then and not at the
//! first token.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};

/// The size of an RSA modulus in bits: what the cryptography takes, see RFC 7518 section 3.3 for the lower end.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// An RSA key, which verifies RS256, or a key on the curve P-256, which verifies ES256.
#[derive(Clone, Debug)]
pub(crate) struct PublicKey {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl PublicKey {
    /// Reads a `PUBLIC KEY` or `RSA PUBLIC KEY` in PEM; two characters `\n` stand for a line's end too, since
    /// environments often hold no others. `None` when it is anything else.
    pub(crate) fn from_pem(text: &str) -> Option<Self> {
        let text = text.replace("\\n", "\n");
        // The library takes private keys and certificates here as well, and would look for the wrong thing in them.
        let labels = ["-----BEGIN PUBLIC KEY-----", "-----BEGIN RSA PUBLIC KEY-----"];
        if !labels.iter().any(|label| text.trim_start().starts_with(label)) {
            return None;
        }
        let pem = text.as_bytes();
        let key = DecodingKey::from_ec_pem(pem).or_else(|_| DecodingKey::from_rsa_pem(pem)).ok()?;
        Self::from_jwk(&Jwk::from_decoding_key(&key, None).ok()?)
    }

    /// Reads a JSON Web Key. `None` when it is of another type, too small, no point of the curve, or not meant for
    /// signatures of the one algorithm that keys of its type verify here.
    pub(crate) fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        if common.public_key_use.as_ref().is_some_and(|purpose| *purpose != PublicKeyUse::Signature) {
            return None;
        }
        if common.key_operations.as_ref().is_some_and(|operations| !operations.contains(&KeyOperations::Verify)) {
            return None;
        }
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Algorithm::RS256,
            AlgorithmParameters::EllipticCurve(parameters) if parameters.curve == EllipticCurve::P256 => {
                Algorithm::ES256
            }
            _ => return None,
        };
        if common.key_algorithm.is_some_and(|meant| meant != KeyAlgorithm::from(algorithm)) {
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        is_sound(key.kind()).then_some(Self { algorithm, key })
    }

    /// The one algorithm that it verifies.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// What verifies.
    pub(crate) fn decoding_key(&self) -> &DecodingKey {
        &self.key
    }

    /// What tells it from other keys.
    fn identity(&self) -> (&[u8], &[u8]) {
        match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => (n, e),
            DecodingKeyKind::SecretOrDer(point) => (point, &[]),
        }
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.identity() == other.identity()
    }
}

/// Whether the cryptography takes the key: a modulus of the right size, a point of the curve.
fn is_sound(kind: &DecodingKeyKind) -> bool {
    match kind {
        DecodingKeyKind::RsaModulusExponent { n, e } => {
            let bits = n.len() * 8 - n.first().map_or(0, |byte| byte.leading_zeros() as usize);
            let components = RsaPublicKeyComponents { n, e };
            RSA_BITS.contains(&bits) && components.to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256).is_ok()
        }
        DecodingKeyKind::SecretOrDer(point) => ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).is_ok(),
    }
}
