//! Batches.

use queen_log::{
    row::{DeadLetter, Lease, PartitionRow},
    store::{Batch, Create, Created, CursorWrite, KEEP_LEASE, LeaseWrite, Load, Loaded},
};

use crate::rig::{self, Rig, append, cursor, id};

async fn segments(rig: &Rig, partition: &PartitionRow, from: u64) -> Vec<(u64, u64, Vec<u8>)> {
    match rig.load(Load::Segments { partition: partition.id, from, max_bytes: u32::MAX }).await {
        Loaded::Segments(rows) => rows.into_iter().map(|row| (row.base, row.next, row.data)).collect(),
        other => panic!("{other:?}"),
    }
}

pub async fn an_append_at_the_head_is_stamped_and_there(rig: &Rig) {
    let partition = rig.partition("q").await;
    assert_eq!((partition.next, partition.log_start, partition.stamp_us), (0, 0, 0));
    let first = rig.append(&partition, 0, 3).await.expect("stored");
    let second = rig.append(&partition, 3, 4).await.expect("stored");
    assert!(first > 1_700_000_000_000_000 && second >= first);
    let now = rig.partition_now(partition.id).await.expect("there");
    assert_eq!((now.next, now.stamp_us, now.ahead_us, now.number), (4, second, 5, partition.number));
    let kept = segments(rig, &partition, 0).await;
    assert_eq!(kept, [(0, 3, b"from 0 to 3".to_vec()), (3, 4, b"from 3 to 4".to_vec())]);
}

pub async fn an_append_from_a_stale_head_is_left_out_and_the_others_are_written(rig: &Rig) {
    let (one, other) = (rig.partition("one").await, rig.partition("other").await);
    rig.append(&one, 0, 3).await.expect("stored");
    rig.append(&one, 3, 5).await.expect("stored");
    for stale in [0, 3] {
        let (base, end) = if stale == 0 { (0, 1) } else { (3, 4) };
        let next = segments(rig, &other, 0).await.len() as u64;
        let appends = vec![append(&one, base, end), append(&other, next, next + 1)];
        let committed = rig.commit(Batch { appends, ..Batch::default() }).await;
        assert_eq!(committed.stamps[0], None);
        assert!(committed.stamps[1].is_some_and(|stamp_us| stamp_us >= committed.now_us));
    }
    assert_eq!(segments(rig, &one, 0).await.len(), 2);
    assert_eq!(segments(rig, &other, 0).await.len(), 2);
}

pub async fn an_append_to_a_partition_that_is_gone_is_left_out(rig: &Rig) {
    let mut gone = rig.partition("q").await;
    gone.id = id();
    let batch = Batch {
        behind: None,
        appends: vec![append(&gone, 0, 1)],
        cursors: vec![cursor(&gone, "g", 0)],
        dead: Vec::new(),
    };
    let committed = rig.commit(batch).await;
    assert_eq!((committed.stamps, committed.cursors), (vec![None], vec![false]));
}

pub async fn what_follows_a_segment_is_written_behind_it_or_left_out_with_it(rig: &Rig) {
    let partition = rig.partition("q").await;
    let (first, second) = rig.chain(&partition, [0, 2, 3]).await;
    assert!(first.is_some() && second >= first, "{first:?} {second:?}");
    // Another has written as much as the first of the next chain wants to.
    rig.append(&partition, 3, 5).await.expect("stored");
    assert_eq!(rig.chain(&partition, [3, 5, 6]).await, (None, None));
    let kept = segments(rig, &partition, 0).await;
    assert_eq!(kept.iter().map(|row| (row.0, row.1)).collect::<Vec<_>>(), [(0, 2), (2, 3), (3, 5)]);
}

pub async fn stamps_never_fall_below_their_floor(rig: &Rig) {
    let partition = rig.partition("q").await;
    let floor_us = 9_000_000_000_000_000;
    let batch = Batch { appends: vec![rig_append_with_floor(&partition, floor_us)], ..Batch::default() };
    let committed = rig.commit(batch).await;
    assert_eq!(committed.stamps, [Some(floor_us)]);
    assert!(committed.now_us < floor_us);
    assert_eq!(rig.partition_now(partition.id).await.expect("there").stamp_us, floor_us);
}

fn rig_append_with_floor(partition: &PartitionRow, floor_us: i64) -> queen_log::store::Append {
    queen_log::store::Append { floor_us, ..append(partition, 0, 1) }
}

pub async fn a_cursor_is_made_once_and_then_replaced_by_version(rig: &Rig) {
    let partition = rig.partition("q").await;
    let write =
        async |write: CursorWrite| rig.commit(Batch { cursors: vec![write], ..Batch::default() }).await.cursors[0];
    let made = CursorWrite { version: 10, ..cursor(&partition, "g", 2) };
    assert!(write(made.clone()).await);
    assert!(!write(made.clone()).await, "it is there already");
    assert!(!write(CursorWrite { expect: Some(9), version: 11, ..made.clone() }).await, "another version");
    assert!(
        write(CursorWrite {
            expect: Some(10),
            version: 11,
            next: 3,
            run_end: 7,
            retries: 2,
            consumed: 4,
            ..made.clone()
        })
        .await
    );
    assert!(!write(CursorWrite { expect: Some(10), version: 12, ..made.clone() }).await, "replaced already");
    assert!(!write(CursorWrite { expect: Some(1), version: 12, ..cursor(&partition, "none", 0) }).await);
    let now = rig.cursor_now(partition.id, "g").await.expect("there");
    assert_eq!((now.version, now.next, now.run_end, now.retries, now.consumed, now.lease), (11, 3, 7, 2, 4, None));
    assert_eq!(rig.cursor_now(partition.id, "none").await, None);
}

pub async fn a_cursor_goes_with_the_append_that_it_needs(rig: &Rig) {
    let (one, other) = (rig.partition("one").await, rig.partition("other").await);
    rig.append(&one, 0, 1).await.expect("stored");
    let batch = Batch {
        behind: None,
        appends: vec![append(&one, 0, 2), append(&other, 0, 2)],
        cursors: vec![
            CursorWrite { needs_append: Some(0), ..cursor(&one, "g", 0) },
            CursorWrite { needs_append: Some(1), ..cursor(&other, "g", 0) },
            CursorWrite { needs_append: Some(0), ..cursor(&other, "h", 0) },
        ],
        dead: Vec::new(),
    };
    let committed = rig.commit(batch).await;
    assert_eq!(committed.stamps.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
    assert_eq!(committed.cursors, [false, true, false]);
    assert!(rig.cursor_now(one.id, "g").await.is_none());
    assert!(rig.cursor_now(other.id, "g").await.is_some());
}

pub async fn leases_end_at_the_later_of_floor_and_length(rig: &Rig) {
    let partition = rig.partition("q").await;
    let lease = id();
    for (version, floor_us, for_us) in [(1, 0, 5_000_000), (2, 9_000_000_000_000_000, 5_000_000), (3, 1234, KEEP_LEASE)]
    {
        let write = CursorWrite {
            expect: (version > 1).then(|| version - 1),
            version,
            lease: Some(LeaseWrite { id: lease, floor_us, for_us }),
            ..cursor(&partition, "g", 0)
        };
        let committed = rig.commit(Batch { cursors: vec![write], ..Batch::default() }).await;
        assert_eq!(committed.cursors, [true]);
        let until_us = if for_us == KEEP_LEASE { floor_us } else { floor_us.max(committed.now_us + for_us) };
        assert_eq!(rig.cursor_now(partition.id, "g").await.expect("there").lease, Some(Lease { id: lease, until_us }));
    }
}

pub async fn dead_letters_go_with_their_cursors(rig: &Rig) {
    let partition = rig.partition("q").await;
    let letter = |offset: u64, group: &str| DeadLetter {
        id: id(),
        partition: partition.id,
        offset,
        group: group.into(),
        transaction_id: "id with \0 and ' and %".into(),
        error: "why\0".repeat(3),
        retries: 3,
        record: vec![0, 1, 255],
    };
    let batch = Batch {
        behind: None,
        appends: Vec::new(),
        cursors: vec![
            cursor(&partition, "made", 1),
            CursorWrite { expect: Some(77), ..cursor(&partition, "other version", 1) },
        ],
        dead: vec![(0, letter(0, "made")), (1, letter(0, "other version"))],
    };
    assert_eq!(rig.commit(batch).await.cursors, [true, false]);
    let replaced = CursorWrite { expect: Some(1), version: 2, ..cursor(&partition, "made", 2) };
    let batch = Batch { cursors: vec![replaced], dead: vec![(0, letter(1, "made"))], ..Batch::default() };
    assert_eq!(rig.commit(batch).await.cursors, [true]);
    let queen_log::read::ReadAnswer::Queues(queues) =
        rig.read(queen_log::read::Read::Queues { tenant: rig::TENANT }).await
    else {
        panic!("queues")
    };
    assert_eq!(queues[0].counts.dead, 2);
}

pub async fn a_batch_of_nothing_has_a_time(rig: &Rig) {
    let first = rig.commit(Batch::default()).await;
    let second = rig.commit(Batch::default()).await;
    assert!(first.now_us > 1_700_000_000_000_000 && second.now_us >= first.now_us);
    assert!(first.stamps.is_empty() && first.cursors.is_empty());
}

pub async fn payloads_come_back_byte_for_byte(rig: &Rig) {
    let partition = rig.partition("q").await;
    let large: Vec<u8> = (0..10 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (base, data) in (0..).zip([vec![0; 100], b"\\000 '\\' \x00\xff".to_vec(), Vec::new(), large.clone()]) {
        let append = queen_log::store::Append { data: data.clone(), ..append(&partition, base, base + 1) };
        let committed = rig.commit(Batch { appends: vec![append], ..Batch::default() }).await;
        assert!(committed.stamps[0].is_some());
        assert!(segments(rig, &partition, base).await == [(base, base + 1, data)]);
    }
}

pub async fn a_thousand_partitions_in_one_batch(rig: &Rig) {
    let queue = rig.queue("many").await;
    let creates: Vec<Create> = (0..1000).map(|at| rig::partition(queue.id, &format!("p{at}"))).collect();
    let created = rig.create(creates).await;
    let mut partitions: Vec<_> = created
        .into_iter()
        .map(|created| match created {
            Created::Partition(row) => row,
            other => panic!("{other:?}"),
        })
        .collect();
    partitions.sort_by_key(|partition| partition.id);
    for base in 0..3 {
        let batch = Batch {
            behind: None,
            appends: partitions.iter().map(|partition| append(partition, base, base + 1)).collect(),
            cursors: partitions
                .iter()
                .enumerate()
                .map(|(at, partition)| CursorWrite {
                    expect: base.checked_sub(1).map(u64::cast_signed),
                    version: base.cast_signed(),
                    needs_append: Some(at),
                    ..cursor(partition, "g", base)
                })
                .collect(),
            dead: Vec::new(),
        };
        let committed = rig.commit(batch).await;
        assert!(committed.stamps.iter().all(Option::is_some));
        assert!(committed.cursors.iter().all(|&written| written));
    }
}
