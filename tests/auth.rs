//! Tokens: who is let in, who may do what, and that none of it is ever written down.

mod common;

use std::net::TcpListener;
use std::time::Duration;

use common::{Broker, Connection, Issuer, Response, SECRET, eventually, in_s, signing_key, token};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use queen_auth::{Access, Roles};
use queen_data::route_lines;
use rcgen::{KeyPair, PublicKeyData};
use serde_json::{Value, json};

const ON: [(&str, &str); 2] = [("JWT_ENABLED", "true"), ("JWT_SECRET", SECRET)];
const LISTING: &str = "/api/v1/resources/queues";
const TENANT: &str = "6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab";

/// A request with this token, or without any.
fn send(client: &mut Connection, method: &str, target: &str, token: Option<&str>, body: &[u8]) -> Response {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    client.request_with(method, target, &headers, body)
}

/// Whether a token opens the listing of durable queues, or with what it is refused.
fn listing(client: &mut Connection, token: &str) -> Result<(), (u16, String)> {
    let response = send(client, "GET", LISTING, Some(token), b"");
    if response.status == 200 { Ok(()) } else { Err(response.failure()) }
}

fn refused(status: u16, code: &str) -> Result<(), (u16, String)> {
    Err((status, code.to_owned()))
}

#[test]
fn every_route_is_open_to_the_roles_of_its_level_and_to_no_other() {
    let broker = Broker::start(&ON);
    let mut client = broker.connect();
    let skipped = ["/health", "/metrics", "/metrics/prometheus"];
    let mut asked = 0;
    for line in route_lines() {
        let target: Vec<_> =
            line.path.split('/').map(|part| if part.starts_with(':') { "named" } else { part }).collect();
        let target = target.join("/");
        let what = format!("{} {target}", line.method);
        let body: &[u8] = if line.method == "GET" { b"" } else { b"{}" };
        let answer = send(&mut client, line.method, &target, None, body);
        if skipped.contains(&line.path) {
            assert_eq!(answer.status, 200, "{what} without a token");
            continue;
        }
        assert_eq!(answer.failure(), (401, "auth_required".to_owned()), "{what} without a token");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        for role in ["read-only", "write-only", "read-write", "admin", "nothing"] {
            let token = token(&json!({ "sub": "somebody", "role": role }));
            let answer = send(&mut client, line.method, &target, Some(&token), body);
            if Roles::from_words([role]).allow(line.access) {
                assert!(!matches!(answer.status, 401 | 403), "{what} as {role}: {} {}", answer.status, answer.text());
            } else {
                assert_eq!(answer.failure(), (403, "forbidden".to_owned()), "{what} as {role}");
            }
            asked += 1;
        }
    }
    assert!(asked >= 5 * 30, "{asked} answers");
}

#[test]
fn the_roles_are_those_of_the_table() {
    let levels = [Access::Read, Access::Push, Access::ReadWrite, Access::Admin];
    for (role, allowed) in [
        ("read-only", [true, false, false, false]),
        ("write-only", [false, true, false, false]),
        ("read-write", [true, true, true, false]),
        ("admin", [true; 4]),
        ("emperor", [false; 4]),
    ] {
        assert_eq!(levels.map(|level| Roles::from_words([role]).allow(level)), allowed, "{role}");
    }
    let level = |method: &str, path: &str| {
        route_lines().find(|line| line.method == method && line.path == path).map(|line| line.access)
    };
    for (method, path, expected) in [
        ("POST", "/api/v1/push", Access::Push),
        ("POST", "/api/v1/ephemeral/push", Access::Push),
        ("GET", "/api/v1/ephemeral/queues", Access::Read),
        ("GET", "/api/v1/ephemeral/queues/:queue/depth", Access::Read),
        ("GET", "/api/v1/ephemeral/pop", Access::ReadWrite),
        ("POST", "/api/v1/ephemeral/request", Access::ReadWrite),
        ("DELETE", "/api/v1/ephemeral/queue/:queue", Access::ReadWrite),
        ("GET", "/api/v1/pop/queue/:queue", Access::ReadWrite),
        ("POST", "/api/v1/configure", Access::ReadWrite),
        ("DELETE", "/api/v1/resources/queues/:queue", Access::Admin),
        ("POST", "/api/v1/system/ephemeral", Access::Admin),
        ("PUT", "/api/v1/system/ephemeral/quota/:tenant", Access::Admin),
    ] {
        assert_eq!(level(method, path), Some(expected), "{method} {path}");
    }
}

#[test]
fn a_path_that_does_not_exist_is_not_told_to_strangers() {
    let broker = Broker::start(&ON);
    let mut client = broker.connect();
    for target in ["/api/v1/nothing", "/nothing", "/api/v1/push/"] {
        assert_eq!(
            send(&mut client, "GET", target, None, b"").failure(),
            (401, "auth_required".to_owned()),
            "{target}"
        );
        let token = token(&json!({ "role": "read-only" }));
        let known = send(&mut client, "GET", target, Some(&token), b"");
        assert_eq!(known.failure(), (404, "no_such_route".to_owned()), "{target}");
    }
}

#[test]
fn a_token_counts_with_the_word_bearer_and_without() {
    let broker = Broker::start(&ON);
    let mut client = broker.connect();
    let token = token(&json!({ "roles": ["write-only", "read-only"], "exp": in_s(60) }));
    for value in [format!("Bearer {token}"), format!("bearer  {token}"), token.clone()] {
        let answer = client.request_with("GET", LISTING, &[("Authorization", &value)], b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let answer = client.request_with("GET", LISTING, &[("Authorization", &format!("Basic {token}"))], b"");
    assert_eq!(answer.failure(), (401, "invalid_token".to_owned()));
}

#[test]
fn a_token_that_is_no_good_is_refused_with_what_is_wrong() {
    let broker = Broker::start(&ON);
    let mut client = broker.connect();
    let good = json!({ "role": "admin", "exp": in_s(60) });
    assert_eq!(listing(&mut client, &token(&good)), Ok(()));
    assert_eq!(listing(&mut client, &token(&json!({ "role": "admin", "exp": in_s(-20) }))), Ok(()), "within the skew");
    let late = token(&json!({ "role": "admin", "exp": in_s(-40) }));
    assert_eq!(listing(&mut client, &late), refused(401, "token_expired"));
    let early = token(&json!({ "role": "admin", "nbf": in_s(60) }));
    assert_eq!(listing(&mut client, &early), refused(401, "invalid_token"));
    let sign = |header: &Header, key: &[u8]| jsonwebtoken::encode(header, &good, &signing_key(key)).expect("a token");
    assert_eq!(listing(&mut client, &sign(&Header::default(), b"another")), refused(401, "invalid_token"));
    let longer = sign(&Header::new(Algorithm::HS512), SECRET.as_bytes());
    assert_eq!(listing(&mut client, &longer), refused(401, "invalid_token"));
    let (_, rest) = token(&good).split_once('.').map(|(head, rest)| (head.to_owned(), rest.to_owned())).expect("parts");
    let (claims, _) = rest.split_once('.').expect("three parts");
    // {"alg":"none"} and {"alg":"NONE","typ":"JWT"}
    for head in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJOT05FIiwidHlwIjoiSldUIn0"] {
        assert_eq!(listing(&mut client, &format!("{head}.{claims}.")), refused(401, "invalid_token"));
    }
    let huge = token(&json!({ "role": "admin", "more": "x".repeat(9_000) }));
    assert_eq!(listing(&mut client, &huge), refused(401, "invalid_token"));
    for garbage in ["x", "x.y.z", "..", "...", "a.b", "%%%.%%%.%%%", "eyJhbGciOiJIUzI1NiJ9..", "null", "Bearer"] {
        let answer = send(&mut client, "GET", LISTING, Some(garbage), b"");
        assert_eq!(answer.status, 401, "{garbage}: {}", answer.text());
    }
    assert_eq!(listing(&mut client, &token(&good)), Ok(()), "the connection and the broker go on");
}

#[test]
fn a_token_ends_while_it_is_remembered() {
    let broker = Broker::start(&ON);
    let mut client = broker.connect();
    // 30 seconds of skew from 2 seconds ago on.
    let token = token(&json!({ "role": "admin", "exp": in_s(-28) }));
    assert_eq!(listing(&mut client, &token), Ok(()));
    eventually("the end of the token", || {
        (listing(&mut client, &token) == refused(401, "token_expired")).then_some(())
    });
}

#[test]
fn a_public_key_is_no_secret_to_sign_with() {
    let key = KeyPair::generate().expect("a key");
    let pem = key.public_key_pem();
    let broker = Broker::start(&[("JWT_ENABLED", "true"), ("JWT_PUBLIC_KEY", &pem)]);
    let mut client = broker.connect();
    let claims = json!({ "role": "admin" });
    let es256 = Header::new(Algorithm::ES256);
    let good = jsonwebtoken::encode(&es256, &claims, &EncodingKey::from_ec_der(&key.serialize_der())).expect("a token");
    assert_eq!(listing(&mut client, &good), Ok(()));
    for secret in [pem.as_bytes(), pem.trim_end().as_bytes(), key.der_bytes()] {
        let forged = jsonwebtoken::encode(&Header::default(), &claims, &signing_key(secret)).expect("a token");
        assert_eq!(listing(&mut client, &forged), refused(401, "invalid_token"));
    }
    let other = KeyPair::generate().expect("a key");
    let other =
        jsonwebtoken::encode(&es256, &claims, &EncodingKey::from_ec_der(&other.serialize_der())).expect("a token");
    assert_eq!(listing(&mut client, &other), refused(401, "invalid_token"));
}

#[test]
fn issuer_and_audience_have_to_be_the_ones_that_are_set() {
    let broker = Broker::start(&[ON[0], ON[1], ("JWT_ISSUER", "us"), ("JWT_AUDIENCE", "queen")]);
    let mut client = broker.connect();
    let claims = |iss: &str, aud: Value| token(&json!({ "role": "admin", "iss": iss, "aud": aud }));
    assert_eq!(listing(&mut client, &claims("us", json!("queen"))), Ok(()));
    assert_eq!(listing(&mut client, &claims("us", json!(["other", "queen"]))), Ok(()));
    assert_eq!(listing(&mut client, &claims("them", json!("queen"))), refused(401, "invalid_token"));
    assert_eq!(listing(&mut client, &claims("us", json!("other"))), refused(401, "invalid_token"));
    assert_eq!(listing(&mut client, &token(&json!({ "role": "admin" }))), refused(401, "invalid_token"));
}

#[test]
fn a_key_that_is_new_is_fetched_for_the_request_that_names_it() {
    let issuer = Issuer::start();
    let broker = Broker::start(&[ON[0], ("JWT_JWKS_URL", &issuer.url())]);
    let mut client = broker.connect();
    let claims = json!({ "role": "admin", "exp": in_s(600) });
    let first = issuer.token("first", &claims);
    assert_eq!(listing(&mut client, &first), Ok(()));
    // The one fetch that made-up keys can cause has been made, or will be no more for a while.
    issuer.add_key("second");
    let second = issuer.token("second", &claims);
    issuer.remove_key("first");
    eventually("the new key", || listing(&mut client, &second).is_ok().then_some(()));
    assert_eq!(listing(&mut client, &first), refused(401, "invalid_token"), "its key is not served any more");
}

#[test]
fn made_up_keys_do_not_turn_the_broker_on_its_issuer() {
    let issuer = Issuer::start();
    let broker = Broker::start(&[ON[0], ("JWT_JWKS_URL", &issuer.url())]);
    let mut client = broker.connect();
    let claims = json!({ "role": "admin" });
    assert_eq!(listing(&mut client, &issuer.token("first", &claims)), Ok(()));
    for n in 0..300 {
        let header = Header { kid: Some(format!("made-up-{n}")), ..Header::new(Algorithm::ES256) };
        let key = KeyPair::generate().expect("a key");
        let key = EncodingKey::from_ec_der(&key.serialize_der());
        let forged = jsonwebtoken::encode(&header, &claims, &key).expect("a token");
        assert_eq!(listing(&mut client, &forged), refused(401, "invalid_token"));
    }
    assert!(issuer.times_asked() <= 10, "{} fetches for 300 made-up keys", issuer.times_asked());
}

#[test]
fn a_slow_issuer_holds_up_the_request_that_needs_it_and_no_other() {
    let issuer = Issuer::start();
    issuer.be_slow(Duration::from_secs(3));
    let broker = Broker::start(&[ON[0], ON[1], ("JWT_JWKS_URL", &issuer.url())]);
    let claims = json!({ "role": "admin" });
    let mut held = broker.connect();
    let signed = issuer.token("first", &claims);
    let push = json!({ "queue": "q", "messages": [{ "payload": "held" }] }).to_string();
    let bearer = format!("Bearer {signed}");
    let headers = [("authorization", bearer.as_str())];
    held.send(common::request("POST", "/api/v1/ephemeral/push", &headers, push.as_bytes()));
    let mut others: Vec<_> = (0..8).map(|_| broker.connect()).collect();
    let known = token(&claims);
    for _ in 0..50 {
        for other in &mut others {
            assert_eq!(listing(other, &known), Ok(()));
        }
    }
    assert!(held.is_silent_for(Duration::from_millis(50)), "the keys were not there yet when all others were served");
    let answer = held.response();
    assert_eq!((answer.status, answer.json()), (201, json!({ "pushed": 1 })), "whole, once the keys were there");
    assert_eq!(listing(&mut held, &signed), Ok(()), "the connection goes on");
}

#[test]
fn an_issuer_that_is_dead_leaves_what_does_not_need_it_alone() {
    let dead = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let broker = Broker::start(&[ON[0], ON[1], ("JWT_JWKS_URL", &format!("http://{dead}/keys.json"))]);
    let mut client = broker.connect();
    let claims = json!({ "role": "admin" });
    assert_eq!(listing(&mut client, &token(&claims)), Ok(()));
    let answer = send(&mut client, "GET", LISTING, Some(&Issuer::start().token("first", &claims)), b"");
    assert_eq!(answer.failure(), (503, "auth_unavailable".to_owned()));
    assert!(answer.header("retry-after").is_some());
}

#[test]
fn who_the_caller_is_stands_in_auth_me() {
    let open = Broker::start(&[]);
    let me = open.connect().get("/auth/me").json();
    assert_eq!((&me["user_id"], &me["role"], &me["standalone"]), (&json!("standalone"), &json!("admin"), &json!(true)));
    let broker = Broker::start(&[ON[0], ON[1], ("QUEEN_TENANCY_HEADER", "true")]);
    let mut client = broker.connect();
    let token = token(&json!({ "sub": "ann\"", "role": "read-write", "tenant_id": TENANT }));
    let me = send(&mut client, "GET", "/auth/me", Some(&token), b"").json();
    assert_eq!(me, json!({ "user_id": "ann\"", "role": "read-write", "tenant_id": TENANT, "standalone": false }));
    assert_eq!(send(&mut client, "GET", "/auth/me", None, b"").failure(), (401, "auth_required".to_owned()));
}

#[test]
fn what_was_refused_is_counted_by_its_code() {
    let issuer = Issuer::start();
    let broker = Broker::start(&[ON[0], ON[1], ("JWT_JWKS_URL", &issuer.url())]);
    let mut client = broker.connect();
    for _ in 0..3 {
        send(&mut client, "GET", LISTING, None, b"");
    }
    let weak = token(&json!({ "role": "write-only" }));
    assert_eq!(listing(&mut client, &weak), refused(403, "forbidden"));
    let count = |code| broker.counter(&format!("queen_refused_requests_total{{code=\"{code}\"}}"));
    assert_eq!((count("auth_required"), count("forbidden"), count("token_expired")), (3, 1, 0));
    eventually("the issuer's key", || (broker.counter("queen_signing_keys") == 1).then_some(()));
    assert!(broker.counter("queen_signing_key_fetches_total") >= 1);
}

#[test]
fn paths_that_need_no_token_are_the_ones_that_are_set() {
    let broker = Broker::start(&[ON[0], ON[1], ("JWT_SKIP_PATHS", "/health,/auth/me")]);
    let mut client = broker.connect();
    assert_eq!(send(&mut client, "GET", "/auth/me", None, b"").status, 200);
    assert_eq!(send(&mut client, "GET", "/metrics", None, b"").failure(), (401, "auth_required".to_owned()));
}

#[test]
fn with_tenants_the_claim_says_which_and_a_header_may_only_repeat_it() {
    let settings = [ON[0], ON[1], ("QUEEN_TENANCY_HEADER", "true"), ("QUEEN_EPHEMERAL_REQUIRE_GRANT", "false")];
    let broker = Broker::start(&settings);
    let mut client = broker.connect();
    let other = TENANT.replace("6f2c", "7f2c");
    let mut ask = |claims: Value, header: Option<&str>, target: &str| {
        let bearer = format!("Bearer {}", token(&claims));
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(header.map(|tenant| ("x-queen-tenant", tenant)));
        let answer = client.request_with("GET", target, &headers, b"");
        if answer.status == 200 { Ok(answer.json()["tenant_id"].clone()) } else { Err(answer.failure()) }
    };
    let own = json!({ "role": "read-write", "tenant_id": TENANT });
    assert_eq!(ask(own.clone(), None, "/auth/me"), Ok(json!(TENANT)));
    assert_eq!(ask(own.clone(), Some(&TENANT.to_uppercase()), "/auth/me"), Ok(json!(TENANT)));
    assert_eq!(ask(own, Some(&other), "/auth/me"), Err((403, "forbidden".to_owned())));
    let nobodys = json!({ "role": "read-write" });
    assert_eq!(ask(nobodys.clone(), Some(&other), "/auth/me"), Err((403, "forbidden".to_owned())));
    assert_eq!(ask(nobodys, None, "/auth/me"), Ok(json!("00000000-0000-0000-0000-000000000001")));
    let operator = json!({ "role": "admin" });
    assert_eq!(ask(operator.clone(), Some(&other), "/auth/me"), Ok(json!(other)));
    assert!(ask(operator, None, "/api/v1/system/ephemeral").is_ok());
    let bound = json!({ "role": "admin", "tenant_id": TENANT });
    assert_eq!(ask(bound.clone(), None, "/api/v1/system/ephemeral"), Err((403, "forbidden".to_owned())));
    assert_eq!(ask(bound, None, "/status"), Err((403, "forbidden".to_owned())), "it counts over all tenants");
    let odd = json!({ "role": "admin", "tenant_id": "acme" });
    assert_eq!(ask(odd, None, "/auth/me"), Err((403, "forbidden".to_owned())));
}

#[test]
fn the_claim_that_names_the_tenant_can_have_another_name() {
    let settings = [ON[0], ON[1], ("QUEEN_TENANCY_HEADER", "true"), ("JWT_TENANT_CLAIM", "org")];
    let broker = Broker::start(&settings);
    let token = token(&json!({ "role": "read-only", "org": TENANT }));
    assert_eq!(send(&mut broker.connect(), "GET", "/auth/me", Some(&token), b"").json()["tenant_id"], TENANT);
}

#[test]
fn no_token_and_no_secret_is_ever_written_down() {
    let issuer = Issuer::start();
    let key = KeyPair::generate().expect("a key");
    let pem = key.public_key_pem();
    let url = issuer.url();
    let mut broker = Broker::start_tls(&[
        ON[0],
        ON[1],
        ("JWT_JWKS_URL", &url),
        ("JWT_PUBLIC_KEY", &pem),
        ("RUST_LOG", "trace"),
        ("QUEEN_LOG_JSON", "true"),
        ("QUEEN_TENANCY_HEADER", "true"),
    ]);
    let mut client = broker.connect();
    let claims = json!({ "sub": "subject-of-a-token", "role": "admin", "exp": in_s(600) });
    let expired = json!({ "sub": "subject-of-a-token", "role": "admin", "exp": in_s(-600) });
    let tokens =
        [token(&claims), token(&expired), issuer.token("first", &claims), "not-even.a-token.at-all".to_owned()];
    let push = json!({ "queue": "q", "messages": [{ "payload": "payload-of-a-message" }] }).to_string();
    let mut answers = String::new();
    for token in &tokens {
        for (method, target, body) in [
            ("GET", LISTING, ""),
            ("POST", "/api/v1/ephemeral/push", push.as_str()),
            ("POST", "/api/v1/push", "{not json"),
            ("PUT", &format!("/api/v1/system/ephemeral/quota/{TENANT}"), "{}"),
            ("GET", "/nothing", ""),
        ] {
            answers += send(&mut client, method, target, Some(token), body.as_bytes()).text();
        }
    }
    let key_file = broker.certificates().settings()[1].1.clone();
    let private = std::fs::read_to_string(&key_file).expect("the key");
    broker.signal(rustix::process::Signal::HUP);
    eventually("the reload", || broker.log().contains("read again").then_some(()));
    broker.sigterm();
    let log = broker.log();
    assert!(log.contains("queen starts") && log.contains("stopped"), "a log of everything");
    let pieces = tokens.iter().flat_map(|token| token.split('.').map(str::to_owned)).filter(|piece| piece.len() > 12);
    let lines = |pem: &str| pem.lines().filter(|line| !line.contains("---")).map(str::to_owned).collect::<Vec<_>>();
    let secrets = [SECRET.to_owned(), "payload-of-a-message".to_owned()];
    for secret in pieces.chain(secrets).chain(lines(&pem)).chain(lines(&private)) {
        assert!(!log.contains(&secret), "{secret} stands in the log");
        assert!(!answers.contains(&secret), "{secret} stands in an answer");
    }
}
