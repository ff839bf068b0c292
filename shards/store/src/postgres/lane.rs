//! Lanes: connections that commit, one batch at a time each, and know of every batch whether it was written.
//!
//! A lane has a row in the database with the number of its last batch, written by that batch. When its connection dies
//! during a commit, the row is closed from another one: that waits for the old one's lock, and afterwards the old one
//! can write nothing any more. The number then tells. Until it can be told, the batch has no outcome.

use std::{
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use queen_fabric::rt;
use queen_log::{
    id::Uuid,
    store::{Batch, Committed, Done, StoreFailure},
};
use tokio_postgres::types::Type;

use super::{
    Server,
    commit::{Columns, Outcome, Shape},
    session::{Purpose, Session, Sql, Trouble},
    values::Id,
};
use crate::{database::JobDone, random};

/// How long a batch that was not written is tried while the server is away.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a batch is tried whose statement fails, each time without having done anything.
const TRIES_MAX: u32 = 20;

const OPEN: Sql = Sql {
    text: "INSERT INTO queen.lane (id, now_us) VALUES ($1, (extract(epoch FROM now()) * 1000000)::int8)",
    types: &[Type::UUID],
};
const CLOSE: Sql = Sql {
    text: "UPDATE queen.lane SET closed = true WHERE id = $1
           RETURNING batch, now_us, left_appends, left_cursors",
    types: &[Type::UUID],
};
const FORGET: Sql = Sql { text: "DELETE FROM queen.lane WHERE id = $1 AND closed", types: &[Type::UUID] };

/// Lanes and the batches that wait for one.
#[derive(Default)]
pub(super) struct Lanes {
    waiting: VecDeque<(u64, Batch)>,
    idle: Vec<Lane>,
    /// Lanes that there are, idle or not.
    open: usize,
}

/// A lane, which may have lost its connection.
#[derive(Default)]
struct Lane {
    session: Option<Rc<Session>>,
    /// Its row, with the number of the last batch.
    row: Option<(Uuid, i64)>,
}

/// Starts a batch, or has it wait for a lane.
pub(super) fn start(server: &Rc<Server>, job: u64, batch: Batch) {
    let lane = {
        let mut lanes = server.lanes.borrow_mut();
        let lane = match lanes.idle.pop() {
            None if lanes.open < server.config.pool_size => {
                lanes.open += 1;
                Some(Lane::default())
            }
            idle => idle,
        };
        if lane.is_none() {
            lanes.waiting.push_back((job, batch));
            return;
        }
        lane.map(|lane| (lane, batch))
    };
    if let Some((lane, batch)) = lane {
        let server = Rc::clone(server);
        rt::spawn_local(async move { drive(&server, lane, job, batch).await }).detach();
    }
}

/// Commits a batch and then those that wait, and lays the lane down.
async fn drive(server: &Rc<Server>, mut lane: Lane, job: u64, batch: Batch) {
    let mut next = Some((job, batch));
    while let Some((job, batch)) = next {
        let outcome = lane.commit(server, &batch).await;
        let done = outcome.map(|committed| JobDone::Log(Box::new(Done::Committed(committed))));
        server.outcomes.deliver([(job, done)]);
        next = server.lanes.borrow_mut().waiting.pop_front();
    }
    server.lanes.borrow_mut().idle.push(lane);
}

impl Lane {
    /// Commits a batch, however long it takes to know whether it is.
    async fn commit(&mut self, server: &Rc<Server>, batch: &Batch) -> Result<Committed, StoreFailure> {
        let columns = Columns::of(batch);
        let statement = Shape::of(batch).statement();
        let give_up = Instant::now() + PATIENCE;
        let mut tries = 0;
        loop {
            let (session, id, last) = match self.ready(server).await {
                Ok(ready) => ready,
                Err(reason) => {
                    server.returns(give_up).await.map_err(|()| StoreFailure::Unavailable(reason))?;
                    continue;
                }
            };
            let number = last + 1;
            let rows = session.query(statement, &columns.parameters(&Id(id), &number)).await;
            let trouble = match rows.and_then(|rows| rows.first().map(Outcome::of).transpose()) {
                Ok(Some(outcome)) => {
                    self.row = Some((id, number));
                    return Ok(outcome.committed(batch));
                }
                Ok(None) => {
                    // Nobody closes the row of a lane that lives; it is forgotten after a day of rest.
                    self.row = None;
                    Trouble::Conflict
                }
                Err(Trouble::Gone(reason)) => {
                    tracing::debug!("a connection was lost during a commit: {reason}");
                    self.session = None;
                    self.row = None;
                    match resolve(server, id).await {
                        Some(outcome) if outcome.batch == number => return Ok(outcome.committed(batch)),
                        Some(_) => Trouble::Gone(reason),
                        None => return Err(StoreFailure::Unavailable("the fate of a batch is unknown".into())),
                    }
                }
                Err(trouble) => trouble,
            };
            tries += 1;
            match trouble {
                Trouble::Refused(reason) => return Err(StoreFailure::Refused(reason)),
                Trouble::Away(reason) => {
                    server.suspect();
                    return Err(StoreFailure::Unavailable(reason));
                }
                Trouble::Conflict | Trouble::Gone(_) if tries == TRIES_MAX => {
                    return Err(StoreFailure::Unavailable(trouble.to_string().into()));
                }
                Trouble::Conflict | Trouble::Gone(_) => {}
            }
        }
    }

    /// A connection and the lane's row, which are made if they are not there.
    async fn ready(&mut self, server: &Rc<Server>) -> Result<(Rc<Session>, Uuid, i64), Box<str>> {
        let session = match self.session.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            // The row stays the lane's: whatever it committed was answered.
            None => server.connect(Purpose::Commit).await?,
        };
        let (id, last) = match self.row {
            Some(row) => row,
            None => {
                let id = Uuid(random::bytes());
                session.query(&OPEN, &[&Id(id)]).await.map_err(|trouble| {
                    server.suspect();
                    trouble.to_string()
                })?;
                (id, 0)
            }
        };
        self.session = Some(Rc::clone(&session));
        self.row = Some((id, last));
        Ok((session, id, last))
    }
}

/// Closes a lane's row and tells what it says, as soon as the server can be asked. None when there is no such row any
/// more.
async fn resolve(server: &Rc<Server>, id: Uuid) -> Option<Outcome> {
    loop {
        let closed = match server.connect(Purpose::Commit).await {
            Ok(session) => match session.query(&CLOSE, &[&Id(id)]).await {
                Ok(rows) => Ok((session, rows)),
                Err(trouble) => Err(trouble.to_string().into()),
            },
            Err(reason) => Err(reason),
        };
        match closed {
            Ok((session, rows)) => {
                let outcome = rows.first().and_then(|row| Outcome::of(row).ok());
                // If this is lost, the row goes with those of dead brokers.
                if let Err(trouble) = session.query(&FORGET, &[&Id(id)]).await {
                    tracing::debug!("a closed lane stays for now: {trouble}");
                }
                return outcome;
            }
            Err(reason) => {
                let reason: Box<str> = reason;
                tracing::warn!("a batch may be committed or not, which is asked again: {reason}");
                server.suspect();
                server.comes_back().await;
            }
        }
    }
}
