//! The fetcher against issuers of every kind: good, slow, dead, verbose, changing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, encode};
use queen_auth::{Authenticator, Denial, UNKNOWN_KEY_COOLDOWN_S, Verifier, VerifierConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use super::*;

const P256: &str = include_str!("../../shards/auth/tests/keys/p256.pem");
const P256_PUBLIC: &str = include_str!("../../shards/auth/tests/keys/p256-public.pem");

/// Nothing is due but what a test asks for; failures are followed up at once.
const PATIENT: Pace = Pace {
    connect_max: Duration::from_secs(30),
    fetch_max: Duration::from_secs(30),
    refresh: Duration::from_secs(3600),
    backoff_min: Duration::from_millis(1),
    backoff_max: Duration::from_millis(4),
};

/// For issuers that are slow.
const HASTY: Pace = Pace { fetch_max: Duration::from_millis(100), ..PATIENT };

/// Serves every connection on a thread of its own; the number is that of the connection.
fn issuer(listener: TcpListener, serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) {
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(number, stream.expect("a connection")));
        }
    });
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn start(address: SocketAddr, pace: Pace) -> (Fetcher, Arc<SharedKeys>) {
    let shared = Arc::new(SharedKeys::new());
    let url = format!("http://{address}/keys?app=queen").parse().expect("a URL");
    let fetcher = Fetcher::start_at_pace(url, Arc::clone(&shared), pace).expect("a thread");
    (fetcher, shared)
}

/// Reads a request to its end. A client that gave up has none.
fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        request.extend(byte);
    }
    String::from_utf8(request).ok()
}

/// Answers a request; a client that does not read to the end is none of the issuer's business.
fn answer(stream: &mut (impl Read + Write), status: &str, headers: &str, body: &str) {
    let length = body.len();
    let _ = read_request(stream);
    let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
}

fn key_set(id: &str) -> String {
    let key = DecodingKey::from_ec_pem(P256_PUBLIC.as_bytes()).expect("a key");
    let mut jwk = Jwk::from_decoding_key(&key, Some(Algorithm::ES256)).expect("a key");
    jwk.common.key_id = Some(id.to_owned());
    json!({ "keys": [jwk] }).to_string()
}

fn token(id: &str) -> String {
    let mut header = Header::new(Algorithm::ES256);
    header.kid = Some(id.to_owned());
    let key = EncodingKey::from_ec_pem(P256.as_bytes()).expect("a key");
    encode(&header, &json!({"role": "admin"}), &key).expect("it can be signed")
}

fn shard(shared: &Arc<SharedKeys>) -> Authenticator {
    let config = VerifierConfig { has_jwks: true, ..VerifierConfig::default() };
    Authenticator::new(Arc::new(Verifier::new(config).expect("keys are fetched")), Some(Arc::clone(shared)))
}

/// Waits for what must come sooner or later.
fn until(holds: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < give_up, "it did not happen within a minute");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What one fetch from an issuer that answers like this comes to.
fn outcome(pace: Pace, serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Result<usize, String> {
    let (listener, address) = listen();
    issuer(listener, serve);
    let url = format!("http://{address}/keys?app=queen").parse().expect("a URL");
    Source::new(url, pace).fetch().map(|keys| keys.len()).map_err(|error| error.to_string())
}

fn said(text: &str) -> Result<usize, String> {
    Err(text.to_owned())
}

#[test]
fn keys_are_fetched_at_once_from_the_path_and_with_the_query() {
    let (listener, address) = listen();
    let (send, requests) = mpsc::channel();
    issuer(listener, move |_, mut stream| {
        send.send(read_request(&mut stream)).expect("the test waits");
        let body = key_set("a");
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("the fetcher reads");
    });
    let (_fetcher, shared) = start(address, PATIENT);
    let request = requests.recv().expect("a request").expect("a whole one");
    assert!(request.starts_with("GET /keys?app=queen HTTP/1.1\r\n"), "{request}");
    until(|| shared.current().is_some());
    assert!(shard(&shared).authenticate(Some(token("a").as_bytes()), now_s()).is_ok());
}

#[test]
fn a_rotated_key_is_fetched_when_the_first_token_comes_that_names_it() {
    let (listener, address) = listen();
    issuer(listener, |number, mut stream| {
        answer(&mut stream, "200 OK", "", &key_set(if number == 0 { "old" } else { "new" }));
    });
    let (_fetcher, shared) = start(address, PATIENT);
    until(|| shared.fetches_done() == 1);
    let mut shard = shard(&shared);
    let cooled_s = now_s() + UNKNOWN_KEY_COOLDOWN_S;
    let (old, new) = (token("old"), token("new"));
    assert!(shard.authenticate(Some(old.as_bytes()), cooled_s).is_ok());
    assert_eq!(shard.authenticate(Some(new.as_bytes()), cooled_s), Err(Denial::Wait { until: 2 }));
    until(|| shared.fetches_done() == 2);
    assert!(shard.authenticate(Some(new.as_bytes()), cooled_s).is_ok());
    assert!(shard.authenticate(Some(old.as_bytes()), now_s()).is_err(), "its key was withdrawn");
}

#[test]
fn keys_are_fetched_again_when_they_have_grown_old() {
    let (listener, address) = listen();
    issuer(listener, |_, mut stream| answer(&mut stream, "200 OK", "", &key_set("a")));
    let (_fetcher, shared) = start(address, Pace { refresh: Duration::from_millis(1), ..PATIENT });
    until(|| shared.fetches_done() >= 3);
}

#[test]
fn an_issuer_that_is_dead_is_tried_until_it_answers() {
    let (listener, address) = listen();
    drop(listener);
    let (_fetcher, shared) = start(address, PATIENT);
    until(|| shared.fetches_done() >= 3);
    assert!(shared.current().is_none());
    let listener = TcpListener::bind(address).expect("the port is free still");
    issuer(listener, |_, mut stream| answer(&mut stream, "200 OK", "", &key_set("a")));
    until(|| shared.current().is_some());
}

#[test]
fn an_issuer_that_turns_bad_leaves_the_keys_in_force() {
    let (listener, address) = listen();
    issuer(listener, |number, mut stream| {
        let body = if number == 0 { key_set("a") } else { "<html>".into() };
        answer(&mut stream, "200 OK", "", &body);
    });
    let (_fetcher, shared) = start(address, Pace { refresh: Duration::from_millis(1), ..PATIENT });
    until(|| shared.fetches_done() >= 4);
    assert!(shard(&shared).authenticate(Some(token("a").as_bytes()), now_s()).is_ok());
}

#[test]
fn an_answer_that_is_no_set_of_keys_is_a_failure() {
    let fetched = |status: &'static str, body: &'static str| {
        outcome(PATIENT, move |_, mut stream| answer(&mut stream, status, "", body))
    };
    assert_eq!(fetched("200 OK", "<html>"), said("it is no JSON Web Key Set"));
    assert_eq!(fetched("204 No Content", ""), said("it is no JSON Web Key Set"));
    let empty = said("it holds no RSA key of 2048 bits or more and no P-256 key for signatures");
    assert_eq!(fetched("200 OK", r#"{"keys":[]}"#), empty);
    assert_eq!(fetched("500 Internal Server Error", r#"{"keys":[]}"#), said("the answer has status 500"));
    assert_eq!(fetched("404 Not Found", ""), said("the answer has status 404"));
}

#[test]
fn an_answer_that_is_no_http_is_a_failure() {
    let fetched = outcome(PATIENT, |_, mut stream| {
        let _ = read_request(&mut stream);
        let _ = stream.write_all(b"220 mail ready\r\n\r\n");
    });
    assert_eq!(fetched, said("the answer is not HTTP as it should be"));
    let cut = outcome(PATIENT, |_, stream| drop(stream));
    assert!(cut.is_err());
}

#[test]
fn an_answer_that_is_too_large_is_not_read_to_its_end() {
    let fetched = outcome(PATIENT, |_, mut stream| {
        let _ = read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
        // Without an end, until nobody reads any more.
        while stream.write_all(&[b' '; 4096]).is_ok() {}
    });
    assert_eq!(fetched, said("the answer is larger than 1048576 bytes"));
}

#[test]
fn an_issuer_that_does_not_answer_in_time_is_given_up() {
    let (held, hold) = mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let fetched = outcome(HASTY, move |_, _stream| {
        // The connection stays open until the test ends.
        let _ = hold.lock().expect("one connection").recv();
    });
    assert_eq!(fetched, said("no answer within 0.1 s"));
    drop(held);
}

#[test]
fn an_issuer_that_answers_in_drops_is_given_up() {
    let fetched = outcome(HASTY, |_, mut stream| {
        let _ = read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n");
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(fetched, said("no answer within 0.1 s"));
}

#[test]
fn redirects_are_followed_three_times() {
    let chain = |length: usize| {
        outcome(PATIENT, move |number, mut stream| {
            if number < length {
                answer(&mut stream, "302 Found", &format!("location: /keys/{number}\r\n"), "");
            } else {
                answer(&mut stream, "200 OK", "", &key_set("a"));
            }
        })
    };
    assert_eq!(chain(3), Ok(1));
    assert_eq!(chain(4), said("more than 3 redirects"));
}

#[test]
fn a_fetcher_that_is_dropped_holds_nobody_up_and_ends() {
    let (listener, address) = listen();
    let (accepted, is_accepted) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    issuer(listener, move |_, _stream| {
        accepted.send(()).expect("the test waits");
        let _ = released.lock().expect("one connection").recv();
    });
    let (fetcher, shared) = start(address, PATIENT);
    is_accepted.recv().expect("a fetch is under way");
    drop(fetcher);
    assert_eq!(shared.fetches_done(), 0, "the issuer has not answered yet");
    drop(release);
    until(|| Arc::strong_count(&shared) == 1);
}

#[test]
fn what_is_logged_of_a_url_holds_no_query() {
    let source = Source::new("https://issuer.example:8443/keys?key=s3cret".parse().expect("a URL"), PATIENT);
    assert_eq!(source.name, "https://issuer.example:8443/keys");
}

/// An issuer on 127.0.0.1 that answers over TLS: its URL, and the authority that vouches for it.
fn encrypted_issuer(
    body: impl Fn() -> (&'static str, String, String) + Send + Sync + 'static,
) -> (Uri, CertificateDer<'static>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".into()]).expect("a name");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS of today")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a pair");
    let config = Arc::new(config);
    let (listener, address) = listen();
    issuer(listener, move |_, stream| {
        let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
        let mut stream = StreamOwned::new(session, stream);
        let (status, headers, body) = body();
        answer(&mut stream, status, &headers, &body);
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    let url = format!("https://{address}/keys").parse().expect("a URL");
    (url, authority.der().clone())
}

#[test]
fn an_issuer_that_a_trusted_authority_vouches_for_is_asked_over_tls() {
    let (url, authority) = encrypted_issuer(|| ("200 OK", String::new(), key_set("a")));
    let source = Source::trusting(vec![authority], url, PATIENT);
    assert_eq!(source.fetch().map_err(|error| error.to_string()).map(|keys| keys.len()), Ok(1));
}

#[test]
fn an_issuer_that_nobody_vouches_for_is_not_asked() {
    let (url, _) = encrypted_issuer(|| ("200 OK", String::new(), key_set("a")));
    let refused = Source::trusting(Vec::new(), url, PATIENT).fetch().expect_err("its certificate is worth nothing");
    assert!(matches!(refused, FetchError::Tls(_) | FetchError::Io(_)), "{refused}");
    assert!(refused.to_string().contains("certificate"), "{refused}");
}

#[test]
fn a_redirect_out_of_tls_is_not_followed() {
    let (listener, plain) = listen();
    issuer(listener, |_, mut stream| answer(&mut stream, "200 OK", "", &key_set("a")));
    let (url, authority) =
        encrypted_issuer(move || ("302 Found", format!("location: http://{plain}/keys\r\n"), String::new()));
    let refused = Source::trusting(vec![authority], url, PATIENT).fetch().map(|keys| keys.len());
    assert_eq!(refused.map_err(|error| error.to_string()), said("a redirect from https to http"));
}
