//! What a data shard needs to know, worked out once at boot and shared read-only by all of them.

use std::net::SocketAddr;

/// The limits and defaults of a node's data shards. Sizes are bytes, times milliseconds.
#[derive(Debug, Clone)]
pub struct DataConfig {
    /// Where every shard listens; the port is the real one, never 0.
    pub listen: SocketAddr,
    /// Bodies above this are refused with 413 (`QUEEN_MAX_BODY_BYTES`).
    pub max_body_bytes: u64,
    /// Bytes of unfinished requests the node may hold (`QUEEN_HTTP_MAX_BUFFERED_BYTES`).
    pub max_buffered_bytes: u64,
    /// Connections the node may hold (`QUEEN_HTTP_MAX_CONNECTIONS`).
    pub max_connections: u64,
    /// From the first byte of a request to the end of its head (`QUEEN_HTTP_HEADER_TIMEOUT_MS`).
    pub header_timeout_ms: u64,
    /// A connection without a request for so long is closed (`QUEEN_HTTP_IDLE_TIMEOUT_MS`).
    pub idle_timeout_ms: u64,
    /// JSON deeper than this is refused (`QUEEN_JSON_DEPTH_MAX`).
    pub json_depth_max: u32,
    /// Whether `x-queen-tenant` names the tenant (`QUEEN_TENANCY_HEADER`).
    pub tenancy_header: bool,
    /// Whether a tenant needs a grant to use ephemeral queues (`QUEEN_EPHEMERAL_REQUIRE_GRANT`).
    pub ephemeral_require_grant: bool,
    /// Ephemeral bytes the node may hold (`QUEEN_EPHEMERAL_MAX_BYTES`).
    pub ephemeral_max_bytes: u64,
    /// Ephemeral queues the node may hold (`QUEEN_EPHEMERAL_MAX_QUEUES`).
    pub ephemeral_max_queues: u64,
    /// Waiting pops the node may hold (`QUEEN_EPHEMERAL_MAX_PARKED`).
    pub ephemeral_max_parked: u64,
    /// Messages a second that a tenant may push; 0 is off (`QUEEN_EPHEMERAL_RATE`).
    pub ephemeral_rate: u64,
    /// Messages a tenant may push at once above the rate (`QUEEN_EPHEMERAL_BURST`).
    pub ephemeral_burst: u64,
    /// How long a stop waits for what is in flight (`QUEEN_SHUTDOWN_GRACE_MS`).
    pub shutdown_grace_ms: u64,
}
