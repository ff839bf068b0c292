//! Serves what other shards ask: one task, one request after the other, each a plain call on the engine.

use std::{future::poll_fn, rc::Rc};

use queen_ephemeral::{Pop, Popped as Outcome};
use queen_fabric::port::{Incoming, Ticket};

use crate::{
    cluster::{DEFAULT_PARTITION, Home},
    ephemeral::{declare::AnswerTo, request::Requested},
    error::ApiError,
    protocol::{AckAsk, Answer, Ask, DataProtocol, PopAsk, PushAsk, QueueKey, RequestAsk, Tell},
    reply::{Popped, Reply},
    shard::Shard,
    waiters::Place,
};

/// Runs for as long as the shard does.
pub(crate) async fn run(shard: Rc<Shard>) {
    loop {
        let incoming = poll_fn(|cx| shard.peers.poll_incoming(cx)).await;
        shard.serve_peer(incoming);
    }
}

impl Shard {
    fn serve_peer(self: &Rc<Self>, incoming: Incoming<DataProtocol>) {
        match incoming {
            Incoming::Ask { ticket, ask } => self.serve_ask(ticket, ask),
            Incoming::Cancel { ticket } => {
                let place = self.outlet.waiters().borrow_mut().cancel(ticket);
                if let Some(place) = place {
                    self.cancel_here(place);
                    // Nobody waits for it, but the ticket has to be closed.
                    let nothing = Popped { body: Vec::new(), claim: None };
                    self.peers.answer(ticket, Answer::Popped(Box::new(nothing)));
                }
            }
            Incoming::Tell { tell: Tell::Settle(claim), .. } => self.settle_here(claim),
            Incoming::Tell { tell: Tell::GiveBack(claim), .. } => self.give_back_here(claim),
            Incoming::Orphan { answer, follow } => {
                // The client went while its answer was on the way.
                if let Answer::Popped(popped) = answer
                    && let Some(claim) = popped.claim
                {
                    follow.tell(Tell::GiveBack(claim));
                }
            }
        }
    }

    fn serve_ask(self: &Rc<Self>, ticket: Ticket, ask: Ask) {
        let answer = match ask {
            Ask::Push(push) if self.has_moved(&push.key, Some(&push.partition)) => refused(ApiError::owner_moved()),
            Ask::Pop(pop) if self.pop_has_moved(&pop) => refused(ApiError::owner_moved()),
            Ask::Push(push) => self.serve_push(&push),
            Ask::Pop(pop) => match self.serve_pop(ticket, &pop) {
                Some(answer) => answer,
                None => return,
            },
            Ask::Request(request) => match self.serve_request(ticket, &request) {
                Ok(()) => return,
                Err(error) => refused(error),
            },
            Ask::Ack(ack) => self.serve_ack(&ack),
            Ask::Configure(ask) => return self.declare_here(ask, AnswerTo::There(ticket)),
            Ask::Delete(key) => return self.delete_here(key, AnswerTo::There(ticket)),
            Ask::Adopt(ask) => match self.adopt_here(&ask) {
                Ok(()) => Answer::Adopted,
                Err(error) => refused(error),
            },
            Ask::Inquire(key) => self.inquire_here(&key),
            Ask::Reset(key) => Answer::Reply(Box::new(self.reset_reply(&key))),
            Ask::Depth(ask) => Answer::Reply(Box::new(self.depth_reply(&ask))),
            Ask::DepthShare(ask) => Answer::DepthShare(Box::new(self.depth_share(&ask))),
            Ask::Drop(key) => self.drop_here(&key),
            Ask::TakeOver(declaration) => return self.take_over(declaration, ticket),
            Ask::Scan(ask) => Answer::Piece(Box::new(self.scan_here(&ask))),
            Ask::Observe => Answer::Observed(Box::new(self.observe_here())),
        };
        self.peers.answer(ticket, answer);
    }

    /// Whether a partition is another node's by now, of which the shard that asks had not heard yet.
    fn has_moved(&self, key: &QueueKey, partition: Option<&str>) -> bool {
        partition.is_some_and(|partition| {
            self.node.cluster.is_some()
                && matches!(self.home_of(key.tenant, &key.queue, partition), Ok(Home::Elsewhere(_)))
        })
    }

    /// The same for a pop. One without a partition may wait where the queue holds something, or is placed.
    fn pop_has_moved(&self, pop: &PopAsk) -> bool {
        if pop.partition.is_some() {
            return self.has_moved(&pop.key, pop.partition.as_deref());
        }
        pop.wait_ms > 0
            && !pop.unless_empty
            && self.has_moved(&pop.key, Some(DEFAULT_PARTITION))
            && !self.engine.borrow().has_partitions(pop.key.tenant, &pop.key.queue)
    }

    fn serve_push(&self, push: &PushAsk) -> Answer {
        let (key, partition) = (&push.key, &push.partition);
        let pushed = match push.reply_to.as_deref() {
            Some(inbox) => {
                self.push_request_here(self.engine_now_ms(), key.tenant, &key.queue, partition, &push.bytes, inbox)
            }
            None => self.push_here(self.engine_now_ms(), key.tenant, &key.queue, partition, push.payloads()),
        };
        match pushed {
            Ok(()) => Answer::Pushed(push.ends.len() as u32),
            Err(error) => refused(error),
        }
    }

    /// None where the pop is parked, or was answered by the engine call itself.
    fn serve_pop(&self, ticket: Ticket, ask: &PopAsk) -> Option<Answer> {
        let pop = Pop {
            tenant: ask.key.tenant,
            queue: &ask.key.queue,
            partition: ask.partition.as_deref(),
            group: ask.group.as_deref(),
            batch: ask.batch,
            auto_ack: ask.auto_ack,
            wait_ms: ask.wait_ms,
        };
        if ask.unless_empty && !self.engine.borrow().has_partitions(ask.key.tenant, &ask.key.queue) {
            return Some(Answer::Elsewhere);
        }
        let waiter = self.outlet.waiters().borrow_mut().add_there(ticket);
        let outcome = self.pop_here(self.engine_now_ms(), pop, waiter);
        let mut waiters = self.outlet.waiters().borrow_mut();
        match outcome {
            Ok(Outcome::Delivered) => None,
            Ok(Outcome::Parked(park)) => {
                waiters.placed(waiter, Place::Parked(park));
                None
            }
            Ok(Outcome::Empty) => {
                waiters.remove(waiter);
                Some(Answer::Popped(Box::new(Popped::empty(&ask.key.queue))))
            }
            Err(error) => {
                waiters.remove(waiter);
                Some(refused(error))
            }
        }
    }

    /// The reply, or that none came, answers the ticket later.
    fn serve_request(self: &Rc<Self>, ticket: Ticket, ask: &RequestAsk) -> Result<(), ApiError> {
        let request = Requested {
            tenant: ask.key.tenant,
            queue: &ask.key.queue,
            partition: &ask.partition,
            payload: &ask.payload,
            reply_to: Some(&ask.reply_to),
            wait_ms: ask.wait_ms,
        };
        let waiter = self.outlet.waiters().borrow_mut().add_there(ticket);
        self.request_here(self.engine_now_ms(), &request, waiter)
    }

    fn serve_ack(&self, ack: &AckAsk) -> Answer {
        let mut body = Vec::new();
        self.ack_here(self.engine_now_ms(), ack, &mut body);
        Answer::Reply(Box::new(Reply::json(200, body)))
    }
}

fn refused(error: ApiError) -> Answer {
    Answer::Refused(Box::new(error))
}
