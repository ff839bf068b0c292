//! Numbers that nobody else draws, from what the system seeds hash maps with.

use std::hash::{BuildHasher, RandomState};

/// A random number.
pub(crate) fn number() -> i64 {
    RandomState::new().hash_one(0_u8).cast_signed()
}
