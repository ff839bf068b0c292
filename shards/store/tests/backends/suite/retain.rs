//! Retention. Time passes by moving what the tables say of it.

use queen_log::{
    id::PartitionId,
    row::PartitionRow,
    store::{Admin, AdminDone, Batch, Create, CursorWrite, Load, Loaded, Retain},
};

use crate::rig::{Rig, cursor};

const HOUR_US: i64 = 3_600_000_000;

/// A partition with segments of three messages each, as old as said in hours.
async fn aged(rig: &Rig, name: &str, ages_h: &[i64]) -> PartitionRow {
    let partition = rig.partition(name).await;
    for (at, age_h) in (0..).zip(ages_h) {
        rig.append(&partition, at * 3, at * 3 + 3).await.expect("stored");
        rig.sql(&format!(
            "UPDATE @segment SET stamp_us = stamp_us - {} WHERE base = {} AND partition_id = (
                SELECT p.id FROM @partition p JOIN @queue q ON q.id = p.queue_id WHERE q.name = '{name}')",
            age_h * HOUR_US,
            at * 3
        ));
    }
    partition
}

async fn step(rig: &Rig, partition: &PartitionRow, age_h: Option<i64>, consumed_h: Option<i64>) -> AdminDone {
    let hours = |age: Option<i64>| age.map(|hours| hours * HOUR_US);
    let retain =
        Retain { queue: partition.queue, age_us: hours(age_h), consumed_age_us: hours(consumed_h), limit: 100 };
    rig.admin(Admin::Retain(retain)).await
}

fn settle(rig: &Rig) {
    rig.sql("UPDATE @partition SET removable_us = 0");
}

async fn bases(rig: &Rig, partition: PartitionId) -> Vec<u64> {
    match rig.load(Load::Segments { partition, from: 0, max_bytes: u32::MAX }).await {
        Loaded::Segments(rows) => rows.iter().map(|row| row.base).collect(),
        other => panic!("{other:?}"),
    }
}

pub async fn what_is_old_is_gone_for_readers_at_once_and_removed_later(rig: &Rig) {
    let partition = aged(rig, "q", &[5, 4, 3, 0]).await;
    let moved = step(rig, &partition, Some(4), None).await;
    assert_eq!(moved, AdminDone::Retained { starts: vec![(partition.id, 6)], messages: 6, more: false });
    assert_eq!(bases(rig, partition.id).await, [6, 9]);
    let now = rig.partition_now(partition.id).await.expect("there");
    assert_eq!((now.log_start, now.next), (6, 12));
    assert_eq!(rig.load(Load::OffsetAt { partition: partition.id, stamp_us: 0 }).await, Loaded::Offset(6));
    assert_eq!(rig.count("SELECT count(*) FROM @segment"), 4, "a statement may still look at them");
    let nothing = AdminDone::Retained { starts: Vec::new(), messages: 0, more: false };
    assert_eq!(step(rig, &partition, Some(4), None).await, nothing);
    assert_eq!(rig.count("SELECT count(*) FROM @segment"), 4);
    settle(rig);
    assert_eq!(step(rig, &partition, Some(4), None).await, nothing);
    assert_eq!(rig.count("SELECT count(*) FROM @segment"), 2);
    assert_eq!(bases(rig, partition.id).await, [6, 9]);
}

pub async fn the_newest_segment_stays_empty_and_guards_the_head(rig: &Rig) {
    let partition = aged(rig, "q", &[5, 4]).await;
    let moved = step(rig, &partition, Some(1), None).await;
    assert_eq!(moved, AdminDone::Retained { starts: vec![(partition.id, 6)], messages: 6, more: false });
    settle(rig);
    step(rig, &partition, Some(1), None).await;
    assert_eq!(rig.count("SELECT count(*) FROM @segment"), 1);
    assert_eq!(rig.count("SELECT sum(length(data)) FROM @segment"), 0);
    let now = rig.partition_now(partition.id).await.expect("there");
    assert_eq!((now.log_start, now.next), (6, 6));
    assert_eq!(bases(rig, partition.id).await, [0; 0]);
    assert_eq!(rig.append(&partition, 0, 1).await, None, "a head from before is stale");
    assert_eq!(rig.append(&partition, 3, 4).await, None);
    assert!(rig.append(&partition, 6, 7).await.is_some());
    assert_eq!(bases(rig, partition.id).await, [6]);
}

pub async fn consumed_history_goes_when_every_group_is_past_it(rig: &Rig) {
    let partition = aged(rig, "q", &[5, 4, 3]).await;
    let nothing = AdminDone::Retained { starts: Vec::new(), messages: 0, more: false };
    assert_eq!(step(rig, &partition, None, Some(1)).await, nothing, "no group, nothing consumed");
    let cursors = vec![cursor(&partition, "fast", 9), cursor(&partition, "slow", 4)];
    rig.commit(Batch { cursors, ..Batch::default() }).await;
    let moved = step(rig, &partition, None, Some(1)).await;
    assert_eq!(moved, AdminDone::Retained { starts: vec![(partition.id, 3)], messages: 3, more: false });
    let on = CursorWrite { expect: Some(1), version: 2, ..cursor(&partition, "slow", 9) };
    rig.commit(Batch { cursors: vec![on], ..Batch::default() }).await;
    let registered = Create::Group {
        queue: partition.queue,
        group: "not yet here".into(),
        mode: "all".into(),
        from_us: Some(0),
        conflation: false,
    };
    rig.create(vec![registered]).await;
    assert_eq!(step(rig, &partition, None, Some(1)).await, nothing, "a group has all before it");
    rig.sql(&format!("UPDATE @queue_group SET from_us = {}", i64::MAX));
    let moved = step(rig, &partition, None, Some(1)).await;
    assert_eq!(moved, AdminDone::Retained { starts: vec![(partition.id, 9)], messages: 6, more: false });
}

pub async fn steps_of_a_limited_size_come_to_an_end(rig: &Rig) {
    let partition = aged(rig, "q", &[5; 7]).await;
    let mut went = 0;
    for _ in 0..20 {
        let retain = Retain { queue: partition.queue, age_us: Some(HOUR_US), consumed_age_us: None, limit: 2 };
        let AdminDone::Retained { messages, .. } = rig.admin(Admin::Retain(retain)).await else { panic!("retained") };
        went += messages;
        settle(rig);
    }
    assert_eq!(went, 21);
    assert_eq!(rig.count("SELECT count(*) FROM @segment"), 1);
}
