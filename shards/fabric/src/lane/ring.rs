//! The bounded single-producer single-consumer ring.
//!
//! Indices count up without bound and are masked on access, so full and empty differ without a spare slot. Each side
//! keeps a copy of the other's index and reads the shared one only when the copy says full or empty: a lane with
//! traffic one way costs one shared cache line per batch, not per value. A producer stages values and makes the whole
//! batch visible with one release store.
//!
//! A full ring is not waited for here. A producer that wants to hear of room says so with
//! [`wait_for_room`](Producer::wait_for_room), and a consumer that has taken asks itself with
//! [`owes_room`](Consumer::owes_room) whether it has to tell.

use std::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering, UnsafeCell, fence};

/// What the two ends share.
struct Ring<T> {
    /// Values taken so far. Written by the consumer alone.
    taken: CachePadded<AtomicUsize>,
    /// Values published so far. Written by the producer alone.
    published: CachePadded<AtomicUsize>,
    /// The producer found the ring full and wants to be told of room.
    room_wanted: CachePadded<AtomicBool>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    mask: usize,
}

// SAFETY: a slot is touched by the producer while it is free (published - taken < depth) and by the consumer while it
// is filled (taken < published), never by both: the indices hand it over with release stores and acquire loads. There
// is one producer and one consumer, because neither end is Clone. Values move between threads, hence T: Send.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above; the ring owns the values in it.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let published = self.published.load(Ordering::Acquire);
        let mut taken = self.taken.load(Ordering::Acquire);
        while taken != published {
            // SAFETY: both ends are gone, and the slots between the indices were filled and never taken.
            self.slots[taken & self.mask].with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            taken = taken.wrapping_add(1);
        }
    }
}

/// The sending end of a ring.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
    /// Values written, of which `ring.published` may lag behind until [`publish`](Self::publish).
    staged: usize,
    /// Values known to be published: the own copy of `ring.published`.
    published: usize,
    /// `ring.taken` when last read.
    taken_seen: usize,
}

/// The receiving end of a ring.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
    /// The own copy of `ring.taken`.
    taken: usize,
    /// `ring.published` when last read.
    published_seen: usize,
}

/// A ring of `depth` values.
///
/// # Panics
///
/// When `depth` is not a power of two.
#[must_use]
pub fn ring<T: Send>(depth: usize) -> (Producer<T>, Consumer<T>) {
    assert!(depth.is_power_of_two(), "a ring's depth is a power of two, not {depth}");
    let ring = Arc::new(Ring {
        taken: CachePadded::new(AtomicUsize::new(0)),
        published: CachePadded::new(AtomicUsize::new(0)),
        room_wanted: CachePadded::new(AtomicBool::new(false)),
        slots: (0..depth).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        mask: depth - 1,
    });
    let producer = Producer { ring: Arc::clone(&ring), staged: 0, published: 0, taken_seen: 0 };
    (producer, Consumer { ring, taken: 0, published_seen: 0 })
}

impl<T: Send> Producer<T> {
    /// Writes one value, which the consumer does not see before [`publish`](Self::publish).
    ///
    /// # Errors
    ///
    /// Gives the value back when the ring is full.
    pub fn stage(&mut self, value: T) -> Result<(), T> {
        if !self.has_room() {
            return Err(value);
        }
        self.ring.slots[self.staged & self.ring.mask].with_mut(|slot| {
            // SAFETY: the slot is free (has_room), and no consumer looks at it before it is published.
            unsafe { (*slot).write(value) };
        });
        self.staged = self.staged.wrapping_add(1);
        Ok(())
    }

    /// Makes every staged value visible with one release store. Returns whether there was any.
    pub fn publish(&mut self) -> bool {
        if self.staged == self.published {
            return false;
        }
        self.ring.published.store(self.staged, Ordering::Release);
        self.published = self.staged;
        true
    }

    /// Whether one more value fits. Reads the consumer's index only when the copy of it says full.
    pub fn has_room(&mut self) -> bool {
        let depth = self.ring.slots.len();
        if self.staged.wrapping_sub(self.taken_seen) < depth {
            return true;
        }
        self.taken_seen = self.ring.taken.load(Ordering::Acquire);
        self.staged.wrapping_sub(self.taken_seen) < depth
    }

    /// Asks to be told when a full ring has room. Returns false when it has room by now, and nothing needs telling.
    ///
    /// After true, the consumer's [`owes_room`](Consumer::owes_room) says true once it has taken a value.
    pub fn wait_for_room(&mut self) -> bool {
        self.ring.room_wanted.store(true, Ordering::Relaxed);
        // Between writing `room_wanted` and reading `taken`, as the consumer's fence is between writing `taken` and
        // reading `room_wanted`: one of the two sees the other's write.
        fence(Ordering::SeqCst);
        if self.has_room() {
            self.ring.room_wanted.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Values published and not taken yet, as far as can be seen from here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.published.wrapping_sub(self.ring.taken.load(Ordering::Relaxed))
    }

    /// Whether the consumer has taken everything published.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        // Staged values belong to the ring, which drops only what is published.
        self.ring.published.store(self.staged, Ordering::Release);
    }
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest published value.
    pub fn pop(&mut self) -> Option<T> {
        if self.taken == self.published_seen {
            self.published_seen = self.ring.published.load(Ordering::Acquire);
            if self.taken == self.published_seen {
                return None;
            }
        }
        let value = self.ring.slots[self.taken & self.ring.mask].with_mut(|slot| {
            // SAFETY: taken < published, so the slot is filled, and the producer leaves it alone until `taken` passes.
            unsafe { (*slot).assume_init_read() }
        });
        self.taken = self.taken.wrapping_add(1);
        self.ring.taken.store(self.taken, Ordering::Release);
        Some(value)
    }
    /// Whether the producer waits to be told that there is room, which there is after a [`pop`](Self::pop). Says so
    /// once: whoever gets true tells.
    pub fn owes_room(&mut self) -> bool {
        // Pairs with the fence in `wait_for_room`.
        fence(Ordering::SeqCst);
        self.ring.room_wanted.load(Ordering::Relaxed) && self.ring.room_wanted.swap(false, Ordering::AcqRel)
    }
}
