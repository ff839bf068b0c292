//! Tokens, their claims and the issuer's keys: whatever comes, nothing panics, and nothing unsigned is taken.

use std::sync::LazyLock;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Validation, crypto, decode};
use queen_auth::{KEYS_MAX, KeySet, LEEWAY_S, Refusal, Secret, Verifier, VerifierConfig};
use serde_json::{Map, Value};

const SECRET: &str = "a secret that the seeds are signed with";
const NOW_S: u64 = 1_764_478_051;

/// Takes tokens of all kinds.
static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| {
    let config = VerifierConfig {
        secret: Some(Secret::new(SECRET)),
        public_key_pem: Some(include_str!("../../shards/auth/tests/keys/p256-public.pem").into()),
        has_jwks: true,
        tenant_claim: "tenant_id".into(),
        ..VerifierConfig::default()
    };
    Verifier::new(config).expect("the keys are right")
});

/// Asserts, with jsonwebtoken as the oracle, that the bytes as a token are taken only if they are signed; and as claims
/// that are signed, only if they are a JSON object whose time has come and is not over. As an issuer's keys they are
/// taken within their bound.
pub fn token(data: &[u8]) {
    let keys = KeySet::parse(data).ok();
    if let Some(keys) = &keys {
        assert!((1..=KEYS_MAX).contains(&keys.len()));
    }
    if VERIFIER.verify(data, keys.as_ref(), NOW_S).is_ok() {
        assert!(is_signed(data), "{:?}", String::from_utf8_lossy(data));
    }
    claims(data);
}

/// Whether the library takes a token, of any time and for anybody. Nothing here holds a private key, so what is taken
/// is signed with the secret.
fn is_signed(token: &[u8]) -> bool {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let key = DecodingKey::from_secret(SECRET.as_bytes()).expect("a secret");
    decode::<Map<String, Value>>(token, &key, &validation).is_ok()
}

fn claims(data: &[u8]) {
    // {"alg":"HS256"}
    let message = format!("eyJhbGciOiJIUzI1NiJ9.{}", base64(data));
    let key = EncodingKey::from_secret(SECRET.as_bytes()).expect("a secret");
    let signature = crypto::sign(message.as_bytes(), &key, Algorithm::HS256).expect("it can be signed");
    let outcome = VERIFIER.verify(format!("{message}.{signature}").as_bytes(), None, NOW_S);
    let read: Option<Map<String, Value>> = serde_json::from_slice(data).ok();
    match (outcome, read) {
        (Err(Refusal::TooLong), _) | (Err(Refusal::Claims), None) => {}
        (Err(Refusal::Claims), Some(claims)) => {
            assert!(["exp", "nbf", "iss", "sub", "aud"].iter().any(|name| claims.contains_key(*name)), "{claims:?}");
        }
        (Ok(verified), Some(claims)) => {
            assert_eq!(verified.identity.subject.as_deref(), claims.get("sub").and_then(Value::as_str));
            let number = |name| claims.get(name).and_then(Value::as_f64);
            assert!(number("exp").is_none_or(|time_s| time_s + LEEWAY_S as f64 >= NOW_S as f64), "{claims:?}");
            assert!(number("nbf").is_none_or(|time_s| time_s - LEEWAY_S as f64 <= NOW_S as f64), "{claims:?}");
        }
        (Err(Refusal::Expired), Some(claims)) => assert!(claims.contains_key("exp")),
        (Err(Refusal::NotYetValid), Some(claims)) => assert!(claims.contains_key("nbf")),
        (outcome, read) => panic!("{outcome:?}: {read:?}"),
    }
}

/// The alphabet of tokens, without padding. The library's own is not public.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let letters = (0..=chunk.len()).map(|place| ALPHABET[(group >> (18 - 6 * place)) as usize & 63]);
        text.extend(letters.map(char::from));
    }
    text
}
