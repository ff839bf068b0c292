//! Lists and counts.

use queen_log::{
    read::{ChangedEntry, Counts, Depth, Read, ReadAnswer},
    row::QUEUE_MODE,
    store::{Batch, Create, CursorWrite, LeaseWrite},
};

use crate::rig::{self, Rig, TENANT, cursor, id};

async fn depth(rig: &Rig, group: Option<&str>) -> Depth {
    let read = Read::Depth { tenant: TENANT, queue: "q".into(), group: group.map(Into::into) };
    match rig.read(read).await {
        ReadAnswer::Depth(Some(depth)) => depth,
        other => panic!("{other:?}"),
    }
}

pub async fn pending_is_behind_the_slowest_named_group_or_queue_mode(rig: &Rig) {
    let partition = rig.partition("q").await;
    let stamp_us = rig.append(&partition, 0, 4).await.expect("stored");
    let later_us = rig.append(&partition, 4, 10).await.expect("stored");
    let stats = async || match rig.read(Read::Queue { tenant: TENANT, queue: "q".into() }).await {
        ReadAnswer::Queue(Some(found)) => *found,
        other => panic!("{other:?}"),
    };
    let (queue, partitions) = stats().await;
    assert_eq!(queue.counts, Counts { total: 10, pending: 10, processing: 0, dead: 0 });
    assert_eq!(
        (queue.partitions, queue.segments, queue.retained_bytes),
        (1, 2, "from 0 to 4from 4 to 10".len() as u64)
    );
    assert_eq!((partitions[0].oldest_us, partitions[0].newest_us), (Some(stamp_us), Some(later_us)));
    assert_eq!(partitions[0].counts, queue.counts);

    let leased = CursorWrite {
        run_end: 7,
        lease: Some(LeaseWrite { id: id(), floor_us: 0, for_us: 60_000_000 }),
        ..cursor(&partition, QUEUE_MODE, 5)
    };
    rig.commit(Batch { cursors: vec![leased], ..Batch::default() }).await;
    let (queue, partitions) = stats().await;
    assert_eq!(queue.counts, Counts { total: 10, pending: 5, processing: 2, dead: 0 });
    assert_eq!(partitions[0].oldest_us, Some(later_us));

    let cursors = vec![cursor(&partition, "fast", 10), cursor(&partition, "slow", 8)];
    rig.commit(Batch { cursors, ..Batch::default() }).await;
    let (queue, _) = stats().await;
    assert_eq!(queue.counts.pending, 2);
    let on = CursorWrite { expect: Some(1), version: 2, ..cursor(&partition, "slow", 10) };
    rig.commit(Batch { cursors: vec![on], ..Batch::default() }).await;
    let (queue, partitions) = stats().await;
    assert_eq!((queue.counts.pending, partitions[0].oldest_us), (0, None));
    assert_eq!(rig.read(Read::Queue { tenant: TENANT, queue: "none".into() }).await, ReadAnswer::Queue(None));
}

pub async fn depth_counts_for_one_group(rig: &Rig) {
    let partition = rig.partition("q").await;
    rig.append(&partition, 0, 4).await.expect("stored");
    assert_eq!(depth(rig, None).await.pending, [("Default".into(), 4)]);
    assert_eq!(depth(rig, Some("never")).await.pending, [("Default".into(), 4)]);
    let group = |name: &str, from_us, conflation| Create::Group {
        queue: partition.queue,
        group: name.into(),
        mode: "timestamp".into(),
        from_us,
        conflation,
    };
    rig.create(vec![group("new", None, true), group("all", Some(0), false)]).await;
    assert_eq!(depth(rig, Some("new")).await, Depth { pending: Vec::new(), conflation: true });
    assert_eq!(depth(rig, Some("all")).await.pending, [("Default".into(), 4)]);
    rig.append(&partition, 4, 5).await.expect("stored");
    assert_eq!(depth(rig, Some("new")).await.pending, [("Default".into(), 1)]);
    let cursors = vec![cursor(&partition, "all", 2), cursor(&partition, "new", 5)];
    rig.commit(Batch { cursors, ..Batch::default() }).await;
    assert_eq!(depth(rig, Some("all")).await.pending, [("Default".into(), 3)]);
    assert_eq!(depth(rig, Some("new")).await.pending, []);
    assert_eq!(depth(rig, None).await.pending, [("Default".into(), 3)]);
    let unknown = Read::Depth { tenant: TENANT, queue: "none".into(), group: None };
    assert_eq!(rig.read(unknown).await, ReadAnswer::Depth(None));
}

pub async fn lags_name_the_most_pending_first(rig: &Rig) {
    let (one, two) = (rig.partition("one").await, rig.partition("two").await);
    rig.append(&one, 0, 4).await.expect("stored");
    rig.append(&two, 0, 9).await.expect("stored");
    let lags = async |queue: Option<&str>, limit| match rig
        .read(Read::Lags { tenant: TENANT, queue: queue.map(Into::into), limit })
        .await
    {
        ReadAnswer::Lags(rows) => rows,
        other => panic!("{other:?}"),
    };
    let rows = lags(None, 10).await;
    assert_eq!(rows.iter().map(|row| (&*row.queue, row.counts.pending)).collect::<Vec<_>>(), [("two", 9), ("one", 4)]);
    assert!(rows.iter().all(|row| row.lag_us.is_some_and(|lag_us| lag_us >= 0) && &*row.partition == "Default"));
    assert_eq!(lags(None, 1).await.len(), 1);
    rig.commit(Batch { cursors: vec![cursor(&one, "g", 4)], ..Batch::default() }).await;
    let rows = lags(Some("one"), 10).await;
    assert_eq!((rows.len(), rows[0].counts.pending, rows[0].lag_us), (1, 0, None));
}

pub async fn changed_partitions_come_in_pages_with_a_safe_time(rig: &Rig) {
    let queue = rig.queue("q").await;
    let creates = (0..5).map(|at| rig::partition(queue.id, &format!("p{at}"))).collect();
    rig.create(creates).await;
    let entry = |queue: &str, since_us, after, limit| ChangedEntry { queue: queue.into(), since_us, after, limit };
    let changed = async |entries| match rig.read(Read::Changed { tenant: TENANT, entries }).await {
        ReadAnswer::Changed { safe_us, entries } => (safe_us, entries),
        other => panic!("{other:?}"),
    };
    let (safe_us, answers) = changed(vec![entry("q", None, 0, 3), entry("none", None, 0, 3)]).await;
    let first = answers[0].as_ref().expect("a queue");
    assert_eq!((first.len(), answers[1].is_none()), (3, true));
    let (_, answers) = changed(vec![entry("q", None, first[2].number, 3)]).await;
    let rest = answers[0].as_ref().expect("a queue");
    assert_eq!(rest.len(), 2);
    let written = rig.partition_now(rest[1].id).await.expect("there");
    let stamp_us = rig.append(&written, 0, 2).await.expect("stored");
    assert!(stamp_us > safe_us, "nothing appears at or below what was safe");
    let (_, answers) = changed(vec![entry("q", Some(safe_us), 0, 10), entry("q", Some(stamp_us + 1), 0, 10)]).await;
    let row = &answers[0].as_ref().expect("a queue")[0];
    assert_eq!((row.id, row.next, row.log_start, row.stamp_us), (written.id, 2, 0, stamp_us));
    assert_eq!(answers[0].as_ref().map(Vec::len), Some(1));
    assert_eq!(answers[1].as_ref().map(Vec::len), Some(0));
}

pub async fn queues_are_listed_newest_first(rig: &Rig) {
    for name in ["first", "second", "third"] {
        let partition = rig.partition(name).await;
        rig.append(&partition, 0, 2).await.expect("stored");
    }
    let ReadAnswer::Queues(queues) = rig.read(Read::Queues { tenant: TENANT }).await else { panic!("queues") };
    assert_eq!(queues.iter().map(|stats| &*stats.row.name).collect::<Vec<_>>(), ["third", "second", "first"]);
    assert!(queues.iter().all(|stats| stats.counts.total == 2 && stats.partitions == 1));
}
