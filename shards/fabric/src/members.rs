//! The nodes of a cluster, and which of them owns a partition: the same answer on every node that knows the same members.
//!
//! Rendezvous hashing: each member has a score for a key, and the highest owns it. So a member that comes or goes moves
//! only what it gains or held. The score is XXH3 with 64 bits over the key, seeded with XXH3 with 64 bits and seed 0 over the
//! member's id; the key is the tenant's 16 bytes, the length of the queue's name as u32 BE, the queue's name, and the
//! partition's name, both in UTF-8. Of equal scores the higher id wins. The algorithm is frozen: nodes of different
//! versions stand in one cluster.

use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A node that owns partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id: the same over restarts.
    pub id: Arc<str>,
    /// Where its HTTP port is: a base address.
    pub http_addr: Arc<str>,
    /// Its incarnation.
    pub epoch: u64,
    seed: u64,
}

impl Member {
    /// A member.
    #[must_use]
    pub fn new(id: &str, http_addr: &str, epoch: u64) -> Self {
        Self { id: id.into(), http_addr: http_addr.into(), epoch, seed: xxh3_64(id.as_bytes()) }
    }
}

/// The members at one moment, as one node sees them. Never empty of candidates but while a node that leaves is alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Raised at every change on this node.
    pub version: u64,
    /// Who own partitions, by id; this node too, unless it leaves.
    pub members: Vec<Member>,
    /// This node's id.
    pub me: Arc<str>,
    /// It has not heard from every peer yet, and serves nothing of its own.
    pub is_starting: bool,
}

impl Members {
    /// The owner of a partition; `None` where nobody owns anything. With one member no hash is computed.
    #[must_use]
    pub fn owner(&self, tenant: &[u8; 16], queue: &str, partition: &str) -> Option<&Member> {
        if let [only] = &self.members[..] {
            return Some(only);
        }
        let key = key(tenant, queue, partition);
        self.members.iter().max_by_key(|member| (xxh3_64_with_seed(&key, member.seed), &member.id))
    }

    /// Whether this node is the only one that owns anything, as far as it knows: then no hash is computed.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        !self.is_starting && matches!(&self.members[..], [only] if self.is_me(only))
    }

    /// Whether a member is this node.
    #[must_use]
    pub fn is_me(&self, member: &Member) -> bool {
        member.id == self.me
    }
}

fn key(tenant: &[u8; 16], queue: &str, partition: &str) -> Vec<u8> {
    let length = u32::try_from(queue.len()).expect("names are short");
    let mut key = Vec::with_capacity(tenant.len() + size_of::<u32>() + queue.len() + partition.len());
    key.extend_from_slice(tenant);
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(queue.as_bytes());
    key.extend_from_slice(partition.as_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    fn members(ids: &[&str]) -> Members {
        Members {
            version: 1,
            members: ids.iter().map(|id| Member::new(id, "http://127.0.0.1:1", 1)).collect(),
            me: "queen-1".into(),
            is_starting: false,
        }
    }

    fn owner(ids: &[&str], tenant: [u8; 16], queue: &str, partition: &str) -> String {
        members(ids).owner(&tenant, queue, partition).expect("a member").id.to_string()
    }

    #[test]
    fn owners_are_those_of_the_vectors() {
        let all = ["queen-1", "queen-2", "queen-3"];
        let rooms = ["room-1", "room-2", "room-3", "room-4", "room-5", "room-6"];
        let found = rooms.map(|room| owner(&all, TENANT, "presence", room));
        assert_eq!(found, ["queen-2", "queen-1", "queen-1", "queen-3", "queen-3", "queen-2"]);
        assert_eq!(xxh3_64(b"queen-1"), 0x46bf45a29b333f35);
        assert_eq!(xxh3_64_with_seed(&key(&TENANT, "presence", "room-1"), 0x46bf45a29b333f35), 0x752ebb6bbf4d3b10);
    }

    #[test]
    fn the_order_in_which_members_are_known_does_not_matter() {
        for partition in (0..100).map(|n| n.to_string()) {
            let one = owner(&["a", "b", "c"], TENANT, "q", &partition);
            assert_eq!(one, owner(&["c", "a", "b"], TENANT, "q", &partition));
        }
    }

    #[test]
    fn a_member_that_goes_moves_only_what_it_held() {
        for partition in (0..1000).map(|n| n.to_string()) {
            let (before, after) =
                (owner(&["a", "b", "c"], TENANT, "q", &partition), owner(&["a", "b"], TENANT, "q", &partition));
            assert!(before == after || before == "c", "{partition} moved from {before} to {after}");
        }
    }

    #[test]
    fn partitions_spread_over_all_members() {
        let mut counts = std::collections::BTreeMap::new();
        for n in 0..9_000 {
            *counts.entry(owner(&["a", "b", "c"], TENANT, &format!("q{}", n % 90), &n.to_string())).or_insert(0) += 1;
        }
        assert!(counts.values().all(|&count| (2_700..3_300).contains(&count)), "{counts:?}");
    }

    #[test]
    fn names_do_not_run_into_each_other() {
        let keys = [key(&TENANT, "ab", "c"), key(&TENANT, "a", "bc"), key(&TENANT, "abc", "")];
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        assert_ne!(key(&[1; 16], "q", "p"), key(&[2; 16], "q", "p"));
    }

    #[test]
    fn alone_a_node_owns_everything_and_leaving_alone_nothing_has_an_owner() {
        assert_eq!(owner(&["queen-1"], TENANT, "q", "p"), "queen-1");
        assert_eq!(members(&[]).owner(&TENANT, "q", "p"), None);
    }
}
