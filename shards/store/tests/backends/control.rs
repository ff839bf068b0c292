//! What operators have switched and granted, over restarts, between brokers, and in the role while the server goes.

use std::{path::Path, time::Duration};

use queen_fabric::protocol::{
    Control, ControlAsk, Grant, Switch,
    store::{Declaration, StoreAnswer, StoreAsk},
};
use queen_fabric::rt;
use queen_store::{DatabaseConfig, DatabaseSeed, Job, JobDone, StoreConfig};

use crate::{
    beside::{self, Asker},
    cluster::TestDatabase,
    rig::{self, Rig},
    server::psql,
};

const TENANT: [u8; 16] = [7; 16];
const GRANT: Grant = Grant { enabled: true, max_bytes: Some(9), max_queues: None, max_msgs_per_sec: Some(0) };

fn open(config: &DatabaseConfig, dir: &Path) -> (DatabaseSeed, Option<Control>) {
    let opened = DatabaseSeed::open(config, dir).expect("it opens");
    (opened.seed, opened.control)
}

fn on_server(database: &TestDatabase) -> DatabaseConfig {
    DatabaseConfig::Postgres(Box::new(database.config()))
}

/// Has each done on a broker of its own that starts and ends.
fn write(config: &DatabaseConfig, dir: &Path, asks: Vec<ControlAsk>) {
    let (seed, _) = open(config, dir);
    rig::run(async move || {
        let rig = Rig::new(seed.start(), Box::new(|_| String::new()), "");
        for ask in asks {
            let done = rig.outcome(rig.start(Job::Control(ask))).await;
            assert!(matches!(done, Ok(JobDone::Control { changed: true, .. })), "{done:?}");
        }
    });
}

fn what_is_kept_is_there_at_the_next_boot(config: &DatabaseConfig, dir: &Path) {
    assert_eq!(open(config, dir).1, Some(Control::default()));
    write(config, dir, vec![ControlAsk::Set(Switch::Ephemeral, false), ControlAsk::PutGrant(TENANT, GRANT)]);
    let kept = Control { ephemeral_enabled: false, grants: [(TENANT, GRANT)].into(), ..Control::default() };
    assert_eq!(open(config, dir).1, Some(kept));
    write(config, dir, vec![ControlAsk::Set(Switch::Ephemeral, true), ControlAsk::RemoveGrant(TENANT)]);
    assert_eq!(open(config, dir).1, Some(Control::default()));
}

#[test]
fn a_file_keeps_it_for_the_next_boot() {
    let dir = tempfile::tempdir().expect("a directory");
    what_is_kept_is_there_at_the_next_boot(&DatabaseConfig::Sqlite, dir.path());
}

#[test]
fn a_server_keeps_it_for_the_next_boot() {
    what_is_kept_is_there_at_the_next_boot(&on_server(&TestDatabase::new()), Path::new("/nonexistent"));
}

/// Runs `ask` beside the role of a broker on this server.
fn beside_the_role<F: Future<Output = ()> + 'static>(
    database: &TestDatabase,
    reconcile_interval: Duration,
    ask: impl FnOnce(Asker) -> F + Send + 'static,
) {
    let config = StoreConfig { reconcile_interval, ..beside::config(on_server(database)) };
    beside::beside(config, Path::new("/nonexistent"), Box::new(|_| {}), ask);
}

/// Waits until a version is known that is not `seen`.
async fn news(store: &Asker, seen: u64) -> (Control, u64) {
    match store.ask_parked(StoreAsk::WatchControl { seen }).await {
        StoreAnswer::Control { control, version, .. } => ((*control).clone(), version),
        other => panic!("{other:?}"),
    }
}

#[test]
fn those_who_watch_hear_of_another_brokers_writes_at_the_next_look() {
    let database = TestDatabase::new();
    let other = database.clone();
    beside_the_role(&database, Duration::from_millis(20), async move |store: Asker| {
        assert_eq!(news(&store, 0).await, (Control::default(), 1));
        let watching = news(&store, 1);
        let writes = vec![ControlAsk::PutGrant(TENANT, GRANT)];
        std::thread::spawn(move || write(&on_server(&other), Path::new("/nonexistent"), writes));
        let granted = Control { grants: [(TENANT, GRANT)].into(), ..Control::default() };
        assert_eq!(watching.await, (granted, 2));
    });
}

#[test]
fn what_the_server_leaves_unanswered_is_given_up_and_the_rest_goes_on_when_it_speaks_again() {
    let database = TestDatabase::new();
    let beside = database.clone();
    let patience = Duration::from_millis(300);
    let config = StoreConfig { patience, ..beside::config(on_server(&database)) };
    let ask = async move |store: Asker| {
        let declare = || {
            let declaration = Declaration {
                tenant: TENANT,
                queue: "q".into(),
                options_json: Some("{}".into()),
                updated_at_ms: 0,
                origin: String::new(),
            };
            store.ask(StoreAsk::Declare(Box::new(declaration)))
        };
        let control = |ask| store.ask(StoreAsk::Control(Box::new(ask)));
        assert!(matches!(declare().await, StoreAnswer::Done { .. }));
        // Somebody holds what all of it needs.
        let mut holder = psql(&beside);
        let sql =
            "BEGIN; LOCK TABLE queen.ephemeral_queue, queen.ephemeral_quota, queen.switch; SELECT pg_sleep(3600);\n";
        std::io::Write::write_all(holder.stdin.as_mut().expect("it has one"), sql.as_bytes()).expect("psql reads");
        let held = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(3600)%'";
        while beside.sql(held) != "1" {
            rt::sleep(Duration::from_millis(20)).await;
        }
        let asked =
            [control(ControlAsk::Set(Switch::Ephemeral, false)), control(ControlAsk::Load), control(ControlAsk::Load)];
        let declared = declare();
        for asked in asked {
            let answer = asked.await;
            assert!(matches!(answer, StoreAnswer::Unavailable(_)), "{answer:?}");
        }
        assert!(matches!(declared.await, StoreAnswer::Unavailable(_)));
        beside.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(3600)%'");
        holder.wait().expect("psql ends");
        // What the server had already, it does: whoever watches hears of it.
        let (control, _) = news(&store, 1).await;
        assert!(!control.ephemeral_enabled);
        assert!(matches!(declare().await, StoreAnswer::Done { .. }));
    };
    beside::beside(config, Path::new("/nonexistent"), Box::new(|_| {}), ask);
}

#[test]
fn while_the_server_is_away_nothing_is_answered_as_kept_and_then_it_is_read() {
    let database = TestDatabase::new();
    let name = database.sql("SELECT current_database()");
    let maintenance = TestDatabase { url: database.url.replace(&name, "postgres"), ..database.clone() };
    let let_in = {
        let name = name.clone();
        move |allowed: bool| maintenance.sql(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}"))
    };
    write(&on_server(&database), Path::new("/nonexistent"), vec![ControlAsk::PutGrant(TENANT, GRANT)]);
    let_in(false);
    beside_the_role(&database, Duration::from_secs(3600), async move |store: Asker| {
        for ask in [ControlAsk::Set(Switch::Ephemeral, false), ControlAsk::Load] {
            let answer = store.ask(StoreAsk::Control(Box::new(ask))).await;
            assert!(matches!(answer, StoreAnswer::Unavailable(_)), "{answer:?}");
        }
        // Nothing was read yet: who has nothing waits.
        let watching = store.ask_parked(StoreAsk::WatchControl { seen: 0 });
        assert_eq!(store.unanswered(), 1);
        let_in(true);
        let granted = Control { grants: [(TENANT, GRANT)].into(), ..Control::default() };
        match watching.await {
            StoreAnswer::Control { control, version, changed } => {
                assert_eq!((&*control, version, changed), (&granted, 1, false))
            }
            other => panic!("{other:?}"),
        }
        // A write that was refused was not done.
        let answer = store.ask(StoreAsk::Control(Box::new(ControlAsk::Set(Switch::Ephemeral, false)))).await;
        assert!(matches!(answer, StoreAnswer::Control { version: 2, changed: true, .. }), "{answer:?}");
    });
}
