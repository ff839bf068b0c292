//! The store role, asked as data shards ask it.

mod beside;

use std::{path::Path, sync::Arc};

use beside::Asker;
use queen_fabric::protocol::{
    Control, ControlAsk, Grant, Switch,
    store::{Declaration, StoreAnswer, StoreAsk},
};
use queen_store::DatabaseConfig;

/// Runs `ask` beside the store of `dir`.
fn beside_the_store<F: Future<Output = ()> + 'static>(
    dir: &Path,
    ask: impl FnOnce(Asker) -> F + Send + 'static,
) -> Vec<Declaration> {
    let on_health = Box::new(|connected: bool| assert!(connected));
    beside::beside(beside::config(DatabaseConfig::Sqlite), dir, on_health, ask).expect("a file is always there")
}

fn declare(number: u64) -> StoreAsk {
    StoreAsk::Declare(Box::new(Declaration {
        tenant: [0; 16],
        queue: format!("queue-{number}"),
        options_json: Some("{\"maxLength\":5}".into()),
        updated_at_ms: 0,
        origin: String::new(),
    }))
}

fn control(ask: ControlAsk) -> StoreAsk {
    StoreAsk::Control(Box::new(ask))
}

fn watch(seen: u64) -> StoreAsk {
    StoreAsk::WatchControl { seen }
}

fn known(answer: StoreAnswer) -> (Arc<Control>, u64, bool) {
    match answer {
        StoreAnswer::Control { control, version, changed } => (control, version, changed),
        other => panic!("{other:?}"),
    }
}

const GRANT: Grant = Grant { enabled: true, max_bytes: Some(7), max_queues: None, max_msgs_per_sec: Some(0) };

#[test]
fn what_was_asked_at_once_is_answered_each_and_there_after_a_restart() {
    const QUEUES: u64 = 900;
    let dir = tempfile::tempdir().unwrap();
    let held = beside_the_store(dir.path(), |store| async move {
        let asked: Vec<_> = (0..QUEUES).map(|number| store.ask(declare(number))).collect();
        for asked in asked {
            assert!(matches!(asked.await, StoreAnswer::Done { updated_at_ms: 1.. }));
        }
        let key = Box::new(([0; 16], "queue-7".to_owned()));
        let removed = store.ask(StoreAsk::Remove(key)).await;
        assert!(matches!(removed, StoreAnswer::Removed { declared: true, .. }));
    });
    assert!(held.is_empty());

    let held = beside_the_store(dir.path(), |_| async {});
    assert_eq!(held.len() as u64, QUEUES - 1);
    assert!(held.iter().all(|declared| declared.queue != "queue-7"));
}

#[test]
fn a_question_that_nobody_waits_for_is_still_kept() {
    let dir = tempfile::tempdir().unwrap();
    beside_the_store(dir.path(), |store| async move {
        drop(store.ask(declare(1)));
        // In order behind it on the same lane: once this one is kept, so is the first.
        let answer = store.ask(declare(2)).await;
        assert!(matches!(answer, StoreAnswer::Done { updated_at_ms: 1.. }));
    });
    let held = beside_the_store(dir.path(), |_| async {});
    assert_eq!(held.len(), 2);
}

#[test]
fn everybody_who_watches_is_told_of_a_write_and_the_writer_has_it_already() {
    let dir = tempfile::tempdir().unwrap();
    beside_the_store(dir.path(), |store| async move {
        // Read at boot: a shard that has nothing yet is told at once.
        let (first, version, _) = known(store.ask_parked(watch(0)).await);
        assert_eq!((&*first, version), (&Control::default(), 1));
        let watching = [store.ask_parked(watch(version)), store.ask_parked(watch(version))];
        let (switched, version, changed) = known(store.ask(control(ControlAsk::Set(Switch::Ephemeral, false))).await);
        assert_eq!((switched.ephemeral_enabled, version, changed), (false, 2, true));
        for watching in watching {
            assert_eq!(known(watching.await), (Arc::clone(&switched), 2, false));
        }
    });
    // It is there after a restart.
    beside_the_store(dir.path(), |store| async move {
        let (kept, version, _) = known(store.ask_parked(watch(0)).await);
        assert_eq!((kept.ephemeral_enabled, version), (false, 1));
    });
}

#[test]
fn a_write_that_changes_nothing_wakes_nobody() {
    let dir = tempfile::tempdir().unwrap();
    beside_the_store(dir.path(), |store| async move {
        let watching = store.ask_parked(watch(1));
        for ask in [ControlAsk::Set(Switch::Ephemeral, true), ControlAsk::RemoveGrant([7; 16]), ControlAsk::Load] {
            assert_eq!(known(store.ask(control(ask)).await), (Arc::default(), 1, false));
        }
        let (granted, ..) = known(store.ask(control(ControlAsk::PutGrant([7; 16], GRANT))).await);
        assert_eq!(granted.grants[&[7; 16]], GRANT);
        assert_eq!(known(watching.await), (granted, 2, false));
    });
}

#[test]
fn writes_that_were_asked_at_once_are_done_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    beside_the_store(dir.path(), |store| async move {
        let grant = |most| Grant { max_bytes: Some(most), ..GRANT };
        let mut asked = Vec::new();
        for most in 0..50 {
            asked.push(store.ask(control(ControlAsk::PutGrant([7; 16], grant(most)))));
            asked.push(store.ask(control(ControlAsk::Load)));
        }
        for (at, asked) in (0..).zip(asked) {
            let (seen, version, changed) = known(asked.await);
            let most = at / 2;
            assert_eq!((seen.grants[&[7; 16]], version, changed), (grant(most), most + 2, at % 2 == 0));
        }
    });
}

#[test]
fn a_watch_that_is_dropped_is_closed_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    beside_the_store(dir.path(), |store| async move {
        let (dropped, stays) = (store.ask_parked(watch(1)), store.ask_parked(watch(1)));
        assert_eq!(store.unanswered(), 2);
        drop(dropped);
        // In order behind the cancel on the same lane, and its answer behind that of the watch.
        known(store.ask(control(ControlAsk::Load)).await);
        assert_eq!(store.unanswered(), 1);
        known(store.ask(control(ControlAsk::Set(Switch::Ephemeral, false))).await);
        assert_eq!(known(stays.await).1, 2);
        assert_eq!(store.unanswered(), 0);
    });
}
