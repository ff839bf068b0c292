//! The store's task: asks from the port to the writer, answers back.
//!
//! It only moves values and never blocks, so it may run in a data shard's executor.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::task::{Context, Poll};

use queen_fabric::port::{Incoming, Port, Ticket};
use queen_fabric::protocol::store::{Declaration, StoreAnswer, StoreAsk, StoreProtocol};
use queen_log::request::{Answer, Failure};

use crate::sqlite::{Sqlite, StoreError};
use crate::writer::Writer;

/// Parcels taken before others on the executor get their turn: some microseconds.
const PARCELS_PER_TURN: usize = 64;

/// The open store. Made at boot, then moved to the executor of its role; dropped, it finishes what
/// it has, closes the database and waits for that.
pub struct Store {
    writer: Writer<Ticket>,
}

impl Store {
    /// Opens the database in `dir` and starts the writer's thread: the store, and every
    /// declaration that it holds. Blocks on the disk.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(dir: &Path) -> Result<(Self, Vec<Declaration>), StoreError> {
        let (sqlite, declarations) = Sqlite::open(dir)?;
        let writer = Writer::start(sqlite)?;
        Ok((Self { writer }, declarations))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

/// Serves the port until it is dropped; it never ends by itself. An ask that was cancelled is
/// answered like any other: it may be in a commit already.
pub async fn run(store: Store, port: Port<StoreProtocol>) {
    poll_fn(|cx| turn(&store, &port, cx)).await
}

/// Moves what there is, both ways, up to a turn's worth.
fn turn(store: &Store, port: &Port<StoreProtocol>, cx: &mut Context<'_>) -> Poll<()> {
    // Both are asked before it sleeps, so that both know whom to wake.
    if let Poll::Ready(done) = store.writer.poll_done(cx) {
        for (ticket, answer) in done {
            port.answer(ticket, answer);
        }
        cx.waker().wake_by_ref();
    }
    for _ in 0..PARCELS_PER_TURN {
        let Poll::Ready(incoming) = port.poll_incoming(cx) else {
            return Poll::Pending;
        };
        take(store, port, incoming);
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

fn take(store: &Store, port: &Port<StoreProtocol>, incoming: Incoming<StoreProtocol>) {
    match incoming {
        Incoming::Ask { ticket, ask: StoreAsk::Log(_) } => {
            let failure = Failure::Unavailable("durable queues are not served yet".into());
            port.answer(ticket, StoreAnswer::Log(Box::new(Answer::Failed(failure))));
        }
        Incoming::Ask { ticket, ask } => {
            if let Err(ticket) = store.writer.submit(ticket, ask) {
                let reason = "too many declarations wait for the store";
                port.answer(ticket, StoreAnswer::Unavailable(reason.into()));
            }
        }
        Incoming::Cancel { .. } => {}
        Incoming::Tell { tell, .. } => match tell {},
        Incoming::Orphan { .. } => unreachable!("the store asks nobody"),
    }
}
