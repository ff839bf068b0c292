//! What is broken when: a schedule that follows from a seed, carried out while the load goes on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use tempfile::TempDir;

use crate::{
    Failed,
    arguments::{Arguments, Common, Mode, Store},
    audit,
    broker::Broker,
    clock,
    judge::{Broken, Verdict, Violation, judge},
    load::{Load, Shape},
    postgres::Postgres,
    random::Random,
};

/// The name of who draws the faults.
const FAULTS: u64 = 0xfa17;

/// From one kill to the next, in milliseconds: from while the broker recovers to long under load.
const KILL_AFTER_MS: (u64, u64) = (50, 1_500);

/// From one cut to the next.
const CUT_AFTER_MS: (u64, u64) = (5, 120);

const BROKEN: Shape = Shape { partitions: 6, producers: 4, consumers: [3, 2], has_auto_ack: true };

/// Four consumers at each of two brokers, all of one group, on one partition.
const SHARED: Shape = Shape { partitions: 1, producers: 2, consumers: [4, 0], has_auto_ack: false };

/// Carries out what is asked for, and judges it.
pub fn run(arguments: &Arguments) -> Result<Verdict, Failed> {
    let scene = Scene::new(arguments.mode.common(), arguments.mode.store())?;
    let words = match &arguments.mode {
        Mode::Kill { store, rounds, .. } => format!("kill --store {store:?} --rounds {rounds}").to_lowercase(),
        Mode::Terminate { cuts, .. } => format!("terminate --cuts {cuts}"),
        Mode::TwoBrokers { seconds, clocks_apart, .. } => {
            format!("two-brokers --seconds {seconds} --clocks-apart {clocks_apart}")
        }
    };
    let run = format!("{words} --seed {}", scene.seed);
    println!("{run}");
    let verdict = match &arguments.mode {
        Mode::Kill { rounds, .. } => kill(&scene, *rounds),
        Mode::Terminate { cuts, .. } => terminate(&scene, *cuts),
        Mode::TwoBrokers { seconds, clocks_apart, .. } => {
            two_brokers(&scene, Duration::from_secs((*seconds).into()), i64::from(*clocks_apart))
        }
    };
    if arguments.mode.common().keep {
        println!("kept: {}", scene.directory.keep().display());
    }
    Ok(Verdict { run, ..verdict? })
}

/// Where a run takes place.
struct Scene<'a> {
    common: &'a Common,
    seed: u64,
    /// Before the directory that it is in, so that it ends first.
    postgres: Option<Postgres>,
    directory: TempDir,
    interrupted: Arc<AtomicBool>,
}

impl<'a> Scene<'a> {
    fn new(common: &'a Common, store: Store) -> Result<Self, Failed> {
        let failed = |error: std::io::Error| Failed(error.to_string());
        let directory = TempDir::with_prefix("queen-durability-").map_err(failed)?;
        // PostgreSQL's own user has to get through.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).map_err(failed)?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&interrupted)).map_err(failed)?;
        }
        let postgres = match store {
            Store::Postgres => Some(Postgres::start(directory.path())?),
            Store::Sqlite => None,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = common.seed.unwrap_or(now.as_nanos() as u64 % 1_000_000_000);
        Ok(Self { common, seed, postgres, directory, interrupted })
    }

    fn broker(&self, name: &str) -> Result<Broker, Failed> {
        self.broker_at(name, 0)
    }

    /// A broker whose clock is so many seconds ahead.
    fn broker_at(&self, name: &str, ahead_s: i64) -> Result<Broker, Failed> {
        let directory = self.directory.path().join(name);
        let mut settings = self.postgres.as_ref().map(Postgres::settings).unwrap_or_default();
        settings.extend(clock::settings(ahead_s)?);
        Broker::start(&self.common.broker, &directory, settings)
    }

    fn random(&self) -> Random {
        Random::new(self.seed, FAULTS)
    }

    /// Waits, unless the run is interrupted meanwhile.
    fn wait(&self, time: Duration) -> Result<(), Failed> {
        let since = Instant::now();
        while since.elapsed() < time {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Failed("it was interrupted".into()));
            }
            thread::sleep((time - since.elapsed()).min(Duration::from_millis(50)));
        }
        Ok(())
    }
}

fn kill(scene: &Scene<'_>, rounds: u32) -> Result<Verdict, Failed> {
    let mut random = scene.random();
    let mut broker = scene.broker("broker")?;
    let load = Load::start(&[broker.address()], scene.seed, BROKEN)?;
    for round in 1..=rounds {
        scene.wait(Duration::from_millis(random.within(KILL_AFTER_MS.0, KILL_AFTER_MS.1)))?;
        broker.kill_and_start()?;
        tell(round, rounds, "killed", &load);
    }
    let history = load.finish()?;
    // What is read below is then what the store holds, and nothing else.
    broker.kill_and_start()?;
    let log = audit::read(broker.address(), BROKEN.partitions, &history)?;
    Ok(must_have_been_tried(judge(&history, &log)))
}

fn terminate(scene: &Scene<'_>, cuts: u32) -> Result<Verdict, Failed> {
    let mut random = scene.random();
    let Some(postgres) = &scene.postgres else { return Err(Failed("there is no PostgreSQL to cut".into())) };
    let mut broker = scene.broker("broker")?;
    let mut cutter = postgres.cutter()?;
    let load = Load::start(&[broker.address()], scene.seed, BROKEN)?;
    let mut cut = 0;
    while cut < cuts {
        scene.wait(Duration::from_millis(random.within(CUT_AFTER_MS.0, CUT_AFTER_MS.1)))?;
        // None is there when the broker has just lost all of its connections.
        if cutter.cut(random.next())? {
            cut += 1;
            tell(cut, cuts, "cut", &load);
        }
        broker.must_run()?;
    }
    let history = load.finish()?;
    broker.must_run()?;
    let log = audit::read(broker.address(), BROKEN.partitions, &history)?;
    Ok(must_have_been_tried(judge(&history, &log)))
}

fn two_brokers(scene: &Scene<'_>, time: Duration, apart_s: i64) -> Result<Verdict, Failed> {
    let behind_s = apart_s / 2;
    let brokers = [scene.broker_at("first", -behind_s)?, scene.broker_at("second", apart_s - behind_s)?];
    let load = Load::start(&brokers.each_ref().map(Broker::address), scene.seed, SHARED)?;
    scene.wait(time)?;
    let history = load.finish()?;
    let log = audit::read(brokers[0].address(), SHARED.partitions, &history)?;
    let mut verdict = judge(&history, &log);
    let deadlocks = scene.postgres.as_ref().map_or(0, Postgres::deadlocks);
    if deadlocks > 0 {
        let text = format!("PostgreSQL has found {deadlocks} deadlocks");
        verdict.violations.push(Violation { broken: Broken::Refused, text });
    }
    verdict.figures.push(("deadlocks", deadlocks as u64));
    Ok(must_have_been_tried(verdict))
}

/// A run in which next to nothing happened proves nothing.
fn must_have_been_tried(mut verdict: Verdict) -> Verdict {
    const MESSAGES_MIN: u64 = 200;
    let messages = verdict.figures.iter().find(|(name, _)| *name == "messages").map_or(0, |(_, count)| *count);
    if messages < MESSAGES_MIN {
        let text = format!("{messages} messages are too few to tell");
        verdict.violations.push(Violation { broken: Broken::Refused, text });
    }
    verdict
}

/// Tells how far it is, ten times in a run.
fn tell(number: u32, of: u32, what: &str, load: &Load) {
    if number.is_multiple_of(of.div_ceil(10)) {
        println!("{what} {number} of {of}, {} pushes answered", load.pushed());
    }
}
