//! Who a valid token says its bearer is.

use queen_ephemeral::TenantId;

use crate::Roles;

/// The bearer of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What the bearer may do: the union of the claims `role` and `roles`.
    pub roles: Roles,
    /// The claim `sub`.
    pub subject: Option<Box<str>>,
    /// The claim that names the tenant.
    pub tenant: TenantClaim,
}

impl Identity {
    /// The word of the bearer's strongest role, or `none`.
    #[must_use]
    pub fn role(&self) -> &'static str {
        self.roles.strongest()
    }
}

/// The tenant that a token was issued for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantClaim {
    /// The token names none.
    Absent,
    /// This one: a UUID in its hyphenated form, in either case, with white space around it ignored.
    Is(TenantId),
    /// There is such a claim, and it holds no UUID. Not the same as absent: the issuer meant to bind the token.
    Malformed,
}
