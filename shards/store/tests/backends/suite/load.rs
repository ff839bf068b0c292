//! Loads.

use queen_log::{
    options::QueueOptions,
    row::PartitionRow,
    store::{Append, Batch, Create, Created, Load, Loaded},
};

use crate::rig::{self, Rig, TENANT, append, cursor, id};

async fn ten_segments(rig: &Rig) -> (PartitionRow, Vec<i64>) {
    let partition = rig.partition("q").await;
    let mut stamps = Vec::new();
    for at in 0..10 {
        stamps.push(rig.append(&partition, at * 3, at * 3 + 3).await.expect("stored"));
    }
    (partition, stamps)
}

pub async fn segments_begin_with_the_one_that_holds_the_offset_and_end_with_the_bytes(rig: &Rig) {
    let (partition, stamps) = ten_segments(rig).await;
    let bases = async |from: u64, max_bytes: u32| match rig
        .load(Load::Segments { partition: partition.id, from, max_bytes })
        .await
    {
        Loaded::Segments(rows) => rows.iter().map(|row| row.base).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(bases(0, u32::MAX).await, (0..10).map(|at| at * 3).collect::<Vec<_>>());
    assert_eq!(bases(26, u32::MAX).await, [24, 27]);
    assert_eq!(bases(27, u32::MAX).await, [27]);
    assert_eq!(bases(30, u32::MAX).await, [0; 0]);
    let bytes = "from 3 to 6".len() as u32;
    assert_eq!(bases(4, 0).await, [3], "one at least");
    assert_eq!(bases(4, 2 * bytes - 1).await, [3]);
    assert_eq!(bases(4, 2 * bytes).await, [3, 6]);
    let Loaded::Segments(rows) = rig.load(Load::Segments { partition: partition.id, from: 0, max_bytes: 0 }).await
    else {
        panic!("segments")
    };
    assert_eq!((rows[0].partition, rows[0].stamp_us, &*rows[0].hashes), (partition.id, stamps[0], &[0; 8][..]));
}

pub async fn indexes_go_from_the_newest_down_to_the_first_that_is_too_old(rig: &Rig) {
    let partition = rig.partition("q").await;
    for (at, floor_us) in [9_000_000_000_000_000, 9_000_000_000_000_010, 9_000_000_000_000_020].into_iter().enumerate()
    {
        let append = Append { floor_us, ..append(&partition, at as u64, at as u64 + 1) };
        rig.commit(Batch { appends: vec![append], ..Batch::default() }).await;
    }
    let bases = async |since_us: i64, below: u64| match rig
        .load(Load::Indexes { partition: partition.id, since_us: 9_000_000_000_000_000 + since_us, below })
        .await
    {
        Loaded::Indexes(rows) => rows.iter().map(|row| row.base).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(bases(20, 3).await, [2, 1]);
    assert_eq!(bases(21, 3).await, [2]);
    assert_eq!(bases(10, 3).await, [2, 1, 0]);
    assert_eq!(bases(0, 3).await, [2, 1, 0]);
    assert_eq!(bases(10, 2).await, [1, 0]);
    assert_eq!(bases(0, 0).await, [0; 0]);
}

pub async fn an_offset_is_found_by_time(rig: &Rig) {
    let (partition, stamps) = ten_segments(rig).await;
    let offset = async |stamp_us| match rig.load(Load::OffsetAt { partition: partition.id, stamp_us }).await {
        Loaded::Offset(offset) => offset,
        other => panic!("{other:?}"),
    };
    assert_eq!(offset(0).await, 0);
    let first_of = |stamp_us| stamps.iter().position(|&stamp| stamp >= stamp_us).map_or(30, |at| at as u64 * 3);
    for &stamp_us in &stamps {
        assert_eq!(offset(stamp_us).await, first_of(stamp_us));
        assert_eq!(offset(stamp_us + 1).await, first_of(stamp_us + 1));
    }
    assert_eq!(offset(i64::MAX).await, 30, "the high watermark");
    assert_eq!(rig.load(Load::OffsetAt { partition: id(), stamp_us: 0 }).await, Loaded::Offset(0));
}

pub async fn partitions_and_cursors_come_in_pages(rig: &Rig) {
    let queue = rig.queue("q").await;
    let names: Vec<_> = (0..25).map(|at| format!("p{at}")).collect();
    rig.create(names.iter().map(|name| rig::partition(queue.id, name)).collect()).await;
    let mut all: Vec<PartitionRow> = Vec::new();
    loop {
        let after = all.last().map_or(0, |row| row.number);
        let Loaded::Partitions(page) = rig.load(Load::Partitions { queue: queue.id, after, limit: 10 }).await else {
            panic!("partitions")
        };
        assert!(page.is_sorted_by_key(|row| row.number));
        let last = page.len() < 10;
        all.extend(page);
        if last {
            break;
        }
    }
    let mut found: Vec<_> = all.iter().map(|row| row.name.to_string()).collect();
    found.sort();
    let mut expected = names.clone();
    expected.sort();
    assert_eq!(found, expected);

    let mut with_cursor: Vec<_> = all.iter().filter(|row| row.number % 2 == 0).collect();
    let expected: Vec<_> = with_cursor.iter().map(|row| (row.number, row.id)).collect();
    with_cursor.sort_by_key(|row| row.id);
    let cursors = with_cursor.iter().map(|row| cursor(row, "g", 0)).collect();
    rig.commit(Batch { cursors, ..Batch::default() }).await;
    let page =
        async |after, limit| match rig.load(Load::CursorsOf { queue: queue.id, group: "g".into(), after, limit }).await
        {
            Loaded::Cursors(rows) => rows.into_iter().map(|(number, row)| (number, row.partition)).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
    assert_eq!(page(0, 100).await, expected);
    assert_eq!(page(expected[2].0, 3).await, expected[3..6]);
}

pub async fn queues_are_discovered_by_namespace_and_task(rig: &Rig) {
    let made = |name: &str, namespace: &str, task: &str| Create::Queue {
        id: id(),
        tenant: TENANT,
        name: name.into(),
        namespace: namespace.into(),
        task: task.into(),
        options: QueueOptions::default(),
    };
    rig.create(vec![made("a", "n", "t"), made("b", "n", "u"), made("c", "m", "t")]).await;
    let names = async |namespace: Option<&str>, task: Option<&str>| {
        let load = Load::Discover { tenant: TENANT, namespace: namespace.map(Into::into), task: task.map(Into::into) };
        match rig.load(load).await {
            Loaded::Queues(rows) => {
                let mut names: Vec<_> = rows.iter().map(|(row, _)| row.name.to_string()).collect();
                names.sort();
                names.concat()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(names(Some("n"), None).await, "ab");
    assert_eq!(names(None, Some("t")).await, "ac");
    assert_eq!(names(Some("n"), Some("t")).await, "a");
    assert_eq!(names(Some("none"), None).await, "");
}

pub async fn a_partition_by_id_comes_with_its_queue_and_groups(rig: &Rig) {
    let partition = rig.partition("q").await;
    let group = |name: &str| Create::Group {
        queue: partition.queue,
        group: name.into(),
        mode: "all".into(),
        from_us: Some(0),
        conflation: false,
    };
    rig.create(vec![group("b"), group("a")]).await;
    let Loaded::PartitionById(Some((row, queue, groups))) = rig.load(Load::PartitionById(partition.id)).await else {
        panic!("a partition")
    };
    assert_eq!((row, queue.id), (partition.clone(), partition.queue));
    assert_eq!(groups.iter().map(|group| &*group.group).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(rig.load(Load::PartitionById(id())).await, Loaded::PartitionById(None));
}

pub async fn what_changed_is_seen_once_it_is_safe(rig: &Rig) {
    let Loaded::Changed { safe_us, partitions, queues, .. } = rig.load(Load::Changed { since_us: i64::MAX }).await
    else {
        panic!("changed")
    };
    assert!(partitions.is_empty() && queues.is_empty() && safe_us > 1_700_000_000_000_000);
    let partition = rig.partition("q").await;
    let stamp_us = rig.append(&partition, 0, 3).await.expect("stored");
    assert!(stamp_us >= safe_us);
    let Loaded::Changed { safe_us: later_us, partitions, queues, .. } =
        rig.load(Load::Changed { since_us: safe_us }).await
    else {
        panic!("changed")
    };
    assert!(later_us >= safe_us);
    assert_eq!(
        partitions.iter().map(|row| (row.partition, row.next, row.stamp_us)).collect::<Vec<_>>(),
        [(partition.id, 3, stamp_us)]
    );
    assert_eq!(queues.iter().map(|row| row.id).collect::<Vec<_>>(), [partition.queue]);
    let Loaded::Changed { partitions, queues, .. } = rig.load(Load::Changed { since_us: stamp_us + 1 }).await else {
        panic!("changed")
    };
    assert!(partitions.is_empty() && queues.is_empty());
    let Loaded::Clock(now_us) = rig.load(Load::Clock).await else { panic!("a time") };
    assert!(now_us > stamp_us);
}

pub async fn a_made_partition_is_found_by_name_only_in_its_queue(rig: &Rig) {
    let (one, other) = (rig.queue("one").await, rig.queue("other").await);
    let Created::Partition(made) = rig.create(vec![rig::partition(one.id, "p")]).await.remove(0) else {
        panic!("a partition")
    };
    let by_name = async |queue| rig.load(Load::Partition { queue, name: "p".into() }).await;
    assert_eq!(by_name(one.id).await, Loaded::Partition(Some(made)));
    assert_eq!(by_name(other.id).await, Loaded::Partition(None));
}
