//! Several nodes that serve the same ephemeral queues.
//!
//! Every partition has one owner among the members, the same on every node that knows the same members
//! ([`placement`]).

mod placement;

use std::sync::Arc;

use queen_wire::mesh::{Identity, Secret};
use rustls::ClientConfig;

pub(crate) use self::placement::Home;

/// What a node needs to be one of several: it knows a secret that the others know too.
pub struct Cluster {
    /// Who it is.
    pub me: Identity,
    /// What all of them know.
    pub secret: Secret,
    /// How peers are verified whose HTTP port speaks TLS.
    pub tls: Arc<ClientConfig>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("me", &self.me).finish_non_exhaustive()
    }
}
