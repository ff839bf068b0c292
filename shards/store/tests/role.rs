//! The store role on a real executor, asked over a port as data shards ask it.

use std::future::poll_fn;
use std::path::Path;
use std::time::Duration;

use queen_fabric::port::{MeshOptions, Port, mesh};
use queen_fabric::protocol::store::{Declaration, StoreAnswer, StoreAsk, StoreProtocol};
use queen_fabric::rt::{Executor, spawn_local};
use queen_store::{DatabaseConfig, Store, StoreConfig, run};

const ASKER: usize = 0;
const STORE: u16 = 1;

/// Runs `ask` on an executor beside the store of `dir`, and ends with the store closed.
fn beside_the_store<F: Future<Output = ()> + 'static>(
    dir: &Path,
    ask: impl FnOnce(Port<StoreProtocol>) -> F + Send + 'static,
) -> Vec<Declaration> {
    let (store, declarations) = Store::open(config(), dir, Box::new(|connected| assert!(connected))).unwrap();
    let mut seeds = mesh::<StoreProtocol>(2, MeshOptions::default());
    let store_seed = seeds.pop().unwrap();
    let asker_seed = seeds.remove(ASKER);
    let executor = Executor::spawn("store-test", None, Duration::ZERO, move || async move {
        let asker = asker_seed.open();
        let pump = asker.clone();
        let pump = spawn_local(async move {
            loop {
                poll_fn(|cx| pump.poll_incoming(cx)).await;
            }
        });
        let role = spawn_local(run(store, store_seed.open()));
        ask(asker).await;
        pump.cancel().await;
        role.cancel().await;
    });
    executor.unwrap().join().unwrap();
    declarations.expect("a file is always there")
}

fn config() -> StoreConfig {
    StoreConfig {
        database: DatabaseConfig::Sqlite,
        cache_bytes: 1 << 20,
        requests_max: 1000,
        patience: Duration::from_secs(10),
        answer_bytes_max: 1 << 20,
        recheck_max: Duration::from_secs(1),
        retention_interval: Duration::from_secs(60),
        seed: 1,
    }
}

fn declare(number: u64) -> StoreAsk {
    StoreAsk::Declare(Box::new(Declaration {
        tenant: [0; 16],
        queue: format!("queue-{number}"),
        options_json: "{\"maxLength\":5}".into(),
        updated_at_ms: 0,
    }))
}

#[test]
fn what_was_asked_at_once_is_answered_each_and_there_after_a_restart() {
    const QUEUES: u64 = 900;
    let dir = tempfile::tempdir().unwrap();
    let held = beside_the_store(dir.path(), |port| async move {
        let asked: Vec<_> = (0..QUEUES).map(|number| port.ask(STORE, declare(number)).ok().unwrap()).collect();
        for asked in asked {
            assert!(matches!(asked.await.answer, StoreAnswer::Done { updated_at_ms: 1.. }));
        }
        let key = Box::new(([0; 16], "queue-7".to_owned()));
        let removed = port.ask(STORE, StoreAsk::Remove(key)).ok().unwrap().await;
        assert!(matches!(removed.answer, StoreAnswer::Removed { declared: true }));
    });
    assert!(held.is_empty());

    let held = beside_the_store(dir.path(), |_| async {});
    assert_eq!(held.len() as u64, QUEUES - 1);
    assert!(held.iter().all(|declared| declared.queue != "queue-7"));
}

#[test]
fn a_question_that_nobody_waits_for_is_still_kept() {
    let dir = tempfile::tempdir().unwrap();
    beside_the_store(dir.path(), |port| async move {
        drop(port.ask(STORE, declare(1)).ok().unwrap());
        // In order behind it on the same lane: once this one is kept, so is the first.
        let answer = port.ask(STORE, declare(2)).ok().unwrap().await.answer;
        assert!(matches!(answer, StoreAnswer::Done { updated_at_ms: 1.. }));
    });
    let held = beside_the_store(dir.path(), |_| async {});
    assert_eq!(held.len(), 2);
}
