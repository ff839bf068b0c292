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

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: [u8; 16] = [0; 16];
    const SOMEBODY: [u8; 16] = *b"0123456789abcdef";

    #[test]
    fn the_hash_is_xxh3_of_tenant_and_name() {
        // XXH3_64bits of the reference implementation, seed 0. Never change these: they are what other nodes compute.
        assert_eq!(xxh3_64(b""), 0x2D06_8005_38D3_94C2);
        assert_eq!(slice(&SOMEBODY, ""), xxh3_64(b"0123456789abcdef"));
        assert_eq!(slice(&SOMEBODY, "orders"), xxh3_64(b"0123456789abcdeforders"));
    }

    #[test]
    fn a_long_name_has_the_hash_of_the_whole() {
        for length in [0, 1, 223, 224, 225, 495, 496, 497, 2_000] {
            let name = "q".repeat(length);
            let mut whole = SOMEBODY.to_vec();
            whole.extend_from_slice(name.as_bytes());
            assert_eq!(slice(&SOMEBODY, &name), xxh3_64(&whole), "{length} bytes");
        }
    }

    #[test]
    fn tenants_do_not_share_a_queues_hash() {
        assert_ne!(slice(&NOBODY, "orders"), slice(&SOMEBODY, "orders"));
    }

    #[test]
    fn the_range_of_hashes_is_cut_evenly() {
        assert_eq!(owner(0, 3), 0);
        assert_eq!(owner(u64::MAX / 3, 3), 0);
        assert_eq!(owner(u64::MAX / 3 + 1, 3), 1);
        assert_eq!(owner(u64::MAX, 3), 2);
        assert_eq!(owner(u64::MAX, 1), 0);
    }

    #[test]
    fn queues_spread_over_shards() {
        const QUEUES: usize = 60_000;
        for shards in [2, 3, 6] {
            let mut owned = vec![0_usize; shards];
            for queue in 0..QUEUES {
                owned[usize::from(owner(slice(&NOBODY, &format!("rpc-inbox-{queue}")), shards))] += 1;
            }
            let fair = QUEUES / shards;
            assert!(owned.iter().all(|&owned| owned.abs_diff(fair) < fair / 20), "{owned:?}");
        }
    }
}
