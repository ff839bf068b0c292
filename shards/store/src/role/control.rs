//! What operators have switched and granted, as the role knows it: it changes it, tells those who watch it, and reads it
//! again where other brokers change it too.
//!
//! One job is with the database at a time. So the outcome that came last is what was written last, whichever connection
//! or thread it came from.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use queen_fabric::{
    port::{Port, Ticket},
    protocol::{
        Control, ControlAsk,
        store::{StoreAnswer, StoreProtocol},
    },
};
use queen_log::store::StoreFailure;

use crate::database::{Database, Job, JobDone};

/// The number of every job of this file.
pub(super) const JOB: u64 = u64::MAX;

/// What the role knows.
pub(super) struct KnownControl {
    control: Arc<Control>,
    /// 0 until it was read from the database.
    version: u64,
    /// Those who have this version, and wait for another.
    watchers: Vec<Ticket>,
    /// What is asked of the database, in turn: it has the first. The role waits for what has no ticket.
    jobs: VecDeque<(Option<Ticket>, ControlAsk)>,
    /// How long after a look the next one is due; none where nobody else writes.
    interval: Option<Duration>,
    /// When it is; none during one.
    due: Option<Instant>,
}

impl KnownControl {
    /// From what was loaded at boot, if the database could be reached.
    pub(super) fn new(loaded: Option<Control>, interval: Option<Duration>) -> Self {
        let version = u64::from(loaded.is_some());
        Self {
            control: Arc::new(loaded.unwrap_or_default()),
            version,
            watchers: Vec::new(),
            jobs: VecDeque::new(),
            interval,
            due: interval.map(|interval| Instant::now() + interval),
        }
    }

    /// Asks the database, behind what was asked before.
    pub(super) fn ask(&mut self, ticket: Ticket, ask: ControlAsk, database: &Database) {
        self.push((Some(ticket), ask), database);
    }

    /// Answers at once, or when another version is known.
    pub(super) fn watch(&mut self, ticket: Ticket, seen: u64, port: &Port<StoreProtocol>) {
        if seen == self.version {
            self.watchers.push(ticket);
        } else {
            port.answer(ticket, self.answer(false));
        }
    }

    /// Somebody does not watch any more, and is still owed an answer. Anything else is answered like any other.
    pub(super) fn cancel(&mut self, ticket: Ticket, port: &Port<StoreProtocol>) {
        if let Some(at) = self.watchers.iter().position(|&watcher| watcher == ticket) {
            self.watchers.swap_remove(at);
            port.answer(ticket, self.answer(false));
        }
    }

    /// When [`look_again`](Self::look_again) is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Looks for what other brokers have changed, where there are others, behind what is under way: that may fail yet.
    pub(super) fn look_again(&mut self, database: &Database) {
        let waits = self.jobs.iter().skip(1).any(|(ticket, _)| ticket.is_none());
        if self.interval.is_some() && !waits {
            self.push((None, ControlAsk::Load), database);
        }
    }

    /// What came of the job that the database had.
    pub(super) fn done(
        &mut self,
        outcome: Result<JobDone, StoreFailure>,
        database: &Database,
        port: &Port<StoreProtocol>,
    ) {
        let (ticket, ask) = self.jobs.pop_front().expect("an outcome has a job");
        let answer = match outcome {
            Ok(JobDone::Control { control, changed }) => {
                self.learn(control, port);
                self.answer(changed)
            }
            Ok(other) => panic!("a job about control was answered with {other:?}"),
            Err(failure) => {
                if ask != ControlAsk::Load {
                    tracing::error!("what an operator asked for was not kept: {failure}");
                }
                StoreAnswer::Unavailable(failure.to_string().into())
            }
        };
        // Nobody waits for a look of the role's own: one that failed is made again when the next is due.
        if let Some(ticket) = ticket {
            port.answer(ticket, answer);
        }
        match self.jobs.front() {
            Some((_, ask)) => database.start(JOB, Job::Control(ask.clone())),
            None => self.due = self.interval.map(|interval| Instant::now() + interval),
        }
    }

    fn push(&mut self, job: (Option<Ticket>, ControlAsk), database: &Database) {
        if self.jobs.is_empty() {
            self.due = None;
            database.start(JOB, Job::Control(job.1.clone()));
        }
        self.jobs.push_back(job);
    }

    /// Tells everybody who watches, if it is news.
    fn learn(&mut self, control: Control, port: &Port<StoreProtocol>) {
        if self.version > 0 && *self.control == control {
            return;
        }
        self.control = Arc::new(control);
        self.version += 1;
        for watcher in std::mem::take(&mut self.watchers) {
            port.answer(watcher, self.answer(false));
        }
    }

    fn answer(&self, changed: bool) -> StoreAnswer {
        StoreAnswer::Control { control: Arc::clone(&self.control), version: self.version, changed }
    }
}
