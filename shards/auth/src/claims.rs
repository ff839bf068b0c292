//! The claims of a token whose signature is good: what they say, and whether they are of the right types.

use queen_ephemeral::TenantId;
use serde_json::{Map, Value};

use crate::{Refusal, Roles, TenantClaim};

/// The claims of a token.
pub(crate) struct Claims(Map<String, Value>);

impl Claims {
    /// Reads a JSON object.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(json).map(Self).map_err(|_| Refusal::Claims)
    }

    /// When it expires, in whole seconds since 1970: a part of a second is not granted.
    pub(crate) fn expires_s(&self) -> Result<Option<u64>, Refusal> {
        self.seconds("exp", f64::floor)
    }

    /// From when on it counts, in whole seconds since 1970: a part of a second is waited for.
    pub(crate) fn not_before_s(&self) -> Result<Option<u64>, Refusal> {
        self.seconds("nbf", f64::ceil)
    }

    /// Who issued it.
    pub(crate) fn issuer(&self) -> Result<Option<&str>, Refusal> {
        self.text("iss")
    }

    /// Whom it is about.
    pub(crate) fn subject(&self) -> Result<Option<&str>, Refusal> {
        self.text("sub")
    }

    /// Whom it is for: one, several or nobody.
    pub(crate) fn audience(&self) -> Result<Vec<&str>, Refusal> {
        match self.0.get("aud") {
            None => Ok(Vec::new()),
            Some(Value::String(one)) => Ok(vec![one]),
            Some(Value::Array(several)) => several.iter().map(|one| one.as_str().ok_or(Refusal::Claims)).collect(),
            Some(_) => Err(Refusal::Claims),
        }
    }

    /// What its bearer may do: `role` and `roles` together, each a text or an array of texts.
    pub(crate) fn roles(&self) -> Roles {
        let claims = ["role", "roles"].into_iter().filter_map(|name| self.0.get(name));
        let values = claims.flat_map(|claim| claim.as_array().map_or(std::slice::from_ref(claim), Vec::as_slice));
        Roles::from_words(values.filter_map(Value::as_str))
    }

    /// The tenant that the claim of this name binds it to.
    pub(crate) fn tenant(&self, name: &str) -> TenantClaim {
        let Some(claim) = self.0.get(name) else { return TenantClaim::Absent };
        let tenant = claim.as_str().and_then(|text| TenantId::parse(text.as_bytes()));
        tenant.map_or(TenantClaim::Malformed, TenantClaim::Is)
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        self.0.get(name).map(|value| value.as_str().ok_or(Refusal::Claims)).transpose()
    }

    /// A time, which may have a fraction. What is out of range is the nearest that is in it.
    fn seconds(&self, name: &str, round: fn(f64) -> f64) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let whole = value.as_u64();
        let seconds = whole.or_else(|| value.as_f64().map(|seconds| round(seconds) as u64));
        seconds.map(Some).ok_or(Refusal::Claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(json: &str) -> Claims {
        Claims::parse(json.as_bytes()).expect("an object")
    }

    #[test]
    fn a_fraction_of_a_second_is_rounded_against_the_bearer() {
        let read = claims(r#"{"exp":1000.9,"nbf":1000.1}"#);
        assert_eq!((read.expires_s(), read.not_before_s()), (Ok(Some(1000)), Ok(Some(1001))));
    }

    #[test]
    fn a_time_out_of_range_is_the_nearest_that_is_in_it() {
        assert_eq!(claims(r#"{"exp":-5}"#).expires_s(), Ok(Some(0)));
        assert_eq!(claims(r#"{"exp":1e300}"#).expires_s(), Ok(Some(u64::MAX)));
    }

    #[test]
    fn standard_claims_of_the_wrong_type_are_refused() {
        for json in [r#"{"exp":"1000"}"#, r#"{"exp":null}"#, r#"{"exp":[]}"#] {
            assert_eq!(claims(json).expires_s(), Err(Refusal::Claims), "{json}");
        }
        assert_eq!(claims(r#"{"nbf":true}"#).not_before_s(), Err(Refusal::Claims));
        assert_eq!(claims(r#"{"iss":["a"]}"#).issuer(), Err(Refusal::Claims));
        assert_eq!(claims(r#"{"sub":7}"#).subject(), Err(Refusal::Claims));
        assert_eq!(claims(r#"{"aud":["a",1]}"#).audience(), Err(Refusal::Claims));
        assert_eq!(claims(r#"{"aud":{}}"#).audience(), Err(Refusal::Claims));
    }

    #[test]
    fn roles_come_from_both_claims_as_texts_and_arrays() {
        let roles = |json| claims(json).roles();
        let both = Roles::from_words(["read-only", "write-only"]);
        assert_eq!(roles(r#"{"role":"read-only","roles":["write-only"]}"#), both);
        assert_eq!(roles(r#"{"roles":["read-only","write-only"]}"#), both);
        assert_eq!(roles(r#"{"role":["read-only"],"roles":"write-only"}"#), both);
        assert_eq!(roles(r#"{"role":7,"roles":[null,{"admin":true},["admin"]]}"#), Roles::NONE);
        assert_eq!(roles("{}"), Roles::NONE);
    }

    #[test]
    fn a_tenant_is_a_uuid_or_malformed_and_never_absent_when_it_is_there() {
        let tenant = |json| claims(json).tenant("tenant_id");
        let bytes = *b"\x6b\xa7\xb8\x10\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8";
        let is = TenantClaim::Is(TenantId(bytes));
        assert_eq!(tenant(r#"{"tenant_id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}"#), is);
        assert_eq!(tenant(r#"{"tenant_id":" 6BA7B810-9DAD-11D1-80B4-00C04FD430C8 "}"#), is);
        assert_eq!(tenant(r#"{"tenant":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}"#), TenantClaim::Absent);
        for json in [r#"{"tenant_id":""}"#, r#"{"tenant_id":null}"#, r#"{"tenant_id":["6ba7b810"]}"#] {
            assert_eq!(tenant(json), TenantClaim::Malformed, "{json}");
        }
    }
}
