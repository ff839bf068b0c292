//! Who is a member: alive, proved, configured, not leaving, and of the same way to place.
//!
//! A member is a node whose listener proved itself on a connection that this node dialled to a configured peer, and whose
//! dialer proved itself with the same id and said where its HTTP port is. So both directions work, and neither an address
//! nor an id is anybody's claim. Without a secret nobody proves anything, and a node is its only member.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use queen_fabric::members::{Member, Members};
use queen_wire::mesh::{Identity, PeerIdentity};

/// So long after its start a node waits for its peers before it serves anything of its own.
pub const STARTING_MS: u64 = 2_000;

/// So long a node that said that it leaves is left out, unless it comes back as another incarnation.
pub const LEFT_OUT_MS: u64 = 30_000;

/// Bytes of a base address, at most.
const HTTP_ADDR_BYTES_MAX: usize = 300;

/// A base address as it can be dialled from here: who does not know its own address says that it is unspecified, and the
/// one that is seen is it. None where it is no base address.
fn reachable(said: &str, remote: IpAddr) -> Option<String> {
    let (scheme, authority) = said.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    if authority.is_empty() || said.len() > HTTP_ADDR_BYTES_MAX || !authority.bytes().all(fits) {
        return None;
    }
    match authority.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => {
            Some(format!("{scheme}://{}", SocketAddr::new(remote.to_canonical(), address.port())))
        }
        _ => Some(said.to_owned()),
    }
}

/// What is known of one id.
struct Known {
    http_addr: String,
    epoch: u64,
    heard_ms: u64,
    /// Until when it is left out.
    left_until_ms: Option<u64>,
}

/// The members as this node sees them.
pub(crate) struct Membership {
    me: Identity,
    ttl_ms: u64,
    started_ms: u64,
    /// The id that each configured peer has proved.
    proved: Vec<Option<Arc<str>>>,
    known: BTreeMap<Arc<str>, Known>,
    is_leaving: bool,
    /// Once over, it never starts again.
    is_starting: bool,
    snapshot: Members,
}

impl Membership {
    /// Of a node that starts now, with so many configured peers; none where nobody can prove anything.
    pub(crate) fn new(me: Identity, peers: usize, ttl_ms: u64, now_ms: u64) -> Self {
        let snapshot = Members {
            version: 1,
            members: vec![Member::new(&me.server_id, &me.http_addr, me.epoch)],
            me: me.server_id.as_str().into(),
            is_starting: peers > 0,
        };
        Self {
            me,
            ttl_ms,
            started_ms: now_ms,
            proved: vec![None; peers],
            known: BTreeMap::new(),
            is_leaving: false,
            is_starting: peers > 0,
            snapshot,
        }
    }

    pub(crate) fn snapshot(&self) -> &Members {
        &self.snapshot
    }

    /// The listener at a configured peer's address has proved to be this id.
    pub(crate) fn listener_proved(&mut self, peer: usize, id: &Arc<str>) {
        self.proved[peer] = Some(Arc::clone(id));
    }

    /// A dialer has proved to be this peer, from there.
    pub(crate) fn dialer_proved(&mut self, peer: &PeerIdentity, remote: IpAddr, now_ms: u64) {
        let http_addr = peer.http_addr.as_deref().and_then(|said| reachable(said, remote));
        let (true, Some(http_addr), Some(epoch)) = (peer.places, http_addr, peer.epoch) else { return };
        let id: Arc<str> = peer.server_id.as_str().into();
        let left_until_ms =
            self.known.get(&id).filter(|known| known.epoch == epoch).and_then(|known| known.left_until_ms);
        self.known.insert(id, Known { http_addr, epoch, heard_ms: now_ms, left_until_ms });
    }

    /// A frame came from an id on a connection that is proved.
    pub(crate) fn heard(&mut self, id: &str, now_ms: u64) {
        if let Some(known) = self.known.get_mut(id) {
            known.heard_ms = now_ms;
        }
    }

    /// A peer has said that it owns nothing from here on.
    pub(crate) fn leaves(&mut self, id: &str, now_ms: u64) {
        if let Some(known) = self.known.get_mut(id) {
            known.left_until_ms = Some(now_ms + LEFT_OUT_MS);
        }
    }

    /// An id is not kept in mind any more.
    pub(crate) fn forget(&mut self, id: &str) {
        self.known.remove(id);
    }

    /// This node owns nothing from here on.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
    }

    fn is_configured(&self, id: &str) -> bool {
        self.proved.iter().flatten().any(|proved| **proved == *id)
    }

    fn is_member(&self, id: &str, known: &Known, now_ms: u64) -> bool {
        self.is_configured(id)
            && now_ms < known.heard_ms + self.ttl_ms
            && known.left_until_ms.is_none_or(|until_ms| until_ms <= now_ms)
    }

    /// Whether every configured peer is there, both ways.
    fn all_answered(&self) -> bool {
        self.proved
            .iter()
            .all(|id| id.as_ref().is_some_and(|id| self.known.contains_key(id) || **id == *self.me.server_id))
    }

    /// The members now, if they are others than before.
    pub(crate) fn advance(&mut self, now_ms: u64) -> Option<Members> {
        if self.is_starting && (self.all_answered() || now_ms >= self.started_ms + STARTING_MS) {
            self.is_starting = false;
        }
        let peers = self.known.iter().filter(|(id, known)| self.is_member(id, known, now_ms));
        let mut members: Vec<_> = peers.map(|(id, known)| Member::new(id, &known.http_addr, known.epoch)).collect();
        if !self.is_leaving {
            members.push(Member::new(&self.me.server_id, &self.me.http_addr, self.me.epoch));
        }
        members.sort_by(|one, other| one.id.cmp(&other.id));
        let last = &mut self.snapshot;
        if last.members == members && last.is_starting == self.is_starting {
            return None;
        }
        *last = Members { version: last.version + 1, members, me: Arc::clone(&last.me), is_starting: self.is_starting };
        Some(last.clone())
    }

    /// When the members may be others without anything happening.
    pub(crate) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let starting = self.is_starting.then_some(self.started_ms + STARTING_MS);
        let silent = self.known.values().map(|known| known.heard_ms + self.ttl_ms);
        let left = self.known.values().filter_map(|known| known.left_until_ms);
        starting.into_iter().chain(silent).chain(left).filter(|&at_ms| at_ms > now_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL_MS: u64 = 4_000;
    const REMOTE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn me() -> Identity {
        Identity { server_id: "a".to_owned(), http_addr: "http://a".to_owned(), epoch: 1 }
    }

    fn peer(id: &str, epoch: u64) -> PeerIdentity {
        let http_addr = Some(format!("http://{id}"));
        PeerIdentity { server_id: id.to_owned(), http_addr, epoch: Some(epoch), places: true }
    }

    fn ids(members: &Members) -> Vec<&str> {
        members.members.iter().map(|member| &*member.id).collect()
    }

    /// A node with two peers that are both there, at 100 ms.
    fn three() -> Membership {
        let mut membership = Membership::new(me(), 2, TTL_MS, 0);
        for (index, id) in ["b", "c"].into_iter().enumerate() {
            membership.listener_proved(index, &id.into());
            membership.dialer_proved(&peer(id, 7), REMOTE, 100);
        }
        let members = membership.advance(100).expect("three members");
        assert_eq!((ids(&members), members.is_starting), (vec!["a", "b", "c"], false));
        membership
    }

    #[test]
    fn alone_a_node_is_its_only_member_at_once() {
        let membership = Membership::new(me(), 0, TTL_MS, 0);
        assert_eq!((ids(membership.snapshot()), membership.snapshot().is_starting), (vec!["a"], false));
    }

    #[test]
    fn it_starts_until_all_peers_are_there_or_the_time_is_over() {
        let mut membership = Membership::new(me(), 2, TTL_MS, 0);
        membership.listener_proved(0, &"b".into());
        membership.dialer_proved(&peer("b", 7), REMOTE, 50);
        assert!(membership.advance(50).expect("one more").is_starting);
        assert_eq!(membership.advance(STARTING_MS - 1), None);
        assert_eq!(membership.next_ms(STARTING_MS - 1), Some(STARTING_MS));
        assert!(!membership.advance(STARTING_MS).expect("over").is_starting);
    }

    #[test]
    fn both_directions_have_to_be_proved() {
        let mut membership = Membership::new(me(), 1, TTL_MS, 0);
        membership.dialer_proved(&peer("b", 7), REMOTE, 10);
        membership.advance(STARTING_MS);
        assert_eq!(ids(membership.snapshot()), ["a"], "nobody configured has that id");
        membership.listener_proved(0, &"b".into());
        assert_eq!(ids(&membership.advance(STARTING_MS).expect("a change")), ["a", "b"]);
        let mut other = Membership::new(me(), 1, TTL_MS, 0);
        other.listener_proved(0, &"b".into());
        let elsewhere = PeerIdentity { places: false, ..peer("b", 7) };
        other.dialer_proved(&elsewhere, REMOTE, 10);
        other.advance(STARTING_MS);
        assert_eq!(ids(other.snapshot()), ["a"], "it places in another way");
    }

    #[test]
    fn who_is_silent_for_too_long_is_out_and_comes_back_when_heard() {
        let mut membership = three();
        membership.heard("b", 3_000);
        assert_eq!(membership.advance(4_099), None);
        assert_eq!(ids(&membership.advance(4_100).expect("c is out")), ["a", "b"]);
        membership.heard("c", 5_000);
        assert_eq!(ids(&membership.advance(5_000).expect("c is back")), ["a", "b", "c"]);
    }

    #[test]
    fn who_leaves_is_left_out_for_a_while_or_until_it_is_another_incarnation() {
        let mut membership = three();
        membership.leaves("b", 200);
        assert_eq!(ids(&membership.advance(200).expect("b leaves")), ["a", "c"]);
        membership.dialer_proved(&peer("b", 7), REMOTE, 300);
        membership.heard("c", 300);
        assert_eq!(membership.advance(300), None, "the same incarnation again");
        membership.dialer_proved(&peer("b", 8), REMOTE, 400);
        assert_eq!(ids(&membership.advance(400).expect("b is back")), ["a", "b", "c"]);
        membership.leaves("c", 500);
        membership.advance(500);
        membership.heard("c", 500 + LEFT_OUT_MS);
        membership.heard("b", 500 + LEFT_OUT_MS);
        assert_eq!(ids(&membership.advance(500 + LEFT_OUT_MS).expect("c is back")), ["a", "b", "c"]);
    }

    #[test]
    fn a_node_that_leaves_owns_nothing_itself() {
        let mut membership = three();
        membership.leave();
        assert_eq!(ids(&membership.advance(100).expect("a leaves")), ["b", "c"]);
    }

    #[test]
    fn who_does_not_know_its_address_has_the_one_that_is_seen() {
        let far: IpAddr = "2001:db8::7".parse().expect("an address");
        for (said, remote, expected) in [
            ("http://0.0.0.0:6632", REMOTE, Some("http://127.0.0.1:6632")),
            ("https://[::]:1", far, Some("https://[2001:db8::7]:1")),
            ("http://0.0.0.0:6632", "::ffff:10.0.0.1".parse().expect("an address"), Some("http://10.0.0.1:6632")),
            ("http://queen-1.internal:6632", REMOTE, Some("http://queen-1.internal:6632")),
            ("http://10.0.0.9:6632", REMOTE, Some("http://10.0.0.9:6632")),
            ("ftp://10.0.0.9:6632", REMOTE, None),
            ("10.0.0.9:6632", REMOTE, None),
            ("http://", REMOTE, None),
            ("http://a b", REMOTE, None),
            ("http://a/path", REMOTE, None),
        ] {
            assert_eq!(reachable(said, remote).as_deref(), expected, "{said}");
        }
    }
}
