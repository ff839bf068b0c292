//! The settings of the mesh: who the peers are, how they prove themselves, who this broker is.

use std::net::IpAddr;

use queen_mesh::{Peer, PeersError, parse_peers};
use queen_wire::mesh::{SERVER_ID_BYTES_MAX, is_server_id};

use super::storage::Secret;

/// The settings of the mesh.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// `QUEEN_SYNC_ENABLED`
    pub enabled: bool,
    /// `QUEEN_MESH_PEERS`, as it was set.
    pub peers: Option<String>,
    /// `QUEEN_MESH_PORT`
    pub port: u16,
    /// `QUEEN_MESH_BIND_ADDR`
    pub bind_addr: IpAddr,
    /// `QUEEN_MESH_ADVERTISE_HOST`: where peers reach the HTTP port; `None` is the address that they see.
    pub advertise_host: Option<String>,
    /// `QUEEN_SERVER_ID`; `None` is one that is made once and kept.
    pub server_id: Option<String>,
    /// `QUEEN_SYNC_SECRET`
    pub secret: Option<Secret>,
    /// `QUEEN_MESH_LEGACY_HELLO`; `None` is only without a secret, see [`Mesh::is_legacy`].
    pub legacy_hello: Option<bool>,
    /// `QUEEN_PEER_TLS_CA`: the file of the authorities that peers' certificates are verified by; `None` is the system's.
    pub peer_tls_ca: Option<String>,
    /// `QUEEN_SYNC_HEARTBEAT_MS`
    pub heartbeat_ms: u64,
    /// `QUEEN_SYNC_DEAD_THRESHOLD_MS`
    pub dead_threshold_ms: u64,
}

impl Default for Mesh {
    fn default() -> Self {
        Self {
            enabled: true,
            peers: None,
            port: 0,
            bind_addr: IpAddr::from([0, 0, 0, 0]),
            advertise_host: None,
            server_id: None,
            secret: None,
            legacy_hello: None,
            peer_tls_ca: None,
            heartbeat_ms: 0,
            dead_threshold_ms: 0,
        }
    }
}

impl Mesh {
    /// The peers, which were read when the settings were.
    ///
    /// # Errors
    /// See [`PeersError`].
    pub fn peers(&self) -> Result<Vec<Peer>, PeersError> {
        self.peers.as_deref().map_or_else(|| Ok(Vec::new()), |peers| parse_peers(peers, self.port))
    }

    /// Whether the old handshake is spoken and taken.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        self.legacy_hello.unwrap_or(self.secret.is_none())
    }
}

/// A server's id.
pub(super) fn server_id(text: &str) -> Option<String> {
    is_server_id(text).then(|| text.to_owned())
}

/// What is right for one.
pub(super) fn right_server_id() -> String {
    format!("1 to {SERVER_ID_BYTES_MAX} letters, digits and signs of ASCII but blanks, quotes and backslashes")
}

/// The name or address of a host: brackets around an address of version 6 are taken off.
pub(super) fn host(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if bare.parse::<IpAddr>().is_ok() {
        return Some(bare.to_owned());
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    ((1..=253).contains(&bare.len()) && bare == text && bare.bytes().all(fits)).then(|| bare.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for (text, expected) in [
            ("queen-1.internal", Some("queen-1.internal")),
            ("10.0.0.7", Some("10.0.0.7")),
            ("::1", Some("::1")),
            ("[fe80::1]", Some("fe80::1")),
            ("http://queen-1", None),
            ("queen-1:6632", None),
            ("[queen-1]", None),
            ("", None),
        ] {
            assert_eq!(host(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_old_handshake_is_allowed_where_there_is_no_secret_or_it_is_asked_for() {
        let mesh = |secret: Option<&str>, legacy_hello| Mesh {
            secret: secret.map(Secret::new),
            legacy_hello,
            ..Mesh::default()
        };
        assert!(mesh(None, None).is_legacy());
        assert!(!mesh(Some("s3cret"), None).is_legacy());
        assert!(mesh(Some("s3cret"), Some(true)).is_legacy());
    }
}
