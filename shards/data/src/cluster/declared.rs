//! The declarations of this shard's slice on a node of several: the newest wins, wherever it was made.
//!
//! Where all nodes use one database, that is the truth: a declaration goes there first, other members are told of it, and
//! whoever could not be told reads it when the link is back. Nodes with stores of their own tell each other of every
//! declaration and deletion and keep what is newer than what they have, by the time at which it was made and, of two of
//! the same time, by the id of the node where. What was deleted is kept as a tombstone for a week, so that a node that was
//! away does not bring it back. A shard tells a member of everything it knows whenever its link to that comes up: so a node
//! that joins learns all, and what could not be told before is told then.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashSet, VecDeque},
    ops::Bound,
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use queen_ephemeral::TenantId;
use queen_fabric::{
    port::Ticket,
    protocol::store::{self, StoreAnswer, StoreAsk},
    rt::{self, Notify, within},
};
use queen_wire::{
    body::{Options, parse_options},
    peer::{Answer as PeerAnswer, Ask as PeerAsk, Declaration, DeclarationState, QueueKey as PeerKey, Request},
};

use super::{
    convert,
    everybody::Failed,
    link::{Link, Lost},
};
use crate::{
    ephemeral::declare::{AnswerTo, configured, deleted},
    error::{ApiError, Code},
    protocol::{Answer, ConfigureAsk, QueueKey},
    reply::Reply,
    shard::Shard,
};

/// How long a tombstone is kept.
const TOMBSTONE_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Tombstones of a shard, at most: beyond, the oldest goes before its time.
const TOMBSTONES_MAX: usize = 10_000;

/// Declarations and deletions that wait for the store, at most: beyond, they are refused.
const JOBS_MAX: usize = 1_024;

/// How long a member has to take one declaration over when it is told of all.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause before a member that had no room is told again.
const PAUSE: Duration = Duration::from_millis(50);

type Key = (TenantId, String);

/// What a shard knows of declarations.
#[derive(Default)]
pub(crate) struct Declared {
    known: RefCell<BTreeMap<Key, Known>>,
    /// Tombstones, the oldest first.
    tombstones: RefCell<VecDeque<(u64, Key)>>,
    /// Counts changes of what is known.
    changes: Cell<u64>,
    jobs: RefCell<VecDeque<Job>>,
    arrived: Notify,
    /// What the common database has may be newer than what is known.
    is_stale: Notify,
}

/// What is known of one queue.
#[derive(Clone)]
struct Known {
    updated_at_ms: u64,
    origin: String,
    /// The options as they were sent; none for a tombstone.
    options_text: Option<String>,
    /// When this came to be known, by the count of changes.
    change: u64,
}

/// What waits for this node's own store.
struct Job {
    what: What,
    answer_to: AnswerTo,
}

enum What {
    Declare(Box<ConfigureAsk>),
    Delete(Box<QueueKey>),
    TakeOver(Box<Declaration>),
}

impl Declared {
    /// Whether something is newer than what is known.
    fn is_news(&self, key: &Key, updated_at_ms: u64, origin: &str) -> bool {
        self.known.borrow().get(key).is_none_or(|known| (known.updated_at_ms, &*known.origin) < (updated_at_ms, origin))
    }

    /// A time for what is done now: later than whatever is known.
    fn next_time_ms(&self, key: &Key) -> u64 {
        let known_ms = self.known.borrow().get(key).map_or(0, |known| known.updated_at_ms + 1);
        now_ms().max(known_ms)
    }

    /// Notes what was declared, or with no options deleted.
    fn note(&self, key: Key, updated_at_ms: u64, origin: &str, options_text: Option<String>) {
        if options_text.is_none() {
            self.tombstones.borrow_mut().push_back((updated_at_ms, key.clone()));
        }
        self.changes.set(self.changes.get() + 1);
        let change = self.changes.get();
        let known = Known { updated_at_ms, origin: origin.to_owned(), options_text, change };
        self.known.borrow_mut().insert(key, known);
    }

    /// Forgets tombstones that are too old or too many: their keys.
    fn forget_tombstones(&self) -> Vec<Key> {
        let (mut known, mut tombstones) = (self.known.borrow_mut(), self.tombstones.borrow_mut());
        let oldest_ms = now_ms().saturating_sub(TOMBSTONE_MS);
        let mut gone = Vec::new();
        while let Some((since_ms, _)) = tombstones.front()
            && (*since_ms < oldest_ms || tombstones.len() > TOMBSTONES_MAX)
        {
            let (since_ms, key) = tombstones.pop_front().expect("just seen");
            let is_it = |known: &Known| known.options_text.is_none() && known.updated_at_ms == since_ms;
            if known.get(&key).is_some_and(is_it) {
                known.remove(&key);
                gone.push(key);
            }
        }
        gone
    }

    /// The first that is known behind a key, as others are told of it.
    fn behind(&self, key: Option<&Key>) -> Option<(Key, Declaration)> {
        let known = self.known.borrow();
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        let (key, known) = known.range((from, Bound::Unbounded)).next()?;
        Some((key.clone(), declaration(key, known.updated_at_ms, &known.origin, known.options_text.clone())))
    }
}

impl Shard {
    /// Whether declarations are kept in a store that is this node's alone, though it is one of several.
    pub(crate) fn keeps_own_declarations(&self) -> bool {
        self.node.cluster.as_ref().is_some_and(|cluster| !cluster.is_store_shared)
    }

    /// Notes a declaration that came from the store. False where what is known is newer.
    pub(crate) fn note_stored(&self, stored: &store::Declaration) -> bool {
        if self.node.cluster.is_none() {
            return true;
        }
        let key = (TenantId(stored.tenant), stored.queue.clone());
        let is_news = self.declared.is_news(&key, stored.updated_at_ms, &stored.origin);
        if is_news {
            self.declared.note(key, stored.updated_at_ms, &stored.origin, stored.options_json.clone());
        }
        is_news
    }

    /// Notes what this node has just put into the common store, and gives what others are to be told of it: nothing on a
    /// node that is alone. False where another node's is newer already.
    pub(crate) fn note_mine(
        &self,
        key: &QueueKey,
        updated_at_ms: u64,
        options_text: Option<String>,
    ) -> (bool, Option<Declaration>) {
        let Some(me) = self.node_id() else { return (true, None) };
        let key = (key.tenant, key.queue.clone());
        let is_news = self.declared.is_news(&key, updated_at_ms, me);
        let told = declaration(&key, updated_at_ms, me, options_text.clone());
        if is_news {
            self.declared.note(key, updated_at_ms, me, options_text);
            drop(self.declared.forget_tombstones());
        }
        (is_news, Some(told))
    }

    /// Tells every other member of a declaration: whether one had the queue that was deleted, and who was not reached. They
    /// hear of it when the link to them is back.
    pub(crate) async fn tell_everybody(&self, declaration: Declaration) -> (bool, Vec<Failed>) {
        let (mut existed, mut failed) = (false, Vec::new());
        let tenant = TenantId(declaration.key.tenant);
        let ask = match declaration.updated_at_ms {
            0 => PeerAsk::Delete { queue: declaration.key.queue },
            _ => PeerAsk::Declare(declaration),
        };
        for (node, answer) in self.ask_everybody(tenant, ask).await {
            match answer {
                Ok(PeerAnswer::Dropped { existed: there, .. }) => existed |= there,
                Ok(PeerAnswer::Declared { .. }) => {}
                Ok(_) => failed.push(Failed::new(&node, ApiError::unsupported())),
                Err(error) => failed.push(Failed::new(&node, error)),
            }
        }
        (existed, failed)
    }

    /// Has a declaration kept in this node's own store.
    pub(crate) fn declare_own(&self, ask: Box<ConfigureAsk>, answer_to: AnswerTo) {
        self.enqueue_own(Job { what: What::Declare(ask), answer_to });
    }

    /// Has a deletion kept in this node's own store.
    pub(crate) fn delete_own(&self, key: Box<QueueKey>, answer_to: AnswerTo) {
        self.enqueue_own(Job { what: What::Delete(key), answer_to });
    }

    /// Takes over what another node has declared or deleted, if it is the newest.
    pub(crate) fn take_over(&self, declaration: Box<Declaration>, ticket: Ticket) {
        if self.keeps_own_declarations() {
            return self.enqueue_own(Job { what: What::TakeOver(declaration), answer_to: AnswerTo::There(ticket) });
        }
        let answer = self.take_over_shared(&declaration).unwrap_or_else(|error| Answer::Refused(Box::new(error)));
        self.peers.answer(ticket, answer);
    }

    /// The common store has it already.
    fn take_over_shared(&self, heard: &Declaration) -> Result<Answer, ApiError> {
        let key = (TenantId(heard.key.tenant), heard.key.queue.clone());
        let is_tie = self
            .declared
            .known
            .borrow()
            .get(&key)
            .is_some_and(|known| known.updated_at_ms == heard.updated_at_ms && known.origin != heard.origin);
        if is_tie {
            // Which of two of the same millisecond came last, the store knows.
            self.declared.is_stale.notify();
        }
        let is_news = self.declared.is_news(&key, heard.updated_at_ms, &heard.origin);
        match &heard.state {
            DeclarationState::Declared(text) => {
                if is_news {
                    self.apply(self.engine_now_ms(), key.0, &key.1, &options_of(text)?)?;
                    self.declared.note(key, heard.updated_at_ms, &heard.origin, Some(text.clone()));
                }
                Ok(Answer::Declared { applied: is_news })
            }
            DeclarationState::Deleted => {
                let existed = is_news && self.remove_here(&key);
                if is_news {
                    self.declared.note(key, heard.updated_at_ms, &heard.origin, None);
                    drop(self.declared.forget_tombstones());
                }
                Ok(Answer::Dropped { existed, messages: 0 })
            }
        }
    }

    fn remove_here(&self, key: &Key) -> bool {
        let now_ms = self.engine_now_ms();
        let deleted = self.engine.borrow_mut().delete(now_ms, key.0, &key.1, &mut &self.outlet).deleted;
        self.timers.rearm(self);
        deleted
    }

    fn enqueue_own(&self, job: Job) {
        let mut jobs = self.declared.jobs.borrow_mut();
        if jobs.len() < JOBS_MAX {
            jobs.push_back(job);
            return self.declared.arrived.notify();
        }
        drop(jobs);
        self.answer_own(job.answer_to, Err(ApiError::overloaded("Too many declarations wait for the store")));
    }

    fn answer_own(&self, answer_to: AnswerTo, answer: Result<Answer, ApiError>) {
        match answer_to {
            AnswerTo::Here(promise) => promise.keep(match answer {
                Ok(Answer::Reply(reply)) => *reply,
                Ok(other) => unreachable!("clients are answered with a reply, not with {other:?}"),
                Err(error) => error.into(),
            }),
            AnswerTo::There(ticket) => {
                self.peers.answer(ticket, answer.unwrap_or_else(|error| Answer::Refused(Box::new(error))));
            }
            AnswerTo::Nobody => {}
        }
    }

    /// Does what waits for this node's own store, one after the other, for as long as the shard runs: what is newest is
    /// judged when it is its turn.
    pub(crate) async fn run_own_declarations(self: Rc<Self>) {
        loop {
            let next = self.declared.jobs.borrow_mut().pop_front();
            let Some(Job { what, answer_to }) = next else {
                self.declared.arrived.wait().await;
                continue;
            };
            match what {
                What::TakeOver(heard) => {
                    let answer = self.take_over_own(&heard).await;
                    self.answer_own(answer_to, answer);
                }
                What::Declare(ask) => match self.declare_own_now(&ask).await {
                    Ok(told) => self.tell_then_answer(told, What::Declare(ask), false, false, answer_to),
                    Err(error) => self.answer_own(answer_to, Err(error)),
                },
                What::Delete(key) => match self.delete_own_now(&key).await {
                    Ok((told, was_there, declared)) => {
                        self.tell_then_answer(told, What::Delete(key), was_there, declared, answer_to);
                    }
                    Err(error) => self.answer_own(answer_to, Err(error)),
                },
            }
            for key in self.declared.forget_tombstones() {
                if let Ok(asked) = self.store.ask(StoreAsk::Remove(Box::new((key.0.0, key.1)))) {
                    // Where it stays it is too old at the next start.
                    drop(asked.await);
                }
            }
        }
    }

    /// Tells the others while the next job goes on, and answers when they have.
    fn tell_then_answer(
        self: &Rc<Self>,
        told: Declaration,
        what: What,
        was_there: bool,
        declared: bool,
        answer_to: AnswerTo,
    ) {
        if matches!(answer_to, AnswerTo::Nobody) {
            // Another broker has told all of them, or nobody was told of it before.
            return;
        }
        let shard = Rc::clone(self);
        rt::spawn_local(async move {
            let updated_at_ms = told.updated_at_ms;
            let (existed, failed) = shard.tell_everybody(told).await;
            let reply = match &what {
                What::Declare(ask) => configured(ask, updated_at_ms, Some(&failed)),
                What::Delete(key) => deleted(key, was_there || existed, declared, Some(&failed)),
                What::TakeOver(_) => unreachable!("others are told by its origin"),
            };
            shard.answer_own(answer_to, Ok(Answer::Reply(Box::new(reply))));
        })
        .detach();
    }

    async fn declare_own_now(&self, ask: &ConfigureAsk) -> Result<Declaration, ApiError> {
        let me = self.node_id().expect("one of several").to_owned();
        let key = (ask.key.tenant, ask.key.queue.clone());
        let told = declaration(&key, self.declared.next_time_ms(&key), &me, Some(ask.options_text.clone()));
        self.keep(&told).await?;
        if let Err(error) = self.apply(self.engine_now_ms(), key.0, &key.1, &ask.options) {
            // The room went to another queue meanwhile: nobody was told of it, and what was kept is forgotten again.
            drop(self.store.ask(StoreAsk::Remove(Box::new((key.0.0, key.1))))?.await);
            return Err(error);
        }
        self.declared.note(key, told.updated_at_ms, &me, Some(ask.options_text.clone()));
        Ok(told)
    }

    /// What others are told of it, whether the queue was there, and whether it was declared.
    async fn delete_own_now(&self, key: &QueueKey) -> Result<(Declaration, bool, bool), ApiError> {
        let me = self.node_id().expect("one of several").to_owned();
        let key = (key.tenant, key.queue.clone());
        let known = self.declared.known.borrow().get(&key).map(|known| known.options_text.is_some());
        // What was never declared leaves no tombstone: requesters delete their inboxes by the thousand.
        let Some(declared) = known else {
            let was_there = self.remove_here(&key);
            return Ok((undeclared(key.0, key.1), was_there, false));
        };
        let told = declaration(&key, self.declared.next_time_ms(&key), &me, None);
        self.keep(&told).await?;
        self.declared.note(key.clone(), told.updated_at_ms, &me, None);
        let was_there = self.remove_here(&key);
        Ok((told, was_there, declared))
    }

    async fn take_over_own(&self, heard: &Declaration) -> Result<Answer, ApiError> {
        if heard.updated_at_ms == 0 && heard.state == DeclarationState::Deleted {
            let key = QueueKey { tenant: TenantId(heard.key.tenant), queue: heard.key.queue.clone() };
            let (_, existed, _) = self.delete_own_now(&key).await?;
            return Ok(Answer::Dropped { existed, messages: 0 });
        }
        let key = (TenantId(heard.key.tenant), heard.key.queue.clone());
        let is_news = self.declared.is_news(&key, heard.updated_at_ms, &heard.origin);
        match &heard.state {
            DeclarationState::Declared(_) if !is_news => Ok(Answer::Declared { applied: false }),
            DeclarationState::Declared(text) => {
                let options = options_of(text)?;
                self.make_room(key.0, 0, key.1.len() as u64 + 1024);
                let possible = self.engine.borrow_mut().check_configure(self.engine_now_ms(), key.0, &key.1);
                possible.map_err(|error| ApiError::configure(error, &key.1))?;
                self.keep(heard).await?;
                self.declared.note(key.clone(), heard.updated_at_ms, &heard.origin, Some(text.clone()));
                self.apply(self.engine_now_ms(), key.0, &key.1, &options)?;
                Ok(Answer::Declared { applied: true })
            }
            DeclarationState::Deleted if !is_news => Ok(Answer::Dropped { existed: false, messages: 0 }),
            DeclarationState::Deleted => {
                if now_ms().saturating_sub(heard.updated_at_ms) < TOMBSTONE_MS {
                    self.keep(heard).await?;
                    self.declared.note(key.clone(), heard.updated_at_ms, &heard.origin, None);
                }
                Ok(Answer::Dropped { existed: self.remove_here(&key), messages: 0 })
            }
        }
    }

    /// Has this node's own store keep it.
    async fn keep(&self, declaration: &Declaration) -> Result<(), ApiError> {
        let kept = store::Declaration {
            tenant: declaration.key.tenant,
            queue: declaration.key.queue.clone(),
            options_json: match &declaration.state {
                DeclarationState::Declared(text) => Some(text.clone()),
                DeclarationState::Deleted => None,
            },
            updated_at_ms: declaration.updated_at_ms,
            origin: declaration.origin.clone(),
        };
        match self.store.ask(StoreAsk::Declare(Box::new(kept)))?.await.answer {
            StoreAnswer::Done { .. } => Ok(()),
            StoreAnswer::Unavailable(why) => Err(ApiError::new(
                Code::EphemeralUnavailable,
                format!("The store is unavailable, nothing was changed: {why}"),
            )),
            other => unreachable!("asked to keep a declaration, got {other:?}"),
        }
    }

    /// A link to a member has come up: it is told of everything, or, where all use one database, that is read again.
    pub(super) fn link_is_up(self: &Rc<Self>, link: &Rc<Link>) {
        if !self.keeps_own_declarations() {
            return self.declared.is_stale.notify();
        }
        let (shard, link) = (Rc::clone(self), Rc::clone(link));
        rt::spawn_local(async move {
            if let Err(error) = shard.tell_all(&link).await {
                tracing::debug!(shard = shard.id(), "{} was not told of all declarations: {error}", link.member().id);
            }
        })
        .detach();
    }

    /// Ends with an error where the link does: it is begun again with the next.
    async fn tell_all(&self, link: &Rc<Link>) -> Result<(), ApiError> {
        let mut last = None;
        while let Some((key, declaration)) = self.declared.behind(last.as_ref()) {
            let request = Request { tenant: key.0.0, access: 0, ask: PeerAsk::Declare(declaration) };
            loop {
                let mut sent = match link.ask(&request) {
                    Ok(sent) => sent,
                    // So it begins: the other end has not said yet how much it takes at a time.
                    Err(error) if error.code == Code::Overloaded => {
                        rt::sleep(PAUSE).await;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                match within(PATIENCE, std::future::poll_fn(|cx| sent.poll(cx))).await {
                    None | Some(Err(Lost)) => return Err(ApiError::forward_failed("It does not answer")),
                    Some(Ok(PeerAnswer::Refused(refusal))) => {
                        let error = convert::refused(refusal);
                        if error.code != Code::Overloaded {
                            let (queue, node) = (&key.1, &link.member().id);
                            tracing::warn!(queue, "{node} does not take a declaration over: {error}");
                            break;
                        }
                        rt::sleep(PAUSE).await;
                    }
                    Some(Ok(_)) => break,
                }
            }
            last = Some(key);
        }
        Ok(())
    }

    /// Reads the common database's declarations whenever they may be newer, for as long as the shard runs.
    pub(crate) async fn refresh_declarations(self: Rc<Self>) {
        loop {
            self.declared.is_stale.wait().await;
            let as_of = self.declared.changes.get();
            let stored = self.store.declarations().await;
            let there: HashSet<Key> =
                stored.iter().map(|stored| (TenantId(stored.tenant), stored.queue.clone())).collect();
            // Of the same millisecond, what the store has is the last; but not where something was done meanwhile.
            let differs = |stored: &store::Declaration| {
                let known = self.declared.known.borrow();
                known.get(&(TenantId(stored.tenant), stored.queue.clone())).is_none_or(|known| {
                    known.updated_at_ms < stored.updated_at_ms
                        || known.updated_at_ms == stored.updated_at_ms
                            && known.options_text != stored.options_json
                            && known.change <= as_of
                })
            };
            let news: Vec<_> = stored.into_iter().filter(differs).collect();
            let gone: Vec<Key> = {
                let known = self.declared.known.borrow();
                let is_gone = |(key, known): &(&Key, &Known)| {
                    known.options_text.is_some() && known.change <= as_of && !there.contains(*key)
                };
                known.iter().filter(is_gone).map(|(key, _)| key.clone()).collect()
            };
            for key in gone {
                self.declared.known.borrow_mut().remove(&key);
                self.remove_here(&key);
            }
            for stored in &news {
                self.declared.known.borrow_mut().remove(&(TenantId(stored.tenant), stored.queue.clone()));
            }
            self.restore(news);
        }
    }
}

impl Failed {
    /// Puts who was not reached into a rendered answer, if anybody was.
    pub(crate) fn put_into(reply: &mut Reply, failed: &[Self]) {
        if !failed.is_empty() && reply.body.pop_if(|last| *last == b'}').is_some() {
            super::everybody::append_failed(&mut reply.body, failed);
            reply.body.push(b'}');
        }
    }
}

fn declaration(key: &Key, updated_at_ms: u64, origin: &str, options_text: Option<String>) -> Declaration {
    Declaration {
        key: PeerKey { tenant: key.0.0, queue: key.1.clone() },
        updated_at_ms,
        origin: origin.to_owned(),
        state: options_text.map_or(DeclarationState::Deleted, DeclarationState::Declared),
    }
}

/// The deletion of a queue that is not declared as far as is known: it has no time, and is told of as a deletion of
/// whatever there is.
pub(super) fn undeclared(tenant: TenantId, queue: String) -> Declaration {
    declaration(&(tenant, queue), 0, "", None)
}

fn options_of(text: &str) -> Result<Options, ApiError> {
    parse_options(text).map_err(ApiError::from)
}

fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(queue: &str) -> Key {
        (TenantId([1; 16]), queue.to_owned())
    }

    #[test]
    fn the_newest_wins_and_of_the_same_time_the_higher_node() {
        let declared = Declared::default();
        assert!(declared.is_news(&key("q"), 0, ""));
        declared.note(key("q"), 10, "b", Some("{}".to_owned()));
        for (updated_at_ms, origin, is_news) in [(9, "z", false), (10, "a", false), (10, "b", false), (10, "c", true)] {
            assert_eq!(declared.is_news(&key("q"), updated_at_ms, origin), is_news, "{updated_at_ms} {origin}");
        }
        assert!(declared.next_time_ms(&key("q")) > 1_700_000_000_000);
        declared.note(key("q"), u64::MAX - 7, "b", None);
        assert_eq!(declared.next_time_ms(&key("q")), u64::MAX - 6, "later than a clock that runs ahead");
    }

    #[test]
    fn a_tombstone_goes_after_a_week_and_the_oldest_when_there_are_too_many() {
        let declared = Declared::default();
        let now_ms = now_ms();
        declared.note(key("old"), now_ms - TOMBSTONE_MS - 1, "a", None);
        declared.note(key("young"), now_ms - TOMBSTONE_MS / 2, "a", None);
        declared.note(key("kept"), 1, "a", Some("{}".to_owned()));
        assert_eq!(declared.forget_tombstones(), [key("old")]);
        for number in 0..TOMBSTONES_MAX {
            declared.note(key(&format!("many-{number}")), now_ms, "a", None);
        }
        assert_eq!(declared.forget_tombstones(), [key("young")]);
        assert!(declared.known.borrow().contains_key(&key("kept")));
        assert_eq!(declared.known.borrow().len(), TOMBSTONES_MAX + 1);
    }

    #[test]
    fn a_queue_that_is_declared_again_is_no_tombstones() {
        let declared = Declared::default();
        declared.note(key("q"), 1, "a", None);
        declared.note(key("q"), 2, "a", Some("{}".to_owned()));
        assert!(declared.forget_tombstones().is_empty());
        let (first, said) = declared.behind(None).expect("it is known");
        assert_eq!((&first, said.state), (&key("q"), DeclarationState::Declared("{}".to_owned())));
        assert!(declared.behind(Some(&first)).is_none());
    }
}
