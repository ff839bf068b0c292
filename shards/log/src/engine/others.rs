//! Telling other brokers on the same store what this one has written, and hearing it from them.
//!
//! Both are hints: what is lost is found when the store is asked in its own time, see [`refresh`](super::refresh).

use std::{collections::HashSet, mem, sync::Arc};

use super::{
    Log,
    cache::{PartitionKey, QueueKey},
    op::Kind,
};
use crate::{
    id::TenantId,
    request::{Answer, Popped},
};

/// Something that other brokers on the store may want to know of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum News {
    /// A partition has something that can be popped: it was appended to, or set free.
    Available {
        /// Whose.
        tenant: TenantId,
        /// The queue.
        queue: Arc<str>,
        /// The partition.
        partition: Arc<str>,
    },
    /// A queue's options were set.
    Configured {
        /// Whose.
        tenant: TenantId,
        /// The queue.
        queue: Arc<str>,
    },
    /// A queue was removed.
    Deleted {
        /// Whose.
        tenant: TenantId,
        /// The queue.
        queue: Arc<str>,
    },
}

/// What another broker has said of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It has something that can be popped: whoever waits for it looks.
    Available,
    /// It may have something that was not looked at yet: what is known of it is read again.
    Dirty,
    /// Its options have changed, or it is gone.
    Changed,
}

impl<T: Copy> Log<T> {
    /// What others may want to know of, since the last call; nothing unless [`tells`](super::LogConfig::tells) is set.
    pub fn take_news(&mut self) -> Vec<News> {
        mem::take(&mut self.news)
    }

    /// Another broker has said something of queues, each of one tenant or of every tenant that has one of this name. The
    /// store is asked, unless that makes no difference here.
    ///
    /// However many they are, what is there is looked at once.
    pub fn heard(&mut self, what: Heard, named: impl IntoIterator<Item = (Option<TenantId>, Arc<str>)>, mono_us: u64) {
        self.mono_us = mono_us;
        let mut anybodys = HashSet::new();
        let mut queues = HashSet::new();
        for (tenant, name) in named {
            match tenant {
                Some(tenant) => queues.extend(self.cache.queue(tenant, &name)),
                None => drop(anybodys.insert(name)),
            }
        }
        if !anybodys.is_empty() {
            let named = self.cache.queues.iter().filter(|(_, of)| anybodys.contains(&of.row.name));
            queues.extend(named.map(|(key, _)| key));
        }
        // Those that wait for a queue that is not there yet may be meant whatever its name.
        if self.concerns(what, &queues) || what == Heard::Available && !self.unborn.is_empty() {
            self.look_again(mono_us);
        }
    }

    /// Asks the store for what others have written, as soon as it can be asked.
    pub fn look_again(&mut self, mono_us: u64) {
        self.mono_us = mono_us;
        self.refresh.out_of_turn(self.config.recheck_us);
    }

    /// Whether anybody here waits for what was said of one of these queues.
    fn concerns(&self, what: Heard, queues: &HashSet<QueueKey>) -> bool {
        let groups = || queues.iter().flat_map(|&queue| self.cache.groups_of(queue)).map(|group| &self.groups[group]);
        match what {
            Heard::Changed => !queues.is_empty(),
            Heard::Dirty => groups().next().is_some(),
            Heard::Available => {
                let fetched = |partition: &PartitionKey| queues.contains(&self.cache.partitions[*partition].queue);
                groups().any(|group| !group.parked.is_empty() || !group.pinned.is_empty())
                    || self.fetchers.keys().any(fetched)
            }
        }
    }

    /// From here on every pop is answered with nothing at once, those that wait too; or none is any more.
    pub fn pause_pops(&mut self, paused: bool, mono_us: u64) {
        self.mono_us = mono_us;
        self.pops_paused = paused;
        if !paused {
            return;
        }
        let free = self.ops.iter().filter(|(_, op)| matches!(op.kind, Kind::Pop(_)) && !op.committing);
        for key in free.map(|(slot, op)| super::OpKey { slot, serial: op.serial }).collect::<Vec<_>>() {
            let Kind::Pop(pop) = &self.ops[key.slot].kind else { unreachable!("just seen") };
            let nothing = Popped { paused: true, ..pop.empty() };
            self.finish(key, Answer::Popped(nothing));
        }
    }

    /// A partition has something for those who pop elsewhere.
    pub(super) fn tell_available(&mut self, partition: PartitionKey) {
        if !self.config.tells {
            return;
        }
        let partition = &self.cache.partitions[partition];
        let queue = &self.cache.queues[partition.queue].row;
        self.news.push(News::Available {
            tenant: queue.tenant,
            queue: Arc::clone(&queue.name),
            partition: Arc::clone(&partition.name),
        });
    }

    pub(super) fn tell(&mut self, news: News) {
        if self.config.tells {
            self.news.push(news);
        }
    }
}
