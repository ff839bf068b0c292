//! Fetches the issuer's keys, on a thread of its own that no data shard waits for.
//!
//! It fetches at once, then from time to time, when a shard meets a token whose key it does not know, and, after a
//! failure, again and again with growing pauses. What it gets it hands to [`SharedKeys`]; what it does not get leaves
//! the keys that are there in force. Started by `auth`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use queen_auth::{KeySet, KeySetError, SharedKeys};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Error, Timeout};

/// The largest answer that is read, in bytes. A set of two keys has one or two thousand.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// A failure that lasts is told again so often.
const TELL_AGAIN: Duration = Duration::from_secs(10 * 60);

/// How often an answer may point elsewhere.
const REDIRECTS_MAX: u32 = 3;

/// How long the parts of a fetch may take, and when the next one is due.
#[derive(Clone, Copy, Debug)]
struct Pace {
    connect_max: Duration,
    fetch_max: Duration,
    refresh: Duration,
    backoff_min: Duration,
    backoff_max: Duration,
}

impl Pace {
    const USUAL: Self = Self {
        connect_max: Duration::from_secs(3),
        fetch_max: Duration::from_secs(10),
        refresh: Duration::from_secs(5 * 60),
        backoff_min: Duration::from_secs(1),
        backoff_max: Duration::from_secs(60),
    };
}

/// The thread that fetches; dropped, it ends. A fetch under way is not waited for: its thread ends with it, or with the
/// process.
#[derive(Debug)]
pub struct Fetcher {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl Fetcher {
    /// Starts to fetch `url` into `shared`.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub fn start(url: Uri, shared: Arc<SharedKeys>) -> io::Result<Self> {
        Self::start_at_pace(url, shared, Pace::USUAL)
    }

    fn start_at_pace(url: Uri, shared: Arc<SharedKeys>, pace: Pace) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let running = thread::Builder::new().name("queen-jwks".into()).spawn({
            let shared = Arc::clone(&shared);
            move || run(&Source::new(url, pace), &shared, pace, &stopped)
        })?;
        let thread = running.thread().clone();
        shared.wake_by(thread.clone());
        Ok(Self { stop, thread })
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

fn run(source: &Source, shared: &SharedKeys, pace: Pace, stop: &AtomicBool) {
    let mut due = Instant::now();
    let mut backoff = None;
    // The last failure that was told, and when.
    let mut told: Option<(String, Instant)> = None;
    while !stop.load(Ordering::Acquire) {
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() && !shared.is_fetch_wanted() {
            thread::park_timeout(left);
            continue;
        }
        let pause = match source.fetch() {
            Ok(keys) => {
                let count = keys.len();
                let changed = shared.replace(keys, now_s());
                told = None;
                if backoff.take().is_some() || changed {
                    tracing::info!("signing keys fetched from {}: {count}", source.name);
                }
                pace.refresh
            }
            Err(error) => {
                shared.note_failure(now_s());
                let pause = backoff.map_or(pace.backoff_min, |pause: Duration| (pause * 2).min(pace.backoff_max));
                backoff = Some(pause);
                let reason = error.to_string();
                if told.as_ref().is_none_or(|(last, at)| *last != reason || at.elapsed() >= TELL_AGAIN) {
                    tracing::warn!("signing keys cannot be fetched from {}: {reason}", source.name);
                    told = Some((reason, Instant::now()));
                }
                pause
            }
        };
        due = Instant::now() + pause;
    }
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Why a fetch brought no keys. None of the texts quotes a URL, whose query may be nobody's business.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the name of the host is not known")]
    Host,
    #[error("no connection within {} s", .0.as_secs_f32())]
    Connect(Duration),
    #[error("no answer within {} s", .0.as_secs_f32())]
    Slow(Duration),
    #[error("the answer has status {0}")]
    Status(u16),
    #[error("more than {REDIRECTS_MAX} redirects")]
    Redirects,
    #[error("a redirect from https to http")]
    Downgrade,
    #[error("the answer is larger than {BODY_BYTES_MAX} bytes")]
    TooLarge,
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Tls(rustls::Error),
    #[error("the answer is not HTTP as it should be")]
    Protocol,
    #[error("{0}")]
    Keys(#[from] KeySetError),
}

/// Where keys are fetched from, and with what.
struct Source {
    url: Uri,
    /// The URL without its query, for the log.
    name: String,
    agent: Agent,
    pace: Pace,
}

impl Source {
    /// A source whose issuer, over https, the system's roots must vouch for.
    fn new(url: Uri, pace: Pace) -> Self {
        let roots = if is_encrypted(&url) { system_roots() } else { Vec::new() };
        Self::trusting(roots, url, pace)
    }

    fn trusting(roots: Vec<CertificateDer<'static>>, url: Uri, pace: Pace) -> Self {
        let roots = roots.iter().map(|root| Certificate::from_der(root).to_owned());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::from(roots))
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .https_only(is_encrypted(&url))
            .proxy(None)
            .max_redirects(REDIRECTS_MAX)
            .max_idle_connections(0)
            .timeout_connect(Some(pace.connect_max))
            .timeout_global(Some(pace.fetch_max));
        let host = url.authority().map_or("", |authority| authority.as_str());
        let name = format!("{}://{host}{}", url.scheme_str().unwrap_or_default(), url.path());
        Self { agent: config.build().new_agent(), url, name, pace }
    }

    fn fetch(&self) -> Result<KeySet, FetchError> {
        let body = self.get().map_err(|error| match error {
            Error::HostNotFound => FetchError::Host,
            Error::Timeout(Timeout::Connect) => FetchError::Connect(self.pace.connect_max),
            Error::Timeout(_) => FetchError::Slow(self.pace.fetch_max),
            Error::StatusCode(status) => FetchError::Status(status),
            Error::TooManyRedirects => FetchError::Redirects,
            Error::RequireHttpsOnly(_) => FetchError::Downgrade,
            Error::BodyExceedsLimit(_) => FetchError::TooLarge,
            Error::Io(error) => FetchError::Io(error),
            Error::Rustls(error) => FetchError::Tls(error),
            _ => FetchError::Protocol,
        })?;
        Ok(KeySet::parse(&body)?)
    }

    fn get(&self) -> Result<Vec<u8>, Error> {
        let mut response = self.agent.get(&self.url).header("accept", "application/json").call()?;
        response.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec()
    }
}

fn is_encrypted(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

/// The roots that the system trusts, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn system_roots() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!("some of the system's certificates cannot be read: {error}");
    }
    found.certs
}

#[cfg(test)]
mod tests;
