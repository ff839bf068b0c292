//! What a run does: everything that the command line, a scenario file or an SLA file can say, checked.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is done.
    pub scenario: Scenario,
    /// How the broker is spoken to.
    pub driver: DriverKind,
    /// Where it is.
    pub target: Target,
    /// When requests are sent.
    pub pacing: Pacing,
    /// How long is measured, after the warm-up.
    pub duration: Duration,
    /// How long is run before anything counts. Messages of it are checked all the same.
    pub warmup: Duration,
    /// Connections that push, and as many that pop where the scenario has both. Of `request-reply` and `churn`: see
    /// `pairs`.
    pub connections: usize,
    /// Requester and worker pairs of `request-reply` and `churn`, each with a connection for either side.
    pub pairs: usize,
    /// Requests that a connection may have in flight at once (HTTP pipelining where the driver is HTTP).
    pub depth: usize,
    /// Messages in a push, and the most that a pop takes.
    pub batch: usize,
    /// Queues or subjects that the load is spread over.
    pub queues: usize,
    /// Partitions of each queue.
    pub partitions: usize,
    /// How partitions (and queues) are chosen.
    pub spread: Spread,
    /// Consumer groups of `fan-out`.
    pub groups: usize,
    /// Long polls of `parked`.
    pub parked: usize,
    /// Partitions that the messages of one push go to, one after the other; 1 is a push to one partition.
    pub across: usize,
    /// Messages that are there before a `durable-pop` or `durable-push` begins, evenly in all partitions.
    pub prefill: usize,
    /// Payloads.
    pub size: Size,
    /// Which share of a payload's filler does not compress, 0 to 1.
    pub incompressible: f64,
    /// How `request-reply` and `churn` go about a round trip.
    pub style: Style,
    /// Makes payloads, arrivals and choices the same in every run.
    pub seed: u64,
    /// Cores to pin an executor to each; empty is one executor that is not pinned.
    pub cpus: Vec<usize>,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Pushes only; the queue is bounded so that it never fills (drop oldest where the broker has that).
    Push,
    /// Pops from a queue that is kept filled before it is measured.
    Pop,
    /// Pushed by some connections, popped by others; latency from due to popped.
    PushPop,
    /// A request to a worker and its reply.
    RequestReply,
    /// One producer, `groups` groups that each see every message; latency to each group's delivery.
    FanOut,
    /// `parked` idle long polls on a queue each, then one push to each: latency from push to delivery.
    Parked,
    /// As `RequestReply`, with a new inbox for every request.
    Churn,
    /// A third each of push and pop, request-reply, and fan-out, together.
    Mixed,
    /// Pushes to a log. After the measured part all of it is read back and checked.
    DurablePush,
    /// `prefill` messages are put there, and then popped as fast as they come. Ends when all are taken.
    DurablePop,
    /// Of each pair one connection pushes a message when the other one waits for it: one is under way at a time.
    DurablePipe,
}

impl Scenario {
    /// Whether it is one of durable queues alone.
    #[must_use]
    pub fn is_durable(self) -> bool {
        matches!(self, Self::DurablePush | Self::DurablePop | Self::DurablePipe)
    }
}

/// How a broker is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// HTTP, the ephemeral queues of any Queen broker.
    Queen,
    /// HTTP, the durable queues of any Queen broker.
    Durable,
    /// Core NATS.
    Nats,
    /// Redis lists: LPUSH and BRPOP.
    Redis,
}

/// Where the broker is.
#[derive(Clone, Debug)]
pub struct Target {
    /// As the user wrote it, for reports.
    pub url: String,
    /// What it resolved to.
    pub address: SocketAddr,
    /// The `Host` of HTTP.
    pub host: String,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// At a rate, whether or not the last one came back. Latency counts from when a request was due.
    Open {
        /// Messages (of `request-reply`: requests) due each second, of all connections together.
        rate_per_s: f64,
        /// How they are spaced.
        arrivals: Arrivals,
    },
    /// The next one when the last one came back. Blind to stalls: the requests that a stall delays are never due.
    Closed,
}

/// How due times are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly.
    Constant,
    /// Independently, as of many users who do not know of each other.
    Poisson,
}

/// How keys are chosen among many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Each as often as any other.
    Uniform,
    /// One after the other.
    Turns,
    /// By rank, with this exponent: the first ones far more often.
    Zipf(f64),
}

/// How many bytes a payload has, its quotes included. 43 of them are header and checksum, below which a plan is refused;
/// the rest is filler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// All the same.
    Fixed(usize),
    /// Evenly between two sizes, both included.
    Uniform {
        /// The smallest.
        min: usize,
        /// The largest.
        max: usize,
    },
    /// The lines of a file, one size in bytes each, in turns.
    File(PathBuf),
}

/// How a round trip goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Push and pop on both sides: four requests, as any Queen broker has it.
    PushPop,
    /// `request` and `exchange`: two requests.
    Verbs,
}
