//! Limits as the tables hold them: 64 bits with a sign, never negative.

/// As it is stored: what does not fit becomes the most that does.
pub(crate) fn to_stored(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// As it was stored, where there is one.
pub(crate) fn of_stored(limit: Option<i64>) -> Option<u64> {
    limit.map(i64::cast_unsigned)
}
