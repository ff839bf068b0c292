//! What authentication costs a request: a token that was verified before, and the first sight of one.
//!
//! `cargo bench --bench auth`. The target is 3 µs for a remembered token; the rest is paid once a token and shard, or by
//! whoever forges them.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use queen_auth::{Authenticator, Refusal, Secret, Verifier, VerifierConfig};
use serde_json::json;

const RSA: &str = include_str!("../shards/auth/tests/keys/rsa.pem");
const RSA_OTHER: &str = include_str!("../shards/auth/tests/keys/rsa-other.pem");
const RSA_PUBLIC: &str = include_str!("../shards/auth/tests/keys/rsa-public.pem");
const P256: &str = include_str!("../shards/auth/tests/keys/p256.pem");
const P256_PUBLIC: &str = include_str!("../shards/auth/tests/keys/p256-public.pem");
const SECRET: &str = "thirty-two bytes that sign tokens";
const NOW_S: u64 = 1_764_478_051;

/// A token with the usual claims, and one of this many letters besides.
fn token(algorithm: Algorithm, key: &EncodingKey, filler: usize) -> String {
    let claims = json!({
        "sub": "ada", "role": "read-write", "iss": "https://issuer.example", "aud": "queen",
        "exp": NOW_S + 3600, "tenant_id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "scope": "x".repeat(filler),
    });
    encode(&Header::new(algorithm), &claims, key).expect("it can be signed")
}

fn hs256(filler: usize) -> String {
    token(Algorithm::HS256, &EncodingKey::from_secret(SECRET.as_bytes()).expect("a secret"), filler)
}

fn rs256(pem: &str) -> String {
    token(Algorithm::RS256, &EncodingKey::from_rsa_pem(pem.as_bytes()).expect("an RSA key"), 0)
}

fn es256() -> String {
    token(Algorithm::ES256, &EncodingKey::from_ec_pem(P256.as_bytes()).expect("a P-256 key"), 0)
}

fn verifier(public_key: Option<&str>) -> Verifier {
    let config = VerifierConfig {
        secret: Some(Secret::new(SECRET)),
        public_key_pem: public_key.map(str::to_owned),
        issuer: Some("https://issuer.example".into()),
        audience: Some("queen".into()),
        tenant_claim: "tenant_id".into(),
        ..VerifierConfig::default()
    };
    Verifier::new(config).expect("the keys are right")
}

fn remembered(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("remembered token");
    for filler in [0, 430] {
        let header = format!("Bearer {}", hs256(filler));
        group.bench_function(format!("of {} bytes", header.len() - "Bearer ".len()), |bencher| {
            let mut authenticator = Authenticator::new(Arc::new(verifier(None)), None);
            authenticator.authenticate(Some(header.as_bytes()), NOW_S).expect("a good token");
            bencher.iter(|| authenticator.authenticate(Some(black_box(header.as_bytes())), NOW_S));
        });
    }
    group.finish();
}

fn first_sight(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("first sight");
    let cases = [
        ("HS256", None, hs256(0), None),
        ("RS256", Some(RSA_PUBLIC), rs256(RSA), None),
        ("ES256", Some(P256_PUBLIC), es256(), None),
        ("forged RS256", Some(RSA_PUBLIC), rs256(RSA_OTHER), Some(Refusal::Signature)),
    ];
    for (name, public_key, token, refusal) in cases {
        let verifier = verifier(public_key);
        let outcome = verifier.verify(token.as_bytes(), None, NOW_S);
        assert_eq!(outcome.err(), refusal, "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| verifier.verify(black_box(token.as_bytes()), None, NOW_S));
        });
    }
    group.finish();
}

criterion_group!(benches, remembered, first_sight);
criterion_main!(benches);
