//! Two engines, each with its model, its clock and its own load, and partitions that move between them at random moments:
//! at once, late because they were refused, there and back, and to where the partition holds messages already.

use std::thread::panicking;

use queen_ephemeral::{Parcel, PutInError, PutInLimits};

use super::moves::{Shipment, rebuilt};
use super::world::{NAMES, QUEUES, Random, TENANTS, World};

pub struct Pair {
    seed: u64,
    random: Random,
    worlds: [World; 2],
    /// Refused and kept.
    kept: Vec<(Parcel, Shipment)>,
    moves: Vec<String>,
    pub counts: Counts,
}

/// What happened so far.
#[derive(Default, Debug)]
pub struct Counts {
    pub adopted: u64,
    pub in_front: u64,
    pub refused: u64,
    pub served: u64,
    pub left_behind: u64,
    pub aged_on_the_way: u64,
}

impl Drop for Pair {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("two engines, QUEEN_SIM_SEED={}; the last moves:", self.seed);
            for made in self.moves.iter().rev().take(10).rev() {
                eprintln!("  {made}");
            }
        }
    }
}

impl Pair {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            random: Random::new(seed ^ 0x5bd1_e995),
            worlds: [World::of_pair(seed, 0), World::of_pair(seed, 1)],
            kept: Vec::new(),
            moves: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub fn step(&mut self) {
        match self.random.below(12) {
            0 => self.move_one(),
            1 if !self.kept.is_empty() => self.move_kept(),
            _ => {
                let which = self.random.below(2) as usize;
                self.worlds[which].step();
            }
        }
    }

    /// Takes everything there is for every group, so that what was moved last is looked at, too.
    pub fn drain(&mut self) {
        for world in &mut self.worlds {
            world.drain();
        }
    }

    fn move_one(&mut self) {
        let from = self.random.below(2) as usize;
        let rows = self.worlds[from].partitions();
        let (key, partition) = if rows.is_empty() || self.random.one_in(8) {
            let key =
                (self.random.below(TENANTS.len() as u64) as usize, self.random.below(QUEUES.len() as u64) as usize);
            (key, self.random.below(NAMES.len() as u64) as usize)
        } else {
            let (key, partition, ..) = rows[self.random.below(rows.len() as u64) as usize];
            (key, partition)
        };
        self.note(format!("take {key:?}/{partition} out of {from}"));
        let taken = self.worlds[from].take_out(key, partition);
        self.counts.left_behind += u64::from(self.worlds[from].holds(key, partition));
        let Some((parcel, shipment)) = taken else { return };
        // Mostly to the other one, at times back.
        let to = if self.random.one_in(6) { from } else { 1 - from };
        self.put_in(to, parcel, shipment);
    }

    fn move_kept(&mut self) {
        let at = self.random.below(self.kept.len() as u64) as usize;
        let (mut parcel, mut shipment) = self.kept.swap_remove(at);
        let by_ms = self.random.below(30);
        parcel.grow_older(by_ms);
        shipment.grow_older(by_ms);
        let to = self.random.below(2) as usize;
        self.put_in(to, parcel, shipment);
    }

    fn put_in(&mut self, to: usize, parcel: Parcel, shipment: Shipment) {
        let limits = PutInLimits {
            memory_bytes: self.random.pick(&[u64::MAX, u64::MAX, u64::MAX, 8000, 3000]),
            queues: self.random.pick(&[u64::MAX, u64::MAX, u64::MAX, 6, 2]),
        };
        self.note(format!("put {:?}/{} into {to} under {limits:?}", shipment.key, shipment.partition));
        let parcel = if self.random.one_in(2) { rebuilt(&parcel) } else { parcel };
        let world = &mut self.worlds[to];
        let in_front = world.holds(shipment.key, shipment.partition);
        let before = world.stats();
        let answer = world.put_in(&parcel, &shipment, limits);
        let after = world.stats();
        match answer {
            Ok(()) => {
                self.counts.adopted += 1;
                self.counts.in_front += u64::from(in_front);
                self.counts.served += u64::from(after.popped > before.popped);
                self.counts.aged_on_the_way += after.dropped.ttl - before.dropped.ttl;
            }
            Err(
                PutInError::QueueFull
                | PutInError::PartitionLimit
                | PutInError::GroupLimit
                | PutInError::QueueLimit
                | PutInError::NodeMemory,
            ) => {
                assert_eq!((after.messages, after.partitions), (before.messages, before.partitions));
                self.counts.refused += 1;
                self.kept.push((parcel, shipment));
            }
        }
    }

    fn note(&mut self, made: String) {
        self.moves.push(made);
    }
}
