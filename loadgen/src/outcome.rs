//! What came of a run.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

/// What a run measured and what its checks found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From the end of the warm-up to the end of the measured part.
    pub measured: Duration,
    /// Messages sent that were due in the measured part (of `request-reply`: requests; of `pop`: as `received`).
    pub sent: u64,
    /// Messages received that were due in the measured part, whenever they came (of `request-reply`: replies; of `push`,
    /// which nobody receives: messages that the broker took).
    pub received: u64,
    /// Requests that failed in the measured part or after it, by what went wrong: an error code of the broker, or a word.
    ///
    /// | word | what happened |
    /// |---|---|
    /// | `timeout` | no answer within 30 seconds (beyond what a pop waits by itself) |
    /// | `disconnected`, `garbled` | the broker closed the connection, or sent what is not its protocol |
    /// | `not_connected` | a lost connection could not be opened again, which is tried until the end |
    /// | `not_sent` | due before the end, and no connection was free for it within ten seconds after it |
    /// | `unanswered` | sent, and not answered when the run gave up |
    /// | `empty` | a pop of the `pop` scenario found nothing within its wait: the queue was not filled fast enough |
    /// | `short_push` | a push was answered with another number of messages than it had |
    /// | `wrong_reply`, `no_reply_to`, `unexpected_message` | an answer of the wrong kind |
    pub errors: BTreeMap<String, u64>,
    /// What the checks found, over the whole run, warm-up and the wait for the last messages included.
    pub findings: Findings,
    /// Latency of the measured part in nanoseconds, 1 µs to 10 minutes at three digits.
    pub latency_ns: Histogram<u64>,
    /// The measured part second by second.
    pub seconds: Vec<Second>,
    /// Whether it was stopped before its time.
    pub interrupted: bool,
}

/// Messages that did not arrive as they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Sent and confirmed, and never received although everything was drained.
    pub lost: u64,
    /// Received again.
    pub duplicated: u64,
    /// Received after a later message of its partition, by a consumer that takes them one at a time.
    pub reordered: u64,
    /// Received with other bytes than were sent.
    pub corrupted: u64,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Messages sent in it.
    pub sent: u64,
    /// Messages received in it.
    pub received: u64,
    /// Errors in it.
    pub errors: u64,
    /// Median latency of what was received in it, in nanoseconds; 0 if nothing was.
    pub p50_ns: u64,
    /// Its 99th percentile.
    pub p99_ns: u64,
    /// Its 99.9th percentile.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}
