//! The settings of authentication: which tokens are asked for, and with what they are verified.

use std::fmt;
use std::path::PathBuf;

use queen_auth::{Verifier, VerifierConfig};
use ureq::http::Uri;

use super::storage::Secret;

/// Who may do what.
#[derive(Clone, Debug, Default)]
pub struct Jwt {
    /// `JWT_ENABLED`: whether requests need a token.
    pub enabled: bool,
    /// `JWT_SECRET`: what signs HS256 tokens.
    pub secret: Option<Secret>,
    /// `JWT_JWKS_URL`: where the issuer publishes its keys; http or https, with a host and without user info.
    pub jwks_url: Option<Uri>,
    /// `JWT_PUBLIC_KEY`: the one key of RS256 or ES256 tokens.
    pub public_key: Option<PublicKeySource>,
    /// `JWT_ISSUER`: what `iss` must be.
    pub issuer: Option<String>,
    /// `JWT_AUDIENCE`: what `aud` must be or hold.
    pub audience: Option<String>,
    /// `JWT_TENANT_CLAIM`: the claim that binds a token to a tenant.
    pub tenant_claim: String,
    /// `JWT_SKIP_PATHS`: what needs no token, exactly.
    pub skip_paths: Vec<String>,
}

impl Jwt {
    /// Whether there is a key of any kind to verify tokens with.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.secret.is_some() || self.jwks_url.is_some() || self.public_key.is_some()
    }
}

/// Where a public key is.
#[derive(Clone, PartialEq, Eq)]
pub enum PublicKeySource {
    /// Here: a key that was read and is right.
    Pem(String),
    /// In this file, which was not looked at yet.
    File(PathBuf),
}

impl PublicKeySource {
    /// What PEM begins with, and no path that anybody has.
    const PEM_BEGIN: &str = "-----BEGIN ";

    /// Takes PEM if it is a key that verifies tokens, and anything that is no PEM as a path.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if !text.trim_start().starts_with(Self::PEM_BEGIN) {
            return Some(Self::File(PathBuf::from(text)));
        }
        let config = VerifierConfig { public_key_pem: Some(text.to_owned()), ..VerifierConfig::default() };
        Verifier::new(config).ok().map(|_| Self::Pem(text.to_owned()))
    }
}

impl fmt::Debug for PublicKeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Secret::HIDDEN)
    }
}

/// A URL to fetch from: http or https, a host, no user info.
pub(super) fn web_url(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let right_scheme = matches!(url.scheme_str(), Some("http" | "https"));
    let host = url.host().is_some_and(|host| !host.is_empty());
    let user_info = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
    (right_scheme && host && !user_info).then_some(url)
}

/// A URL without its query, which may hold a key.
pub(super) fn shown_url(url: &Uri) -> String {
    let text = url.to_string();
    match text.split_once('?') {
        Some((place, _)) => format!("{place}?{}", Secret::HIDDEN),
        None => text,
    }
}

/// Paths with commas between them, white space around them ignored.
pub(super) fn paths(text: &str) -> Option<Vec<String>> {
    text.split(',').map(str::trim).map(|path| path.starts_with('/').then(|| path.to_owned())).collect()
}
