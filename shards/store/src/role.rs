//! The store's task: it drives the durable log between the data shards and the database.
//!
//! Requests come over the port and go into the pure [`Log`]; what the log wants done goes to the [`Database`], what came
//! of it back into the log, and the log's answers out over the port. Declarations of ephemeral queues pass the log by,
//! and so does what operators have switched and granted ([`control`]).
//! Nothing here blocks, so the task may run in a data shard's executor.

mod control;
mod peers;

use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    path::Path,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use queen_fabric::{
    port::{Incoming, Port, Ticket},
    protocol::{
        Control, Switch,
        mesh::MeshProtocol,
        store::{Declaration, StoreAnswer, StoreAsk, StoreProtocol},
    },
    rt::Deadline,
    slice,
};
use queen_log::{
    engine::{Heard, Log, LogConfig, OpKey},
    id::Uuid,
    store::StoreFailure,
};
use queen_wire::mesh::{Message, Place, QueueName};

use self::{control::KnownControl, peers::Peers};
use crate::{
    StoreError,
    database::{Database, DatabaseConfig, DatabaseSeed, Health, Job, JobDone, Opened},
};

/// Parcels taken before others on the executor get their turn: some microseconds each.
const PARCELS_PER_TURN: usize = 64;

/// Jobs for declarations are numbered from here on, those of the log below. The very last is [`control::JOB`].
const DECLARATION_JOBS: u64 = 1 << 63;

/// Settings of the store's role.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Which database, and how it is reached.
    pub database: DatabaseConfig,
    /// Bytes of the newest messages that stay in memory.
    pub cache_bytes: usize,
    /// Durable requests that may be under way, those that wait for messages included.
    pub requests_max: usize,
    /// How long a request that does not wait for messages may take before it is answered that the store is away.
    pub patience: Duration,
    /// Payload bytes of one answer, at most.
    pub answer_bytes_max: usize,
    /// How often, at most, the database is asked for what other brokers have written while somebody waits.
    pub recheck_max: Duration,
    /// How often old messages are removed.
    pub retention_interval: Duration,
    /// How often a database that other brokers use too is read for what their operators have switched and granted.
    pub reconcile_interval: Duration,
    /// Whether there are tenants besides the default one.
    pub has_tenants: bool,
    /// Another number for every start.
    pub seed: u64,
}

/// The tenant of a broker without tenants.
const DEFAULT_TENANT: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// The shortest pause between two looks at what other brokers have written.
const RECHECK_MIN: Duration = Duration::from_millis(50);

/// The shortest interval between two looks at what their operators have switched and granted.
const RECONCILE_MIN: Duration = Duration::from_millis(1);

/// Told when the database is reached and when it is not any more.
pub type OnHealth = Box<dyn Fn(bool) + Send>;

/// The open store. Made at boot, then moved to the executor of its role; dropped, it finishes what it has, closes the
/// database and waits for that.
pub struct Store {
    seed: DatabaseSeed,
    /// None when the database could not be reached yet.
    control: Option<Control>,
    config: StoreConfig,
    on_health: OnHealth,
}

impl Store {
    /// Opens the database; `dir` is the data directory. With it come the declarations of ephemeral queues, unless the
    /// database cannot be reached yet: then data shards [ask](StoreAsk::Declarations) for them. Blocks.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(
        config: StoreConfig,
        dir: &Path,
        on_health: OnHealth,
    ) -> Result<(Self, Option<Vec<Declaration>>), StoreError> {
        let Opened { seed, declarations, control } = DatabaseSeed::open(&config.database, dir)?;
        Ok((Self { seed, control, config, on_health }, declarations))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

/// Serves the port until it is dropped; it never ends by itself. `peers` is its seat among the roles' lanes, where this
/// broker has peers.
pub async fn run(store: Store, port: Port<StoreProtocol>, peers: Option<Port<MeshProtocol>>) {
    let mut role = Role::new(store, port, peers);
    poll_fn(|cx| role.turn(cx)).await
}

/// The running role.
struct Role {
    database: Database,
    log: Log<Ticket>,
    port: Port<StoreProtocol>,
    started: Instant,
    deadline: Deadline,
    /// Durable requests that are unanswered, for their cancels.
    asked: HashMap<Ticket, OpKey>,
    declarations: Declarations,
    control: KnownControl,
    /// The maintenance switches, for pushes and pops, as they are in force.
    switches: Option<(bool, bool)>,
    peers: Option<Peers>,
    has_tenants: bool,
    /// How long what is asked about declarations and control may take.
    patience: Duration,
    health: Health,
    on_health: OnHealth,
}

/// What is asked about declarations.
#[derive(Default)]
struct Declarations {
    /// Who is answered by a job, and since when they wait.
    jobs: HashMap<u64, (Ticket, Instant)>,
    last_job: u64,
    /// Shards that wait for all of theirs.
    waiting: Vec<Ticket>,
    /// The job that loads them.
    loading: Option<u64>,
}

impl Role {
    fn new(store: Store, port: Port<StoreProtocol>, peers: Option<Port<MeshProtocol>>) -> Self {
        let Store { seed, control, config, on_health } = store;
        let database = seed.start();
        let recheck_us = database.is_shared().then(|| {
            let most_us = micros(config.recheck_max).max(1000);
            (micros(RECHECK_MIN).min(most_us), most_us)
        });
        let mut log = Log::new(LogConfig {
            cache_bytes: config.cache_bytes,
            commits_max: database.commits_in_parallel(),
            ops_max: config.requests_max,
            patience_us: micros(config.patience),
            recheck_us,
            tells: recheck_us.is_some() && peers.is_some(),
            answer_bytes_max: config.answer_bytes_max,
            seed: config.seed,
        });
        log.retain_every(micros(config.retention_interval), 0);
        let reconcile_interval = config.reconcile_interval.max(RECONCILE_MIN);
        let control = KnownControl::new(control, database.is_shared().then_some(reconcile_interval));
        let health = database.health();
        on_health(health == Health::Connected);
        Self {
            database,
            log,
            port,
            started: Instant::now(),
            deadline: Deadline::new(),
            asked: HashMap::new(),
            declarations: Declarations::default(),
            control,
            switches: None,
            peers: peers.map(Peers::new),
            has_tenants: config.has_tenants,
            patience: config.patience,
            health,
            on_health,
        }
    }

    /// Moves what there is, every way, up to a turn's worth.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Everything is asked before it sleeps, so that all know whom to wake.
        let mut more = false;
        if let Poll::Ready(outcomes) = self.database.poll_done(cx) {
            more = true;
            for (job, outcome) in outcomes {
                self.done(job, outcome);
            }
        }
        self.look_at_health();
        let mut parcels = 0;
        while parcels < PARCELS_PER_TURN
            && let Poll::Ready(incoming) = self.port.poll_incoming(cx)
        {
            self.take(incoming);
            parcels += 1;
        }
        more |= parcels == PARCELS_PER_TURN;
        self.apply_switches();
        self.log.turn(self.now_us());
        for (job, work) in self.log.take_work() {
            self.database.start(job, Job::Log(work));
        }
        for (ticket, answer) in self.log.take_answers() {
            self.asked.remove(&ticket);
            self.port.answer(ticket, StoreAnswer::Log(Box::new(answer)));
        }
        for (partition, error) in self.log.take_damaged() {
            tracing::error!(%partition, %error, "a segment cannot be read; its messages are passed over");
        }
        for partition in self.log.take_lost() {
            tracing::error!(%partition, "the store has lost messages that it had committed; the log goes on without them");
        }
        more |= self.talk(cx);
        if self.control.due().is_some_and(|due| due <= Instant::now()) {
            // What nobody was told of, or what was lost on its way, is found now at the latest.
            self.control.look_again(&self.database);
            self.log.look_again(self.now_us());
            more = true;
        }
        let give_up = self.give_up();
        let log_time = self.log.next_time_us().map(|at_us| self.started + Duration::from_micros(at_us));
        let hints = self.peers.as_ref().and_then(Peers::due);
        self.deadline.set(log_time.into_iter().chain(self.control.due()).chain(hints).chain(give_up).min());
        more |= self.deadline.poll(cx).is_ready();
        if more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Tells peers what there is to tell, and takes in what they have said. True if that may be more.
    fn talk(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(peers) = &mut self.peers else { return false };
        for news in self.log.take_news() {
            peers.tell(news);
        }
        let mut heard = 0;
        while heard < PARCELS_PER_TURN
            && let Some(peers) = &mut self.peers
            && let Poll::Ready(message) = peers.poll(cx)
        {
            self.heard(message);
            heard += 1;
        }
        heard > 0
    }

    fn heard(&mut self, message: Message) {
        match message {
            Message::Available(places) => self.heard_of(Heard::Available, places.into_iter().map(Place::queue_name)),
            Message::Dirty(candidates) => {
                let queues = candidates.into_iter().map(|candidate| candidate.place.queue_name());
                self.heard_of(Heard::Dirty, queues);
            }
            Message::ConfigSet(queue) | Message::ConfigDelete(queue) => self.heard_of(Heard::Changed, [queue]),
            Message::Maintenance(on) => self.heard_of_switch(Switch::PushMaintenance, on),
            Message::PopMaintenance(on) => self.heard_of_switch(Switch::PopMaintenance, on),
            Message::Heartbeat | Message::Leaving | Message::EphemeralAdmin(..) => {}
        }
    }

    fn heard_of(&mut self, what: Heard, queues: impl IntoIterator<Item = QueueName>) {
        // Who names no tenant means them all, which is the default one where there are no others.
        let all = (!self.has_tenants).then_some(DEFAULT_TENANT);
        let named = queues.into_iter().map(|name| (name.tenant.map(Uuid).or(all), Arc::from(name.queue)));
        let now_us = self.now_us();
        self.log.heard(what, named, now_us);
    }

    /// With a store of its own, a broker's switches are its own too.
    fn heard_of_switch(&mut self, switch: Switch, on: bool) {
        if self.database.is_shared() {
            self.control.heard(switch, on, &self.database, &self.port);
        }
    }

    /// Puts the maintenance switches in force, and tells peers that use the same store where it has them.
    fn apply_switches(&mut self) {
        if let Some(confirmed) = self.control.take_confirmed()
            && self.database.is_shared()
            && let Some(peers) = &mut self.peers
        {
            peers.switched(confirmed);
        }
        let Some(control) = self.control.known() else { return };
        let now = (control.push_maintenance, control.pop_maintenance);
        if self.switches == Some(now) {
            return;
        }
        let before = self.switches.replace(now).unwrap_or_default();
        if before.0 != now.0 {
            tracing::warn!(on = now.0, "push maintenance: durable pushes are refused while it is on");
        }
        if before.1 != now.1 {
            tracing::warn!(on = now.1, "pop maintenance: durable pops get nothing while it is on");
            self.log.pause_pops(now.1, self.now_us());
        }
    }

    /// Answers those who have waited for long enough, and says when the next have.
    fn give_up(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if let Some(since) = now.checked_sub(self.patience) {
            self.control.give_up(since, &self.port);
            let late = |(&job, &(_, asked)): (&u64, &(Ticket, Instant))| (asked <= since).then_some(job);
            for job in self.declarations.jobs.iter().filter_map(late).collect::<Vec<_>>() {
                let silent = StoreFailure::Unavailable("it does not answer".into());
                self.answer_job(job, StoreAnswer::Unavailable(silent.to_string().into()));
            }
        }
        let declarations = self.declarations.jobs.values().map(|&(_, asked)| asked).min();
        let first = self.control.waiting_since().into_iter().chain(declarations).min();
        first.map(|since| since + self.patience)
    }

    fn now_us(&self) -> u64 {
        micros(self.started.elapsed())
    }

    fn take(&mut self, incoming: Incoming<StoreProtocol>) {
        match incoming {
            Incoming::Ask { ticket, ask } => match ask {
                StoreAsk::Log(request) => {
                    let key = self.log.submit(ticket, *request, self.now_us());
                    self.asked.insert(ticket, key);
                }
                StoreAsk::Declare(declaration) => self.ask_about_declarations(ticket, Job::Declare(declaration)),
                StoreAsk::Remove(key) => self.ask_about_declarations(ticket, Job::Remove(key)),
                StoreAsk::Declarations => {
                    self.declarations.waiting.push(ticket);
                    self.load_declarations();
                }
                StoreAsk::Control(ask) => self.control.ask(ticket, *ask, &self.database),
                StoreAsk::WatchControl { seen } => self.control.watch(ticket, seen, &self.port),
            },
            // A declaration may be in a commit already: it is answered like any other.
            Incoming::Cancel { ticket } => match self.asked.get(&ticket) {
                Some(&key) => self.log.cancel(key, self.now_us()),
                None => self.control.cancel(ticket, &self.port),
            },
            Incoming::Tell { tell, .. } => match tell {},
            Incoming::Orphan { .. } => unreachable!("the store asks nobody"),
        }
    }

    fn done(&mut self, job: u64, outcome: Result<JobDone, StoreFailure>) {
        if job < DECLARATION_JOBS {
            let outcome = outcome.map(|done| match done {
                JobDone::Log(done) => *done,
                other => panic!("a job of the log was answered with {other:?}"),
            });
            self.log.done(job, outcome, self.now_us());
            return;
        }
        if job == control::JOB {
            self.control.done(outcome, &self.database, &self.port);
            return;
        }
        match outcome {
            Ok(JobDone::Declarations(all)) => self.declarations_loaded(&all),
            Ok(JobDone::Declared { .. } | JobDone::Removed { .. }) if !self.declarations.jobs.contains_key(&job) => {
                tracing::warn!("a declaration was kept or forgotten after it was answered that the database is away");
            }
            Ok(JobDone::Declared { updated_at_ms }) => self.answer_job(job, StoreAnswer::Done { updated_at_ms }),
            Ok(JobDone::Removed { declared, updated_at_ms }) => {
                self.answer_job(job, StoreAnswer::Removed { declared, updated_at_ms });
            }
            Ok(other @ (JobDone::Log(_) | JobDone::Control { .. })) => {
                panic!("a job about declarations was answered with {other:?}")
            }
            Err(failure) if self.declarations.jobs.contains_key(&job) => {
                tracing::error!("a declaration was not kept: {failure}");
                self.answer_job(job, StoreAnswer::Unavailable(failure.to_string().into()));
            }
            // Tried again when the database is back.
            Err(_) if self.declarations.loading == Some(job) => self.declarations.loading = None,
            Err(_) => {}
        }
    }

    fn ask_about_declarations(&mut self, ticket: Ticket, job: Job) {
        self.declarations.last_job += 1;
        let number = DECLARATION_JOBS + self.declarations.last_job;
        self.declarations.jobs.insert(number, (ticket, Instant::now()));
        self.database.start(number, job);
    }

    fn answer_job(&mut self, job: u64, answer: StoreAnswer) {
        let (ticket, _) = self.declarations.jobs.remove(&job).expect("a job that somebody waits for");
        self.port.answer(ticket, answer);
    }

    fn load_declarations(&mut self) {
        if self.health == Health::Connected
            && !self.declarations.waiting.is_empty()
            && self.declarations.loading.is_none()
        {
            self.declarations.last_job += 1;
            let job = DECLARATION_JOBS + self.declarations.last_job;
            self.declarations.loading = Some(job);
            self.database.start(job, Job::Declarations);
        }
    }

    /// Answers every shard with its slice.
    fn declarations_loaded(&mut self, all: &[Declaration]) {
        self.declarations.loading = None;
        // The port has a place for every data shard and one for the store.
        let shards = self.port.shards() - 1;
        for ticket in std::mem::take(&mut self.declarations.waiting) {
            let owned = |declared: &&Declaration| {
                slice::owner(slice::slice(&declared.tenant, &declared.queue), shards) == ticket.from
            };
            let declarations = all.iter().filter(owned).cloned().collect();
            self.port.answer(ticket, StoreAnswer::Declarations(declarations));
        }
    }

    fn look_at_health(&mut self) {
        let health = self.database.health();
        if health == self.health {
            return;
        }
        match (&self.health, &health) {
            (Health::Connected, Health::Disconnected(why)) => tracing::error!("the database is away: {why}"),
            (Health::Disconnected(_), Health::Connected) => tracing::info!("the database is back"),
            _ => {}
        }
        let connected = health == Health::Connected;
        self.health = health;
        (self.on_health)(connected);
        if connected {
            self.log.store_is_back(self.now_us());
            self.load_declarations();
            self.control.look_again(&self.database);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
