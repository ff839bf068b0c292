//! A log that nobody uses is called when something is due, and not over and over until somebody comes.

#[expect(dead_code, reason = "the simulation looks into it; here it only has to be there")]
#[path = "simulation/store.rs"]
mod store;

use queen_log::{
    engine::{Log, LogConfig},
    store::{Done, StoreFailure, Work},
};

use self::store::Store;

const SECOND_US: u64 = 1_000_000;

/// A log at its start, which removes what retention lets go of every second.
fn log() -> Log<()> {
    let mut log = Log::new(LogConfig {
        cache_bytes: 1 << 20,
        commits_max: 4,
        ops_max: 100,
        patience_us: 10 * SECOND_US,
        recheck_us: None,
        tells: false,
        answer_bytes_max: 1 << 20,
        seed: 7,
    });
    log.retain_every(SECOND_US, 0);
    log
}

/// Calls the log whenever it wants to be called, for a minute, and counts the calls.
fn calls_in_a_minute(mut answer: impl FnMut(&Work, u64) -> Option<Result<Done, StoreFailure>>) -> usize {
    let (mut log, mut now_us, mut calls) = (log(), 0, 0);
    while now_us < 60 * SECOND_US && calls < 10_000 {
        calls += 1;
        log.turn(now_us);
        let mut is_answered = false;
        for (job, work) in log.take_work() {
            if let Some(outcome) = answer(&work, now_us) {
                log.done(job, outcome, now_us);
                is_answered = true;
            }
        }
        if !is_answered {
            now_us = log.next_time_us().map_or(u64::MAX, |at_us| at_us.max(now_us));
        }
    }
    calls
}

#[test]
fn a_store_that_answers_is_asked_once_a_second() {
    let mut store = Store::default();
    let calls = calls_in_a_minute(|work, now_us| Some(Ok(store.work(work, now_us as i64))));
    assert!((60..500).contains(&calls), "{calls}");
}

#[test]
fn a_store_that_is_away_is_asked_once_a_second() {
    let calls = calls_in_a_minute(|_, _| Some(Err(StoreFailure::Unavailable("away".into()))));
    assert!((60..500).contains(&calls), "{calls}");
}

#[test]
fn a_store_that_never_answers_is_waited_for() {
    let calls = calls_in_a_minute(|_, _| None);
    assert!(calls < 10, "{calls}");
}
