//! How segments are removed, on every database, so that an append made from an old head is never taken.
//!
//! An append is left out when the newest segment of its partition does not end at its base. That holds only while there
//! is one, and so:
//!
//! - the newest segment of a partition is never removed. When all of it is gone for readers, its data is made empty;
//! - the others are removed only [`SETTLE_US`] after the log's start was moved past them. No statement runs for so long:
//!   one whose snapshot does not show the newer segments is over before they go.

/// From moving a partition's log start to removing what lies below it.
pub(crate) const SETTLE_US: i64 = 60_000_000;
