//! The store's role on a real executor, beside a task that asks it over a port as data shards do.

use std::{future::poll_fn, path::Path, time::Duration};

use queen_fabric::{
    port::{MeshOptions, Port, mesh},
    protocol::store::{Declaration, StoreAnswer, StoreAsk, StoreProtocol},
    rt::{Executor, spawn_local},
};
use queen_store::{DatabaseConfig, OnHealth, Store, StoreConfig, run};

/// The store's place in the mesh.
const STORE: u16 = 1;
const ASKER: usize = 0;

/// A port to the store.
pub struct Asker(Port<StoreProtocol>);

impl Asker {
    /// Asks what is answered soon.
    pub fn ask(&self, ask: StoreAsk) -> impl Future<Output = StoreAnswer> + use<> {
        let asked = self.0.ask(STORE, ask).expect("a credit");
        async { asked.await.answer }
    }

    /// Asks what may stay unanswered.
    pub fn ask_parked(&self, ask: StoreAsk) -> impl Future<Output = StoreAnswer> + use<> {
        let asked = self.0.ask_parked(STORE, ask);
        async { asked.await.answer }
    }

    /// Questions whose answer has not come.
    pub fn unanswered(&self) -> usize {
        self.0.counters().unanswered
    }
}

/// Opens a store, runs `ask` beside its role, and ends with the store closed. Gives the declarations that it was opened
/// with.
pub fn beside<F: Future<Output = ()> + 'static>(
    config: StoreConfig,
    dir: &Path,
    on_health: OnHealth,
    ask: impl FnOnce(Asker) -> F + Send + 'static,
) -> Option<Vec<Declaration>> {
    let (store, declarations) = Store::open(config, dir, on_health).expect("it opens");
    let mut seeds = mesh::<StoreProtocol>(2, MeshOptions::default());
    let store_seed = seeds.pop().expect("two");
    let asker_seed = seeds.remove(ASKER);
    let executor = Executor::spawn("store-test", None, Duration::ZERO, move || async move {
        let asker = asker_seed.open();
        let pump = asker.clone();
        let pump = spawn_local(async move {
            loop {
                poll_fn(|cx| pump.poll_incoming(cx)).await;
            }
        });
        let role = spawn_local(run(store, store_seed.open(), None));
        ask(Asker(asker)).await;
        pump.cancel().await;
        role.cancel().await;
    });
    executor.expect("an executor").join().expect("the test holds");
    declarations
}

/// The settings of most tests.
pub fn config(database: DatabaseConfig) -> StoreConfig {
    StoreConfig {
        database,
        cache_bytes: 1 << 20,
        requests_max: 1000,
        patience: Duration::from_secs(10),
        answer_bytes_max: 1 << 20,
        recheck_max: Duration::from_secs(1),
        retention_interval: Duration::from_secs(60),
        reconcile_interval: Duration::from_secs(3600),
        has_tenants: false,
        seed: 1,
    }
}
