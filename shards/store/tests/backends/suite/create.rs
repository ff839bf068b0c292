//! Making rows.

use queen_log::{
    id::Uuid,
    options::QueueOptions,
    store::{Create, Created, Load, Loaded},
};

use crate::rig::{self, Rig, TENANT, id};

pub async fn what_is_there_stays_as_it_is_and_is_answered(rig: &Rig) {
    let first = rig.queue("q").await;
    let other_options = Create::Queue {
        id: id(),
        tenant: TENANT,
        name: "q".into(),
        namespace: "else".into(),
        task: "else".into(),
        options: QueueOptions { retry_limit: 77, ..QueueOptions::default() },
    };
    assert_eq!(rig.create(vec![other_options]).await, [Created::Queue(first.clone(), Vec::new())]);
    assert_eq!(first.options, QueueOptions::implicit());
    assert_eq!((&*first.namespace, &*first.task), ("ns", "task"));
    assert!(first.created_us > 1_700_000_000_000_000);

    let made = rig.create(vec![rig::partition(first.id, "p"), rig::partition(first.id, "p2")]).await;
    let again = rig.create(vec![rig::partition(first.id, "p2"), rig::partition(first.id, "p")]).await;
    assert_eq!(again, [made[1].clone(), made[0].clone()]);
    let (Created::Partition(one), Created::Partition(two)) = (&made[0], &made[1]) else { panic!("partitions") };
    assert!(one.number > 0 && one.number != two.number);

    let group = |mode: &str, from_us, conflation| Create::Group {
        queue: first.id,
        group: "g".into(),
        mode: mode.into(),
        from_us,
        conflation,
    };
    let made = rig.create(vec![group("timestamp", Some(55), true)]).await;
    assert_eq!(rig.create(vec![group("new", None, false)]).await, made);
    let Created::Group(row) = &made[0] else { panic!("a group") };
    assert_eq!((&*row.group, &*row.mode, row.from_us, row.conflation), ("g", "timestamp", 55, true));
    let Loaded::Queue(Some((_, groups))) = rig.load(Load::Queue { tenant: TENANT, name: "q".into() }).await else {
        panic!("a queue")
    };
    assert_eq!(groups, std::slice::from_ref(row));
}

pub async fn one_call_makes_of_every_kind_and_says_what_is_gone(rig: &Rig) {
    let queue = rig.queue("q").await;
    let gone = id();
    let group =
        |queue| Create::Group { queue, group: "g".into(), mode: "new".into(), from_us: None, conflation: false };
    let asked = vec![
        rig::partition(gone, "p"),
        rig::queue("other"),
        rig::partition(queue.id, "p"),
        group(gone),
        group(queue.id),
        rig::partition(queue.id, "p"),
    ];
    let created = rig.create(asked).await;
    assert_eq!((&created[0], &created[3]), (&Created::Gone, &Created::Gone));
    assert!(matches!(&created[1], Created::Queue(row, groups) if &*row.name == "other" && groups.is_empty()));
    assert!(matches!(&created[2], Created::Partition(row) if &*row.name == "p" && row.queue == queue.id));
    assert!(matches!(&created[4], Created::Group(row) if row.from_us == row.created_us && row.from_us > 0));
    assert_eq!(created[5], created[2], "the same name twice in one call is one partition");
}

pub async fn names_are_text_and_nothing_else(rig: &Rig) {
    let names = [
        "it's; DROP TABLE queen.queue; --".to_owned(),
        "100% _ \\ \"quoted\" $1 ?1".to_owned(),
        "a b/c:é 日本語 🐝".to_owned(),
        "ü".repeat(255),
        "x".repeat(200),
        " ".to_owned(),
    ];
    for name in &names {
        let queue = rig.queue(name).await;
        assert_eq!(&*queue.name, name);
        let Created::Partition(partition) = rig.create(vec![rig::partition(queue.id, name)]).await.remove(0) else {
            panic!("a partition")
        };
        assert_eq!(&*partition.name, name);
        rig.append(&partition, 0, 1).await.expect("stored");
        let write = rig::cursor(&partition, name, 1);
        let batch = queen_log::store::Batch { cursors: vec![write], ..Default::default() };
        assert_eq!(rig.commit(batch).await.cursors, [true]);
        assert_eq!(rig.cursor_now(partition.id, name).await.map(|cursor| cursor.next), Some(1));
        let found = rig.load(Load::Partition { queue: queue.id, name: name.as_str().into() }).await;
        assert!(matches!(found, Loaded::Partition(Some(row)) if row.id == partition.id && row.next == 1));
    }
    // Names that differ in case or in how a letter is composed are different ones.
    let (one, other) = (rig.queue("\u{e9}").await, rig.queue("e\u{301}").await);
    assert_ne!(one.id, other.id);
    assert_ne!(rig.queue("Q").await.id, rig.queue("q").await.id);
}

pub async fn tenants_do_not_meet(rig: &Rig) {
    let mine = rig.queue("q").await;
    let theirs = Create::Queue {
        id: id(),
        tenant: Uuid([2; 16]),
        name: "q".into(),
        namespace: "".into(),
        task: "".into(),
        options: QueueOptions::default(),
    };
    let Created::Queue(theirs, _) = rig.create(vec![theirs]).await.remove(0) else { panic!("a queue") };
    assert_ne!(mine.id, theirs.id);
    let Loaded::Queues(found) = rig.load(Load::Discover { tenant: TENANT, namespace: None, task: None }).await else {
        panic!("queues")
    };
    assert_eq!(found.into_iter().map(|(row, _)| row).collect::<Vec<_>>(), [mine]);
}
