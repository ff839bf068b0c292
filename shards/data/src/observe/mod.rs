//! What the node shows of itself: `/health`, `/status`, `/metrics` and `/metrics/prometheus`.
//!
//! Each shard counts for itself; a report asks every shard over its lane and puts the answers together, so that no
//! counter is ever shared.

mod json;
mod metrics;
mod process;
mod prometheus;

use std::rc::Rc;

use queen_ephemeral::Stats;
use queen_fabric::{ShardId, port::PortCounters, rt};
use queen_wire::response::{ContentType, append_json_string};

use self::metrics::{Counters, RouteTimes};
pub(crate) use self::{json::quoted, metrics::Metrics};
use crate::{
    connection::{Operation, Out},
    dispatch::{Call, Handled},
    error::{ApiError, Code},
    protocol::{Answer, Ask},
    reply::{Reply, promise},
    routes::Route,
    shard::Shard,
};

/// What `/health` and `/status` call this broker.
const ENGINE: &str = "thread-per-core";

/// One shard's counters at one moment.
#[derive(Debug)]
pub struct Observation {
    pub(crate) connections: u64,
    pub(crate) waiting: u64,
    pub(crate) counters: Counters,
    /// Requests that were refused, by code in the codes' order.
    pub(crate) refused: [u64; Code::COUNT],
    pub(crate) ephemeral_enabled: bool,
    /// Push maintenance and pop maintenance.
    pub(crate) maintenance: [bool; 2],
    /// Of the members that it goes by.
    pub(crate) members_version: u64,
    pub(crate) routes: Vec<RouteTimes>,
    pub(crate) engine: Stats,
    pub(crate) lanes: PortCounters,
    pub(crate) store: PortCounters,
}

impl Shard {
    /// This shard's counters.
    pub(crate) fn observe_here(&self) -> Observation {
        Observation {
            connections: self.connections.used(),
            waiting: self.parked.used(),
            counters: self.metrics.counters(),
            refused: self.out.borrow().refused(),
            ephemeral_enabled: self.grants.is_ephemeral_enabled(),
            maintenance: [self.grants.is_push_maintenance(), self.grants.is_pop_maintenance()],
            members_version: self.mesh.members_version(),
            routes: self.metrics.routes(),
            engine: self.engine.borrow().stats(),
            lanes: self.peers.counters(),
            store: self.store.counters(),
        }
    }

    /// `/health`: cheap, and the same whoever asks.
    pub(crate) fn health(&self, call: &Call<'_>, out: &mut Out) -> Handled {
        let connected = self.node.is_store_connected();
        let (status, state): (u16, &[u8]) = if connected {
            (200, b"{\"status\":\"healthy\",\"database\":\"connected\"")
        } else {
            (503, b"{\"status\":\"unhealthy\",\"database\":\"disconnected\"")
        };
        out.with_body(&call.frame, status, |body| {
            body.extend_from_slice(state);
            body.extend_from_slice(b",\"engine\":");
            append_json_string(body, ENGINE);
            body.extend_from_slice(b",\"version\":");
            append_json_string(body, self.node.version);
            body.push(b'}');
        });
        Handled::Done
    }

    /// The three reports that need every shard's counters.
    pub(crate) fn report(self: &Rc<Self>, call: &Call<'_>) -> Handled {
        let route = call.frame.route;
        let (promise, promised) = promise();
        let shard = Rc::clone(self);
        rt::spawn_local(async move {
            promise.keep(shard.render_report(route).await.unwrap_or_else(Reply::from));
        })
        .detach();
        call.later(Operation::Promised(promised))
    }

    async fn render_report(&self, route: Route) -> Result<Reply, ApiError> {
        let shards = self.observe_all().await?;
        if route == Route::Metrics {
            return Ok(Reply::json(200, json::metrics(&self.node, &shards)));
        }
        let mesh = self.mesh.report().await?;
        if route == Route::Status {
            return Ok(Reply::json(200, json::status(&self.node, &shards, &mesh)));
        }
        let mut reply = Reply::json(200, prometheus::render(&self.node, &shards, &mesh).into_bytes());
        reply.content_type = ContentType::Prometheus;
        Ok(reply)
    }

    async fn observe_all(&self) -> Result<Vec<Observation>, ApiError> {
        let mut observations = Vec::with_capacity(self.peers.shards());
        for id in 0..self.peers.shards() as ShardId {
            observations.push(if id == self.id() {
                self.observe_here()
            } else {
                let asked = self
                    .peers
                    .ask(id, Ask::Observe)
                    .map_err(|_| ApiError::overloaded("The lane to another shard is full"))?;
                match asked.await.answer {
                    Answer::Observed(observation) => *observation,
                    other => unreachable!("asked for counters, got {other:?}"),
                }
            });
        }
        Ok(observations)
    }
}
