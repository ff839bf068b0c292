//! What a port counts, for metrics.

/// A port's counters. Counts are totals since the port was opened; depths and lengths are of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// By peer, in the order of their ids.
    pub peers: Vec<PeerCounters>,
    /// Questions of this port whose reply was not taken yet, the cancelled ones included.
    pub unanswered: usize,
    /// Times that the pump went to sleep.
    pub sleeps: u64,
    /// Times that a peer's pump slept and was woken from here. On another core that is a system call.
    pub wakes_sent: u64,
}

/// What a port counts about one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Parcels in the lane to the peer that it has not taken.
    pub lane_depth: usize,
    /// Parcels behind the lane, in the outbox.
    pub outbox_length: usize,
    /// Times that the lane was full and parcels stayed in the outbox.
    pub full_events: u64,
    /// Credits towards the peer that are taken.
    pub credits_in_use: u32,
    /// Questions refused because all credits were taken.
    pub credits_refused: u64,
}
