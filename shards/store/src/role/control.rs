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
        Control, ControlAsk, Switch,
        mesh::MeshAsk,
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
    /// The switches, for pushes and pops, as the database has them, until that was taken to be told.
    confirmed: Option<(bool, bool)>,
    /// Where other brokers take them to be: what they were told last, or have told.
    believed: Option<(bool, bool)>,
    /// Those who have this version, and wait for another.
    watchers: Vec<Ticket>,
    /// What is asked of the database, in turn: it has the first.
    jobs: VecDeque<Asked>,
    /// How long after a look the next one is due; none where nobody else writes.
    interval: Option<Duration>,
    /// When it is; none during one.
    due: Option<Instant>,
}

/// Something that is asked of the database.
struct Asked {
    /// Who waits for it; the role itself, or nobody any more, where there is none.
    ticket: Option<Ticket>,
    ask: ControlAsk,
    since: Instant,
}

impl KnownControl {
    /// From what was loaded at boot, if the database could be reached.
    pub(super) fn new(loaded: Option<Control>, interval: Option<Duration>) -> Self {
        let version = u64::from(loaded.is_some());
        let confirmed = loaded.as_ref().map(switches);
        Self {
            control: Arc::new(loaded.unwrap_or_default()),
            version,
            confirmed,
            believed: None,
            watchers: Vec::new(),
            jobs: VecDeque::new(),
            interval,
            due: interval.map(|interval| Instant::now() + interval),
        }
    }

    /// Asks the database, behind what was asked before.
    pub(super) fn ask(&mut self, ticket: Ticket, ask: ControlAsk, database: &Database) {
        self.push(Some(ticket), ask, database);
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

    /// All of it; none while the database was never read.
    pub(super) fn known(&self) -> Option<&Control> {
        (self.version > 0).then_some(&*self.control)
    }

    /// Another broker has put a switch: that holds at once. The database has the last word, and is asked for it. Nobody is
    /// told what was only heard: two brokers that told each other opposites would go on for ever.
    pub(super) fn heard(&mut self, switch: Switch, on: bool, database: &Database, port: &Port<StoreProtocol>) {
        if self.version > 0 {
            let (push, pop) = self.believed.get_or_insert_with(|| switches(&self.control));
            match switch {
                Switch::PushMaintenance => *push = on,
                Switch::PopMaintenance => *pop = on,
                // Peers say nothing of it.
                Switch::Ephemeral => {}
            }
            let mut control = Control::clone(&self.control);
            control.set(switch, on);
            if control != *self.control {
                self.learn(control, port);
                self.look_again(database);
            }
        }
    }

    /// What the mesh is to know of the switches, if the database has been asked since the last time.
    pub(super) fn take_confirmed(&mut self) -> Option<MeshAsk> {
        let (push, pop) = self.confirmed.take()?;
        let before = self.believed.replace((push, pop));
        let is_news = |was: fn((bool, bool)) -> bool, now| before.map(was) != Some(now);
        Some(MeshAsk::Switches { push, pop, tell_push: is_news(|it| it.0, push), tell_pop: is_news(|it| it.1, pop) })
    }

    /// When [`look_again`](Self::look_again) is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Looks for what other brokers have changed, where there are others, behind what is under way: that may fail yet.
    pub(super) fn look_again(&mut self, database: &Database) {
        let waits = self.jobs.iter().skip(1).any(|asked| asked.ticket.is_none());
        if self.interval.is_some() && !waits {
            self.push(None, ControlAsk::Load, database);
        }
    }

    /// What came of the job that the database had.
    pub(super) fn done(
        &mut self,
        outcome: Result<JobDone, StoreFailure>,
        database: &Database,
        port: &Port<StoreProtocol>,
    ) {
        let Asked { ticket, ask, .. } = self.jobs.pop_front().expect("an outcome has a job");
        let answer = match outcome {
            Ok(JobDone::Control { control, changed }) => {
                self.confirmed = Some(switches(&control));
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
            Some(next) => database.start(JOB, Job::Control(next.ask.clone())),
            None => self.due = self.interval.map(|interval| Instant::now() + interval),
        }
    }

    /// Answers those who have waited since before `since` that the database is away. What it has already may be done
    /// all the same; what it has not is forgotten.
    pub(super) fn give_up(&mut self, since: Instant, port: &Port<StoreProtocol>) {
        let mut place = 0;
        self.jobs.retain_mut(|asked| {
            let is_first = std::mem::replace(&mut place, 1) == 0;
            if asked.since > since || asked.ticket.is_none() {
                return true;
            }
            let silent = StoreFailure::Unavailable("it does not answer".into());
            port.answer(asked.ticket.take().expect("just seen"), StoreAnswer::Unavailable(silent.to_string().into()));
            is_first
        });
    }

    /// Since when the first of those who wait has waited.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.jobs.iter().filter(|asked| asked.ticket.is_some()).map(|asked| asked.since).min()
    }

    fn push(&mut self, ticket: Option<Ticket>, ask: ControlAsk, database: &Database) {
        if self.jobs.is_empty() {
            self.due = None;
            database.start(JOB, Job::Control(ask.clone()));
        }
        self.jobs.push_back(Asked { ticket, ask, since: Instant::now() });
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

fn switches(control: &Control) -> (bool, bool) {
    (control.push_maintenance, control.pop_maintenance)
}
