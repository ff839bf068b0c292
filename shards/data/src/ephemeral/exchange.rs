//! POST exchange: acks, pushes and a pop in one request, in this order and independent of each other.
//!
//! Parts whose owner is this shard are done at once; the others are asked for in their order, and lanes keep it: what
//! goes to one owner is done there in the order of the exchange.

use std::rc::Rc;

use queen_wire::body::{ExchangeBody, Span, parse_exchange};

use super::{
    Call, Handled,
    ack::{Acking, ack_ask},
    not_reserved,
    push::Pushing,
};
use crate::{
    connection::{Exchange, Frame, Later, Operation, Outcome, Part, Waits},
    error::ApiError,
    reply::Reply,
    routes::Route,
    shard::Shard,
};

impl Shard {
    pub(crate) fn exchange(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let mut spans = self.spans.take();
        let body = parse_exchange(call.request.body, self.node.config.json_depth_max, &mut spans);
        let handled = body.map(|body| self.start_exchange(call, body, &spans));
        spans.clear();
        self.spans.set(spans);
        Ok(handled?)
    }

    fn start_exchange(self: &Rc<Self>, call: &Call<'_>, body: ExchangeBody<'_>, spans: &[Span]) -> Handled {
        let acks = body.acks.map(|acks| {
            let ask = ack_ask(call, acks);
            match self.ack_elsewhere(ask) {
                Ok(Acking::Here(ask)) => {
                    let mut results = Vec::new();
                    self.ack_here(call.now_ms, &ask, &mut results);
                    Part::Done(Outcome::Reply(Reply::json(200, results)))
                }
                Ok(Acking::Later(operation)) => Part::Waiting(operation),
                Err(error) => part(Err(error)),
            }
        });
        let pushes = body.pushes.map(|pushes| {
            let push = |push: queen_wire::body::ExchangePush<'_>| {
                let spans = &spans[push.spans];
                if spans.is_empty() {
                    return Part::Done(Outcome::Pushed(0));
                }
                match self.start_push(call, push.push, spans) {
                    Ok(Pushing::Done(messages)) => Part::Done(Outcome::Pushed(messages)),
                    Ok(Pushing::Later(operation)) => Part::Waiting(operation),
                    Err(error) => Part::Done(Outcome::Reply(error.into())),
                }
            };
            pushes.into_iter().map(push).collect()
        });
        let (mut route, mut waits) = (Route::Exchange, Waits::No);
        let pop = body.pop.map(|query| {
            let pop = self.asked_for(call, &query);
            if let Err(error) = not_reserved(pop.queue) {
                return part(Err(error));
            }
            if pop.wait_ms == 0 && self.is_here(&pop) {
                return match self.pop_now(call, pop) {
                    Ok(popped) => Part::Done(popped),
                    Err(error) => part(Err(error)),
                };
            }
            if pop.wait_ms > 0 {
                (route, waits) = (Route::WaitingExchange, Waits::ForMessages(pop.queue.into()));
            }
            part(self.pop_later(call, pop))
        });
        let operation = Operation::Exchange(Box::new(Exchange::new(self, acks, pushes, pop)));
        Handled::Later(Later { operation, frame: Frame { route, ..call.frame }, waits })
    }
}

fn part(started: Result<Operation, ApiError>) -> Part {
    match started {
        Ok(operation) => Part::Waiting(operation),
        Err(error) => Part::Done(Outcome::Reply(error.into())),
    }
}
