//! Configuring, deleting, extending leases; declarations of ephemeral queues.

use queen_fabric::protocol::store::Declaration;
use queen_log::{
    id::Uuid,
    options::{Change, OptionsPatch, QueueOptions},
    read::{Read, ReadAnswer},
    row::QueueRow,
    store::{Admin, AdminDone, Batch, CursorWrite, LeaseWrite, Load, Loaded},
};
use queen_store::{Job, JobDone};

use crate::rig::{self, Rig, TENANT, cursor, id};

async fn configure(rig: &Rig, name: &str, patch: OptionsPatch) -> QueueRow {
    let admin = Admin::Configure { id: id(), tenant: TENANT, name: name.into(), patch: Box::new(patch) };
    match rig.admin(admin).await {
        AdminDone::Configured(row, _) => row,
        other => panic!("{other:?}"),
    }
}

pub async fn configuring_makes_a_queue_and_then_changes_what_is_named(rig: &Rig) {
    let patch = OptionsPatch { lease_s: Change::Set(7), namespace: Change::Set("n".into()), ..OptionsPatch::default() };
    let made = configure(rig, "q", patch).await;
    assert_eq!(made.options, QueueOptions { lease_s: 7, ..QueueOptions::default() });
    let patch = OptionsPatch { retry_limit: Change::Set(-3), max_wait_s: Change::Set(9), ..OptionsPatch::default() };
    let changed = configure(rig, "q", patch).await;
    assert_eq!(changed.options, QueueOptions { lease_s: 7, retry_limit: -3, max_wait_s: 9, ..QueueOptions::default() });
    assert_eq!((changed.id, &*changed.namespace, changed.created_us), (made.id, "n", made.created_us));
    let loaded = rig.load(Load::Queue { tenant: TENANT, name: "q".into() }).await;
    assert_eq!(loaded, Loaded::Queue(Some((changed.clone(), Vec::new()))));
    assert_eq!(rig.load(Load::Retaining).await, Loaded::Queues(vec![(changed, Vec::new())]));
    let replaced = configure(rig, "q", OptionsPatch { replace: true, ..OptionsPatch::default() }).await;
    assert_eq!((replaced.options, &*replaced.namespace), (QueueOptions::default(), ""));
    assert_eq!(rig.load(Load::Retaining).await, Loaded::Queues(Vec::new()));
}

pub async fn deleting_a_queue_takes_everything_of_it(rig: &Rig) {
    let partition = rig.partition("q").await;
    let other = rig.partition("other").await;
    rig.append(&partition, 0, 2).await.expect("stored");
    rig.append(&other, 0, 2).await.expect("stored");
    let cursors = vec![cursor(&partition, "g", 1), cursor(&other, "g", 1)];
    rig.commit(Batch { cursors, ..Batch::default() }).await;

    let delete = Admin::Delete { tenant: TENANT, name: "q".into() };
    assert_eq!(rig.admin(delete.clone()).await, AdminDone::Deleted(Some(partition.queue)));
    assert_eq!(rig.admin(delete).await, AdminDone::Deleted(None));
    assert_eq!(rig.load(Load::Queue { tenant: TENANT, name: "q".into() }).await, Loaded::Queue(None));
    assert_eq!(rig.load(Load::PartitionById(partition.id)).await, Loaded::PartitionById(None));
    assert_eq!(rig.cursor_now(partition.id, "g").await, None);
    assert_eq!(rig.append(&partition, 2, 3).await, None, "nothing can be appended any more");
    let segments = Load::Segments { partition: partition.id, from: 0, max_bytes: 1000 };
    assert_eq!(rig.load(segments).await, Loaded::Segments(Vec::new()));
    assert_eq!(rig.partition_now(other.id).await.map(|row| row.next), Some(2), "the other queue is as it was");
    assert!(rig.cursor_now(other.id, "g").await.is_some());
    let again = rig.partition("q").await;
    assert_ne!(again.id, partition.id);
    assert_eq!(again.next, 0);
}

pub async fn extending_reaches_every_live_lease_of_that_id_and_shortens_none(rig: &Rig) {
    let (one, two, three) = (rig.partition("one").await, rig.partition("two").await, rig.partition("three").await);
    let lease = id();
    let leased = |partition, id, floor_us, for_us| CursorWrite {
        lease: Some(LeaseWrite { id, floor_us, for_us }),
        ..cursor(partition, "g", 0)
    };
    let far_us = 9_000_000_000_000_000;
    let mut cursors =
        vec![leased(&one, lease, 0, 60_000_000), leased(&two, lease, far_us, 0), leased(&three, lease, 0, -1)];
    cursors.push(CursorWrite { group: "other".into(), ..leased(&one, id(), 0, 60_000_000) });
    cursors.sort_by(|one, other| (one.partition, &one.group).cmp(&(other.partition, &other.group)));
    rig.commit(Batch { cursors, ..Batch::default() }).await;

    let extend = |tenant, lease| Admin::Extend { tenant, lease, for_us: 600_000_000 };
    let AdminDone::Extended { now_us, cursors } = rig.admin(extend(TENANT, lease)).await else { panic!("extended") };
    let mut ends: Vec<_> =
        cursors.iter().map(|cursor| (cursor.partition, cursor.lease.expect("kept").until_us)).collect();
    ends.sort_unstable();
    let mut expected = [(one.id, now_us + 600_000_000), (two.id, far_us)];
    expected.sort_unstable();
    assert_eq!(ends, expected);
    for cursor in &cursors {
        assert_ne!(cursor.version, 1, "the log must see that it changed");
        assert_eq!(rig.cursor_now(cursor.partition, "g").await.as_ref(), Some(cursor));
    }
    for nobody in [extend(Uuid([9; 16]), lease), extend(TENANT, id())] {
        assert!(
            matches!(rig.admin(nobody).await, AdminDone::Extended { now_us, cursors } if now_us > 0 && cursors.is_empty())
        );
    }
}

pub async fn declarations_are_kept_replaced_and_forgotten(rig: &Rig) {
    let key = |queue: &str| Box::new(([7; 16], queue.to_owned()));
    let declare = async |queue: &str, options: &str| {
        let declaration = Declaration {
            tenant: [7; 16],
            queue: queue.into(),
            options_json: Some(options.into()),
            updated_at_ms: 0,
            origin: String::new(),
        };
        match rig.outcome(rig.start(Job::Declare(Box::new(declaration)))).await {
            Ok(JobDone::Declared { updated_at_ms }) => updated_at_ms,
            other => panic!("{other:?}"),
        }
    };
    declare("näme ' %", "{}").await;
    let kept_ms = declare("näme ' %", "{ \"maxLength\": 10 }").await;
    declare("other", "{}").await;
    let removed = async |queue: &str| match rig.outcome(rig.start(Job::Remove(key(queue)))).await {
        Ok(JobDone::Removed { declared, updated_at_ms }) => (declared, updated_at_ms >= kept_ms),
        other => panic!("{other:?}"),
    };
    assert_eq!(removed("other").await, (true, true));
    assert_eq!(removed("other").await, (false, true));
    let held = rig.outcome(rig.start(Job::Declarations)).await;
    let expected = Declaration {
        tenant: [7; 16],
        queue: "näme ' %".into(),
        options_json: Some("{ \"maxLength\": 10 }".into()),
        updated_at_ms: kept_ms,
        origin: String::new(),
    };
    assert_eq!(held, Ok(JobDone::Declarations(vec![expected])));
    assert!(kept_ms > 1_700_000_000_000);
}

pub async fn nothing_is_left_of_a_queue_that_was_deleted(rig: &Rig) {
    let partition = rig.partition("q").await;
    rig.append(&partition, 0, 2).await.expect("stored");
    let letter = queen_log::row::DeadLetter {
        id: id(),
        partition: partition.id,
        offset: 0,
        group: "g".into(),
        transaction_id: "t".into(),
        error: "e".into(),
        retries: 0,
        record: Vec::new(),
    };
    let batch = Batch { cursors: vec![cursor(&partition, "g", 1)], dead: vec![(0, letter)], ..Batch::default() };
    assert_eq!(rig.commit(batch).await.cursors, [true]);
    rig.admin(Admin::Delete { tenant: TENANT, name: "q".into() }).await;
    // Segments may go a moment later.
    let mut left = u64::MAX;
    for _ in 0..600 {
        left = rig.count(
            "SELECT (SELECT count(*) FROM @segment) + (SELECT count(*) FROM @cursor)
            + (SELECT count(*) FROM @dead_letter) + (SELECT count(*) FROM @partition) + (SELECT count(*) FROM @queue)",
        );
        if left == 0 {
            break;
        }
        queen_fabric::rt::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(left, 0);
    let queues = rig.read(Read::Queues { tenant: rig::TENANT }).await;
    assert_eq!(queues, ReadAnswer::Queues(Vec::new()));
}
