//! Where a group starts at its first contact.

use super::{common::Broker, *};

/// What a group gets of a queue, without keeping it.
fn seen(client: &mut Connection, queue: &str, query: &str) -> Vec<Value> {
    data(&pop(client, queue, &format!("autoAck=true&partitions=0&{query}")))
}

#[test]
fn a_new_group_sees_nothing_of_the_backlog() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    for (group, query) in [("a", ""), ("b", "&subscriptionMode=new-only"), ("c", "&subscriptionFrom=now")] {
        let query = format!("consumerGroup={group}{query}");
        assert_eq!(seen(&mut client, "q", &query), Vec::<Value>::new(), "{query}");
    }
    push(&mut client, "q", &[json!(2)]);
    for group in ["a", "b", "c"] {
        // What a later pop says of the start makes no difference.
        assert_eq!(seen(&mut client, "q", &format!("consumerGroup={group}&subscriptionMode=all")), [2]);
    }
}

#[test]
fn a_new_group_sees_the_first_message_of_a_partition_that_is_born_later() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!("old")]);
    assert_eq!(seen(&mut client, "q", "consumerGroup=g"), Vec::<Value>::new());
    push_to(&mut client, "q", "born", &[json!("first"), json!("second")]);
    assert_eq!(seen(&mut client, "q", "consumerGroup=g"), ["first", "second"]);
}

#[test]
fn a_group_that_asks_for_all_gets_the_backlog_also_of_what_is_born_later() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    assert_eq!(seen(&mut client, "q", "consumerGroup=g&subscriptionMode=all"), [1]);
    push_to(&mut client, "q", "p", &[json!(2)]);
    assert_eq!(seen(&mut client, "q", "consumerGroup=g"), [2]);
}

#[test]
fn queue_mode_starts_at_the_oldest_message_whatever_is_asked_for() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    assert_eq!(seen(&mut client, "q", "subscriptionMode=new&subscriptionFrom=now"), [1]);
}

#[test]
fn a_time_beats_a_mode_and_starts_at_the_first_message_from_it_on() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    push(&mut client, "q", &[json!(2)]);
    let all = messages(&pop(&mut client, "q", "leaseSeconds=600"));
    let second = all[1]["createdAt"].as_str().expect("a time");
    assert_ne!(all[0]["createdAt"], all[1]["createdAt"], "two pushes have two times");
    let query = format!("consumerGroup=g&subscriptionMode=all&subscriptionFrom={second}");
    assert_eq!(seen(&mut client, "q", &query), [2]);
    let query = "consumerGroup=h&subscriptionFrom=2020-01-01";
    assert_eq!(seen(&mut client, "q", query), [1, 2]);
    assert_eq!(seen(&mut client, "q", "consumerGroup=i&subscriptionFrom=yesterday"), Vec::<Value>::new());
}

#[test]
fn a_pinned_pop_seeds_its_partition_and_registers_nothing() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push_to(&mut client, "q", "a", &[json!("a")]);
    push_to(&mut client, "q", "b", &[json!("b")]);
    let target = "/api/v1/pop/queue/q/partition/a?consumerGroup=g&autoAck=true";
    assert_eq!(pop_at(&mut client, target), None, "new by default");
    // The group is not known on the queue yet: its first pop there says where it starts.
    assert_eq!(seen(&mut client, "q", "consumerGroup=g&subscriptionMode=all"), ["b"]);
}

#[test]
fn discovery_registers_the_group_on_every_queue_that_matches() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for queue in ["n.t.1", "n.t.2"] {
        push(&mut client, queue, &[json!("old")]);
    }
    let target = "/api/v1/pop?namespace=n&consumerGroup=g&partitions=0&autoAck=true";
    assert_eq!(pop_at(&mut client, target), None);
    for queue in ["n.t.1", "n.t.2"] {
        push(&mut client, queue, &[json!(queue)]);
        assert_eq!(seen(&mut client, queue, "consumerGroup=g&subscriptionMode=all"), [json!(queue)]);
    }
}

#[test]
fn empty_polls_move_nothing() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    let query = "consumerGroup=g&subscriptionMode=all&leaseSeconds=300";
    assert_eq!(data(&pop(&mut client, "q", query)), [1]);
    let before = read(&mut client, "/api/v1/resources/queues/q/depth?group=g");
    for _ in 0..6 {
        assert_eq!(pop(&mut client, "q", query), None);
    }
    assert_eq!(read(&mut client, "/api/v1/resources/queues/q/depth?group=g"), before);
}
