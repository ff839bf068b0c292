//! Which public keys are taken, from PEM and from a JSON Web Key Set, and how a token finds its own.

mod common;

use common::{
    P256, P256_PUBLIC, RSA, RSA_OTHER, RSA_PUBLIC, claims, es256, key_set, p256_jwk, rs256, rsa_jwk, verify, with,
    with_jwks, with_public_key,
};
use queen_auth::{KEYS_MAX, KeySet, KeySetError, Refusal, Verifier, VerifierError};
use serde_json::{Value, json};

fn parse(json: &Value) -> Result<KeySet, KeySetError> {
    KeySet::parse(json.to_string().as_bytes())
}

#[test]
fn a_configured_key_may_be_of_either_type_in_either_format_and_have_its_lines_escaped() {
    let rsa = rs256(RSA, None, &claims());
    for pem in [RSA_PUBLIC, include_str!("keys/rsa-public-pkcs1.pem"), &RSA_PUBLIC.replace('\n', "\\n")] {
        assert!(verify(with_public_key(pem), &rsa, None).is_ok(), "{pem}");
    }
    let padded = format!("\n  {P256_PUBLIC}\n\n");
    assert!(verify(with_public_key(&padded), &es256(None, &claims()), None).is_ok());
}

#[test]
fn a_configured_key_that_is_no_public_key_of_these_types_is_refused() {
    let wrong = [
        ("a private key", RSA),
        ("a private key", P256),
        ("a certificate", include_str!("keys/rsa-certificate.pem")),
        ("an RSA key of 1024 bits", include_str!("keys/rsa1024-public.pem")),
        ("a P-384 key", include_str!("keys/p384-public.pem")),
        ("a key of another curve as long as P-256", include_str!("keys/secp256k1-public.pem")),
        ("an Ed25519 key", include_str!("keys/ed25519-public.pem")),
        ("a cut key", &RSA_PUBLIC[..200]),
        ("base64 without labels", "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA"),
        ("a path", "/etc/keys/public.pem"),
        ("nothing", ""),
    ];
    for (what, pem) in wrong {
        assert_eq!(Verifier::new(with_public_key(pem)).map(drop), Err(VerifierError::PublicKey), "{what}");
    }
}

#[test]
fn a_token_is_verified_by_the_key_that_it_names() {
    let keys = key_set(&[rsa_jwk(RSA_OTHER, Some("old")), rsa_jwk(RSA, Some("new")), p256_jwk(Some("e"))]);
    for token in
        [rs256(RSA_OTHER, Some("old"), &claims()), rs256(RSA, Some("new"), &claims()), es256(Some("e"), &claims())]
    {
        assert!(verify(with_jwks(), &token, Some(&keys)).is_ok());
    }
}

#[test]
fn a_token_that_names_an_unknown_key_may_be_verified_later() {
    let keys = key_set(&[rsa_jwk(RSA, Some("a"))]);
    let token = rs256(RSA, Some("b"), &claims());
    assert_eq!(verify(with_jwks(), &token, Some(&keys)), Err(Refusal::UnknownKey));
    assert_eq!(verify(with_jwks(), &token, None), Err(Refusal::UnknownKey));
}

#[test]
fn a_token_that_names_a_key_of_the_other_type_is_refused() {
    let keys = key_set(&[rsa_jwk(RSA, Some("a")), p256_jwk(Some("e"))]);
    assert_eq!(verify(with_jwks(), &rs256(RSA, Some("e"), &claims()), Some(&keys)), Err(Refusal::Algorithm));
    assert_eq!(verify(with_jwks(), &es256(Some("a"), &claims()), Some(&keys)), Err(Refusal::Algorithm));
}

#[test]
fn two_keys_of_one_name_and_different_types_are_told_apart_by_the_algorithm() {
    let keys = key_set(&[rsa_jwk(RSA, Some("a")), p256_jwk(Some("a"))]);
    assert!(verify(with_jwks(), &rs256(RSA, Some("a"), &claims()), Some(&keys)).is_ok());
    assert!(verify(with_jwks(), &es256(Some("a"), &claims()), Some(&keys)).is_ok());
}

#[test]
fn a_token_that_names_no_key_needs_exactly_one_that_fits() {
    let one_of_each = key_set(&[rsa_jwk(RSA, Some("a")), p256_jwk(Some("e"))]);
    assert!(verify(with_jwks(), &rs256(RSA, None, &claims()), Some(&one_of_each)).is_ok());
    assert!(verify(with_jwks(), &es256(None, &claims()), Some(&one_of_each)).is_ok());
    let two = key_set(&[rsa_jwk(RSA, Some("a")), rsa_jwk(RSA_OTHER, Some("b"))]);
    assert_eq!(verify(with_jwks(), &rs256(RSA, None, &claims()), Some(&two)), Err(Refusal::UnknownKey));
    assert_eq!(verify(with_jwks(), &es256(None, &claims()), Some(&two)), Err(Refusal::UnknownKey));
}

#[test]
fn keys_for_other_uses_and_of_other_types_are_passed_over() {
    let rsa = || rsa_jwk(RSA, Some("a"));
    let unusable = [
        with(rsa(), &json!({"use": "enc"})),
        with(rsa(), &json!({"key_ops": ["encrypt"]})),
        with(rsa(), &json!({"alg": "RS512"})),
        with(rsa(), &json!({"alg": "RSA-OAEP"})),
        with(rsa(), &json!({"alg": "HS256"})),
        with(rsa(), &json!({"n": "AQAB"})),
        with(rsa(), &json!({"n": "!"})),
        with(rsa(), &json!({"e": ""})),
        with(rsa(), &json!({"n": 7})),
        with(p256_jwk(None), &json!({"alg": "RS256"})),
        with(p256_jwk(None), &json!({"crv": "P-384"})),
        with(p256_jwk(None), &json!({"crv": "secp256k1"})),
        with(p256_jwk(None), &json!({"x": p256_jwk(None)["y"]})),
        with(p256_jwk(None), &json!({"x": "AQAB"})),
        json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "4khkXePC98SsaiqsXSNlm7XcO6MYOjOVlHtc2iC_qns"}),
        json!({"kty": "new", "z": 1}),
        json!({}),
        json!(null),
        json!("text"),
    ];
    for key in &unusable {
        assert_eq!(parse(&json!({"keys": [key]})), Err(KeySetError::NoUsableKey), "{key}");
    }
    let usable = [
        rsa(),
        with(rsa(), &json!({"use": "sig", "alg": "RS256", "kid": "b", "key_ops": ["verify"], "x5c": ["a"], "z": 1})),
    ];
    let mixed: Vec<_> = unusable.into_iter().chain(usable).collect();
    assert_eq!(parse(&json!({ "keys": mixed })).map(|keys| keys.len()), Ok(2));
}

#[test]
fn what_is_no_key_set_is_refused() {
    for text in ["", "null", "[]", "{}", r#"{"keys":{}}"#, "<html>", r#"{"keys":[]"#, "\u{0}"] {
        assert_eq!(KeySet::parse(text.as_bytes()), Err(KeySetError::NoKeySet), "{text}");
    }
    assert_eq!(KeySet::parse(b"\xff\xfe"), Err(KeySetError::NoKeySet));
    assert_eq!(parse(&json!({"keys": []})), Err(KeySetError::NoUsableKey));
}

#[test]
fn a_key_set_is_bounded() {
    let keys = |count| json!({"keys": vec![p256_jwk(Some("e")); count]});
    assert_eq!(parse(&keys(KEYS_MAX)).map(|keys| keys.len()), Ok(KEYS_MAX));
    assert_eq!(parse(&keys(KEYS_MAX + 1)), Err(KeySetError::TooManyKeys));
}
