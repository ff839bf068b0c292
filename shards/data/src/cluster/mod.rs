//! Several nodes that serve the same ephemeral queues.
//!
//! Every partition has one owner among the members, the same on every node that knows the same members ([`placement`]).
//! A data shard keeps a [`link`] to each other member, dialled at its HTTP port ([`dial`]), and asks for what that owns
//! over it ([`forward`]). At the other end the shard that has the connection asks the one that has the queue ([`serve`](mod@serve)).
//! When the members change, what is another node's by then goes to it ([`handover`]), and requests for it wait there until
//! it has come ([`hold`]). What is about a queue as a whole is asked of all members ([`everybody`]): resets, declarations
//! ([`declared`]), and what each holds ([`shares`]).

mod acks;
mod administer;
mod anywhere;
mod convert;
mod declared;
mod dial;
mod everybody;
mod forward;
mod handover;
mod hold;
mod link;
mod links;
mod parcel;
mod pipe;
mod placement;
mod routed;
mod serve;
mod shares;

use std::sync::Arc;

use queen_wire::mesh::{Identity, Nonce, Secret};
use rustls::ClientConfig;

pub(crate) use self::{
    acks::{AckHome, Scattered},
    anywhere::Anywhere,
    declared::Declared,
    everybody::Failed,
    forward::Forwarded,
    handover::{Handed, Handover},
    hold::{Held, Holding},
    link::LinkClaim,
    links::Links,
    placement::{DEFAULT_PARTITION, Home},
    routed::Routed,
    serve::serve,
};

/// What a node needs to be one of several: it knows a secret that the others know too.
pub struct Cluster {
    /// Who it is.
    pub me: Identity,
    /// What all of them know.
    pub secret: Secret,
    /// Whether all of them keep declarations, grants and switches in one database.
    pub is_store_shared: bool,
    /// How peers are verified whose HTTP port speaks TLS.
    pub tls: Arc<ClientConfig>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("me", &self.me).finish_non_exhaustive()
    }
}

/// Where a node takes peer links, on its HTTP port.
pub(crate) const PATH: &str = "/internal/peer";

/// Random bytes that nobody can guess.
fn nonce() -> Nonce {
    let mut nonce = Nonce::default();
    aws_lc_rs::rand::fill(&mut nonce).expect("the system has random numbers");
    nonce
}
