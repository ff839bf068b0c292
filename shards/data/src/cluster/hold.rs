//! Requests for partitions that this node owns by now, while another node may still have what they hold.
//!
//! Served at once, such a request would find nothing, or leave a message in front of older ones. So it is held: while the
//! node starts, until it knows the members; after a change of the members, until the owner before has said that nothing is
//! to come, or that it is here. Who does not answer for a while is passed over, as somebody who crashed holds nothing. How
//! many requests are held and for how long is bounded, and what is over the bounds is refused: nothing was done.

use std::{
    cell::{Cell, RefCell},
    collections::{HashSet, VecDeque},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use queen_ephemeral::{TenantId, inbox};
use queen_fabric::{
    members::{Member, Members},
    rt::{self, Deadline},
};
use queen_wire::peer::{Answer, Ask as PeerAsk, Request};

use super::{AckHome, DEFAULT_PARTITION, Home, link::Sent};
use crate::{
    connection::{Operation, Outcome},
    error::{ApiError, Code},
    protocol::Ask,
    shard::Shard,
};

/// How long a request is held for a partition that is on its way here.
const COMING_MAX: Duration = Duration::from_secs(1);

/// How long a request is held while the node starts: well above the starting window, which ends of itself.
const STARTING_MAX: Duration = Duration::from_secs(5);

/// How long after a change of the members the owners before it are asked what they still have.
const FORMER: Duration = Duration::from_secs(5);

/// How long after a change an owner before it may take to be reached and to answer.
const SILENT_MAX: Duration = Duration::from_secs(1);

/// How long after a change an owner before it may take to hear of it.
const UNHEARD_MAX: Duration = Duration::from_millis(800);

/// What it has for an answer in any case.
const SILENT_MIN: Duration = Duration::from_millis(250);

/// The pause before the same is asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// Requests that a shard holds, at most.
const HELD_MAX: usize = 1_024;

/// Changes that are remembered, at most: the oldest is forgotten.
const FORMERS_MAX: usize = 8;

/// Partitions of which is remembered that they are settled; of others it is asked again.
const SETTLED_MAX: usize = 16_384;

/// A partition, and the owner before that has said that it has nothing of it.
type Settled = (Arc<str>, TenantId, String, String);

/// Who owned partitions before, and what of that is settled.
#[derive(Default)]
pub(crate) struct Holding {
    formers: RefCell<VecDeque<Former>>,
    settled: RefCell<HashSet<Settled>>,
    /// Owners before that do not answer, or have gone.
    passed_over: RefCell<HashSet<Arc<str>>>,
    held: Cell<usize>,
}

/// The members before a change.
struct Former {
    members: Members,
    until_when: Instant,
}

impl Former {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.until_when + FORMER
    }
}

impl Holding {
    /// Takes note of a change of the members.
    pub(crate) fn changed(&self, before: Option<&Members>, now: &Members) {
        if now.is_starting || now.members.is_empty() {
            return;
        }
        let members = match before {
            Some(before) if !before.is_starting => before.clone(),
            // What is this node's now was that of the others, as if there were no such node.
            _ => {
                let others = now.members.iter().filter(|member| !now.is_me(member)).cloned().collect();
                Members { members: others, ..now.clone() }
            }
        };
        self.settled.borrow_mut().clear();
        self.passed_over.borrow_mut().clear();
        let mut formers = self.formers.borrow_mut();
        if formers.len() >= FORMERS_MAX {
            formers.pop_front();
        }
        formers.push_back(Former { members, until_when: Instant::now() });
    }

    /// Forgets the changes that are long ago.
    pub(crate) fn forget(&self) {
        let now = Instant::now();
        let mut formers = self.formers.borrow_mut();
        formers.retain(|former| !former.is_over(now));
        if formers.is_empty() {
            self.settled.take();
            self.passed_over.take();
        }
    }

    /// The other members of not long ago, who may still have something.
    pub(super) fn former_members(&self) -> Vec<Member> {
        let now = Instant::now();
        let formers = self.formers.borrow();
        let passed_over = self.passed_over.borrow();
        let recent = formers.iter().filter(|former| !former.is_over(now));
        let members = recent.flat_map(|former| former.members.members.iter().filter(|&one| !former.members.is_me(one)));
        members.filter(|member| !passed_over.contains(&member.id)).cloned().collect()
    }

    /// The owner before, which may still have a partition that is this node's now, and until when it was that.
    pub(super) fn owner_before(&self, tenant: TenantId, queue: &str, partition: &str) -> Option<(Member, Instant)> {
        let formers = self.formers.borrow();
        if formers.is_empty() || inbox::is_inbox(queue) {
            // Inboxes are never handed over.
            return None;
        }
        let now = Instant::now();
        formers.iter().rev().filter(|former| !former.is_over(now)).find_map(|former| {
            let owner = former.members.owner(&tenant.0, queue, partition)?;
            let is_settled = former.members.is_me(owner)
                || self.passed_over.borrow().contains(&owner.id)
                || self.settled.borrow().contains(&(
                    Arc::clone(&owner.id),
                    tenant,
                    queue.to_owned(),
                    partition.to_owned(),
                ));
            (!is_settled).then(|| (owner.clone(), former.until_when))
        })
    }

    fn settle(&self, settled: Settled) {
        let mut all = self.settled.borrow_mut();
        if all.len() >= SETTLED_MAX {
            all.clear();
        }
        all.insert(settled);
    }

    fn pass_over(&self, id: &Arc<str>) {
        self.passed_over.borrow_mut().insert(Arc::clone(id));
    }
}

/// Ready once a partition may be served here, or is known to be elsewhere.
pub(super) struct Gate {
    shard: Rc<Shard>,
    tenant: TenantId,
    queue: String,
    partition: String,
    since: Instant,
    stage: Stage,
}

enum Stage {
    Looking,
    /// The owner before has been asked what it has.
    Asking {
        sent: Sent,
        whom: Arc<str>,
        until_when: Instant,
        patience: Deadline,
    },
    Pausing(Deadline),
}

fn until(at: Instant) -> Deadline {
    let mut deadline = Deadline::new();
    deadline.set(Some(at));
    deadline
}

impl Gate {
    fn new(shard: &Rc<Shard>, tenant: TenantId, queue: &str, partition: &str) -> Result<Self, ApiError> {
        let held = &shard.holding.held;
        if held.get() >= HELD_MAX {
            return Err(shard.refusal_to_hold());
        }
        held.set(held.get() + 1);
        let (queue, partition) = (queue.to_owned(), partition.to_owned());
        Ok(Self { shard: Rc::clone(shard), tenant, queue, partition, since: Instant::now(), stage: Stage::Looking })
    }

    /// For how long the request has been held.
    pub(super) fn held_for(&self) -> Duration {
        self.since.elapsed()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        loop {
            self.stage = match &mut self.stage {
                Stage::Looking => match self.look() {
                    Ok(Some(stage)) => stage,
                    Ok(None) => return Poll::Ready(Ok(())),
                    Err(error) => return Poll::Ready(Err(error)),
                },
                Stage::Pausing(pause) => {
                    ready!(pause.poll(cx));
                    Stage::Looking
                }
                Stage::Asking { sent, whom, until_when, patience } => match sent.poll(cx) {
                    // It has not heard of the change. Where it never does, both own it.
                    Poll::Ready(Ok(Answer::Moved { .. })) if Instant::now() >= *until_when + UNHEARD_MAX => {
                        self.shard.holding.pass_over(whom);
                        Stage::Looking
                    }
                    Poll::Ready(Ok(Answer::Coming | Answer::Moved { .. }) | Err(_)) => {
                        Stage::Pausing(until(Instant::now() + PAUSE))
                    }
                    // An older node that does not know the question hands over all the same, and bends the order.
                    Poll::Ready(Ok(_)) => {
                        let settled = (Arc::clone(whom), self.tenant, self.queue.clone(), self.partition.clone());
                        self.shard.holding.settle(settled);
                        Stage::Looking
                    }
                    Poll::Pending => {
                        ready!(patience.poll(cx));
                        self.shard.holding.pass_over(whom);
                        Stage::Looking
                    }
                },
            }
        }
    }

    /// What is to be waited for next, if anything.
    fn look(&self) -> Result<Option<Stage>, ApiError> {
        let (shard, tenant, queue, partition) = (&self.shard, self.tenant, &*self.queue, &*self.partition);
        let now = Instant::now();
        loop {
            if shard.home_of(tenant, queue, partition)? != Home::Awaited {
                return Ok(None);
            }
            let pause = || Ok(Some(Stage::Pausing(until(now + PAUSE))));
            let Some((owner, until_when)) = shard.holding.owner_before(tenant, queue, partition) else {
                // The node starts.
                return if now < self.since + STARTING_MAX { pause() } else { Err(shard.refusal_to_hold()) };
            };
            if now >= self.since + COMING_MAX {
                return Err(ApiError::owner_moved());
            }
            let ask = PeerAsk::Inquire { queue: queue.to_owned(), partition: partition.to_owned() };
            let asked = match shard.links.named(&owner.id) {
                Some(link) => link.ask(&Request { tenant: tenant.0, access: 0, ask }),
                None => Err(ApiError::owner_moved()),
            };
            let patience = (until_when + SILENT_MAX).max(now + SILENT_MIN);
            match asked {
                Ok(sent) => {
                    return Ok(Some(Stage::Asking { sent, whom: owner.id, until_when, patience: until(patience) }));
                }
                Err(error) if error.code == Code::Overloaded => return pause(),
                // Its link may come yet. Who is no member any more had one, and has gone with it.
                Err(_) if shard.is_member(&owner) && now < until_when + SILENT_MAX => return pause(),
                Err(_) => shard.holding.pass_over(&owner.id),
            }
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let held = &self.shard.holding.held;
        held.set(held.get() - 1);
    }
}

/// A request that is held, and then goes where it belongs.
pub(crate) struct Held(State);

enum State {
    Waiting(Gate, Option<Ask>),
    Going(Operation),
}

impl Held {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        if let State::Waiting(gate, ask) = &mut self.0 {
            let passed = ready!(gate.poll(cx));
            let ask = ask.take().expect("not polled after its answer");
            let held_for = gate.held_for();
            match passed.and_then(|()| gate.shard.go_on(ask, held_for)) {
                Ok(operation) => self.0 = State::Going(operation),
                Err(error) => return Poll::Ready(Outcome::Reply(error.into())),
            }
        }
        let State::Going(operation) = &mut self.0 else { unreachable!("just put there") };
        operation.poll(cx)
    }
}

impl Shard {
    /// Holds a request until its partition may be served, wherever that is then.
    pub(crate) fn hold(self: &Rc<Self>, ask: Ask) -> Result<Operation, ApiError> {
        let (key, partition) = match &ask {
            Ask::Push(push) => (&push.key, &*push.partition),
            Ask::Pop(pop) => (&pop.key, pop.partition.as_deref().unwrap_or(DEFAULT_PARTITION)),
            // An ack names its partitions itself: it is held while the node starts alone.
            Ask::Ack(ack) => (&ack.key, DEFAULT_PARTITION),
            Ask::Request(request) => {
                let gate = self.gate(request.key.tenant, &request.reply_to, DEFAULT_PARTITION)?;
                return Ok(Operation::Held(Box::new(Held(State::Waiting(gate, Some(ask))))));
            }
            _ => unreachable!("no request for a partition"),
        };
        let gate = self.gate(key.tenant, &key.queue, partition)?;
        Ok(Operation::Held(Box::new(Held(State::Waiting(gate, Some(ask))))))
    }

    /// What is waited for before a partition is served.
    pub(super) fn gate(self: &Rc<Self>, tenant: TenantId, queue: &str, partition: &str) -> Result<Gate, ApiError> {
        Gate::new(self, tenant, queue, partition)
    }

    /// Whether this node does not know all members yet.
    pub(super) fn is_starting(&self) -> bool {
        self.mesh.members().as_ref().is_none_or(|members| members.is_starting)
    }

    /// Forgets owners before and their links, once the last change is long ago.
    pub(crate) async fn forget_former_owners(self: Rc<Self>) {
        rt::sleep(SILENT_MAX).await;
        // Who has left and says nothing is not leaving, but gone or standing still: whoever waits for it is told.
        self.follow_links_without(|shard, former| {
            shard.links.named(&former.id).is_some_and(|link| link.is_silent_for(SILENT_MAX))
        });
        rt::sleep(FORMER - SILENT_MAX).await;
        self.holding.forget();
        self.follow_links_without(|_, _| false);
    }

    fn follow_links_without(self: &Rc<Self>, is_gone: impl Fn(&Self, &Member) -> bool) {
        let Some(members) = self.mesh.members().clone() else { return };
        for former in self.holding.former_members() {
            if !self.is_member(&former) && is_gone(self, &former) {
                self.holding.pass_over(&former.id);
            }
        }
        self.links.follow(self, &members);
    }

    fn is_member(&self, member: &Member) -> bool {
        self.mesh.members().as_ref().is_some_and(|members| members.members.iter().any(|one| one.id == member.id))
    }

    fn refusal_to_hold(&self) -> ApiError {
        if !self.is_starting() {
            return ApiError::owner_moved();
        }
        ApiError::new(
            Code::EphemeralUnavailable,
            "The node starts, and does not know all members yet; nothing was done, try again",
        )
    }

    /// Sends a request that was held to where it belongs.
    fn go_on(self: &Rc<Self>, ask: Ask, held_for: Duration) -> Result<Operation, ApiError> {
        match ask {
            Ask::Push(push) => match self.home_of(push.key.tenant, &push.key.queue, &push.partition)? {
                Home::Awaited => self.hold(Ask::Push(push)),
                Home::Elsewhere(member) => self.forward_push(&member, *push),
                Home::Here => {
                    Ok(Operation::Asked(self.ask(self.owner(push.key.tenant, &push.key.queue), Ask::Push(push))?))
                }
            },
            Ask::Pop(mut pop) => {
                let is_stopping = self.node.is_stopping();
                let left_ms = pop.wait_ms.saturating_sub(held_for.as_millis() as u64);
                pop.wait_ms = if is_stopping { 0 } else { left_ms };
                self.route_pop(*pop)
            }
            Ask::Ack(ack) => match self.home_of_acks(&ack)? {
                AckHome::Awaited => self.hold(Ask::Ack(ack)),
                AckHome::Here => {
                    Ok(Operation::Asked(self.ask(self.owner(ack.key.tenant, &ack.key.queue), Ask::Ack(ack))?))
                }
                AckHome::Elsewhere(member) => self.forward_acks(&member, *ack),
                AckHome::Several(homes) => self.scatter_acks(*ack, &homes),
            },
            Ask::Request(request) => match self.home_of(request.key.tenant, &request.reply_to, DEFAULT_PARTITION)? {
                Home::Awaited => self.hold(Ask::Request(request)),
                Home::Elsewhere(member) => {
                    let permit = self.park_permit()?;
                    self.forward_request(&member, *request, permit)
                }
                Home::Here => {
                    let permit = self.park_permit()?;
                    let owner = self.owner(request.key.tenant, &request.reply_to);
                    Ok(Operation::AskedParked {
                        asked: self.peers.ask_parked(owner, Ask::Request(request)),
                        _permit: permit,
                    })
                }
            },
            _ => unreachable!("no request for a partition"),
        }
    }
}
