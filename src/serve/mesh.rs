//! What the mesh role is told at its start, and what operators are told about it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use queen_data::Cluster;
use queen_fabric::protocol::mesh::Alone;
use queen_mesh::{Config, MeshConfig};
use queen_store::DatabaseConfig;
use queen_wire::mesh::{Identity, Secret};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::settings::Settings;

/// Why this broker has no mesh, if so.
pub(super) fn alone(settings: &Settings) -> Option<Alone> {
    let no_peers = settings.mesh.peers().is_ok_and(|peers| peers.is_empty());
    match (settings.mesh.enabled, no_peers) {
        (_, true) => Some(Alone::NoPeers),
        (false, false) => Some(Alone::SyncDisabled),
        (true, false) => None,
    }
}

/// The role's configuration; `listen` is where peers connect, `http` where clients do.
pub(super) fn config(
    settings: &Settings,
    server_id: String,
    epoch: u64,
    listen: SocketAddr,
    http: SocketAddr,
) -> MeshConfig {
    let mesh = &settings.mesh;
    let alone = alone(settings);
    let peers = if alone.is_some() { Vec::new() } else { mesh.peers().unwrap_or_default() };
    MeshConfig {
        alone,
        node: Config {
            me: Identity { server_id, http_addr: http_addr(settings, http), epoch },
            peers,
            secret: mesh.secret.as_ref().and_then(|secret| Secret::new(secret.reveal())),
            legacy: mesh.is_legacy(),
            heartbeat_ms: mesh.heartbeat_ms,
            dead_ms: mesh.dead_threshold_ms,
            member_ttl_ms: settings.ephemeral.member_ttl_ms,
        },
        listen,
    }
}

/// Why this broker cannot be one of several.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClusterError {
    /// The file of authorities.
    #[error("QUEEN_PEER_TLS_CA={path:?} {reason}; name a file of PEM certificates")]
    Authorities {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// What rustls says.
    #[error("TLS to peers cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// What makes this broker one of several: peers that prove themselves.
pub(super) fn cluster(settings: &Settings, config: &MeshConfig) -> Result<Option<Cluster>, ClusterError> {
    let (None, Some(secret)) = (config.alone, &config.node.secret) else { return Ok(None) };
    let roots = authorities(settings.mesh.peer_tls_ca.as_deref())?;
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Some(Cluster {
        me: config.node.me.clone(),
        secret: secret.clone(),
        is_store_shared: matches!(settings.storage.config(), DatabaseConfig::Postgres(_)),
        tls: Arc::new(tls),
    }))
}

fn authorities(file: Option<&str>) -> Result<RootCertStore, ClusterError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let wrong = |reason: String| ClusterError::Authorities { path: path.to_owned(), reason };
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(format!("cannot be read: {error}")))?;
    match roots.add_parsable_certificates(found) {
        (0, _) => Err(wrong("holds no certificate".to_owned())),
        _ => Ok(roots),
    }
}

/// The base address of the HTTP port for peers. An unspecified host stands for the address that they see.
fn http_addr(settings: &Settings, http: SocketAddr) -> String {
    let scheme = if settings.listen.tls().is_some() { "https" } else { "http" };
    match &settings.mesh.advertise_host {
        None => format!("{scheme}://{http}"),
        Some(host) => match host.parse::<IpAddr>() {
            Ok(address) => format!("{scheme}://{}", SocketAddr::new(address, http.port())),
            Err(_) => format!("{scheme}://{host}:{}", http.port()),
        },
    }
}

/// Says at boot what an operator has to know.
pub(super) fn log(settings: &Settings, config: &MeshConfig, is_shared: bool) {
    let id = &config.node.me.server_id;
    match config.alone {
        Some(Alone::NoPeers) => return,
        Some(Alone::SyncDisabled) => {
            tracing::warn!(
                "mesh: QUEEN_SYNC_ENABLED is off: peers are configured, and neither dialled nor listened for"
            );
            return;
        }
        None => {}
    }
    let peers: Vec<_> = config.node.peers.iter().map(ToString::to_string).collect();
    tracing::info!("mesh: this broker is {id}, listens for peers on {}, and dials {}", config.listen, peers.join(", "));
    tracing::warn!(
        "mesh: let only the other brokers reach port {}: what they say is not encrypted",
        config.listen.port()
    );
    if config.node.secret.is_none() {
        tracing::warn!(
            "mesh: WITHOUT QUEEN_SYNC_SECRET nobody proves who they are: whoever reaches the port can switch \
             maintenance on and reset ephemeral queues; and each broker serves its own ephemeral queues alone"
        );
    } else if config.node.legacy {
        tracing::warn!(
            "mesh: QUEEN_MESH_LEGACY_HELLO is on: a handshake of an older broker can be captured and replayed"
        );
    }
    if !is_shared {
        tracing::warn!(
            "mesh: without PostgreSQL, durable queues, grants and switches are each broker's own: set DATABASE_URL or PG_HOST"
        );
    }
    if settings.mesh.bind_addr.is_loopback() && config.node.peers.iter().any(|peer| !is_local(&peer.host)) {
        tracing::warn!("mesh: QUEEN_MESH_BIND_ADDR={} can be reached from this host alone", settings.mesh.bind_addr);
    }
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> Settings {
        let lookup = |name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, value)| (*value).to_owned());
        Settings::from_env(lookup).expect("settings that are right")
    }

    #[test]
    fn a_broker_is_alone_without_peers_or_when_it_is_told_to_be() {
        let two = ("QUEEN_MESH_PEERS", "queen-1,queen-2");
        assert_eq!(alone(&settings(&[])), Some(Alone::NoPeers));
        assert_eq!(alone(&settings(&[("QUEEN_MESH_PEERS", " , ")])), Some(Alone::NoPeers));
        assert_eq!(alone(&settings(&[two, ("QUEEN_SYNC_ENABLED", "0")])), Some(Alone::SyncDisabled));
        assert_eq!(alone(&settings(&[two])), None);
        assert_eq!(alone(&settings(&[("QUEEN_UDP_PEERS", "queen-1")])), None);
    }

    #[test]
    fn peers_are_told_where_the_http_port_is() {
        let http = "0.0.0.0:6632".parse().expect("an address");
        let listen = "0.0.0.0:6633".parse().expect("an address");
        for (vars, expected) in [
            (vec![], "http://0.0.0.0:6632"),
            (vec![("QUEEN_MESH_ADVERTISE_HOST", "queen-1.internal")], "http://queen-1.internal:6632"),
            (vec![("QUEEN_MESH_ADVERTISE_HOST", "[fe80::1]")], "http://[fe80::1]:6632"),
            (vec![("QUEEN_TLS_CERT", "c"), ("QUEEN_TLS_KEY", "k")], "https://0.0.0.0:6632"),
        ] {
            let config = config(&settings(&vars), "queen-1".to_owned(), 7, listen, http);
            assert_eq!(config.node.me.http_addr, expected);
        }
    }
}
