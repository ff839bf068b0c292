//! Which tokens are good, and why others are refused.

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::{
    NOW_S, P256_PUBLIC, RSA, RSA_OTHER, RSA_PUBLIC, SECRET, claims, es256, hs256, key_set, p256_jwk, rs256, rsa_jwk,
    secret_key, signed, verifier, verify, with_jwks, with_public_key, with_secret,
};
use jsonwebtoken::{Algorithm, EncodingKey};
use queen_auth::{
    Access, LEEWAY_S, Refusal, Secret, TOKEN_BYTES_MAX, TenantClaim, Verifier, VerifierConfig, VerifierError,
};
use serde_json::{Value, json};

/// What becomes of an HS256 token with these claims.
fn outcome(claims: &Value) -> Result<(), Refusal> {
    verify(with_secret(), &hs256(claims), None).map(drop)
}

/// A token of these parts as they stand, with a signature that the secret makes of them.
fn token_of(header: &str, body: &[u8]) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(body));
    let key = secret_key(SECRET);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).expect("it can be signed");
    format!("{message}.{signature}")
}

#[test]
fn a_good_token_of_each_algorithm_says_who_its_bearer_is() {
    let tokens = [
        (with_secret(), hs256(&claims())),
        (with_public_key(RSA_PUBLIC), rs256(RSA, None, &claims())),
        (with_public_key(P256_PUBLIC), es256(None, &claims())),
    ];
    for (config, token) in tokens {
        let verified = verify(config, &token, None).expect("a good token");
        assert_eq!(verified.identity.subject.as_deref(), Some("ada"));
        assert_eq!(verified.identity.role(), "read-write");
        assert_eq!(verified.identity.tenant, TenantClaim::Absent);
        assert!(verified.identity.roles.allow(Access::ReadWrite) && !verified.identity.roles.allow(Access::Admin));
        assert_eq!(verified.expires_s, Some(NOW_S + 300 + LEEWAY_S));
    }
}

#[test]
fn an_expired_token_is_refused_once_the_leeway_is_over() {
    assert_eq!(outcome(&json!({"exp": NOW_S - LEEWAY_S + 1})), Ok(()));
    assert_eq!(outcome(&json!({"exp": NOW_S - LEEWAY_S})), Err(Refusal::Expired));
    assert_eq!(outcome(&json!({"exp": 0})), Err(Refusal::Expired));
    assert_eq!(outcome(&json!({"exp": -1.5})), Err(Refusal::Expired));
}

#[test]
fn a_token_without_an_end_never_expires() {
    assert_eq!(verify(with_secret(), &hs256(&json!({})), None).expect("it is good").expires_s, None);
}

#[test]
fn a_token_that_is_not_valid_yet_is_refused_until_the_leeway_reaches_it() {
    assert_eq!(outcome(&json!({"nbf": NOW_S + LEEWAY_S})), Ok(()));
    assert_eq!(outcome(&json!({"nbf": NOW_S + LEEWAY_S + 1})), Err(Refusal::NotYetValid));
    assert_eq!(outcome(&json!({"nbf": (NOW_S + LEEWAY_S) as f64 + 0.5})), Err(Refusal::NotYetValid));
}

#[test]
fn a_token_signed_with_another_key_is_refused() {
    let other = secret_key("guessed");
    let token = signed(Algorithm::HS256, None, &other, &claims());
    assert_eq!(verify(with_secret(), &token, None), Err(Refusal::Signature));
    let token = rs256(RSA_OTHER, None, &claims());
    assert_eq!(verify(with_public_key(RSA_PUBLIC), &token, None), Err(Refusal::Signature));
    let keys = key_set(&[rsa_jwk(RSA, Some("a"))]);
    assert_eq!(verify(with_jwks(), &rs256(RSA_OTHER, Some("a"), &claims()), Some(&keys)), Err(Refusal::Signature));
}

#[test]
fn a_token_whose_claims_were_changed_is_refused() {
    let (good, forged) = (hs256(&claims()), hs256(&json!({"role": "admin"})));
    let body = |token: &str| token.split('.').nth(1).expect("three parts").to_owned();
    let token = good.replace(&body(&good), &body(&forged));
    assert_ne!(token, good);
    assert_eq!(verify(with_secret(), &token, None), Err(Refusal::Signature));
}

#[test]
fn an_unsigned_token_is_refused_in_every_spelling_of_none() {
    for word in ["none", "None", "NONE", "nOnE", ""] {
        let header = json!({"alg": word, "typ": "JWT"}).to_string();
        let signed = token_of(&header, claims().to_string().as_bytes());
        let unsigned = signed.rsplit_once('.').expect("three parts").0.to_owned() + ".";
        for token in [&signed, &unsigned] {
            for config in [with_secret(), with_public_key(RSA_PUBLIC), with_jwks()] {
                assert_eq!(verify(config, token, None), Err(Refusal::Algorithm), "{word}");
            }
        }
    }
}

#[test]
fn a_token_without_a_signature_is_refused_whatever_its_algorithm() {
    for (config, token) in
        [(with_secret(), hs256(&claims())), (with_public_key(RSA_PUBLIC), rs256(RSA, None, &claims()))]
    {
        let unsigned = token.rsplit_once('.').expect("three parts").0.to_owned() + ".";
        assert_eq!(verify(config, &unsigned, None), Err(Refusal::Signature));
    }
}

#[test]
fn a_public_keys_text_is_no_secret() {
    let keys = key_set(&[rsa_jwk(RSA, Some("a"))]);
    let modulus = rsa_jwk(RSA, None)["n"].as_str().expect("a modulus").to_owned();
    for text in [RSA_PUBLIC, RSA_PUBLIC.trim_end(), &modulus] {
        let key = secret_key(text);
        let token = signed(Algorithm::HS256, Some("a"), &key, &claims());
        assert_eq!(verify(with_public_key(RSA_PUBLIC), &token, None), Err(Refusal::Algorithm));
        assert_eq!(verify(with_jwks(), &token, Some(&keys)), Err(Refusal::Algorithm));
        let both = VerifierConfig { public_key_pem: Some(RSA_PUBLIC.into()), ..with_secret() };
        assert_eq!(verify(both, &token, Some(&keys)), Err(Refusal::Signature));
    }
}

#[test]
fn only_the_one_algorithm_of_a_key_is_taken() {
    let rsa = EncodingKey::from_rsa_pem(RSA.as_bytes()).expect("an RSA key");
    for algorithm in [Algorithm::RS384, Algorithm::RS512, Algorithm::PS256] {
        let token = signed(algorithm, None, &rsa, &claims());
        assert_eq!(verify(with_public_key(RSA_PUBLIC), &token, None), Err(Refusal::Algorithm), "{algorithm:?}");
    }
    let secret = secret_key(SECRET);
    for algorithm in [Algorithm::HS384, Algorithm::HS512] {
        assert_eq!(
            verify(with_secret(), &signed(algorithm, None, &secret, &claims()), None),
            Err(Refusal::Algorithm),
            "{algorithm:?}"
        );
    }
    assert_eq!(verify(with_public_key(RSA_PUBLIC), &es256(None, &claims()), None), Err(Refusal::Algorithm));
    assert_eq!(verify(with_public_key(P256_PUBLIC), &rs256(RSA, None, &claims()), None), Err(Refusal::Algorithm));
    assert_eq!(verify(with_secret(), &rs256(RSA, None, &claims()), None), Err(Refusal::Algorithm));
}

#[test]
fn a_key_that_the_token_brings_along_counts_for_nothing() {
    let mut header = jsonwebtoken::Header::new(Algorithm::RS256);
    header.jwk = Some(serde_json::from_value(rsa_jwk(RSA_OTHER, None)).expect("a key"));
    header.jku = Some("http://127.0.0.1/keys".into());
    let key = EncodingKey::from_rsa_pem(RSA_OTHER.as_bytes()).expect("an RSA key");
    let token = jsonwebtoken::encode(&header, &claims(), &key).expect("it can be signed");
    assert_eq!(verify(with_public_key(RSA_PUBLIC), &token, None), Err(Refusal::Signature));
}

#[test]
fn a_header_that_demands_what_is_not_known_is_refused() {
    for header in [r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, r#"{"alg":"HS256","crit":[]}"#] {
        let token = token_of(header, claims().to_string().as_bytes());
        assert_eq!(verify(with_secret(), &token, None), Err(Refusal::Malformed), "{header}");
    }
    let harmless = token_of(r#"{"alg":"HS256","typ":"at+jwt","x":1}"#, claims().to_string().as_bytes());
    assert!(verify(with_secret(), &harmless, None).is_ok());
}

#[test]
fn garbage_of_many_kinds_is_malformed() {
    let good = hs256(&claims());
    let garbage = [
        "x",
        "..",
        ".....",
        "a.b",
        "a.b.c.d",
        "{}.{}.{}",
        "e30.e30.e30",
        "Ym9vbQ.e30.e30",
        "\u{e9}.\u{e9}.\u{e9}",
        "%00.%00.%00",
        &good[1..],
        &format!("{good}.{good}"),
        &good.replace('.', " "),
        &good.replacen('.', "=.", 1),
    ];
    for token in garbage {
        let refused = verify(with_secret(), token, None);
        assert_eq!(refused, Err(Refusal::Malformed), "{token}");
    }
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(verifier(with_secret()).verify(&bytes, None, NOW_S), Err(Refusal::Malformed));
}

#[test]
fn claims_that_are_no_object_are_refused_although_they_are_signed() {
    let nested = format!("{{\"a\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
    for body in ["", "null", "[]", "7", "\"text\"", "{", "{}{}", "{\"exp\":1e999}", nested.as_str()] {
        let token = token_of(r#"{"alg":"HS256"}"#, body.as_bytes());
        assert_eq!(verify(with_secret(), &token, None), Err(Refusal::Claims), "{body}");
    }
    let token = token_of(r#"{"alg":"HS256"}"#, b"{\"sub\":\"\xff\"}");
    assert_eq!(verify(with_secret(), &token, None), Err(Refusal::Claims));
    assert_eq!(outcome(&json!({"sub": ["ada"]})), Err(Refusal::Claims));
}

#[test]
fn a_huge_token_is_refused_without_a_look_at_it() {
    let claims = json!({"filler": "x".repeat(TOKEN_BYTES_MAX)});
    assert_eq!(outcome(&claims), Err(Refusal::TooLong));
    assert_eq!(verifier(with_secret()).verify(&vec![b'.'; 100 << 20], None, NOW_S), Err(Refusal::TooLong));
    assert_eq!(verify(with_secret(), &"x".repeat(TOKEN_BYTES_MAX), None), Err(Refusal::Malformed));
}

#[test]
fn a_token_of_another_issuer_or_of_none_is_refused_where_one_is_configured() {
    let config = || VerifierConfig { issuer: Some("https://issuer".into()), ..with_secret() };
    let outcome = |claims| verify(config(), &hs256(&claims), None).map(drop);
    assert_eq!(outcome(json!({"iss": "https://issuer"})), Ok(()));
    assert_eq!(outcome(json!({"iss": "https://issuer/"})), Err(Refusal::Issuer));
    assert_eq!(outcome(json!({})), Err(Refusal::Issuer));
    assert_eq!(outcome(json!({"iss": ["https://issuer"]})), Err(Refusal::Claims));
}

#[test]
fn a_token_for_another_audience_or_for_none_is_refused_where_one_is_configured() {
    let config = || VerifierConfig { audience: Some("queen".into()), ..with_secret() };
    let outcome = |claims| verify(config(), &hs256(&claims), None).map(drop);
    assert_eq!(outcome(json!({"aud": "queen"})), Ok(()));
    assert_eq!(outcome(json!({"aud": ["bees", "queen"]})), Ok(()));
    assert_eq!(outcome(json!({"aud": ["bees"]})), Err(Refusal::Audience));
    assert_eq!(outcome(json!({"aud": []})), Err(Refusal::Audience));
    assert_eq!(outcome(json!({})), Err(Refusal::Audience));
}

#[test]
fn a_token_for_somebody_is_taken_where_no_audience_is_configured() {
    assert_eq!(outcome(&json!({"aud": "bees", "iss": "anybody"})), Ok(()));
}

#[test]
fn the_tenant_is_in_the_claim_that_the_configuration_names() {
    let config = VerifierConfig { tenant_claim: "https://queen/tenant".into(), ..with_secret() };
    let id = "00000000-0000-0000-0000-0000000000aB";
    let token = hs256(&json!({"https://queen/tenant": id, "tenant_id": "other"}));
    let verified = verify(config, &token, None).expect("a good token");
    assert!(matches!(verified.identity.tenant, TenantClaim::Is(tenant) if tenant.0[15] == 0xab));
    let verified = verify(with_secret(), &token, None).expect("a good token");
    assert_eq!(verified.identity.tenant, TenantClaim::Malformed);
}

#[test]
fn a_configuration_without_a_key_or_with_an_empty_secret_is_refused() {
    let refused = |config| Verifier::new(config).map(drop).expect_err("it must not verify anything");
    assert_eq!(refused(VerifierConfig::default()), VerifierError::NoKey);
    let empty = VerifierConfig { secret: Some(Secret::new("")), ..VerifierConfig::default() };
    assert_eq!(refused(empty), VerifierError::EmptySecret);
}

#[test]
fn a_configured_key_serves_beside_fetched_ones() {
    let config = || VerifierConfig { public_key_pem: Some(RSA_PUBLIC.into()), ..with_jwks() };
    let keys = key_set(&[p256_jwk(Some("e"))]);
    assert!(verify(config(), &rs256(RSA, None, &claims()), Some(&keys)).is_ok());
    assert!(verify(config(), &rs256(RSA, Some("unheard of"), &claims()), None).is_ok());
    assert!(verify(config(), &es256(Some("e"), &claims()), Some(&keys)).is_ok());
    let unknown = verify(config(), &rs256(RSA_OTHER, Some("new"), &claims()), Some(&keys));
    assert_eq!(unknown, Err(Refusal::UnknownKey), "it may be among the keys that are fetched next");
}

#[test]
fn nothing_that_is_shown_quotes_a_secret_or_a_token() {
    let config = VerifierConfig { issuer: Some("i".into()), ..with_secret() };
    let verifier = Verifier::new(config.clone()).expect("a key");
    let shown = format!("{config:?} {verifier:?}");
    assert!(!shown.contains(SECRET) && !shown.contains(&format!("{:?}", SECRET.as_bytes())), "{shown}");
    let token = hs256(&json!({"iss": "somebody else"}));
    let refusal = verifier.verify(token.as_bytes(), None, NOW_S).expect_err("another issuer");
    assert_eq!(refusal.to_string(), "Token is from another issuer than JWT_ISSUER");
}
