//! Whom to dial: `QUEEN_MESH_PEERS`, read as tolerantly as it always was.

use std::fmt;

/// The most peers of a node. Meshes have three to five nodes; every node dials every other.
pub const PEERS_MAX: usize = 64;

/// A configured peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// Its mesh port.
    pub port: u16,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a list of peers is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeersError {
    /// More than a mesh has.
    #[error("at most {PEERS_MAX} peers, not {0}")]
    TooMany(usize),
}

/// Reads a list of `host` and `host:port` with commas between them. A bare host has the default port, and so has one
/// whose port is no number; `http://` and `https://` and what follows a `/` are passed over, as is white space. A peer
/// that stands twice is one.
///
/// # Errors
/// See [`PeersError`].
pub fn parse_peers(text: &str, default_port: u16) -> Result<Vec<Peer>, PeersError> {
    let mut peers = Vec::new();
    for entry in text.split(',') {
        let entry = entry.trim();
        let entry = entry.strip_prefix("http://").or_else(|| entry.strip_prefix("https://")).unwrap_or(entry);
        let entry = entry.split('/').next().unwrap_or_default().trim();
        let (host, port) = split(entry, default_port);
        if host.is_empty() {
            continue;
        }
        let peer = Peer { host: host.to_owned(), port };
        if !peers.contains(&peer) {
            peers.push(peer);
        }
    }
    if peers.len() > PEERS_MAX { Err(PeersError::TooMany(peers.len())) } else { Ok(peers) }
}

fn split(entry: &str, default_port: u16) -> (&str, u16) {
    let number = |text: &str| text.trim().parse().ok().filter(|&port| port != 0).unwrap_or(default_port);
    if let Some((host, rest)) = entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host.trim(), rest.strip_prefix(':').map_or(default_port, number));
    }
    match entry.split_once(':') {
        None => (entry, default_port),
        // An IPv6 address without brackets: all of it is the host.
        Some((_, rest)) if rest.contains(':') => (entry, default_port),
        Some((host, port)) => (host.trim(), number(port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        parse_peers(text, 6633).expect("a list").iter().map(Peer::to_string).collect()
    }

    #[test]
    fn hosts_have_the_port_that_they_name_or_the_default_one() {
        assert_eq!(read("queen-1,queen-2:7000, 10.0.0.3 "), ["queen-1:6633", "queen-2:7000", "10.0.0.3:6633"]);
    }

    #[test]
    fn what_people_write_around_a_host_is_passed_over() {
        assert_eq!(
            read(" http://queen-1:7000/ , https://queen-2 ,queen-3:x,queen-4:"),
            ["queen-1:7000", "queen-2:6633", "queen-3:6633", "queen-4:6633",]
        );
        assert_eq!(read(""), Vec::<String>::new());
        assert_eq!(read(" , ,http://,:7000"), Vec::<String>::new());
        assert_eq!(read("a:70000,b:0,c:-1"), ["a:6633", "b:6633", "c:6633"]);
    }

    #[test]
    fn addresses_of_version_six_are_hosts() {
        assert_eq!(read("[::1]:7000,[fe80::1],::2"), ["[::1]:7000", "[fe80::1]:6633", "[::2]:6633"]);
    }

    #[test]
    fn a_peer_that_stands_twice_is_one() {
        assert_eq!(read("a,a:6633,http://a,b"), ["a:6633", "b:6633"]);
    }

    #[test]
    fn a_list_has_a_limit() {
        let many = (0..65).map(|n| format!("host-{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(parse_peers(&many, 6633), Err(PeersError::TooMany(65)));
    }
}
