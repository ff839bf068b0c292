//! Every refusal the HTTP edge can give: one table of code, status and retry advice.

use std::fmt;

use queen_ephemeral::{ConfigureError, PopError, PushError};
use queen_log::request::Failure;
use queen_wire::body::BodyError;

/// The `code` of an error body. Clients treat a code that they do not know as final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The body is not JSON, or the head makes no sense.
    BadRequest,
    /// A field of an ephemeral request is missing or out of range.
    EphemeralBadRequest,
    /// Plain HTTP on a port that speaks TLS.
    TlsRequired,
    /// `x-queen-tenant` is not a UUID.
    BadTenant,
    /// The request carries no token.
    AuthRequired,
    /// The token is not one of ours, or not for here.
    InvalidToken,
    /// The token's time is over.
    TokenExpired,
    /// The token does not open this.
    Forbidden,
    /// The tenant has no grant for ephemeral queues.
    FeatureGated,
    /// The tenant's grant is used up.
    EphemeralQuotaExceeded,
    /// A queue's name is one of those that are kept for inboxes.
    ReservedName,
    /// No such path.
    NoSuchRoute,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The queue is not on this node.
    EphemeralQueueNotFound,
    /// The tenant has no grant.
    QuotaNotFound,
    /// The tenant has no such durable queue.
    QueueNotFound,
    /// Another request waits at the inbox that the requester chose.
    InboxInUse,
    /// A message is larger than its queue may ever hold.
    PayloadTooLarge,
    /// The queue's bounds are reached under `reject`.
    QueueFull,
    /// The tenant pushes faster than its rate.
    RateLimited,
    /// The node holds as many queues as it may.
    QueueLimit,
    /// The queue holds as many partitions as it may.
    PartitionLimit,
    /// The queue holds as many groups as it may.
    GroupLimit,
    /// The node holds as many waiting pops as it may.
    ParkedLimit,
    /// No reply came in time.
    NoReply,
    /// The node's memory for ephemeral messages is used up, or the store cannot be reached.
    EphemeralUnavailable,
    /// An operator has switched ephemeral queues off.
    EphemeralDisabled,
    /// A partition's owner changed while it was asked.
    OwnerMoved,
    /// The node that owns a partition could not be asked.
    EphemeralForwardFailed,
    /// An operator has switched push maintenance on.
    Maintenance,
    /// The keys that tokens are signed with cannot be fetched.
    AuthUnavailable,
    /// The store of the durable queues cannot be reached.
    StoreUnavailable,
    /// A lane, or the node's buffers, had no room.
    Overloaded,
}

/// Status, word, and after how many seconds a retry makes sense.
const TABLE: &[(Code, u16, &str, Option<u32>)] = &[
    (Code::BadRequest, 400, "bad_request", None),
    (Code::EphemeralBadRequest, 400, "ephemeral_bad_request", None),
    (Code::TlsRequired, 400, "tls_required", None),
    (Code::BadTenant, 400, "bad_tenant", None),
    (Code::AuthRequired, 401, "auth_required", None),
    (Code::InvalidToken, 401, "invalid_token", None),
    (Code::TokenExpired, 401, "token_expired", None),
    (Code::Forbidden, 403, "forbidden", None),
    (Code::FeatureGated, 403, "feature_gated", None),
    (Code::EphemeralQuotaExceeded, 403, "ephemeral_quota_exceeded", None),
    (Code::ReservedName, 403, "reserved_name", None),
    (Code::NoSuchRoute, 404, "no_such_route", None),
    (Code::MethodNotAllowed, 405, "method_not_allowed", None),
    (Code::EphemeralQueueNotFound, 404, "ephemeral_queue_not_found", None),
    (Code::QuotaNotFound, 404, "quota_not_found", None),
    (Code::QueueNotFound, 404, "queue_not_found", None),
    (Code::InboxInUse, 409, "inbox_in_use", None),
    (Code::PayloadTooLarge, 413, "payload_too_large", None),
    (Code::QueueFull, 429, "queue_full", None),
    (Code::RateLimited, 429, "rate_limited", Some(1)),
    (Code::QueueLimit, 429, "queue_limit", None),
    (Code::PartitionLimit, 429, "partition_limit", None),
    (Code::GroupLimit, 429, "group_limit", None),
    (Code::ParkedLimit, 429, "parked_limit", None),
    (Code::NoReply, 504, "no_reply", None),
    (Code::EphemeralUnavailable, 503, "ephemeral_unavailable", Some(1)),
    (Code::EphemeralDisabled, 503, "ephemeral_disabled", Some(5)),
    (Code::OwnerMoved, 503, "owner_moved", Some(1)),
    (Code::EphemeralForwardFailed, 503, "ephemeral_forward_failed", Some(1)),
    (Code::Maintenance, 503, "maintenance", Some(5)),
    (Code::AuthUnavailable, 503, "auth_unavailable", Some(1)),
    (Code::StoreUnavailable, 503, "store_unavailable", Some(1)),
    (Code::Overloaded, 503, "overloaded", Some(1)),
];

impl Code {
    /// How many there are.
    pub(crate) const COUNT: usize = TABLE.len();

    /// Every code, in the enum's order.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The code of a word.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.2 == word).map(|row| row.0)
    }

    fn row(self) -> &'static (Code, u16, &'static str, Option<u32>) {
        // The table has a row for every code, in the enum's order: the test below holds it to that.
        &TABLE[self as usize]
    }

    /// The HTTP status.
    pub fn status(self) -> u16 {
        self.row().1
    }

    /// The word in the body.
    pub fn word(self) -> &'static str {
        self.row().2
    }

    /// Seconds for `Retry-After`, where trying again helps.
    pub fn retry_after_s(self) -> Option<u32> {
        self.row().3
    }
}

/// A refusal: its code, and a sentence that names what is wrong and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// What kind of refusal.
    pub code: Code,
    /// The sentence for the person who reads it.
    pub message: String,
    /// Seconds for `Retry-After`, where trying again helps.
    retry_after_s: Option<u32>,
}

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_s: code.retry_after_s() }
    }

    /// Says that trying again helps after so many seconds, and not before.
    pub(crate) fn after_s(self, seconds: u64) -> Self {
        Self { retry_after_s: Some(u32::try_from(seconds).unwrap_or(u32::MAX)), ..self }
    }

    /// Seconds for `Retry-After`, where trying again helps.
    pub(crate) fn retry_after_s(&self) -> Option<u32> {
        self.retry_after_s
    }

    /// A name under `_inbox.` where a queue must stand.
    pub(crate) fn reserved_name(queue: &str) -> Self {
        Self::new(
            Code::ReservedName,
            format!("{queue:?} is an inbox: names under `_inbox.` can be pushed to, and nothing else"),
        )
    }

    /// Ephemeral queues are switched off.
    pub(crate) fn ephemeral_disabled() -> Self {
        let message =
            "An operator has switched ephemeral queues off (POST /api/v1/system/ephemeral); what they hold is kept";
        Self::new(Code::EphemeralDisabled, message)
    }

    /// Durable pushes are switched off.
    pub(crate) fn maintenance() -> Self {
        let message =
            "An operator has switched push maintenance on (POST /api/v1/system/maintenance); nothing was pushed";
        Self::new(Code::Maintenance, message)
    }

    pub(crate) fn no_reply() -> Self {
        Self::new(Code::NoReply, "No reply came in time; the request may still be served, its reply will be dropped")
    }

    pub(crate) fn overloaded(what: &str) -> Self {
        Self::new(Code::Overloaded, format!("{what}; nothing was done, try again"))
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let code = match error.code() {
            "bad_request" => Code::BadRequest,
            _ => Code::EphemeralBadRequest,
        };
        Self::new(code, error.to_string())
    }
}

impl ApiError {
    /// A body or a query of a durable route that cannot be taken.
    pub(crate) fn bad_request(error: &BodyError) -> Self {
        Self::new(Code::BadRequest, error.to_string())
    }

    /// A durable request that was not served.
    pub(crate) fn failed(failure: &Failure) -> Self {
        let code = match failure {
            Failure::Unavailable(_) => Code::StoreUnavailable,
            Failure::Overloaded => Code::Overloaded,
            Failure::Refused(_) => Code::BadRequest,
        };
        Self::new(code, failure.to_string())
    }

    /// A push that the engine refused.
    pub(crate) fn push(error: PushError, queue: &str) -> Self {
        let code = match error {
            PushError::QueueFull => Code::QueueFull,
            PushError::MessageTooLarge => Code::PayloadTooLarge,
            PushError::NodeMemory => Code::EphemeralUnavailable,
            PushError::QueueLimit => Code::QueueLimit,
            PushError::PartitionLimit => Code::PartitionLimit,
            PushError::TenantBytes | PushError::TenantQueues => Code::EphemeralQuotaExceeded,
        };
        Self::new(code, format!("Queue {queue:?}: {error}; nothing was pushed"))
    }

    /// A pop that the engine refused.
    pub(crate) fn pop(error: PopError, queue: &str) -> Self {
        let code = match error {
            PopError::QueueLimit => Code::QueueLimit,
            PopError::PartitionLimit => Code::PartitionLimit,
            PopError::GroupLimit => Code::GroupLimit,
            PopError::TenantQueues => Code::EphemeralQuotaExceeded,
        };
        Self::new(code, format!("Queue {queue:?}: {error}"))
    }

    /// A declaration that the engine refused.
    pub(crate) fn configure(error: ConfigureError, queue: &str) -> Self {
        let code = match error {
            ConfigureError::QueueLimit => Code::QueueLimit,
            ConfigureError::TenantQueues => Code::EphemeralQuotaExceeded,
        };
        Self::new(code, format!("Queue {queue:?}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_finds_its_own_row() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, index, "{} stands in the wrong row", row.2);
        }
        assert_eq!(Code::Overloaded as usize, TABLE.len() - 1, "a code without a row");
    }

    #[test]
    fn words_are_told_apart() {
        let mut words: Vec<_> = TABLE.iter().map(|row| row.2).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), TABLE.len());
    }
}
