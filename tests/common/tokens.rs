//! Tokens as tests need them: signed with a shared secret, or by an issuer whose keys are fetched.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use serde_json::{Value, json};

/// `JWT_SECRET` of the tests.
pub const SECRET: &str = "a-secret-that-no-log-may-ever-show-0123456789";

/// A shared secret, to sign with.
pub fn signing_key(secret: &[u8]) -> EncodingKey {
    EncodingKey::from_secret(secret).expect("any secret will do")
}

/// A token of these claims, signed with [`SECRET`].
pub fn token(claims: &Value) -> String {
    jsonwebtoken::encode(&Header::default(), claims, &signing_key(SECRET.as_bytes())).expect("a token")
}

/// So many seconds from now, as tokens have it.
pub fn in_s(seconds: i64) -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs().cast_signed() + seconds
}

/// A server of signing keys, and the keys.
pub struct Issuer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    keys: Mutex<Vec<(String, EncodingKey, Value)>>,
    /// How long it takes to answer.
    delay: Mutex<Duration>,
    asked: AtomicUsize,
}

impl Issuer {
    /// Starts one with one key, named `first`.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let issuer = Self { address, shared: Arc::default() };
        issuer.add_key("first");
        let shared = Arc::clone(&issuer.shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                    while lines.next().is_some_and(|line| !line.is_empty()) {}
                    shared.asked.fetch_add(1, Ordering::SeqCst);
                    let delay = *shared.delay.lock().expect("the delay");
                    thread::sleep(delay);
                    let keys: Vec<Value> =
                        shared.keys.lock().expect("the keys").iter().map(|(_, _, jwk)| jwk.clone()).collect();
                    let body = json!({ "keys": keys }).to_string();
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                    let _gone = write!(&stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                });
            }
        });
        issuer
    }

    /// Where its keys are.
    pub fn url(&self) -> String {
        format!("http://{}/keys.json", self.address)
    }

    /// Makes a P-256 key under this name, which is served from now on.
    pub fn add_key(&self, name: &str) {
        let key = KeyPair::generate().expect("a key");
        let key = EncodingKey::from_ec_der(&key.serialize_der());
        let mut jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).expect("its public half");
        jwk.common.key_id = Some(name.to_owned());
        let jwk = serde_json::to_value(jwk).expect("JSON");
        self.shared.keys.lock().expect("the keys").push((name.to_owned(), key, jwk));
    }

    /// Serves a key no more; what it signed is still to be had from [`token`](Self::token) with `key`.
    pub fn remove_key(&self, name: &str) {
        self.shared.keys.lock().expect("the keys").retain(|(known, _, _)| known != name);
    }

    /// Answers only after so long, from now on.
    pub fn be_slow(&self, delay: Duration) {
        *self.shared.delay.lock().expect("the delay") = delay;
    }

    /// How often its keys were asked for.
    pub fn times_asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// A token of these claims, signed with the key of this name.
    pub fn token(&self, name: &str, claims: &Value) -> String {
        let keys = self.shared.keys.lock().expect("the keys");
        let (_, key, _) = keys.iter().find(|(known, _, _)| known == name).expect("a key of that name");
        let header = Header { kid: Some(name.to_owned()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, key).expect("a token")
    }
}
