//! Deterministic simulation of the engine against a tiny model: one engine, and two between which partitions move.
//!
//! `QUEEN_SIM_OPS` sets how many operations run in all (a million by default, a quarter of that on two engines),
//! `QUEEN_SIM_SEED` runs one seed alone. A failure prints its seed, its step and the operations before it.

mod sim;

/// Long enough for queues to fill, age and be collected; short enough for many seeds.
const OPERATIONS_PER_SEED: u64 = 2_000;
const OPERATIONS: u64 = 1_000_000;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn seeds(operations: u64) -> std::ops::Range<u64> {
    match setting("QUEEN_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..operations.div_ceil(OPERATIONS_PER_SEED),
    }
}

#[test]
fn the_engine_answers_as_the_model_does() {
    let seeds = seeds(setting("QUEEN_SIM_OPS").unwrap_or(OPERATIONS));
    let mut happened = [0; 9];
    for seed in seeds.clone() {
        let mut world = sim::world::World::new(seed);
        for _ in 0..OPERATIONS_PER_SEED {
            world.step();
        }
        let stats = world.stats();
        let drops = stats.dropped;
        let [bytes, queues] = world.refused();
        let counts = [
            stats.pushed,
            stats.popped,
            stats.acked,
            drops.bounds,
            drops.ttl,
            drops.retry,
            stats.late_replies,
            bytes,
            queues,
        ];
        for (sum, count) in happened.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    println!(
        "pushed, popped, acked, dropped for bounds, ttl, retry, late replies, refused for a tenant's bytes, queues: \
         {happened:?}"
    );
    // A generator that stops to reach a rule would make this test say nothing about it.
    if seeds.end - seeds.start > 100 {
        assert!(happened.iter().all(|&count| count > seeds.end - seeds.start));
    }
}

#[test]
fn partitions_move_between_two_engines_as_between_two_models() {
    let seeds = seeds(setting("QUEEN_SIM_OPS").unwrap_or(OPERATIONS) / 4);
    let mut happened = [0; 6];
    for seed in seeds.clone() {
        let mut pair = sim::pair::Pair::new(seed);
        for _ in 0..OPERATIONS_PER_SEED {
            pair.step();
        }
        pair.drain();
        let counts = &pair.counts;
        let counts = [
            counts.adopted,
            counts.in_front,
            counts.refused,
            counts.served,
            counts.left_behind,
            counts.aged_on_the_way,
        ];
        for (sum, count) in happened.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    println!("adopted, in front, refused, served a pop, left what answers hold, dropped on arrival: {happened:?}");
    if seeds.end - seeds.start > 100 {
        assert!(happened.iter().all(|&count| count > seeds.end - seeds.start));
    }
}
