//! What a port receives: the lanes from its peers, served in turn, and its doorbell.

use std::task::Waker;

use super::{Parcel, Protocol};
use crate::{
    ShardId,
    lane::{ring::Consumer, wake::Doorbell},
};

/// Parcels taken from one lane before the next one has its turn: half of a ring, so that its sender refills the other.
const TURN_PARCELS: usize = 64;

/// The receiving side of a port.
pub(super) struct Inbox<P: Protocol> {
    doorbell: Doorbell,
    /// The pump's waker.
    pump: Option<Waker>,
    lanes: Box<[Consumer<Parcel<P>>]>,
    /// A bit per peer whose lane may have parcels.
    dirty: Box<[u64]>,
    /// Where `collect` puts what rang, kept for its memory.
    rung: Box<[u64]>,
    turn: Option<Turn>,
    /// The peer that had the last turn.
    served_last: usize,
    sleeps: u64,
}

/// A peer's turn.
struct Turn {
    peer: usize,
    parcels_left: usize,
}

/// What a look at the lanes found.
pub(super) enum Found<P: Protocol> {
    /// A parcel of a peer.
    Parcel(ShardId, Parcel<P>),
    /// The turn of a peer's lane ended, and its sender waits to be told that there is room.
    OwesRoom(ShardId),
    /// Nothing in any lane that is known to be dirty.
    Nothing,
}

impl<P: Protocol> Inbox<P> {
    pub(super) fn new(doorbell: Doorbell, lanes: Vec<Consumer<Parcel<P>>>) -> Self {
        let words = || vec![0; lanes.len().div_ceil(64)].into_boxed_slice();
        let (dirty, rung) = (words(), words());
        Self {
            doorbell,
            pump: None,
            served_last: lanes.len() - 1,
            lanes: lanes.into(),
            dirty,
            rung,
            turn: None,
            sleeps: 0,
        }
    }

    /// The next parcel of the lanes known to be dirty. Each lane has a turn of at most [`TURN_PARCELS`].
    pub(super) fn next(&mut self) -> Found<P> {
        loop {
            let Some(turn) = &mut self.turn else {
                let Some(peer) = next_bit(&self.dirty, self.served_last + 1) else { return Found::Nothing };
                self.turn = Some(Turn { peer, parcels_left: TURN_PARCELS });
                continue;
            };
            let peer = turn.peer;
            let lane = &mut self.lanes[peer];
            let id = ShardId::try_from(peer).expect("mesh() numbers its lanes with shard ids");
            if turn.parcels_left > 0 {
                turn.parcels_left -= 1;
                if let Some(parcel) = lane.pop() {
                    return Found::Parcel(id, parcel);
                }
                self.dirty[peer / 64] &= !(1 << (peer % 64));
            }
            self.turn = None;
            self.served_last = peer;
            if lane.owes_room() {
                return Found::OwesRoom(id);
            }
        }
    }

    /// Marks the lanes of the peers that rang since the last call, and names each to `on_ring`. Returns whether any did.
    pub(super) fn collect(&mut self, mut on_ring: impl FnMut(ShardId)) -> bool {
        if !self.doorbell.collect(&mut self.rung) {
            return false;
        }
        for (word, (rung, dirty)) in self.rung.iter_mut().zip(&mut self.dirty).enumerate() {
            *dirty |= *rung;
            while *rung != 0 {
                let peer = word * 64 + rung.trailing_zeros() as usize;
                on_ring(ShardId::try_from(peer).expect("mesh() numbers its lanes with shard ids"));
                *rung &= *rung - 1;
            }
        }
        true
    }

    /// Announces that the pump sleeps. Returns false when a peer rang meanwhile.
    pub(super) fn sleep(&mut self, waker: &Waker) -> bool {
        match &mut self.pump {
            Some(known) => known.clone_from(waker),
            None => self.pump = Some(waker.clone()),
        }
        let asleep = self.doorbell.sleep(waker);
        self.sleeps += u64::from(asleep);
        asleep
    }

    /// Announces that the pump runs.
    pub(super) fn awake(&self) {
        self.doorbell.awake();
    }

    /// The waker of the last sleep.
    pub(super) fn waker(&self) -> Option<Waker> {
        self.pump.clone()
    }

    /// Times that the pump went to sleep.
    pub(super) fn sleeps(&self) -> u64 {
        self.sleeps
    }
}

/// The first set bit from `start` on, going round.
fn next_bit(words: &[u64], start: usize) -> Option<usize> {
    let start = start % (words.len() * 64);
    let (first, below) = (start / 64, u64::MAX.unbounded_shl((start % 64) as u32));
    let bit_of = |word: usize, bits: u64| (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize);
    bit_of(first, words[first] & below).or_else(|| {
        (1..=words.len()).map(|step| (first + step) % words.len()).find_map(|word| bit_of(word, words[word]))
    })
}

#[cfg(test)]
mod tests {
    use super::next_bit;

    #[test]
    fn the_next_bit_goes_round_over_all_words() {
        let words = [0b1010, 1 << 63];
        assert_eq!(next_bit(&words, 0), Some(1));
        assert_eq!(next_bit(&words, 2), Some(3));
        assert_eq!(next_bit(&words, 4), Some(127));
        assert_eq!(next_bit(&words, 128), Some(1));
        assert_eq!(next_bit(&[0b0001], 1), Some(0));
        assert_eq!(next_bit(&[0, 0], 77), None);
    }
}
