//! The shard's lane to the mesh: who the members are, what peers have said of ephemeral queues, and how the mesh stands.

use std::{
    cell::{Ref, RefCell},
    fmt::Write,
    future::poll_fn,
    rc::Rc,
    sync::Arc,
};

use queen_ephemeral::TenantId;
use queen_fabric::{
    members::Members,
    port::{Incoming, Port},
    protocol::{
        control::Control,
        mesh::{MeshAnswer, MeshAsk, MeshProtocol, Report, mesh_seat},
        store::StoreAnswer,
    },
    rt,
};
use queen_wire::{
    mesh::{Administration, Message, QueueName},
    name,
};

use crate::{
    connection::Operation,
    dispatch::{Call, Handled},
    ephemeral::{declare::AnswerTo, not_reserved},
    error::ApiError,
    observe::quoted,
    protocol::QueueKey,
    reply::{Reply, promise},
    shard::Shard,
    system::switches_json,
};

/// What older brokers call this transport.
const TRANSPORT: &str = "tcp-mesh";

/// The lane.
pub(crate) struct MeshLane {
    port: Port<MeshProtocol>,
    /// As they were told last; none before the mesh has spoken.
    members: RefCell<Option<Arc<Members>>>,
}

impl MeshLane {
    pub(crate) fn new(port: Port<MeshProtocol>) -> Self {
        Self { port, members: RefCell::default() }
    }

    /// The members, as they were told last.
    pub(crate) fn members(&self) -> Ref<'_, Option<Arc<Members>>> {
        self.members.borrow()
    }

    /// The version of the members that this shard goes by; 0 before the mesh has spoken.
    pub(crate) fn members_version(&self) -> u64 {
        self.members.borrow().as_ref().map_or(0, |members| members.version)
    }

    /// How the mesh stands.
    pub(crate) async fn report(&self) -> Result<Report, ApiError> {
        let asked = self.port.ask(mesh_seat(self.port.shards()), MeshAsk::Report);
        let asked = asked.map_err(|_| ApiError::overloaded("The lane to the mesh is full"))?;
        match asked.await.answer {
            MeshAnswer::Report(report) => Ok(*report),
            other => unreachable!("asked for a report, not for {other:?}"),
        }
    }
}

impl Shard {
    /// Follows the members, for as long as the shard runs.
    pub(crate) async fn follow_members(self: Rc<Self>) {
        let port = &self.mesh.port;
        loop {
            let seen = self.mesh.members_version();
            let asked = port.ask_parked(mesh_seat(port.shards()), MeshAsk::WatchMembers { seen });
            match asked.await.answer {
                MeshAnswer::Members(members) => {
                    let before = self.mesh.members.replace(Some(Arc::clone(&members)));
                    if self.node.cluster.is_some() {
                        self.holding.changed(before.as_deref(), &members);
                        self.links.follow(&self, &members);
                        let shard = Rc::clone(&self);
                        rt::spawn_local(async move { shard.forget_former_owners().await }).detach();
                    }
                    self.handover.look();
                }
                other => unreachable!("asked for members, not for {other:?}"),
            }
        }
    }

    /// Takes in what peers say, for as long as the shard runs.
    pub(crate) async fn listen_to_mesh(self: Rc<Self>) {
        loop {
            if let Incoming::Ask { ticket, ask } = poll_fn(|cx| self.mesh.port.poll_incoming(cx)).await {
                if let MeshAsk::Heard(message) = ask
                    && let Message::EphemeralAdmin(what, QueueName { queue, tenant: Some(tenant) }) = *message
                {
                    self.administer(what, QueueKey { tenant: TenantId(tenant), queue });
                }
                self.mesh.port.answer(ticket, MeshAnswer::Done);
            }
        }
    }

    /// Does what an older broker has done to its ephemeral queue to the one of that name here.
    fn administer(self: &Rc<Self>, what: Administration, key: QueueKey) {
        if not_reserved(&key.queue).is_err() || name::check("queue", &key.queue).is_err() {
            return tracing::debug!("a peer names an ephemeral queue that cannot be");
        }
        tracing::debug!(queue = key.queue, ?what, "a peer administers an ephemeral queue");
        match what {
            Administration::Reset => drop(self.reset_reply(&key)),
            Administration::Delete => self.delete_here(Box::new(key), AnswerTo::Nobody),
            Administration::ConfigSet => {
                let shard = Rc::clone(self);
                rt::spawn_local(async move {
                    let declared = shard.store.declarations().await;
                    let of_it = |of: &queen_fabric::protocol::store::Declaration| {
                        of.tenant == key.tenant.0 && of.queue == key.queue
                    };
                    shard.restore(declared.into_iter().filter(of_it).collect());
                })
                .detach();
            }
        }
    }

    /// How the mesh stands, as operators and older brokers' tools read it.
    pub(crate) fn mesh_stats(self: &Rc<Self>, call: &Call<'_>) -> Handled {
        let (promise, promised) = promise();
        let shard = Rc::clone(self);
        rt::spawn_local(async move { promise.keep(shard.mesh_reply().await.unwrap_or_else(Reply::from)) }).detach();
        call.later(Operation::Promised(promised))
    }

    async fn mesh_reply(&self) -> Result<Reply, ApiError> {
        let control = self.store.control_now()?;
        let report = self.mesh.report().await?;
        match control.await.answer {
            StoreAnswer::Control { control, .. } => Ok(Reply::json(200, render(&report, &control).into_bytes())),
            other => unreachable!("asked for what is switched, not for {other:?}"),
        }
    }
}

fn render(report: &Report, control: &Control) -> String {
    let switches = switches_json(control);
    if let Some(alone) = report.alone {
        return format!("{{\"enabled\":false,\"reason\":\"{}\",{switches}}}", alone.word());
    }
    let total = |counts: &[(&str, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
    let alive = report.heard.iter().filter(|heard| heard.is_alive).count();
    let failures = total(&report.handshake_failures);
    let mut out = String::with_capacity(1024);
    let _ = write!(
        out,
        "{{\"enabled\":true,\"server_id\":{},\"transport\":\"{TRANSPORT}\",\"port\":{},\"authenticated\":{},\"peer_count\":{},\"peers\":[",
        quoted(&report.members.me),
        report.port,
        report.has_secret,
        report.peers.len(),
    );
    for (index, peer) in report.peers.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let text = |text: Option<String>| text.map_or_else(|| "null".to_owned(), |text| quoted(&text));
        let _ = write!(
            out,
            "{comma}{{\"host\":{},\"port\":{},\"connected\":{},\"resolved\":{},\"resolved_ip\":{},\"server_id\":{},\"messages_sent\":{},\"messages_dropped\":{}}}",
            quoted(&peer.host),
            peer.port,
            peer.is_connected,
            peer.is_connected,
            text(peer.remote.map(|remote| remote.to_string())),
            text(peer.server_id.as_deref().map(str::to_owned)),
            total(&peer.sent),
            peer.dropped,
        );
    }
    let _ = write!(out, "],\"servers_alive\":{alive},\"servers_dead\":{},\"servers\":[", report.heard.len() - alive);
    for (index, heard) in report.heard.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(
            out,
            "{comma}{{\"server_id\":{},\"alive\":{},\"messages_received\":{}}}",
            quoted(&heard.server_id),
            heard.is_alive,
            total(&heard.received),
        );
    }
    let _ = write!(
        out,
        "],\"eph_members\":{},\"messages_sent\":{},\"messages_received\":{},\"messages_dropped\":{},\
         \"signature_failures\":{failures},\"handshake_failures\":{failures},\"handshake_failures_by_reason\":{},\
         \"faults_by_reason\":{},\"sequence_rejections\":0,{switches}}}",
        report.members.members.len(),
        report.peers.iter().map(|peer| total(&peer.sent)).sum::<u64>(),
        report.heard.iter().map(|heard| total(&heard.received)).sum::<u64>(),
        report.peers.iter().map(|peer| peer.dropped).sum::<u64>() + report.unsaid,
        by_word(&report.handshake_failures),
        by_word(&report.faults),
    );
    out
}

fn by_word(counts: &[(&str, u64)]) -> String {
    let members: Vec<_> = counts.iter().map(|(word, count)| format!("\"{word}\":{count}")).collect();
    format!("{{{}}}", members.join(","))
}
