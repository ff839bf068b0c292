//! The keys that were fetched last, between the thread that fetches them and the shards that use them.
//!
//! The shards' side takes no lock: a shard reads one snapshot, in which the keys and the count of fetches belong
//! together, and asks for another fetch by raising a number. The fetcher writes snapshots, alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use arc_swap::{ArcSwap, Guard};

use crate::KeySet;

/// For so long after a fetch an unknown key asks for no other, in seconds: tokens with made-up key ids must not turn
/// the broker on its issuer.
pub const UNKNOWN_KEY_COOLDOWN_S: u64 = 10;

/// The keys that were fetched last. Shared by all shards and the thread that fetches.
#[derive(Debug)]
pub struct SharedKeys {
    latest: ArcSwap<Fetched>,
    /// The fetch that somebody waits for, counted from 1.
    wanted: AtomicU64,
    fetcher: OnceLock<Thread>,
}

/// What the fetches so far have come to.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    /// The last set that was had, if there was one.
    pub(crate) keys: Option<Arc<KeySet>>,
    /// Fetches that ended, whether they brought a set or not.
    done: u64,
    /// When the last of them ended, in seconds since 1970.
    done_at_s: Option<u64>,
}

/// A fetch ended a moment ago, and what it brought is all that is to be had now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cooling;

impl SharedKeys {
    /// No keys yet, and the first fetch wanted.
    #[must_use]
    pub fn new() -> Self {
        Self { latest: ArcSwap::default(), wanted: AtomicU64::new(1), fetcher: OnceLock::new() }
    }

    /// The last set that was had; `None` before the first.
    #[must_use]
    pub fn current(&self) -> Option<Arc<KeySet>> {
        self.latest.load().keys.clone()
    }

    /// How many fetches have ended, whether they brought a set or not.
    #[must_use]
    pub fn fetches_done(&self) -> u64 {
        self.latest.load().done
    }

    /// For the fetcher: the thread to unpark when a fetch is asked for. The first call counts.
    pub fn wake_by(&self, fetcher: Thread) {
        self.fetcher.get_or_init(|| fetcher);
    }

    /// For the fetcher: whether somebody waits for a fetch.
    #[must_use]
    pub fn is_fetch_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire) > self.fetches_done()
    }

    /// For the fetcher alone: a fetch ended at `now_s` and brought `keys`. Whether they differ from those before; the
    /// same keys again leave the shards' caches as they are.
    pub fn replace(&self, keys: KeySet, now_s: u64) -> bool {
        let before = self.latest.load_full();
        let same = before.keys.clone().filter(|held| **held == keys);
        let changed = same.is_none();
        self.finish(&before, Some(same.unwrap_or_else(|| Arc::new(keys))), now_s);
        changed
    }

    /// For the fetcher alone: a fetch ended at `now_s` and brought nothing. The set before, if any, stays.
    pub fn note_failure(&self, now_s: u64) {
        let before = self.latest.load_full();
        self.finish(&before, before.keys.clone(), now_s);
    }

    fn finish(&self, before: &Fetched, keys: Option<Arc<KeySet>>, now_s: u64) {
        self.latest.store(Arc::new(Fetched { keys, done: before.done + 1, done_at_s: Some(now_s) }));
    }

    /// The snapshot to look a key up in.
    pub(crate) fn latest(&self) -> Guard<Arc<Fetched>> {
        self.latest.load()
    }

    /// Asks for a fetch, since what is wanted is not in `seen`: how many must have ended before it is worth looking
    /// again.
    ///
    /// # Errors
    /// [`Cooling`] when one ended less than [`UNKNOWN_KEY_COOLDOWN_S`] before `now_s`.
    pub(crate) fn wait_or_cool(&self, seen: &Fetched, now_s: u64) -> Result<u64, Cooling> {
        // A clock that was set back must not make it last until that time comes again.
        if seen.done_at_s.is_some_and(|done_at_s| done_at_s.abs_diff(now_s) < UNKNOWN_KEY_COOLDOWN_S) {
            return Err(Cooling);
        }
        let until = seen.done + 1;
        // One wake for all that wait for the same fetch. For one that ended in between there is nothing to ask.
        if self.wanted.fetch_max(until, Ordering::AcqRel) < until
            && let Some(fetcher) = self.fetcher.get()
        {
            fetcher.unpark();
        }
        Ok(until)
    }
}

impl Default for SharedKeys {
    fn default() -> Self {
        Self::new()
    }
}
