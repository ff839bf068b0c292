//! The doorbell: who has something for a receiver, and whether it sleeps.
//!
//! A receiver has one doorbell for all of its lanes: a bitmap with a bit per sender, so that a lane without traffic
//! costs nothing, and a sleep flag. The handshake:
//!
//! - the receiver announces its sleep, then looks at the bitmap once more; a bit set meanwhile keeps it awake;
//! - a sender sets its bit, and only the one that changed the word from nothing to something looks at the sleep flag
//!   and wakes. Whoever finds the word set already may rely on that one.
//!
//! Why no wake is lost: both change the bitmap and the flag with read-modify-writes, which each location orders. Either the
//! receiver's last look comes after the sender's bit and finds it, or the sender's comes after that look, reads from it,
//! and so sees the announcement made before it. No sequential consistency is needed. At most one wake is sent per
//! change of the bitmap.

use std::task::Waker;

use crossbeam_utils::CachePadded;

use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};

/// Senders that one word of the bitmap stands for.
const BITS: usize = u64::BITS as usize;

/// What the receiver and its senders share.
struct Bell {
    words: Box<[CachePadded<AtomicU64>]>,
    sleeping: CachePadded<AtomicBool>,
    /// Locked by the receiver when its waker changes, and by a sender that wakes: never on the way of a value.
    waker: Mutex<Option<Waker>>,
}

/// The receiver's side of a doorbell.
pub struct Doorbell {
    bell: Arc<Bell>,
    /// The waker in `bell.waker`, so that an unchanged one costs no lock.
    registered: Option<Waker>,
}

/// One sender's side of a doorbell.
pub struct Ringer {
    bell: Arc<Bell>,
    word: usize,
    bit: u64,
}

impl Doorbell {
    /// A doorbell for senders numbered 0 to `senders` - 1.
    #[must_use]
    pub fn new(senders: usize) -> Self {
        let words = senders.div_ceil(BITS).max(1);
        let bell = Bell {
            words: (0..words).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            sleeping: CachePadded::new(AtomicBool::new(false)),
            waker: Mutex::new(None),
        };
        Self { bell: Arc::new(bell), registered: None }
    }

    /// The side of sender number `sender`.
    ///
    /// # Panics
    ///
    /// When the doorbell was made for fewer senders.
    #[must_use]
    pub fn ringer(&self, sender: usize) -> Ringer {
        let word = sender / BITS;
        assert!(word < self.bell.words.len(), "the doorbell has no bit for sender {sender}");
        Ringer { bell: Arc::clone(&self.bell), word, bit: 1 << (sender % BITS) }
    }

    /// Adds the senders that rang since the last call to `dirty`, a word per 64 senders, and clears them here.
    /// Returns whether there was any.
    pub fn collect(&self, dirty: &mut [u64]) -> bool {
        let mut any = false;
        for (word, into) in self.bell.words.iter().zip(dirty) {
            // A look first: taking a word that is clear would pull its cache line from the senders for nothing.
            if word.load(Ordering::Relaxed) != 0 {
                *into |= word.swap(0, Ordering::AcqRel);
                any = true;
            }
        }
        any
    }

    /// Announces that the receiver goes to sleep until `waker` is woken. Returns false when somebody rang meanwhile:
    /// the receiver is awake then and collects again.
    pub fn sleep(&mut self, waker: &Waker) -> bool {
        if !self.registered.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.registered = Some(waker.clone());
            let replaced = lock(&self.bell.waker).replace(waker.clone());
            drop(replaced);
        }
        self.bell.sleeping.swap(true, Ordering::AcqRel);
        // A read-modify-write that changes nothing: its release carries the announcement to the sender that comes next.
        let rung = self.bell.words.iter().fold(0, |rung, word| rung | word.fetch_or(0, Ordering::AcqRel));
        if rung != 0 {
            self.awake();
            return false;
        }
        true
    }

    /// Announces that the receiver runs, woken from here or elsewhere: nobody needs to wake it.
    pub fn awake(&self) {
        self.bell.sleeping.swap(false, Ordering::AcqRel);
    }
}

impl Ringer {
    /// Says that this sender has something. What was published before is visible to the receiver that collects the
    /// bit. Returns whether the receiver slept and was woken.
    pub fn ring(&self) -> bool {
        let before = self.bell.words[self.word].fetch_or(self.bit, Ordering::AcqRel);
        if before != 0 || !self.bell.sleeping.load(Ordering::Relaxed) {
            return false;
        }
        // Two words may change at once: the swap lets one of their senders wake.
        if !self.bell.sleeping.swap(false, Ordering::AcqRel) {
            return false;
        }
        let waker = lock(&self.bell.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

/// The waker's slot. A panic while it is locked leaves a whole `Option` behind, so poison means nothing here.
fn lock(slot: &Mutex<Option<Waker>>) -> impl std::ops::DerefMut<Target = Option<Waker>> + '_ {
    slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
