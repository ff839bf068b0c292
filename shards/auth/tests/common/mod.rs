//! Keys and tokens for the tests. The keys under `keys/` were made with openssl for these tests, and guard nothing.
//!
//! Each test program uses some of it.
#![allow(dead_code, reason = "every test program compiles this file for itself")]

use std::sync::Arc;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use queen_auth::{KeySet, Refusal, Secret, Verified, Verifier, VerifierConfig};
use serde_json::{Value, json};

pub const RSA: &str = include_str!("../keys/rsa.pem");
pub const RSA_OTHER: &str = include_str!("../keys/rsa-other.pem");
pub const RSA_PUBLIC: &str = include_str!("../keys/rsa-public.pem");
pub const P256: &str = include_str!("../keys/p256.pem");
pub const P256_PUBLIC: &str = include_str!("../keys/p256-public.pem");

pub const SECRET: &str = "a secret that only the tests know";
pub const NOW_S: u64 = 1_764_478_051;

/// Claims that are good for five minutes.
pub fn claims() -> Value {
    json!({"sub": "ada", "role": "read-write", "exp": NOW_S + 300})
}

pub fn hs256(claims: &Value) -> String {
    signed(Algorithm::HS256, None, &secret_key(SECRET), claims)
}

pub fn rs256(pem: &str, id: Option<&str>, claims: &Value) -> String {
    signed(Algorithm::RS256, id, &EncodingKey::from_rsa_pem(pem.as_bytes()).expect("an RSA key"), claims)
}

pub fn es256(id: Option<&str>, claims: &Value) -> String {
    signed(Algorithm::ES256, id, &EncodingKey::from_ec_pem(P256.as_bytes()).expect("an EC key"), claims)
}

/// A key that signs HS256 tokens with this text.
pub fn secret_key(text: &str) -> EncodingKey {
    EncodingKey::from_secret(text.as_bytes()).expect("it is not empty")
}

pub fn signed(algorithm: Algorithm, id: Option<&str>, key: &EncodingKey, claims: &Value) -> String {
    let mut header = Header::new(algorithm);
    header.kid = id.map(str::to_owned);
    encode(&header, claims, key).expect("it can be signed")
}

/// The public half of an RSA key as a JSON Web Key, without an `alg`.
pub fn rsa_jwk(pem: &str, id: Option<&str>) -> Value {
    jwk(&EncodingKey::from_rsa_pem(pem.as_bytes()).expect("an RSA key"), Algorithm::RS256, id)
}

/// The public half of the P-256 key as a JSON Web Key, without an `alg`.
pub fn p256_jwk(id: Option<&str>) -> Value {
    jwk(&EncodingKey::from_ec_pem(P256.as_bytes()).expect("an EC key"), Algorithm::ES256, id)
}

fn jwk(key: &EncodingKey, algorithm: Algorithm, id: Option<&str>) -> Value {
    let mut jwk = Jwk::from_encoding_key(key, algorithm).expect("a public half");
    jwk.common.key_id = id.map(str::to_owned);
    jwk.common.key_algorithm = None;
    serde_json::to_value(jwk).expect("JSON")
}

/// A key with other members, or others instead.
pub fn with(mut jwk: Value, members: &Value) -> Value {
    let members = members.as_object().expect("an object").clone();
    jwk.as_object_mut().expect("an object").extend(members);
    jwk
}

pub fn key_set(keys: &[Value]) -> KeySet {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).expect("usable keys")
}

/// What every test of secrets starts from.
pub fn with_secret() -> VerifierConfig {
    VerifierConfig { secret: Some(Secret::new(SECRET)), tenant_claim: "tenant_id".into(), ..VerifierConfig::default() }
}

/// What every test of a configured public key starts from.
pub fn with_public_key(pem: &str) -> VerifierConfig {
    VerifierConfig { public_key_pem: Some(pem.to_owned()), ..VerifierConfig::default() }
}

/// What every test of fetched keys starts from.
pub fn with_jwks() -> VerifierConfig {
    VerifierConfig { has_jwks: true, ..VerifierConfig::default() }
}

pub fn verifier(config: VerifierConfig) -> Arc<Verifier> {
    Arc::new(Verifier::new(config).expect("a configuration that is right"))
}

/// What becomes of a token now.
pub fn verify(config: VerifierConfig, token: &str, keys: Option<&KeySet>) -> Result<Verified, Refusal> {
    verifier(config).verify(token.as_bytes(), keys, NOW_S)
}
