//! Who may do what: tokens, the keys that sign them, and the roles that they carry. No I/O, no clock, no runtime.
//!
//! A data shard is the caller. It keeps an [`Authenticator`] of its own and hands it the `Authorization` header of a
//! request; what comes back is an [`Identity`], whose [`Roles`] say which [`Access`] a route may be given. What all
//! shards have in common is the [`Verifier`], which never changes, and [`SharedKeys`], which a thread outside this
//! crate fills with the keys that it fetches.
//!
//! ```
//! use std::sync::Arc;
//! use queen_auth::{Authenticator, Denial, Refusal, Secret, Verifier, VerifierConfig};
//!
//! let config = VerifierConfig { secret: Some(Secret::new("not for others")), ..VerifierConfig::default() };
//! let verifier = Verifier::new(config).expect("a key is named");
//! let mut authenticator = Authenticator::new(Arc::new(verifier), None);
//! let now_s = 1_764_478_051;
//! assert_eq!(authenticator.authenticate(None, now_s), Err(Denial::Refused(Refusal::Missing)));
//! ```

mod access;
mod authenticator;
mod cache;
mod claims;
mod identity;
mod keys;
mod public_key;
mod refusal;
mod secret;
mod shared;
mod token;

pub use access::{Access, Roles};
pub use authenticator::{Authenticator, Denial};
pub use cache::TOKENS_CACHED;
pub use identity::{Identity, TenantClaim};
pub use keys::{KEYS_MAX, KeySet, KeySetError};
pub use refusal::Refusal;
pub use secret::Secret;
pub use shared::{SharedKeys, UNKNOWN_KEY_COOLDOWN_S};
pub use token::{LEEWAY_S, TOKEN_BYTES_MAX, Verified, Verifier, VerifierConfig, VerifierError};
