//! Which data shard owns a queue: the slice hash.
//!
//! The hash is XXH3 with 64 bits and seed 0 over the tenant's 16 bytes followed by the queue's name in UTF-8. The
//! algorithm is frozen (<https://github.com/Cyan4973/xxHash>, specified since 0.8.0) and independent of platform,
//! process and node: what is stored or sent under one hash is found under it for ever. All partitions of a queue share
//! its hash, so they live on one shard.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::ShardId;

/// Names up to this length are hashed in one go, from the stack. XXH3 gives the same hash either way.
const ON_STACK_BYTES: usize = 512;

/// The hash of a queue: the same on every node and in every run.
#[must_use]
pub fn slice(tenant: &[u8; 16], queue: &str) -> u64 {
    let name = queue.as_bytes();
    let length = tenant.len() + name.len();
    if length > ON_STACK_BYTES {
        let mut hasher = Xxh3::new();
        hasher.update(tenant);
        hasher.update(name);
        return hasher.digest();
    }
    let mut key = [0; ON_STACK_BYTES];
    key[..tenant.len()].copy_from_slice(tenant);
    key[tenant.len()..length].copy_from_slice(name);
    xxh3_64(&key[..length])
}

/// The shard out of `shards` that owns what has this hash.
///
/// The hash is scaled to the number of shards by a multiplication, so each shard owns one contiguous range of hashes,
/// and all of them the same size to within one part in 2^64 times `shards`.
///
/// # Panics
///
/// When `shards` is 0 or more than [`ShardId`] counts.
#[must_use]
pub fn owner(hash: u64, shards: usize) -> ShardId {
    assert!(shards > 0, "somebody owns every queue");
    let scaled = (u128::from(hash) * shards as u128) >> 64;
    ShardId::try_from(scaled).expect("no more shards than ids")
}
