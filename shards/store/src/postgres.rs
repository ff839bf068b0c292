//! PostgreSQL: batches on lanes, everything else on a few shared connections, all on the executor of the store's role.
//!
//! ```text
//! config    where it is                        session   one connection and its statements
//! tls       encryption                         schema    migrations
//! socket    the executor's streams             lane      connections that commit
//! commit    a batch as one statement           load, create, admin, retain, read, declarations, control: the rest
//! ```
//!
//! A connection that is lost is made again at once. Only when that fails the server counts as away: then work is refused
//! at once, but for batches, which wait a little or until their fate is known, and one task tries again, at first after
//! 50 ms and at last every 2 s. It makes or checks the schema and writes a row before it says that the server is back.

mod admin;
mod append;
mod columns;
mod commit;
mod config;
mod control;
mod create;
mod declarations;
mod housekeeping;
mod lane;
mod load;
mod read;
mod retain;
mod schema;
mod session;
mod socket;
mod tls;
mod values;

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use queen_fabric::{
    protocol::{Control, store::Declaration},
    rt::{self, Executor, within},
};
use queen_log::store::{Admin, Done, StoreFailure, Work};
use tokio_rustls::rustls::ClientConfig;

pub use self::{
    config::{PostgresConfig, PostgresConfigError, PostgresOptions, PostgresServer, SslMode, UnknownSslMode},
    tls::TlsError,
};
use self::{
    lane::Lanes,
    schema::SchemaTrouble,
    session::{Purpose, Session, Trouble},
};
use crate::{
    StoreError,
    database::{Health, Job, JobDone},
    outcomes::Outcomes,
};

/// How long boot waits for a server.
const BOOT_PATIENCE: Duration = Duration::from_secs(10);
/// Between the first tries after the server went away; twice as long each time.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// And at most.
const RETRY_MOST: Duration = Duration::from_secs(2);
/// Connections that load: two, so that a long one does not hold up all others.
const LOADERS: usize = 2;
/// How often work that can be done twice is tried when its connection is lost, or it was in conflict.
const TRIES_MAX: u32 = 5;
/// How often what nobody needs any more is removed.
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// What a broker starts with.
type Held = (Vec<Declaration>, Control);

/// What is needed to start.
pub(crate) struct Seed {
    config: PostgresConfig,
    tls: Arc<ClientConfig>,
    /// Declarations in the data directory, to be taken over once.
    taken_over: Vec<Declaration>,
    /// Why the server could not be used at boot; none when it could.
    away: Option<Box<str>>,
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed").field("config", &self.config).field("away", &self.away).finish_non_exhaustive()
    }
}

impl Seed {
    /// Connects once, if the server is there: makes the schema, and loads the declarations and what operators have
    /// switched and granted.
    ///
    /// # Errors
    /// What no waiting would help with.
    pub(crate) fn open(
        config: &PostgresConfig,
        taken_over: Vec<Declaration>,
    ) -> Result<(Self, Option<Held>), StoreError> {
        let tls = tls::client_config(config.ssl_mode, config.ssl_root_cert.as_deref())?;
        let seed = Self { config: config.clone(), tls, taken_over, away: None };
        let (at_boot, at_boot_tls, taken_over) = (config.clone(), Arc::clone(&seed.tls), seed.taken_over.clone());
        let executor = Executor::spawn("queen-store-boot", None, Duration::ZERO, move || async move {
            let booted = within(BOOT_PATIENCE, boot(&at_boot, &at_boot_tls, &taken_over)).await;
            booted.unwrap_or_else(|| Err(Trouble::Away("it takes too long".into()).into()))
        });
        let booted = executor?.join()?;
        match booted {
            Ok(held) => {
                tracing::info!("PostgreSQL at {config}");
                Ok((seed, Some(held)))
            }
            Err(SchemaTrouble::Server(trouble)) => {
                tracing::error!("PostgreSQL at {config} cannot be used yet, which is tried again: {trouble}");
                Ok((Self { away: Some(trouble.to_string().into()), ..seed }, None))
            }
            Err(SchemaTrouble::Newer(version)) => {
                Err(StoreError::NewerSchema { server: config.to_string(), version, known: schema::VERSION })
            }
            Err(SchemaTrouble::Older(version)) => {
                Err(StoreError::OlderSchema { server: config.to_string(), version, known: schema::VERSION })
            }
        }
    }
}

async fn boot(
    config: &PostgresConfig,
    tls: &Arc<ClientConfig>,
    taken_over: &[Declaration],
) -> Result<Held, SchemaTrouble> {
    let session = Session::open(config, tls, Purpose::Change).await.map_err(Trouble::Away)?;
    schema::prepare(&session, config.apply_schema).await?;
    declarations::take_over(&session, taken_over).await?;
    Ok((declarations::load(&session).await?, control::load(&session).await?))
}

/// PostgreSQL, at work on this executor.
pub(crate) struct Postgres(Rc<Server>);

/// What its tasks share.
struct Server {
    config: PostgresConfig,
    tls: Arc<ClientConfig>,
    taken_over: Vec<Declaration>,
    outcomes: Outcomes,
    lanes: RefCell<Lanes>,
    changer: Link,
    loaders: [Link; LOADERS],
    reader: Link,
    /// Which loader is next.
    turn: Cell<usize>,
    /// Whether a task sees to it that the server comes back.
    looking: Cell<bool>,
    /// Who waits for it to come back.
    waiting: RefCell<Vec<Waker>>,
}

impl Postgres {
    pub(crate) fn start(seed: Seed) -> Self {
        let Seed { config, tls, taken_over, away } = seed;
        let was_away = away.is_some();
        let health = away.map_or(Health::Connected, Health::Disconnected);
        let server = Rc::new(Server {
            config,
            tls,
            taken_over,
            outcomes: Outcomes::new(health),
            lanes: RefCell::default(),
            changer: Link::new(Purpose::Change),
            loaders: std::array::from_fn(|_| Link::new(Purpose::Load)),
            reader: Link::new(Purpose::Read),
            turn: Cell::new(0),
            looking: Cell::new(false),
            waiting: RefCell::default(),
        });
        rt::spawn_local(keep_house(Rc::downgrade(&server))).detach();
        if was_away {
            server.suspect();
        }
        Self(server)
    }

    pub(crate) fn commits_in_parallel(&self) -> usize {
        self.0.config.pool_size
    }

    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.0.outcomes
    }

    pub(crate) fn start_job(&self, number: u64, job: Job) {
        match job {
            Job::Log(Work::Commit(batch)) => lane::start(&self.0, number, batch),
            job => {
                let server = Rc::clone(&self.0);
                rt::spawn_local(async move {
                    let outcome = server.work(job).await;
                    server.outcomes.deliver([(number, outcome)]);
                })
                .detach();
            }
        }
    }
}

impl Server {
    /// Does a job that is no batch. All of them can be done twice: a connection that is lost on the way costs a try.
    async fn work(self: &Rc<Self>, job: Job) -> Result<JobDone, StoreFailure> {
        let link = match &job {
            Job::Log(Work::Load(_)) => {
                let turn = self.turn.get();
                self.turn.set((turn + 1) % LOADERS);
                &self.loaders[turn]
            }
            Job::Log(Work::Read(_)) => &self.reader,
            _ => &self.changer,
        };
        let mut tries = 0;
        loop {
            let session = link.session(self).await.map_err(StoreFailure::Unavailable)?;
            tries += 1;
            match do_job(&session, &job).await {
                Ok(done) => {
                    if let Job::Log(Work::Admin(Admin::Delete { .. })) = &job {
                        rt::spawn_local(housekeeping::sweep(session)).detach();
                    }
                    return Ok(done);
                }
                Err(Trouble::Refused(reason)) => return Err(StoreFailure::Refused(reason)),
                Err(Trouble::Conflict | Trouble::Gone(_)) if tries < TRIES_MAX => {}
                Err(trouble) => {
                    self.suspect();
                    return Err(StoreFailure::Unavailable(trouble.to_string().into()));
                }
            }
        }
    }

    /// A new connection, unless the server is away. When it can't be had, the server is.
    async fn connect(self: &Rc<Self>, purpose: Purpose) -> Result<Rc<Session>, Box<str>> {
        if let Health::Disconnected(reason) = self.outcomes.health() {
            return Err(reason);
        }
        let opened = Session::open(&self.config, &self.tls, purpose).await;
        if let Err(reason) = &opened {
            self.is_away(reason.clone());
            self.suspect();
        }
        opened
    }

    fn is_away(&self, reason: Box<str>) {
        self.outcomes.set_health(Health::Disconnected(reason));
    }

    /// Has it looked whether the server can be used, until it can.
    fn suspect(self: &Rc<Self>) {
        if !self.looking.replace(true) {
            rt::spawn_local(look(Rc::downgrade(self))).detach();
        }
    }

    /// Whether it can be used now. Leaves the connection to those who change things.
    async fn probe(&self) -> Result<(), Box<str>> {
        let session = Session::open(&self.config, &self.tls, Purpose::Change).await?;
        schema::prepare(&session, self.config.apply_schema).await.map_err(|trouble| match trouble {
            SchemaTrouble::Server(trouble) => trouble.to_string().into(),
            SchemaTrouble::Newer(version) => {
                format!("a newer broker made its schema, version {version}").into_boxed_str()
            }
            SchemaTrouble::Older(version) => {
                format!("its schema is of version {version} and may not be changed").into()
            }
        })?;
        declarations::take_over(&session, &self.taken_over).await.map_err(|trouble| trouble.to_string())?;
        self.changer.session.replace(Some(session));
        Ok(())
    }

    /// Ready when nobody looks, because the server can be used.
    async fn comes_back(&self) {
        std::future::poll_fn(|cx| {
            if !self.looking.get() {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// The same, if that is before `give_up`.
    async fn returns(&self, give_up: Instant) -> Result<(), ()> {
        let patience = give_up.saturating_duration_since(Instant::now());
        if patience.is_zero() {
            return Err(());
        }
        within(patience, self.comes_back()).await.ok_or(())
    }
}

/// Looks for the server until it can be used.
async fn look(server: Weak<Server>) {
    let mut pause = RETRY_FIRST;
    while let Some(server) = server.upgrade() {
        match server.probe().await {
            Ok(()) => {
                server.outcomes.set_health(Health::Connected);
                server.looking.set(false);
                server.waiting.take().into_iter().for_each(Waker::wake);
                return;
            }
            Err(reason) => server.is_away(reason),
        }
        drop(server);
        rt::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MOST);
    }
}

/// Removes what nobody needs any more, for as long as there is somebody.
async fn keep_house(server: Weak<Server>) {
    loop {
        rt::sleep(HOUSEKEEPING).await;
        let Some(server) = server.upgrade() else { return };
        if let Ok(session) = server.changer.session(&server).await {
            housekeeping::sweep(session).await;
        }
    }
}

async fn do_job(session: &Session, job: &Job) -> Result<JobDone, Trouble> {
    let done = match job {
        Job::Log(Work::Load(load)) => Done::Loaded(load::load(session, load).await?),
        Job::Log(Work::Create(creates)) => Done::Created(create::create(session, creates).await?),
        Job::Log(Work::Admin(admin)) => Done::Admin(admin::admin(session, admin).await?),
        Job::Log(Work::Read(read)) => Done::Read(read::read(session, read).await?),
        Job::Log(Work::Commit(_)) => unreachable!("lanes do these"),
        Job::Declare(declaration) => return declarations::declare(session, declaration).await,
        Job::Remove(key) => return declarations::remove(session, key).await,
        Job::Declarations => return declarations::load(session).await.map(JobDone::Declarations),
        Job::Control(ask) => return control::control(session, ask).await,
    };
    Ok(JobDone::Log(Box::new(done)))
}

/// A connection that several jobs share, made when the first needs it and again when it is lost.
struct Link {
    purpose: Purpose,
    session: RefCell<Option<Rc<Session>>>,
    /// Whether one of them makes it.
    connecting: Cell<bool>,
    /// The others, meanwhile.
    waiting: RefCell<Vec<Waker>>,
    /// Why it could not be made the last time.
    failure: RefCell<Box<str>>,
}

impl Link {
    fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            session: RefCell::default(),
            connecting: Cell::new(false),
            waiting: RefCell::default(),
            failure: RefCell::default(),
        }
    }

    async fn session(&self, server: &Rc<Server>) -> Result<Rc<Session>, Box<str>> {
        if let Some(session) = self.open_session() {
            return Ok(session);
        }
        if !self.connecting.replace(true) {
            let opened = server.connect(self.purpose).await;
            match &opened {
                Ok(session) => *self.session.borrow_mut() = Some(Rc::clone(session)),
                Err(reason) => self.failure.borrow_mut().clone_from(reason),
            }
            self.connecting.set(false);
            self.waiting.take().into_iter().for_each(Waker::wake);
            return opened;
        }
        std::future::poll_fn(|cx: &mut Context<'_>| {
            if !self.connecting.get() {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
        self.open_session().ok_or_else(|| self.failure.borrow().clone())
    }

    fn open_session(&self) -> Option<Rc<Session>> {
        self.session.borrow().as_ref().filter(|session| !session.is_closed()).cloned()
    }
}
