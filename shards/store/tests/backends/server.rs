//! What only PostgreSQL can do: lose connections, be away, be shared, be spoken to in several ways.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use queen_fabric::rt;
use queen_log::{
    row::PartitionRow,
    store::{Batch, CursorWrite, Done, Load, Loaded, StoreFailure, Work},
};
use queen_store::{
    Database, DatabaseConfig, DatabaseSeed, Health, Job, JobDone, Opened, PostgresConfig, PostgresOptions, SslMode,
    StoreError,
};

use crate::{
    cluster::{TestDatabase, options},
    rig::{self, Rig, append, cursor},
};

fn open(config: PostgresConfig) -> Opened {
    DatabaseSeed::open(&DatabaseConfig::Postgres(Box::new(config)), Path::new("/nonexistent")).expect("it opens")
}

fn rig_on(database: Database, beside: &TestDatabase) -> Rig {
    let beside = beside.clone();
    Rig::new(database, Box::new(move |sql| beside.sql(sql)), "queen.")
}

/// Commits and reads once.
async fn works(rig: &Rig, name: &str) {
    let partition = rig.partition(name).await;
    assert!(rig.append(&partition, 0, 3).await.is_some());
    assert_eq!(rig.partition_now(partition.id).await.map(|row| row.next), Some(3));
}

/// The broker's connections.
const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid)
    WHERE a.datname = current_database() AND a.application_name LIKE 'queen %'";

fn works_with(database: &TestDatabase, config: PostgresConfig, name: &'static str, encrypted: bool) {
    // Those of the broker before are closed when the server has seen it.
    while database.sql(CONNECTIONS) != "0" {
        std::thread::sleep(Duration::from_millis(20));
    }
    let Opened { seed, declarations, .. } = open(config);
    assert!(declarations.is_some(), "{seed:?}");
    let beside = database.clone();
    rig::run(async move || {
        let rig = rig_on(seed.start(), &beside);
        works(&rig, name).await;
        assert!(rig.count(CONNECTIONS) > 0);
        assert_eq!(rig.count(&format!("{CONNECTIONS} AND s.ssl <> {encrypted}")), 0, "{name}");
    });
}

/// Ends the broker's connections that commit, for as long as it lives.
struct Cutter {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u32>>,
}

impl Cutter {
    fn start(database: &TestDatabase) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (database, stopped) = (database.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut cut = 0;
            while !stopped.load(Ordering::Relaxed) {
                // One that is busy, so that it is cut in the middle of something.
                let ended = database.sql(
                    "SELECT count(pg_terminate_backend(pid)) FROM (
                        SELECT pid FROM pg_stat_activity WHERE datname = current_database()
                        AND application_name = 'queen commit' AND state = 'active' ORDER BY random() LIMIT 1) a",
                );
                cut += ended.parse::<u32>().expect("a number");
            }
            cut
        });
        Self { stop, thread: Some(thread) }
    }

    fn finish(mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it was started").join().expect("it ends")
    }
}

#[test]
fn every_batch_is_what_its_outcome_says_whatever_connection_is_cut() {
    const CUTS: u32 = 100;
    let database = TestDatabase::new();
    let Opened { seed, .. } = open(database.config());
    let beside = database.clone();
    rig::run(async move || {
        let rig = rig_on(seed.start(), &beside);
        let queue = rig.queue("q").await;
        let creates = (0..4).map(|at| rig::partition(queue.id, &format!("p{at}"))).collect();
        let mut partitions: Vec<PartitionRow> = Vec::new();
        for created in rig.create(creates).await {
            let queen_log::store::Created::Partition(row) = created else { panic!("a partition") };
            partitions.push(row);
        }
        let mut heads = vec![0_u64; partitions.len()];
        let mut written = 0;
        let mut cut = 0;
        while cut < CUTS {
            let cutter = Cutter::start(&beside);
            for _ in 0..100 {
                let jobs: Vec<_> = partitions
                    .iter()
                    .zip(&heads)
                    .map(|(partition, &head)| {
                        let write = CursorWrite {
                            expect: head.checked_sub(1).map(u64::cast_signed),
                            version: head.cast_signed(),
                            needs_append: Some(0),
                            ..cursor(partition, "g", head)
                        };
                        let mut large = append(partition, head, head + 1);
                        large.data = vec![7; 100_000];
                        let batch =
                            Batch { behind: None, appends: vec![large], cursors: vec![write], dead: Vec::new() };
                        rig.start(Job::Log(Work::Commit(batch)))
                    })
                    .collect();
                for (job, head) in jobs.into_iter().zip(&mut heads) {
                    let outcome = rig.outcome(job).await;
                    let Ok(JobDone::Log(done)) = &outcome else { panic!("{outcome:?}") };
                    let Done::Committed(committed) = &**done else { panic!("{done:?}") };
                    // Nobody else writes: it is written, and once.
                    assert!(committed.stamps[0].is_some() && committed.cursors[0], "{committed:?} at {head}");
                    *head += 1;
                    written += 1;
                }
            }
            cut += cutter.finish();
            for (partition, &head) in partitions.iter().zip(&heads) {
                let now = rig.partition_now(partition.id).await.expect("there");
                let cursor = rig.cursor_now(partition.id, "g").await.expect("there");
                assert_eq!((now.next, cursor.version), (head, head.cast_signed() - 1));
            }
        }
        assert_eq!(rig.count("SELECT count(*) FROM @segment"), written);
        assert_eq!(rig.database.health(), Health::Connected);
        println!("{written} batches, {cut} connections cut");
    });
}

#[test]
fn segments_sent_behind_others_are_written_once_whatever_connection_is_cut() {
    const CUTS: u32 = 100;
    let database = TestDatabase::new();
    let Opened { seed, .. } = open(database.config());
    let beside = database.clone();
    rig::run(async move || {
        let rig = rig_on(seed.start(), &beside);
        let partitions = [rig.partition("one").await, rig.partition("other").await];
        let mut head = 0;
        let mut cut = 0;
        while cut < CUTS {
            let cutter = Cutter::start(&beside);
            for _ in 0..200 {
                let chains =
                    partitions.each_ref().map(|partition| rig.start_chain(partition, [head, head + 2, head + 5]));
                for (first, second) in chains {
                    // Nobody else writes.
                    let stamps = (rig.appended(first).await, rig.appended(second).await);
                    assert!(stamps.0.is_some() && stamps.1 >= stamps.0, "{stamps:?} at {head}");
                }
                head += 5;
            }
            cut += cutter.finish();
            for partition in &partitions {
                assert_eq!(rig.partition_now(partition.id).await.expect("there").next, head);
            }
        }
        assert_eq!(rig.count("SELECT count(*) FROM @segment"), head / 5 * 4);
        println!("{head} messages, {cut} connections cut");
    });
}

#[test]
fn two_brokers_on_one_partition_never_write_both_and_never_deadlock() {
    const ROUNDS: u64 = 150;
    let database = TestDatabase::new();
    let seeds: Vec<_> = (0..2).map(|_| open(database.config()).seed).collect();
    let (beside, log) = (database.clone(), database.clone());
    rig::run(async move || {
        let rigs: Vec<_> = seeds.into_iter().map(|seed| rig_on(seed.start(), &beside)).collect();
        let queue = rigs[0].queue("q").await;
        let creates = (0..8).map(|at| rig::partition(queue.id, &format!("p{at}"))).collect::<Vec<_>>();
        let mut partitions: Vec<PartitionRow> = Vec::new();
        for created in rigs[0].create(creates).await {
            let queen_log::store::Created::Partition(row) = created else { panic!("a partition") };
            partitions.push(row);
        }
        for round in 0..ROUNDS {
            // Each lists the partitions in an order of its own: the statement sorts them.
            let batch = |turn: usize| {
                let mut turned = partitions.clone();
                turned.rotate_left((round as usize + turn * 3) % partitions.len());
                Batch {
                    behind: None,
                    appends: turned.iter().map(|partition| append(partition, round, round + 1)).collect(),
                    cursors: turned
                        .iter()
                        .enumerate()
                        .map(|(at, partition)| CursorWrite {
                            expect: round.checked_sub(1).map(u64::cast_signed),
                            version: round.cast_signed(),
                            needs_append: (at % 2 == 0).then_some(at),
                            ..cursor(partition, "g", round)
                        })
                        .collect(),
                    dead: Vec::new(),
                }
            };
            let jobs: Vec<_> = rigs
                .iter()
                .enumerate()
                .map(|(turn, rig)| (rig.start(Job::Log(Work::Commit(batch(turn)))), batch(turn)))
                .collect();
            let mut appended = vec![0; partitions.len()];
            let mut moved = vec![0; partitions.len()];
            for (rig, (job, batch)) in rigs.iter().zip(jobs) {
                let Ok(JobDone::Log(done)) = rig.outcome(job).await else { panic!("no outcome") };
                let Done::Committed(committed) = *done else { panic!("{done:?}") };
                let place = |id| partitions.iter().position(|partition| partition.id == id).expect("one of them");
                for (append, stamp) in batch.appends.iter().zip(&committed.stamps) {
                    appended[place(append.partition)] += u32::from(stamp.is_some());
                }
                for (write, &written) in batch.cursors.iter().zip(&committed.cursors) {
                    moved[place(write.partition)] += u32::from(written);
                }
            }
            assert!(appended.iter().all(|&times| times == 1), "round {round}: {appended:?}");
            assert!(moved.iter().all(|&times| times <= 1), "round {round}: {moved:?}");
            // A cursor that needed an append that lost is moved by neither; catch it up.
            for partition in &partitions {
                let now = rigs[0].cursor_now(partition.id, "g").await;
                if now.as_ref().map(|cursor| cursor.version) != Some(round.cast_signed()) {
                    let write = CursorWrite {
                        expect: now.map(|cursor| cursor.version),
                        version: round.cast_signed(),
                        ..cursor(partition, "g", round)
                    };
                    let batch = Batch { cursors: vec![write], ..Batch::default() };
                    assert_eq!(rigs[0].commit(batch).await.cursors, [true]);
                }
            }
        }
    });
    assert!(!log.log().contains("deadlock detected"));
}

#[test]
fn a_commit_that_may_still_appear_holds_the_safe_time_back() {
    let database = TestDatabase::new();
    let Opened { seed, .. } = open(database.config());
    let beside = database.clone();
    rig::run(async move || {
        let rig = rig_on(seed.start(), &beside);
        let partition = rig.partition("q").await;
        // Somebody else's transaction that writes and stays open.
        let mut open = psql(&beside);
        let sql = "BEGIN; INSERT INTO queen.dropped_partition VALUES (gen_random_uuid(), 0); SELECT 1; SELECT pg_sleep(3600);\n";
        std::io::Write::write_all(open.stdin.as_mut().expect("it has one"), sql.as_bytes()).expect("psql reads");
        let is_open =
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3600)%' AND backend_xid IS NOT NULL";
        while rig.count(is_open) == 0 {
            rt::sleep(Duration::from_millis(20)).await;
        }
        let stamp_us = rig.append(&partition, 0, 1).await.expect("stored");
        let safe = async || match rig.load(Load::Changed { since_us: i64::MAX }).await {
            Loaded::Changed { safe_us, .. } => safe_us,
            other => panic!("{other:?}"),
        };
        assert!(safe().await < stamp_us);
        rig.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3600)%' AND pid <> pg_backend_pid()");
        open.wait().expect("psql ends");
        while safe().await < stamp_us {
            rt::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// A client that sends what its input is given, and shows nothing.
pub fn psql(database: &TestDatabase) -> Child {
    Command::new("psql")
        .args(["-X", "-q", &database.url])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("psql runs")
}

#[test]
fn it_speaks_over_tcp_and_sockets_encrypted_or_not_prepared_or_not() {
    let database = TestDatabase::new();
    let certificate = database.dir.join("tls/server.crt");
    let of_url = |url: &str, change: &dyn Fn(&mut PostgresOptions)| {
        let mut options = options();
        change(&mut options);
        PostgresConfig::of_url(url, options).expect("a URL")
    };
    let url = &database.url;
    let by_name = url.replace("127.0.0.1", "localhost");
    works_with(&database, of_url(url, &|options| options.ssl_mode = SslMode::Disable), "plain", false);
    works_with(&database, of_url(url, &|options| options.ssl_mode = SslMode::Require), "required", true);
    works_with(&database, of_url(url, &|options| options.named_statements = false), "unnamed", true);
    let trusting = |mode, root: &Path| {
        let root: PathBuf = root.to_owned();
        move |options: &mut PostgresOptions| {
            options.ssl_mode = mode;
            options.ssl_root_cert = Some(root.clone());
        }
    };
    works_with(&database, of_url(url, &trusting(SslMode::VerifyCa, &certificate)), "verify-ca", true);
    works_with(&database, of_url(&by_name, &trusting(SslMode::VerifyFull, &certificate)), "verify-full", true);
    let by_parameter = format!("{by_name}?sslmode=verify-full&sslrootcert={}", certificate.display());
    works_with(&database, of_url(&by_parameter, &|_| {}), "by parameter", true);
    let (server, _) = url.split_once('@').expect("a URL with a password");
    let (_, port_and_name) = url.rsplit_once(':').expect("a URL with a port");
    let socket = database.dir.to_str().expect("UTF-8").replace('/', "%2F");
    works_with(&database, of_url(&format!("{server}@{socket}:{port_and_name}"), &|_| {}), "socket", false);

    // The name is not in the certificate; and this issuer signed nothing.
    for refused in [
        of_url(url, &trusting(SslMode::VerifyFull, &certificate)),
        of_url(&by_name, &trusting(SslMode::VerifyFull, &other_certificate(&database.dir))),
        of_url(&by_name, &trusting(SslMode::VerifyCa, &other_certificate(&database.dir))),
    ] {
        let Opened { seed, declarations, .. } = open(refused);
        assert!(declarations.is_none() && format!("{seed:?}").contains("certificate"), "{seed:?}");
    }
    let missing = of_url(url, &trusting(SslMode::VerifyCa, Path::new("/nonexistent")));
    let error = DatabaseSeed::open(&DatabaseConfig::Postgres(Box::new(missing)), Path::new("/nonexistent"));
    assert!(matches!(&error, Err(StoreError::Tls(_))), "{error:?}");
}

/// A certificate that nobody here uses.
fn other_certificate(dir: &Path) -> PathBuf {
    let (key, certificate) = (dir.join("other.key"), dir.join("other.crt"));
    if !certificate.exists() {
        let made = Command::new("openssl")
            .args(["req", "-new", "-x509", "-days", "2", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=other"])
            .args(["-addext", "subjectAltName=DNS:localhost", "-keyout"])
            .arg(key)
            .arg("-out")
            .arg(&certificate)
            .stderr(Stdio::null())
            .status()
            .expect("openssl runs");
        assert!(made.success());
    }
    certificate
}

#[test]
fn a_server_that_is_away_at_boot_is_found_when_it_comes() {
    let database = TestDatabase::new();
    // The database is there, and its brokers are not let in.
    let name = database.sql("SELECT current_database()");
    let maintenance = TestDatabase { url: database.url.replace(&name, "postgres"), ..database.clone() };
    maintenance.sql(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"));
    let Opened { seed, declarations, .. } = open(database.config());
    assert_eq!(declarations, None);
    let beside = database.clone();
    rig::run(async move || {
        let rig = rig_on(seed.start(), &beside);
        assert!(matches!(rig.database.health(), Health::Disconnected(_)));
        let load = Work::Load(Load::Clock);
        assert!(matches!(rig.run(load).await, Err(StoreFailure::Unavailable(_))));
        maintenance.sql(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"));
        while rig.database.health() != Health::Connected {
            rt::sleep(Duration::from_millis(20)).await;
        }
        works(&rig, "late").await;
        let declarations = rig.outcome(rig.start(Job::Declarations)).await;
        assert_eq!(declarations, Ok(JobDone::Declarations(Vec::new())));

        // It goes away: a batch waits a little and fails, and the next one after it is back is written.
        maintenance.sql(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"));
        maintenance.sql(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"));
        let connected = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'");
        while maintenance.sql(&connected) != "0" || rig.run(Work::Load(Load::Clock)).await.is_ok() {
            rt::sleep(Duration::from_millis(20)).await;
        }
        let failed = rig.run(Work::Commit(Batch::default())).await;
        assert!(matches!(failed, Err(StoreFailure::Unavailable(_))), "{failed:?}");
        assert!(matches!(rig.database.health(), Health::Disconnected(_)));
        let waits = rig.start(Job::Log(Work::Commit(Batch::default())));
        maintenance.sql(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"));
        assert!(rig.outcome(waits).await.is_ok());
        assert_eq!(rig.database.health(), Health::Connected);
    });
}

#[test]
fn declarations_of_the_data_directory_are_taken_over_once() {
    let database = TestDatabase::new();
    let dir = tempfile::tempdir().expect("a directory");
    let declaration = |queue: &str| queen_fabric::protocol::store::Declaration {
        tenant: [7; 16],
        queue: queue.into(),
        options_json: Some("{}".into()),
        updated_at_ms: 0,
        origin: String::new(),
    };
    let in_file = DatabaseSeed::open(&DatabaseConfig::Sqlite, dir.path()).expect("it opens");
    rig::run(async move || {
        let rig = Rig::new(in_file.seed.start(), Box::new(|_| String::new()), "");
        rig.outcome(rig.start(Job::Declare(Box::new(declaration("q"))))).await.expect("kept");
    });
    let config = DatabaseConfig::Postgres(Box::new(database.config()));
    let boot = || DatabaseSeed::open(&config, dir.path()).expect("it opens");
    let taken = boot().declarations.expect("the server is there");
    assert_eq!(taken.iter().map(|declared| &*declared.queue).collect::<Vec<_>>(), ["q"]);
    let seed = boot().seed;
    rig::run(async move || {
        let rig = Rig::new(seed.start(), Box::new(|_| String::new()), "queen.");
        let key = Box::new(([7; 16], "q".to_owned()));
        let removed = rig.outcome(rig.start(Job::Remove(key))).await;
        assert!(matches!(removed, Ok(JobDone::Removed { declared: true, .. })), "{removed:?}");
    });
    assert_eq!(boot().declarations, Some(Vec::new()), "it was removed, and is not taken over again");
}

#[test]
fn a_schema_is_only_changed_by_a_broker_that_may_and_never_back() {
    let database = TestDatabase::new();
    let config = |apply_schema| {
        let options = PostgresOptions { apply_schema, ..options() };
        DatabaseConfig::Postgres(Box::new(PostgresConfig::of_url(&database.url, options).expect("a URL")))
    };
    let boot = |apply| DatabaseSeed::open(&config(apply), Path::new("/nonexistent"));
    let refused = boot(false).expect_err("there is no schema");
    assert!(matches!(refused, StoreError::OlderSchema { version: 0, .. }) && refused.is_configuration(), "{refused}");
    // Several at once make it once.
    std::thread::scope(|scope| {
        let booting: Vec<_> = (0..4).map(|_| scope.spawn(|| boot(true))).collect();
        for booted in booting {
            assert!(booted.join().expect("no panic").expect("it opens").declarations.is_some());
        }
    });
    assert!(boot(false).expect("it is there now").declarations.is_some());
    database.sql("UPDATE queen.state SET version = 999");
    let refused = boot(true).expect_err("a newer broker's");
    assert!(matches!(refused, StoreError::NewerSchema { version: 999, .. }) && refused.is_configuration(), "{refused}");
}
