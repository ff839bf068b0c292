//! Lanes: connections that commit, one batch at a time each, and know of every batch whether it was written.
//!
//! A lane has a row in the database with the number of its last batch with cursors, written by that batch. When its
//! connection dies during a commit, the row is closed from another one: that waits for the old one's lock, and
//! afterwards the old one can write nothing any more. The number then tells. Segments alone are [written
//! again](append). Until it can be told, a batch has no outcome.
//!
//! A batch that follows one in commit goes behind it on the same connection, without waiting for it.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
    time::{Duration, Instant},
};

use queen_fabric::rt::{self, Task};
use queen_log::{
    id::Uuid,
    store::{Batch, Committed, Done, JobId, StoreFailure},
};
use tokio_postgres::types::Type;

use super::{
    Server, append,
    commit::{self, Outcome},
    session::{Purpose, Session, Sql, Trouble},
    values::Id,
};
use crate::{database::JobDone, random, retention::SETTLE_US};

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

/// Lanes, and the batches that are written or wait for one.
#[derive(Default)]
pub(super) struct Lanes {
    waiting: VecDeque<Turn>,
    started: HashMap<JobId, Started>,
    idle: Vec<Lane>,
    /// Lanes that there are, idle or not.
    open: usize,
}

/// A batch on its way.
struct Turn {
    job: JobId,
    batch: Rc<Batch>,
    /// Where it was sent already, behind another one.
    sent: Option<Sent>,
}

/// Segments that were sent behind others.
struct Sent {
    session: Rc<Session>,
    outcome: Task<Result<Committed, Trouble>>,
}

/// A batch that waits or is written.
#[derive(Default)]
struct Started {
    /// Where it was sent, when it was.
    session: Option<Rc<Session>>,
    /// The one that the lane goes on with.
    next: Option<Turn>,
}

/// A lane, which may have lost its connection.
#[derive(Default)]
struct Lane {
    session: Option<Rc<Session>>,
    /// Its row, with the number of the last batch, once it has written one with cursors.
    row: Option<(Uuid, i64)>,
}

/// Starts a batch, or has it wait for a lane: for the one that writes what it follows, if it follows something.
pub(super) fn start(server: &Rc<Server>, job: JobId, batch: Batch) {
    let turn = Turn { job, batch: Rc::new(batch), sent: None };
    let mut lanes = server.lanes.borrow_mut();
    lanes.started.insert(job, Started::default());
    let Some(turn) = lanes.follow(turn) else { return };
    let lane = match lanes.idle.pop() {
        None if lanes.open < server.config.pool_size => {
            lanes.open += 1;
            Lane::default()
        }
        Some(lane) => lane,
        None => return lanes.waiting.push_back(turn),
    };
    let server = Rc::clone(server);
    rt::spawn_local(async move { drive(&server, lane, turn).await }).detach();
}

/// Commits a batch and then those that wait, and lays the lane down.
async fn drive(server: &Rc<Server>, mut lane: Lane, first: Turn) {
    let mut next = Some(first);
    while let Some(mut turn) = next {
        let outcome = lane.commit(server, &mut turn).await;
        let done = outcome.map(|committed| JobDone::Log(Box::new(Done::Committed(committed))));
        server.outcomes.deliver([(turn.job, done)]);
        let mut lanes = server.lanes.borrow_mut();
        let follower = lanes.started.remove(&turn.job).and_then(|started| started.next);
        next = follower.or_else(|| lanes.waiting.pop_front());
    }
    server.lanes.borrow_mut().idle.push(lane);
}

impl Lanes {
    /// Has a batch follow the one that it has to. Segments are sent at once, on the same connection. Gives it back if
    /// there is none.
    fn follow(&mut self, mut turn: Turn) -> Option<Turn> {
        let Some(before) = turn.batch.behind.and_then(|behind| self.started.get_mut(&behind)) else {
            return Some(turn);
        };
        debug_assert!(before.next.is_none(), "one follows");
        if let Some(session) = &before.session
            && turn.batch.cursors.is_empty()
        {
            let (here, batch) = (Rc::clone(session), Rc::clone(&turn.batch));
            let outcome = rt::spawn_local(async move { append::append(&here, &batch, false).await });
            turn.sent = Some(Sent { session: Rc::clone(session), outcome });
        }
        before.next = Some(turn);
        None
    }

    /// A batch goes out on this connection now.
    fn sends(&mut self, job: JobId, session: &Rc<Session>) {
        let started = self.started.get_mut(&job).expect("it is not over");
        started.session = Some(Rc::clone(session));
    }
}

impl Lane {
    /// Commits a batch, however long it takes to know whether it is.
    async fn commit(&mut self, server: &Rc<Server>, turn: &mut Turn) -> Result<Committed, StoreFailure> {
        if turn.batch.cursors.is_empty() {
            self.append(server, turn).await
        } else {
            self.commit_by_row(server, turn).await
        }
    }

    /// Commits segments alone.
    async fn append(&mut self, server: &Rc<Server>, turn: &mut Turn) -> Result<Committed, StoreFailure> {
        let batch = &turn.batch;
        let give_up = Instant::now() + PATIENCE;
        // Whether it may be written already. Then nothing else will do but to find out.
        let mut in_doubt = false;
        let mut tries = 0;
        loop {
            let appended = if let Some(Sent { session, outcome }) = turn.sent.take() {
                server.lanes.borrow_mut().sends(turn.job, &session);
                outcome.await
            } else {
                let session = match self.connected(server).await {
                    Ok(session) => session,
                    Err(_) if in_doubt => {
                        server.comes_back().await;
                        continue;
                    }
                    Err(reason) => {
                        server.returns(give_up).await.map_err(|()| StoreFailure::Unavailable(reason))?;
                        continue;
                    }
                };
                server.lanes.borrow_mut().sends(turn.job, &session);
                if tries < TRIES_MAX {
                    append::append(&session, batch, in_doubt).await
                } else {
                    // No statement that tries to write it runs for so long, see `retention`: what is not there now will
                    // never be.
                    rt::sleep(Duration::from_micros(SETTLE_US.unsigned_abs())).await;
                    append::written(&session, batch).await
                }
            };
            let trouble = match appended {
                Ok(committed) => return Ok(committed),
                Err(trouble) => trouble,
            };
            tries += 1;
            match trouble {
                Trouble::Refused(reason) => return Err(StoreFailure::Refused(reason)),
                Trouble::Gone(reason) => {
                    tracing::debug!("a connection was lost during a commit: {reason}");
                    self.session = None;
                    in_doubt = true;
                }
                Trouble::Away(reason) => {
                    server.suspect();
                    if !in_doubt {
                        return Err(StoreFailure::Unavailable(reason));
                    }
                    tracing::warn!("a batch may be committed or not, which is asked again: {reason}");
                    server.comes_back().await;
                }
                Trouble::Conflict if tries >= TRIES_MAX && !in_doubt => {
                    return Err(StoreFailure::Unavailable(Trouble::Conflict.to_string().into()));
                }
                Trouble::Conflict => {}
            }
        }
    }

    /// Commits a batch with cursors.
    async fn commit_by_row(&mut self, server: &Rc<Server>, turn: &Turn) -> Result<Committed, StoreFailure> {
        let batch = &*turn.batch;
        let (statement, columns) = commit::statement(batch);
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
            server.lanes.borrow_mut().sends(turn.job, &session);
            let rows = session.query(statement, &columns.after(&[&Id(id), &number])).await;
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

    /// A connection.
    async fn connected(&mut self, server: &Rc<Server>) -> Result<Rc<Session>, Box<str>> {
        let session = match self.session.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            // The row stays the lane's: whatever it committed was answered.
            None => server.connect(Purpose::Commit).await?,
        };
        self.session = Some(Rc::clone(&session));
        Ok(session)
    }

    /// A connection and the lane's row, which are made if they are not there.
    async fn ready(&mut self, server: &Rc<Server>) -> Result<(Rc<Session>, Uuid, i64), Box<str>> {
        let session = self.connected(server).await?;
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
