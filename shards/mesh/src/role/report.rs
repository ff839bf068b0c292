//! How the mesh stands, for those who ask.

use std::{collections::BTreeMap, sync::Arc};

use queen_fabric::protocol::mesh::{Counts, HeardReport, PeerReport, Report};

use super::Role;
use crate::FrameKind;

impl Role {
    pub(super) fn report(&self) -> Report {
        let node = self.node.borrow();
        let stats = node.stats();
        let configured = self.config.node.peers.iter().zip(stats.peers).enumerate();
        let peers = configured.map(|(index, (peer, stats))| PeerReport {
            host: peer.host.clone(),
            port: peer.port,
            server_id: stats.server_id,
            is_connected: stats.connected,
            remote: self.remote_of(index),
            sent: by_word(&stats.sent),
            dropped: stats.dropped,
        });
        let received = |id: &Arc<str>| {
            let of_id = stats.received.iter().filter(|((of, _), _)| of == id);
            of_id.map(|((_, kind), &count)| (kind.word(), count)).collect()
        };
        Report {
            alone: self.config.alone,
            has_secret: self.config.node.secret.is_some(),
            port: self.config.listen.port(),
            peers: peers.collect(),
            heard: node
                .alive(self.now_ms())
                .map(|(id, is_alive)| HeardReport { server_id: Arc::clone(id), is_alive, received: received(id) })
                .collect(),
            handshake_failures: stats.handshake_failures.into_iter().collect(),
            faults: stats.faults.into_iter().collect(),
            unsaid: self.unsaid.get(),
            members: Arc::clone(&self.members.borrow()),
        }
    }
}

fn by_word(counts: &BTreeMap<FrameKind, u64>) -> Counts {
    counts.iter().map(|(kind, &count)| (kind.word(), count)).collect()
}
