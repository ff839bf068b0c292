//! Several brokers over one store, in virtual time: random requests, work that is done late and out of order, brokers
//! that die between any two steps, a store that goes away. What must hold is checked where it happens: by the store
//! when it writes, by the clients when they are answered, and at the end by whoever drains what is left.
//!
//! `QUEEN_LOG_SIM_SEED` runs one seed, `QUEEN_LOG_SIM_RUNS` so many of them.

mod clients;
mod directed;
mod store;

use clients::World;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs seeds one after the other; a failure prints its own.
fn run(brokers: usize, steps: u64, runs: u64) {
    let seeds = match setting("QUEEN_LOG_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + setting("QUEEN_LOG_SIM_RUNS").unwrap_or(runs),
    };
    let mut met = 0;
    for seed in seeds {
        let Ok(met_here) = std::panic::catch_unwind(|| World::new(seed, brokers).run(steps)) else {
            panic!("QUEEN_LOG_SIM_SEED={seed} shows it again");
        };
        met += met_here;
    }
    // With many brokers, a pop seldom waits where the message is pushed.
    assert!(met > 0 || brokers > 2, "no pop that waited was served by the commit of its messages");
}

#[test]
fn one_broker_keeps_its_word() {
    run(1, 3000, 60);
}

#[test]
fn two_brokers_over_one_store_keep_their_word() {
    run(2, 3000, 60);
}

#[test]
fn four_brokers_over_one_store_keep_their_word() {
    run(4, 3000, 20);
}
