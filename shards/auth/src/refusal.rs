//! Why a token is refused. The texts go to clients as they stand, and none of them quotes the token.

/// Why a token is refused: 401 for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// No token came.
    #[error("Authentication required")]
    Missing,
    /// It is longer than [`TOKEN_BYTES_MAX`](crate::TOKEN_BYTES_MAX).
    #[error("Token is too long")]
    TooLong,
    /// It is no three parts, or its header does not say how it is signed, or demands something unknown (`crit`).
    #[error("Bad token header: expected `Authorization: Bearer` and a JWT")]
    Malformed,
    /// Its claims are no JSON object, or a standard claim is of the wrong type.
    #[error("Bad token body")]
    Claims,
    /// It is signed in a way that none of the keys is for.
    #[error("Invalid token signature: it is made in a way that this broker has no key for")]
    Algorithm,
    /// It names a key that is not known, or none where there are several to choose from.
    #[error("Token is signed by an unknown key")]
    UnknownKey,
    /// The signature is not that of the key.
    #[error("Invalid token signature")]
    Signature,
    /// Its time is over.
    #[error("Token has expired")]
    Expired,
    /// Its time has not come.
    #[error("Token is not valid yet")]
    NotYetValid,
    /// It was issued by somebody else than configured, or does not say by whom.
    #[error("Token is from another issuer than JWT_ISSUER")]
    Issuer,
    /// It was issued for somebody else than configured, or does not say for whom.
    #[error("Token is for another audience than JWT_AUDIENCE")]
    Audience,
}
