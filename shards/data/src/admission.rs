//! Who a request comes from, and whether it may be served: the token, the level that its route asks for, the tenant.
//!
//! What of these is off costs nothing: without tokens everybody is let in, without the tenancy header everything is the
//! default tenant's.

use std::{
    rc::Rc,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use queen_auth::{Access, Authenticator, Denial, Identity, Refusal, SharedKeys, TenantClaim, Verifier};
use queen_ephemeral::TenantId;
use queen_wire::http::Request;

use crate::{
    error::{ApiError, Code},
    routes::{Route, Surface},
    shard::Shard,
};

/// How tokens are judged: the same for all shards.
#[derive(Debug)]
pub struct Auth {
    /// What a token has to be.
    pub verifier: Arc<Verifier>,
    /// The keys that are fetched, if some are (`JWT_JWKS_URL`).
    pub keys: Option<Arc<SharedKeys>>,
    /// Paths that need no token (`JWT_SKIP_PATHS`).
    pub skip_paths: Vec<String>,
}

impl Auth {
    /// A shard's own judge.
    pub(crate) fn authenticator(&self) -> Authenticator {
        Authenticator::new(Arc::clone(&self.verifier), self.keys.clone())
    }
}

/// Who a request comes from.
pub(crate) struct Caller {
    /// What its token says; `None` where no token is asked for.
    pub(crate) identity: Option<Rc<Identity>>,
}

impl Caller {
    /// Whether its token makes it one who runs the broker, for all tenants.
    pub(crate) fn is_operator(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.roles.allow(Access::Admin) && !is_bound(identity))
    }
}

/// Whether a token is one tenant's.
fn is_bound(identity: &Identity) -> bool {
    identity.tenant != TenantClaim::Absent
}

/// Why a request is not served, or not yet.
pub(crate) enum Refused {
    /// Answered with this.
    Now(ApiError),
    /// Its token names a key that is being fetched: to be looked at again once so many fetches have ended.
    Undecided { until: u64 },
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self::Now(error)
    }
}

impl Shard {
    /// Who sends a request. A path that does not exist is not told to a stranger either.
    pub(crate) fn caller_of(&self, request: &Request<'_>) -> Result<Caller, Refused> {
        let Some(auth) = &self.node.auth else { return Ok(Caller { identity: None }) };
        if auth.skip_paths.iter().any(|path| path == request.path) {
            return Ok(Caller { identity: None });
        }
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut authenticator = self.authenticator.borrow_mut();
        let authenticator = authenticator.as_mut().expect("a node that judges tokens has a judge on every shard");
        match authenticator.authenticate(request.authorization, now_s) {
            Ok(identity) => Ok(Caller { identity: Some(identity) }),
            Err(Denial::Wait { until }) => Err(Refused::Undecided { until }),
            Err(Denial::Refused(refusal)) => Err(Refused::Now(refusal.into())),
            Err(denial @ Denial::Unavailable) => {
                Err(Refused::Now(ApiError::new(Code::AuthUnavailable, format!("{denial}; try again"))))
            }
        }
    }

    /// Whether the caller may take a route. With tenants, what is every tenant's is for operators: an admin whose token is
    /// bound to a tenant is an admin of that tenant.
    pub(crate) fn check_access(&self, caller: &Caller, route: Route) -> Result<(), ApiError> {
        let Some(identity) = &caller.identity else { return Ok(()) };
        let tenants = self.node.config.tenancy_header;
        let access = route.access(tenants);
        if !identity.roles.allow(access) {
            let has = match identity.role() {
                "none" => "the claims `role` and `roles` of the token name none".to_owned(),
                role => format!("the token's role is {role}"),
            };
            let message = format!("Insufficient permissions: this needs {}, and {has}", needs(access));
            return Err(ApiError::new(Code::Forbidden, message));
        }
        let is_everybodys = tenants && access == Access::Admin && route.surface() != Surface::Durable;
        if is_everybodys && is_bound(identity) {
            let message = "Insufficient permissions: this is for all tenants, and the token is bound to one";
            return Err(ApiError::new(Code::Forbidden, message));
        }
        Ok(())
    }

    /// The tenant that a request acts for.
    pub(crate) fn tenant_of(&self, caller: &Caller, route: Route, request: &Request<'_>) -> Result<TenantId, ApiError> {
        if !self.node.config.tenancy_header || route.surface() == Surface::Node {
            return Ok(TenantId::DEFAULT);
        }
        let named = match request.tenant.map(<[u8]>::trim_ascii) {
            None | Some(b"") => None,
            Some(text) => Some(TenantId::parse(text).ok_or_else(|| {
                ApiError::new(
                    Code::BadTenant,
                    "invalid x-queen-tenant header (must be a UUID such as 00000000-0000-0000-0000-000000000001)",
                )
            })?),
        };
        if self.node.auth.is_none() {
            return Ok(named.unwrap_or(TenantId::DEFAULT));
        }
        tenant_by_token(caller.identity.as_deref(), named)
    }
}

/// What opens a route, in words.
fn needs(access: Access) -> &'static str {
    match access {
        Access::Open => "a valid token",
        Access::Read => "the role read-only, read-write or admin",
        Access::Push => "the role write-only, read-write or admin",
        Access::ReadWrite => "the role read-write or admin",
        Access::Admin => "the role admin",
    }
}

/// The tenant where both the token and the header speak of it: the token's word counts.
fn tenant_by_token(identity: Option<&Identity>, named: Option<TenantId>) -> Result<TenantId, ApiError> {
    let forbidden = |why| Err(ApiError::new(Code::Forbidden, why));
    let claim = identity.map_or(TenantClaim::Absent, |identity| identity.tenant);
    let may_name_any = identity.is_some_and(|identity| identity.roles.allow(Access::Admin));
    match (claim, named) {
        (TenantClaim::Malformed, _) => forbidden("The token's tenant claim is not a UUID"),
        (TenantClaim::Is(own), Some(named)) if named != own => {
            forbidden("The token is another tenant's: leave x-queen-tenant out or name the token's own")
        }
        (TenantClaim::Is(own), _) => Ok(own),
        (TenantClaim::Absent, Some(named)) if named != TenantId::DEFAULT && !may_name_any => {
            forbidden("The token has no tenant claim: to name a tenant it needs the role admin")
        }
        (TenantClaim::Absent, named) => Ok(named.unwrap_or(TenantId::DEFAULT)),
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Missing => Code::AuthRequired,
            Refusal::Expired => Code::TokenExpired,
            _ => Code::InvalidToken,
        };
        Self::new(code, refusal.to_string())
    }
}

#[cfg(test)]
mod tests {
    use queen_auth::Roles;

    use super::*;

    const OWN: TenantId = TenantId([1; 16]);
    const OTHER: TenantId = TenantId([2; 16]);

    fn token(tenant: TenantClaim, role: &str) -> Identity {
        Identity { roles: Roles::from_words([role]), subject: None, tenant }
    }

    fn tenant(tenant: TenantClaim, role: &str, named: Option<TenantId>) -> Result<TenantId, Code> {
        tenant_by_token(Some(&token(tenant, role)), named).map_err(|error| error.code)
    }

    #[test]
    fn the_claim_is_the_tenant_and_a_header_may_only_repeat_it() {
        for role in ["read-only", "admin"] {
            assert_eq!(tenant(TenantClaim::Is(OWN), role, None), Ok(OWN));
            assert_eq!(tenant(TenantClaim::Is(OWN), role, Some(OWN)), Ok(OWN));
            assert_eq!(tenant(TenantClaim::Is(OWN), role, Some(OTHER)), Err(Code::Forbidden));
            assert_eq!(tenant(TenantClaim::Is(OWN), role, Some(TenantId::DEFAULT)), Err(Code::Forbidden));
        }
    }

    #[test]
    fn without_a_claim_only_an_operator_names_a_tenant() {
        assert_eq!(tenant(TenantClaim::Absent, "admin", Some(OTHER)), Ok(OTHER));
        assert_eq!(tenant(TenantClaim::Absent, "read-write", Some(OTHER)), Err(Code::Forbidden));
        assert_eq!(tenant(TenantClaim::Absent, "read-write", None), Ok(TenantId::DEFAULT));
        assert_eq!(tenant(TenantClaim::Absent, "read-write", Some(TenantId::DEFAULT)), Ok(TenantId::DEFAULT));
    }

    #[test]
    fn a_claim_that_is_no_uuid_is_nobodys() {
        assert_eq!(tenant(TenantClaim::Malformed, "admin", None), Err(Code::Forbidden));
        assert_eq!(tenant(TenantClaim::Malformed, "admin", Some(OTHER)), Err(Code::Forbidden));
    }

    #[test]
    fn a_path_that_needs_no_token_names_no_tenant() {
        assert_eq!(tenant_by_token(None, Some(OTHER)).map_err(|error| error.code), Err(Code::Forbidden));
        assert_eq!(tenant_by_token(None, None), Ok(TenantId::DEFAULT));
    }
}
