//! Numbers that nobody else draws, from what the system seeds hash maps with.

use std::hash::{BuildHasher, RandomState};

/// Sixteen random bytes.
pub(crate) fn bytes() -> [u8; 16] {
    let halves = [number(), number()].map(i64::to_ne_bytes);
    halves.concat().try_into().expect("twice eight")
}

/// A random number.
pub(crate) fn number() -> i64 {
    RandomState::new().hash_one(0_u8).cast_signed()
}
