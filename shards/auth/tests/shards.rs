//! Authenticators that share fetched keys: what they remember, when they ask for a fetch, and what they say meanwhile.

mod common;

use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use common::{
    NOW_S, P256_PUBLIC, RSA, RSA_OTHER, claims, es256, hs256, key_set, p256_jwk, rs256, rsa_jwk, verifier, with_jwks,
    with_secret,
};
use queen_auth::{
    Authenticator, Denial, LEEWAY_S, Refusal, SharedKeys, TOKEN_BYTES_MAX, UNKNOWN_KEY_COOLDOWN_S, VerifierConfig,
};
use serde_json::json;

/// When the last fetch is no reason any more not to ask for another.
const COOLED_S: u64 = NOW_S + UNKNOWN_KEY_COOLDOWN_S;

fn shard(shared: &Arc<SharedKeys>) -> Authenticator {
    Authenticator::new(verifier(with_jwks()), Some(Arc::clone(shared)))
}

fn refused(refusal: Refusal) -> Denial {
    Denial::Refused(refusal)
}

#[test]
fn a_request_without_a_token_is_refused() {
    let mut shard = Authenticator::new(verifier(with_secret()), None);
    for header in [None, Some(&b""[..]), Some(b"Bearer"), Some(b"Bearer   ")] {
        assert_eq!(shard.authenticate(header, NOW_S), Err(refused(Refusal::Missing)));
    }
    assert_eq!(refused(Refusal::Missing).to_string(), "Authentication required");
}

#[test]
fn a_token_is_remembered_until_it_expires() {
    let mut shard = Authenticator::new(verifier(with_secret()), None);
    let header = format!("Bearer {}", hs256(&json!({"exp": NOW_S + 1})));
    let first = shard.authenticate(Some(header.as_bytes()), NOW_S).expect("a good token");
    let again = shard.authenticate(Some(header.as_bytes()), NOW_S + LEEWAY_S).expect("good still");
    assert!(Rc::ptr_eq(&first, &again), "it was verified once");
    assert_eq!(shard.authenticate(Some(header.as_bytes()), NOW_S + LEEWAY_S + 1), Err(refused(Refusal::Expired)));
}

#[test]
fn a_refused_token_stays_refused() {
    let mut shard = Authenticator::new(verifier(with_secret()), None);
    let token = rs256(RSA, None, &claims());
    for _ in 0..2 {
        assert_eq!(shard.authenticate(Some(token.as_bytes()), NOW_S), Err(refused(Refusal::Algorithm)));
    }
    let huge = vec![b'a'; TOKEN_BYTES_MAX + 1];
    assert_eq!(shard.authenticate(Some(&huge), NOW_S), Err(refused(Refusal::TooLong)));
}

#[test]
fn a_token_waits_for_the_first_keys_and_is_then_verified() {
    let shared = Arc::new(SharedKeys::new());
    assert!(shared.is_fetch_wanted(), "the first fetch is wanted from the start");
    let (mut one, mut other) = (shard(&shared), shard(&shared));
    let token = rs256(RSA, Some("a"), &claims());
    for shard in [&mut one, &mut other] {
        assert_eq!(shard.authenticate(Some(token.as_bytes()), NOW_S), Err(Denial::Wait { until: 1 }));
    }
    assert!(shared.replace(key_set(&[rsa_jwk(RSA, Some("a"))]), NOW_S));
    assert_eq!(shared.fetches_done(), 1);
    assert!(!shared.is_fetch_wanted());
    for shard in [&mut one, &mut other] {
        assert!(shard.authenticate(Some(token.as_bytes()), NOW_S).is_ok());
    }
}

#[test]
fn without_any_keys_there_is_no_answer_until_a_fetch_brings_some() {
    let shared = Arc::new(SharedKeys::new());
    let mut shard = shard(&shared);
    let token = rs256(RSA, Some("a"), &claims());
    shared.note_failure(NOW_S);
    assert_eq!(shard.authenticate(Some(token.as_bytes()), NOW_S), Err(Denial::Unavailable));
    assert!(!shared.is_fetch_wanted());
    assert_eq!(shard.authenticate(Some(token.as_bytes()), COOLED_S), Err(Denial::Wait { until: 2 }));
    assert!(shared.is_fetch_wanted());
}

#[test]
fn a_token_that_needs_no_fetched_key_waits_for_none() {
    let shared = Arc::new(SharedKeys::new());
    let config = VerifierConfig { public_key_pem: Some(P256_PUBLIC.into()), ..with_jwks() };
    let mut shard = Authenticator::new(verifier(config), Some(Arc::clone(&shared)));
    assert!(shard.authenticate(Some(es256(None, &claims()).as_bytes()), NOW_S).is_ok());
    assert_eq!(shard.authenticate(Some(b"a.b.c"), NOW_S), Err(refused(Refusal::Malformed)));
}

#[test]
fn an_unknown_key_asks_for_a_fetch_unless_one_has_just_ended() {
    let shared = Arc::new(SharedKeys::new());
    let mut shard = shard(&shared);
    shared.replace(key_set(&[rsa_jwk(RSA, Some("a"))]), NOW_S);
    let rotated = rs256(RSA_OTHER, Some("b"), &claims());
    let mut ask = |now_s| shard.authenticate(Some(rotated.as_bytes()), now_s).map(drop);
    assert_eq!(ask(COOLED_S - 1), Err(refused(Refusal::UnknownKey)));
    assert!(!shared.is_fetch_wanted());
    assert_eq!(ask(COOLED_S), Err(Denial::Wait { until: 2 }));
    assert!(shared.is_fetch_wanted());
    shared.replace(key_set(&[rsa_jwk(RSA, Some("a")), rsa_jwk(RSA_OTHER, Some("b"))]), COOLED_S);
    assert_eq!(ask(COOLED_S), Ok(()));
}

#[test]
fn a_fetch_that_fails_leaves_the_keys_in_force() {
    let shared = Arc::new(SharedKeys::new());
    let mut shard = shard(&shared);
    shared.replace(key_set(&[rsa_jwk(RSA, Some("a"))]), NOW_S);
    shared.note_failure(COOLED_S);
    assert_eq!(shared.fetches_done(), 2);
    assert!(shard.authenticate(Some(rs256(RSA, Some("a"), &claims()).as_bytes()), COOLED_S).is_ok());
    let unknown = rs256(RSA, Some("b"), &claims());
    assert_eq!(shard.authenticate(Some(unknown.as_bytes()), COOLED_S), Err(refused(Refusal::UnknownKey)));
}

#[test]
fn many_made_up_keys_lead_to_one_fetch_in_the_cooldown() {
    let shared = Arc::new(SharedKeys::new());
    let mut shards = [shard(&shared), shard(&shared)];
    let mut fetches = 0;
    for second in 0..3 * UNKNOWN_KEY_COOLDOWN_S {
        for number in 0..20 {
            let token = rs256(RSA, Some(&format!("{second}-{number}")), &claims());
            let shard = &mut shards[number % 2];
            shard.authenticate(Some(token.as_bytes()), NOW_S + second).expect_err("nobody has such a key");
        }
        if shared.is_fetch_wanted() {
            shared.replace(key_set(&[rsa_jwk(RSA, Some("a"))]), NOW_S + second);
            fetches += 1;
        }
    }
    assert_eq!(fetches, 3);
}

#[test]
fn a_clock_that_was_set_back_does_not_keep_keys_from_being_fetched() {
    let shared = Arc::new(SharedKeys::new());
    let mut shard = shard(&shared);
    shared.note_failure(NOW_S + 86_400);
    let token = rs256(RSA, Some("a"), &claims());
    assert_eq!(shard.authenticate(Some(token.as_bytes()), NOW_S), Err(Denial::Wait { until: 2 }));
}

#[test]
fn a_key_that_is_withdrawn_takes_its_tokens_along() {
    let shared = Arc::new(SharedKeys::new());
    let mut shard = shard(&shared);
    shared.replace(key_set(&[rsa_jwk(RSA, Some("a")), p256_jwk(Some("e"))]), NOW_S);
    let (by_rsa, by_p256) = (rs256(RSA, Some("a"), &claims()), es256(Some("e"), &claims()));
    for token in [&by_rsa, &by_p256] {
        assert!(shard.authenticate(Some(token.as_bytes()), NOW_S).is_ok());
    }
    assert!(shared.replace(key_set(&[p256_jwk(Some("e"))]), NOW_S));
    assert_eq!(shard.authenticate(Some(by_rsa.as_bytes()), NOW_S), Err(refused(Refusal::UnknownKey)));
    assert!(shard.authenticate(Some(by_p256.as_bytes()), NOW_S).is_ok());
}

#[test]
fn the_same_keys_again_forget_nothing_and_others_everything() {
    let shared = Arc::new(SharedKeys::new());
    let mut shard = shard(&shared);
    let keys = || key_set(&[rsa_jwk(RSA, Some("a"))]);
    let token = rs256(RSA, Some("a"), &claims());
    shared.replace(keys(), NOW_S);
    let first = shard.authenticate(Some(token.as_bytes()), NOW_S).expect("a good token");
    assert!(!shared.replace(keys(), NOW_S));
    let again = shard.authenticate(Some(token.as_bytes()), NOW_S).expect("a good token");
    assert!(Rc::ptr_eq(&first, &again));
    assert!(shared.replace(key_set(&[rsa_jwk(RSA, Some("a")), p256_jwk(None)]), NOW_S));
    let anew = shard.authenticate(Some(token.as_bytes()), NOW_S).expect("a good token");
    assert!(!Rc::ptr_eq(&first, &anew));
    assert_eq!(first, anew);
}

#[test]
fn a_key_that_is_asked_for_wakes_the_fetcher() {
    let shared = Arc::new(SharedKeys::new());
    shared.note_failure(NOW_S);
    let fetcher = thread::spawn({
        let shared = Arc::clone(&shared);
        move || {
            while !shared.is_fetch_wanted() {
                thread::park();
            }
            shared.replace(key_set(&[rsa_jwk(RSA, Some("a"))]), COOLED_S);
        }
    });
    shared.wake_by(fetcher.thread().clone());
    let mut shard = shard(&shared);
    let token = rs256(RSA, Some("a"), &claims());
    assert_eq!(shard.authenticate(Some(token.as_bytes()), COOLED_S), Err(Denial::Wait { until: 2 }));
    fetcher.join().expect("it was woken");
    assert!(shard.authenticate(Some(token.as_bytes()), COOLED_S).is_ok());
}
