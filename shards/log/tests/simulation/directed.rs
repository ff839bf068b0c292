//! Two brokers over one store, step by step: what each has to see of what the other did.

use std::sync::Arc;

use queen_log::{
    engine::{Heard, Log, LogConfig, News},
    id::{PartitionId, Uuid},
    record::{Record, Records},
    request::{
        Ack, AckRefusal, AckRequest, AckStatus, Acked, Answer, FetchEntry, FetchError, FetchRequest, PopRequest,
        Popped, PushPart, PushRequest, Pushed, Request, Scope, Start,
    },
    row::QUEUE_MODE,
    store::{JobId, Work},
};

use crate::store::Store;

const TENANT: Uuid = Uuid([1; 16]);

/// Brokers with a store that does everything at once, and a clock that stands unless it is moved.
struct Node {
    store: Store,
    brokers: Vec<Log<u64>>,
    now_us: u64,
    tokens: u64,
    answers: Vec<(u64, Answer)>,
    /// Pieces of work that were done.
    work: u64,
    /// The broker whose commits are held, and those, in the order in which it sent them.
    holds: Option<usize>,
    held: Vec<(JobId, Work)>,
}

impl Node {
    fn new(brokers: usize) -> Self {
        let config = |seed| LogConfig {
            cache_bytes: 1 << 20,
            commits_max: 4,
            ops_max: 100,
            patience_us: 10_000_000,
            recheck_us: Some((50_000, 1_000_000)),
            tells: true,
            answer_bytes_max: 1 << 20,
            seed,
        };
        let brokers = (0..brokers).map(|at| Log::new(config(at as u64 + 1))).collect();
        Self {
            store: Store::default(),
            brokers,
            now_us: 1_700_000_000_000_000,
            tokens: 0,
            answers: Vec::new(),
            work: 0,
            holds: None,
            held: Vec::new(),
        }
    }

    /// Starts a request; what can be done without time passing is done.
    fn start(&mut self, broker: usize, request: Request) -> u64 {
        self.tokens += 1;
        self.brokers[broker].submit(self.tokens, request, self.now_us);
        self.settle();
        self.tokens
    }

    /// Does what there is to do, in bounded steps: more would be a request that asks without end.
    fn settle(&mut self) {
        for _ in 0..100 {
            let mut idle = true;
            for at in 0..self.brokers.len() {
                self.brokers[at].turn(self.now_us);
                self.answers.extend(self.brokers[at].take_answers());
                for (job, work) in self.brokers[at].take_work() {
                    if self.holds == Some(at) && matches!(work, Work::Commit(_)) {
                        self.held.push((job, work));
                        continue;
                    }
                    idle = false;
                    self.work += 1;
                    let done = self.store.work(&work, self.now_us as i64);
                    self.brokers[at].done(job, Ok(done), self.now_us);
                }
            }
            if idle {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Does the commits that were held.
    fn release(&mut self) {
        let broker = self.holds.take().expect("a broker's commits are held");
        for (job, work) in std::mem::take(&mut self.held) {
            let done = self.store.work(&work, self.now_us as i64);
            self.brokers[broker].done(job, Ok(done), self.now_us);
        }
        self.settle();
    }

    fn answer(&mut self, token: u64) -> Option<Answer> {
        let at = self.answers.iter().position(|(of, _)| *of == token)?;
        Some(self.answers.swap_remove(at).1)
    }

    fn ask(&mut self, broker: usize, request: Request) -> Answer {
        let token = self.start(broker, request);
        self.answer(token).expect("answered without time passing")
    }

    fn push(&mut self, broker: usize, ids: &[&str]) -> Vec<Pushed> {
        let token = self.start_push(broker, ids);
        self.pushed(token)
    }

    fn start_push(&mut self, broker: usize, ids: &[&str]) -> u64 {
        self.start_push_to(broker, "p", ids)
    }

    fn start_push_to(&mut self, broker: usize, partition: &str, ids: &[&str]) -> u64 {
        let mut records = Records::default();
        for id in ids {
            records.push(&Record { id: Some(id.as_bytes()), payload: id.as_bytes(), ..Record::default() });
        }
        let parts = vec![PushPart { queue: "q".into(), partition: partition.into(), records }];
        self.start(broker, Request::Push(PushRequest { tenant: TENANT, parts }))
    }

    fn pushed(&mut self, token: u64) -> Vec<Pushed> {
        match self.answer(token) {
            Some(Answer::Pushed(mut parts)) => parts.remove(0).messages,
            other => panic!("{other:?}"),
        }
    }

    fn pop(&mut self, broker: usize) -> Popped {
        match self.ask(broker, pop(0, false)) {
            Answer::Popped(popped) => popped,
            other => panic!("{other:?}"),
        }
    }

    fn ack(&mut self, broker: usize, group: &str, partition: PartitionId, id: &str, lease: Option<Uuid>) -> Acked {
        let ack = Ack {
            partition: Some(partition),
            transaction_id: Some(id.into()),
            status: AckStatus::Completed,
            lease: lease.map(Some),
            error: None,
        };
        let request = AckRequest { tenant: TENANT, group: group.into(), acks: vec![ack] };
        match self.ask(broker, Request::Ack(request)) {
            Answer::Acked(mut acked) => acked.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn delete(&mut self, broker: usize) {
        let answer = self.ask(broker, Request::Delete { tenant: TENANT, queue: "q".into() });
        assert!(matches!(answer, Answer::Deleted(true)), "{answer:?}");
    }
}

fn pop(wait_ms: u64, auto_ack: bool) -> Request {
    Request::Pop(PopRequest {
        tenant: TENANT,
        scope: Scope::Queue("q".into()),
        group: QUEUE_MODE.into(),
        batch: 1,
        partitions: 1,
        wait_ms,
        auto_ack,
        lease_s: None,
        start: Start::All,
        conflation: None,
    })
}

fn queued(pushed: &[Pushed]) -> bool {
    pushed.iter().all(|pushed| matches!(pushed, Pushed::Queued { .. }))
}

/// The commit that a commit was sent behind.
fn behind(work: &Work) -> Option<JobId> {
    match work {
        Work::Commit(batch) => batch.behind,
        other => panic!("{other:?}"),
    }
}

/// The offset of a message that was stored.
fn offset(pushed: &[Pushed]) -> u64 {
    match pushed {
        [Pushed::Queued { offset, .. }] => *offset,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_push_goes_behind_the_one_in_commit_and_a_third_waits_for_it() {
    let mut node = Node::new(1);
    node.push(0, &["a"]);
    node.holds = Some(0);
    let pushes = ["b", "c", "d"].map(|id| node.start_push(0, &[id]));
    let behind: Vec<_> = node.held.iter().map(|(job, work)| (*job, behind(work))).collect();
    assert_eq!(behind.len(), 2, "the third is gathered");
    assert_eq!((behind[0].1, behind[1].1), (None, Some(behind[0].0)));
    node.release();
    assert_eq!(pushes.map(|push| offset(&node.pushed(push))), [1, 2, 3]);
}

#[test]
fn commits_that_are_stuck_hold_up_nobody_else() {
    let mut node = Node::new(1);
    node.push(0, &["a"]);
    node.start_push_to(0, "other", &["a"]);
    node.start_push_to(0, "third", &["a"]);
    node.holds = Some(0);
    // Two in a chain and one that waits for them, then one beside them.
    for id in ["b", "c", "d"] {
        node.start_push(0, &[id]);
    }
    assert_eq!(node.held.len(), 2);
    node.start_push_to(0, "other", &["b"]);
    assert_eq!(node.held.len(), 3);
    let last = node.start_push_to(0, "third", &["b"]);
    assert_eq!(node.held.len(), 3, "two are under way besides what follows");
    let due_us = node.brokers[0].next_time_us().expect("it will not wait for them for long");
    assert!(due_us <= node.now_us + 100_000);
    node.now_us += 100_000;
    node.settle();
    assert_eq!(node.held.len(), 4);
    node.release();
    assert_eq!(offset(&node.pushed(last)), 1);
}

#[test]
fn a_log_goes_on_where_the_store_ends_that_has_lost_some_of_it() {
    let mut node = Node::new(1);
    for id in ["a", "b", "c"] {
        node.push(0, &[id]);
    }
    let partition = node.store.partition(TENANT, "q", "p").expect("it is there").id;
    node.store.lose(partition, 1);
    assert_eq!(offset(&node.push(0, &["d"])), 1);
    assert_eq!(node.brokers[0].take_lost(), [partition]);
    assert_eq!(offset(&node.push(0, &["c"])), 2, "its id went with it");
}

#[test]
fn an_id_that_may_be_in_commit_is_looked_for_afterwards() {
    let mut node = Node::new(1);
    node.push(0, &["a"]);
    node.holds = Some(0);
    let (first, again) = (node.start_push(0, &["b"]), node.start_push(0, &["b"]));
    assert_eq!(node.held.len(), 1);
    node.release();
    assert_eq!(offset(&node.pushed(first)), 1);
    assert!(matches!(node.pushed(again)[..], [Pushed::Duplicate { offset: 1, .. }]));
}

#[test]
fn what_follows_a_push_that_came_too_late_is_planned_again_with_it() {
    let mut node = Node::new(2);
    node.push(0, &["a"]);
    node.holds = Some(0);
    let late = ["b", "c"].map(|id| node.start_push(0, &[id]));
    assert_eq!(node.held.len(), 2);
    // As long as the first of them, and with the id of the second: if that went behind this, it would be there twice.
    node.push(1, &["c"]);
    node.release();
    assert_eq!(offset(&node.pushed(late[0])), 2);
    assert!(matches!(node.pushed(late[1])[..], [Pushed::Duplicate { offset: 1, .. }]));
}

#[test]
fn an_ack_through_another_broker_counts_again_and_again() {
    let mut node = Node::new(2);
    node.push(0, &["a", "b", "c"]);
    for id in ["a", "b", "c"] {
        let popped = node.pop(0);
        let partition = popped.runs[0].partition_id;
        let acked = node.ack(1, QUEUE_MODE, partition, id, popped.lease);
        assert!(acked.result.is_ok() && acked.lease_released, "{id}: {acked:?}");
    }
}

#[test]
fn an_ack_without_a_lease_finds_what_another_broker_handed_out() {
    let mut node = Node::new(2);
    node.push(0, &["a", "b"]);
    let first = node.pop(0);
    let partition = first.runs[0].partition_id;
    assert!(node.ack(1, QUEUE_MODE, partition, "a", first.lease).result.is_ok());
    node.pop(0);
    assert!(node.ack(1, QUEUE_MODE, partition, "b", None).result.is_ok());
}

#[test]
fn an_ack_of_a_group_that_never_popped_is_refused_at_once() {
    let mut node = Node::new(2);
    node.push(0, &["a"]);
    let partition = node.pop(0).runs[0].partition_id;
    for broker in 0..2 {
        let before = node.work;
        let acked = node.ack(broker, "never", partition, "a", None);
        assert_eq!(acked.result, Err(AckRefusal::NoConsumer));
        assert!(node.work - before < 10, "{} pieces of work", node.work - before);
    }
}

#[test]
fn an_id_is_new_again_when_another_broker_has_removed_the_queue() {
    let mut node = Node::new(2);
    assert!(queued(&node.push(1, &["a", "b"])));
    node.delete(0);
    assert!(queued(&node.push(1, &["a"])));
    assert_eq!(node.pop(0).runs.len(), 1);
}

#[test]
fn a_fetch_does_not_find_what_another_broker_has_removed() {
    let mut node = Node::new(2);
    node.push(1, &["a"]);
    node.delete(0);
    let entry = FetchEntry { queue: "q".into(), partition: "p".into(), offset: 0, max_bytes: 1000 };
    let request = FetchRequest { tenant: TENANT, entries: vec![entry], max_bytes: 1000, max_wait_ms: 0, min_bytes: 1 };
    let Answer::Fetched(fetched) = node.ask(1, Request::Fetch(request)) else { panic!("a fetch") };
    assert_eq!(fetched[0].error, Some(FetchError::Unknown));
}

#[test]
fn a_pinned_pop_of_a_queue_that_another_broker_has_removed_is_empty() {
    let mut node = Node::new(2);
    node.push(1, &["a", "b"]);
    node.pop(1);
    node.delete(0);
    let Request::Pop(mut pinned) = pop(0, false) else { unreachable!("a pop") };
    pinned.scope = Scope::Partition("q".into(), "p".into());
    pinned.group = Arc::from("x");
    let Answer::Popped(popped) = node.ask(1, Request::Pop(pinned)) else { panic!("a pop") };
    assert!(popped.runs.is_empty());
}

#[test]
fn a_pop_that_waits_outlives_its_queue_and_gets_what_is_pushed_to_the_next_of_that_name() {
    for broker in 0..2 {
        let mut node = Node::new(2);
        node.push(0, &["a"]);
        assert_eq!(node.pop(0).runs.len(), 1);
        let waiting = node.start(0, pop(60_000, true));
        assert!(node.answer(waiting).is_none());
        node.delete(broker);
        assert!(queued(&node.push(0, &["b"])));
        let Some(Answer::Popped(popped)) = node.answer(waiting) else { panic!("it was answered") };
        assert_eq!(popped.runs.len(), 1);
    }
}

#[test]
fn a_pop_that_was_cancelled_before_it_was_parked_takes_nothing() {
    let mut node = Node::new(1);
    node.tokens += 1;
    let key = node.brokers[0].submit(node.tokens, pop(60_000, true), node.now_us);
    node.brokers[0].turn(node.now_us);
    node.brokers[0].cancel(key, node.now_us);
    node.settle();
    node.push(0, &["a"]);
    assert_eq!(node.pop(0).runs.len(), 1);
}

/// Tells one broker what another has to tell.
fn tell(node: &mut Node, from: usize, to: usize) -> Vec<News> {
    let news = node.brokers[from].take_news();
    for news in &news {
        let (what, tenant, queue) = match news {
            News::Available { tenant, queue, .. } => (Heard::Available, tenant, queue),
            News::Configured { tenant, queue } | News::Deleted { tenant, queue } => (Heard::Changed, tenant, queue),
        };
        node.brokers[to].heard(what, [(Some(*tenant), queue.clone())], node.now_us);
    }
    node.settle();
    news
}

fn messages(node: &mut Node, token: u64) -> Option<usize> {
    node.answer(token).map(|answer| match answer {
        Answer::Popped(popped) => popped.runs.len(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn who_waits_elsewhere_is_served_as_soon_as_it_is_told() {
    for (tenant, is_meant) in [(Some(TENANT), true), (None, true), (Some(Uuid([2; 16])), false)] {
        let mut node = Node::new(2);
        node.push(0, &["first"]);
        node.ask(1, pop(0, true));
        let waiting = node.start(1, pop(60_000, true));
        node.push(0, &["second"]);
        assert_eq!(messages(&mut node, waiting), None, "nobody told it, and no time has passed");
        node.brokers[1].heard(Heard::Available, [(tenant, "q".into())], node.now_us);
        node.settle();
        assert_eq!(messages(&mut node, waiting), is_meant.then_some(1), "{tenant:?}");
    }
}

#[test]
fn what_is_told_is_what_can_be_popped_what_was_set_free_and_what_was_configured() {
    let mut node = Node::new(2);
    let available = News::Available { tenant: TENANT, queue: "q".into(), partition: "p".into() };
    node.push(0, &["a", "b"]);
    assert_eq!(tell(&mut node, 0, 1), std::slice::from_ref(&available));
    let popped = node.pop(0);
    assert_eq!(tell(&mut node, 0, 1), [], "a claim is no news");
    let waiting = node.start(1, pop(60_000, true));
    assert_eq!(messages(&mut node, waiting), None, "it is leased to another");
    node.ack(0, QUEUE_MODE, popped.runs[0].partition_id, "a", popped.lease);
    assert_eq!(tell(&mut node, 0, 1), [available], "what is left of the partition is free");
    assert_eq!(messages(&mut node, waiting), Some(1));
    node.ask(0, Request::Configure { tenant: TENANT, queue: "q".into(), patch: Box::default() });
    assert_eq!(tell(&mut node, 0, 1), [News::Configured { tenant: TENANT, queue: "q".into() }]);
    node.delete(0);
    assert_eq!(tell(&mut node, 0, 1), [News::Deleted { tenant: TENANT, queue: "q".into() }]);
}

#[test]
fn what_is_said_while_the_store_is_asked_is_asked_for_again() {
    let mut node = Node::new(2);
    node.push(0, &["first"]);
    node.ask(1, pop(0, true));
    let waiting = node.start(1, pop(60_000, true));
    // The question is with the store, which has answered it, and the answer is still on its way.
    node.brokers[1].look_again(node.now_us);
    node.brokers[1].turn(node.now_us);
    let [(job, work)] = &node.brokers[1].take_work()[..] else { panic!("one question") };
    let answer = node.store.work(work, node.now_us as i64);
    node.push(0, &["second"]);
    node.brokers[1].heard(Heard::Available, [(Some(TENANT), "q".into())], node.now_us);
    node.brokers[1].done(*job, Ok(answer), node.now_us);
    node.settle();
    assert_eq!(messages(&mut node, waiting), Some(1));
}

#[test]
fn nobody_is_asked_for_what_concerns_nobody_here() {
    let mut node = Node::new(2);
    node.push(0, &["first"]);
    node.ask(1, pop(0, true));
    let before = node.work;
    for what in [Heard::Available, Heard::Dirty, Heard::Changed] {
        node.brokers[1].heard(what, [(Some(TENANT), "another".into())], node.now_us);
    }
    // Nobody waits.
    node.brokers[1].heard(Heard::Available, [(Some(TENANT), "q".into())], node.now_us);
    node.settle();
    assert_eq!(node.work, before);
    node.brokers[1].heard(Heard::Dirty, [(Some(TENANT), "q".into())], node.now_us);
    node.settle();
    assert_eq!(node.work, before + 1, "candidates are looked for ahead of the next pop");
}

#[test]
fn while_pops_are_paused_they_get_nothing_at_once_and_afterwards_what_there_is() {
    let mut node = Node::new(1);
    let waiting = node.start(0, pop(60_000, true));
    node.brokers[0].pause_pops(true, node.now_us);
    node.settle();
    let paused = |node: &mut Node, token| match node.answer(token) {
        Some(Answer::Popped(popped)) => popped.paused && popped.runs.is_empty(),
        other => panic!("{other:?}"),
    };
    assert!(paused(&mut node, waiting), "who waits is told");
    node.push(0, &["a"]);
    for wait_ms in [0, 60_000] {
        let token = node.start(0, pop(wait_ms, true));
        assert!(paused(&mut node, token));
    }
    node.brokers[0].pause_pops(false, node.now_us);
    let popped = node.pop(0);
    assert_eq!((popped.paused, popped.runs.len()), (false, 1));
}

#[test]
fn a_claim_that_is_being_committed_when_pops_are_paused_is_handed_out() {
    let mut node = Node::new(1);
    node.push(0, &["a"]);
    node.holds = Some(0);
    let popping = node.start(0, pop(60_000, true));
    node.brokers[0].pause_pops(true, node.now_us);
    node.release();
    assert_eq!(messages(&mut node, popping), Some(1));
}
