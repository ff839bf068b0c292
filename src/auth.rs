//! Authentication as the settings ask for it: the verifier of tokens, and the keys it needs from elsewhere.
//!
//! Called by `serve` before a shard starts: a key that cannot be used stops the boot.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use queen_auth::{Secret, SharedKeys, Verifier, VerifierConfig, VerifierError};
use ureq::http::Uri;

use crate::jwks::Fetcher;
use crate::settings::jwt::{Jwt, PublicKeySource};

/// The bytes of an HMAC-SHA-256 key, which RFC 7518 asks for. A shorter secret works.
const SECRET_BYTES_MIN: usize = 32;

/// What data shards authenticate requests with.
#[derive(Debug)]
pub struct Authentication {
    /// Verifies tokens.
    pub verifier: Arc<Verifier>,
    /// The keys that are fetched, where any are.
    pub keys: Option<Arc<SharedKeys>>,
    /// Fetches them until it is dropped.
    pub fetcher: Option<Fetcher>,
}

/// Why tokens cannot be verified as the settings ask for.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The file of the public key cannot be read.
    #[error("JWT_PUBLIC_KEY: {} cannot be read: {source}; name a file in PEM, or give the key itself", path.display())]
    PublicKeyFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The public key is none.
    #[error("JWT_PUBLIC_KEY: {0}")]
    PublicKey(VerifierError),
    /// The secret is none.
    #[error("JWT_SECRET: {0}")]
    Secret(VerifierError),
    /// No thread for the fetcher.
    #[error("the thread that fetches signing keys could not start: {0}")]
    Thread(io::Error),
}

impl AuthError {
    /// Whether other settings would put it right.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        !matches!(self, Self::Thread(_))
    }
}

/// Reads the keys and starts to fetch those that are elsewhere; `None` where no tokens are asked for.
///
/// # Errors
/// See [`AuthError`].
pub fn authentication(jwt: &Jwt) -> Result<Option<Authentication>, AuthError> {
    if !jwt.enabled {
        if jwt.has_key() || jwt.issuer.is_some() || jwt.audience.is_some() {
            tracing::warn!(
                "JWT settings are there, but without JWT_ENABLED no tokens are asked for: everybody is let in"
            );
        }
        return Ok(None);
    }
    for path in jwt.skip_paths.iter().filter(|path| path.starts_with("/api/")) {
        tracing::warn!("JWT_SKIP_PATHS opens {path} to everybody, whatever the method");
    }
    if jwt.secret.as_ref().is_some_and(|secret| secret.reveal().len() < SECRET_BYTES_MIN) {
        tracing::warn!("JWT_SECRET is shorter than {SECRET_BYTES_MIN} bytes: whoever has one token can try secrets");
    }
    let verifier = verifier(jwt)?.ok_or(AuthError::Secret(VerifierError::NoKey))?;
    let fetched = jwt.jwks_url.as_ref().map(fetch).transpose()?;
    let (keys, fetcher) = fetched.unzip();
    Ok(Some(Authentication { verifier: Arc::new(verifier), keys, fetcher }))
}

/// What tokens are verified with, but for what is fetched; `None` where no tokens are asked for.
///
/// # Errors
/// See [`AuthError`].
pub fn verifier(jwt: &Jwt) -> Result<Option<Verifier>, AuthError> {
    if !jwt.enabled {
        return Ok(None);
    }
    Verifier::new(VerifierConfig {
        secret: jwt.secret.as_ref().map(|secret| Secret::new(secret.reveal())),
        public_key_pem: jwt.public_key.as_ref().map(pem).transpose()?,
        has_jwks: jwt.jwks_url.is_some(),
        issuer: jwt.issuer.clone(),
        audience: jwt.audience.clone(),
        tenant_claim: jwt.tenant_claim.clone(),
    })
    .map_err(|error| match error {
        VerifierError::PublicKey => AuthError::PublicKey(error),
        VerifierError::EmptySecret | VerifierError::NoKey => AuthError::Secret(error),
    })
    .map(Some)
}

fn pem(source: &PublicKeySource) -> Result<String, AuthError> {
    match source {
        PublicKeySource::Pem(text) => Ok(text.clone()),
        PublicKeySource::File(path) => {
            fs::read_to_string(path).map_err(|source| AuthError::PublicKeyFile { path: path.clone(), source })
        }
    }
}

fn fetch(url: &Uri) -> Result<(Arc<SharedKeys>, Fetcher), AuthError> {
    if url.scheme_str() == Some("http") && !is_loopback(url) {
        tracing::warn!("JWT_JWKS_URL is not https: whoever is on the way can sign tokens");
    }
    let keys = Arc::new(SharedKeys::new());
    let fetcher = Fetcher::start(url.clone(), Arc::clone(&keys)).map_err(AuthError::Thread)?;
    Ok((keys, fetcher))
}

/// Whether a URL names this machine, by address or as `localhost`.
fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    const RSA_PUBLIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/shards/auth/tests/keys/rsa-public.pem");
    const RSA_PRIVATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/shards/auth/tests/keys/rsa.pem");

    fn of(vars: &[(&str, &str)]) -> Result<Option<Authentication>, AuthError> {
        let lookup = |name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, value)| (*value).to_owned());
        authentication(&Settings::from_env(lookup).expect("settings that are right").jwt)
    }

    #[test]
    fn no_tokens_are_asked_for_unless_the_settings_say_so() {
        assert!(of(&[]).expect("nothing to do").is_none());
        assert!(of(&[("JWT_SECRET", "s3cret")]).expect("nothing to do").is_none());
        let on = of(&[("JWT_ENABLED", "true"), ("JWT_SECRET", "s3cret")]).expect("a secret").expect("tokens");
        assert!(on.keys.is_none() && on.fetcher.is_none());
    }

    #[test]
    fn a_public_key_may_be_in_a_file() {
        assert!(of(&[("JWT_ENABLED", "true"), ("JWT_PUBLIC_KEY", RSA_PUBLIC)]).expect("a public key").is_some());
    }

    #[test]
    fn a_file_without_a_public_key_is_named_by_its_setting() {
        let error = |path| of(&[("JWT_ENABLED", "true"), ("JWT_PUBLIC_KEY", path)]).expect_err("it is no public key");
        let missing = error("/nowhere/key.pem");
        assert!(missing.is_configuration());
        assert!(missing.to_string().starts_with("JWT_PUBLIC_KEY: /nowhere/key.pem cannot be read: "), "{missing}");
        let private = error(RSA_PRIVATE).to_string();
        assert!(private.starts_with("JWT_PUBLIC_KEY: it is no RSA public key of 2048 bits"), "{private}");
    }

    #[test]
    fn keys_elsewhere_are_fetched() {
        // Nothing answers there; what counts is that it is tried.
        let on = of(&[("JWT_ENABLED", "true"), ("JWT_JWKS_URL", "http://127.0.0.1:1/keys")]).expect("a URL");
        let on = on.expect("tokens");
        assert!(on.fetcher.is_some());
        let keys = on.keys.expect("they are fetched");
        while keys.fetches_done() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(keys.current().is_none());
    }

    #[test]
    fn loopback_is_known_by_its_addresses_and_by_its_name() {
        let loopback = |url: &str| is_loopback(&url.parse().expect("a URL"));
        for url in
            ["http://127.0.0.1/", "http://127.1.2.3:80/", "http://[::1]:1/", "http://localhost/", "http://LOCALHOST:1/"]
        {
            assert!(loopback(url), "{url}");
        }
        for url in ["http://10.0.0.1/", "http://issuer/", "http://localhost.example/", "http://[2001:db8::1]/"] {
            assert!(!loopback(url), "{url}");
        }
    }
}
