//! Two ends that do anything in any order over a wire that cuts and ends: everything is over once, on both.

use std::collections::BTreeMap;

use queen_wire::peer::{Accepted, Answer, Asked, Dialing, Heard, Limits, Read};

use crate::{
    samples::{pop, push},
    support::{accepted, dialing},
};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    /// All of so many bytes, or fewer.
    fn some_of(&mut self, bytes: usize) -> usize {
        if self.below(2) == 0 { bytes } else { self.below(bytes + 1) }
    }
}

/// How a request ended for whoever asked.
#[derive(Debug, PartialEq)]
enum Fate {
    Open,
    Answered,
    Cancelled,
    Failed,
}

/// How a claim ended.
#[derive(Debug, PartialEq)]
enum ClaimFate {
    Open,
    Settled,
    Back,
}

struct World {
    dialing: Dialing<u32>,
    accepted: Accepted<u32>,
    forward: Vec<u8>,
    back: Vec<u8>,
    /// By token: how the request ended.
    requests: Vec<Fate>,
    /// Numbers that the dialer may cancel, with their tokens.
    open: BTreeMap<u32, u32>,
    /// Numbers whose messages the dialer holds.
    holds: Vec<u32>,
    /// Numbers that the listener has to answer.
    due: Vec<u32>,
    claims: Vec<ClaimFate>,
    /// By number: the claim in it, and what the dialer said became of it.
    said: BTreeMap<u32, ClaimFate>,
    claim_of: BTreeMap<u32, u32>,
}

impl World {
    fn new() -> Self {
        let limits = Limits { outstanding_max: 20, waiting_bytes_max: 3_000, message_bytes_max: 700_000, credit: 5 };
        Self {
            dialing: dialing(limits),
            accepted: accepted(limits),
            forward: Vec::new(),
            back: Vec::new(),
            requests: Vec::new(),
            open: BTreeMap::new(),
            holds: Vec::new(),
            due: Vec::new(),
            claims: Vec::new(),
            said: BTreeMap::new(),
            claim_of: BTreeMap::new(),
        }
    }

    fn request(&mut self, random: &mut Random) {
        let token = self.requests.len() as u32;
        let request = match random.below(8) {
            0..3 => pop(1_000),
            3 => pop(0),
            4 => push(&vec![b'x'; random.below(600_000)]),
            _ => push(b"1"),
        };
        match self.dialing.request(&request, token) {
            Ok(id) => {
                self.requests.push(Fate::Open);
                assert_eq!(self.open.insert(id, token), None, "a number in use");
            }
            Err(unsent) => assert_eq!(unsent.token, token),
        }
    }

    fn cancel(&mut self, random: &mut Random) {
        let Some((&id, &token)) = self.open.iter().nth(random.below(self.open.len().max(1))) else { return };
        assert_eq!(self.dialing.cancel(id), Some(token));
        self.open.remove(&id);
        assert_eq!(std::mem::replace(&mut self.requests[token as usize], Fate::Cancelled), Fate::Open);
    }

    fn resolve(&mut self, random: &mut Random) {
        if self.holds.is_empty() {
            return;
        }
        let id = self.holds.swap_remove(random.below(self.holds.len()));
        let fate = if random.below(2) == 0 {
            self.dialing.settled(id);
            ClaimFate::Settled
        } else {
            self.dialing.give_back(id);
            ClaimFate::Back
        };
        self.said.insert(id, fate);
    }

    fn answer(&mut self, random: &mut Random) {
        if self.due.is_empty() {
            return;
        }
        let id = self.due.swap_remove(random.below(self.due.len()));
        let bytes = if random.below(5) == 0 { random.below(600_000) } else { random.below(100) };
        let body = vec![b'x'; bytes];
        if random.below(2) == 0 {
            let claim = self.claims.len() as u32;
            self.claims.push(ClaimFate::Open);
            match self.accepted.deliver(id, body, claim) {
                Ok(()) => drop(self.claim_of.insert(id, claim)),
                Err((_, claim)) => self.claims[claim as usize] = ClaimFate::Back,
            }
        } else {
            // Whether it goes out as it is does not matter here: the request is over.
            let _ = self.accepted.answer(id, Answer::Reply { status: 200, body });
        }
    }

    /// Some bytes cross, and the listener hears of them.
    fn forward(&mut self, random: &mut Random) {
        let mut sent = Vec::new();
        self.dialing.output(&mut sent, random.below(40_000));
        self.forward.extend(sent);
        let bytes = random.some_of(self.forward.len());
        let mut start = 0;
        while let Read::Frame { consumed, event } =
            self.accepted.read(&self.forward[start..bytes]).expect("a connection")
        {
            start += consumed;
            match event {
                Some(Asked::Request { id, .. }) => self.due.push(id),
                Some(Asked::Cancel { id }) => assert!(self.due.contains(&id)),
                Some(Asked::Settled(claim)) => self.ended(claim, ClaimFate::Settled),
                Some(Asked::GiveBack(claim)) => self.ended(claim, ClaimFate::Back),
                Some(Asked::Proved(_)) | None => {}
            }
        }
        self.forward.drain(..start);
    }

    fn ended(&mut self, claim: u32, fate: ClaimFate) {
        let before = std::mem::replace(&mut self.claims[claim as usize], fate);
        assert_eq!(before, ClaimFate::Open, "a claim ends once");
    }

    /// Some bytes cross back.
    fn back(&mut self, random: &mut Random) {
        let mut sent = Vec::new();
        self.accepted.output(&mut sent, random.below(40_000));
        self.back.extend(sent);
        let bytes = random.some_of(self.back.len());
        let mut start = 0;
        while let Read::Frame { consumed, event } = self.dialing.read(&self.back[start..bytes]).expect("a connection") {
            start += consumed;
            if let Some(Heard::Answer { id, token, answer }) = event {
                assert_eq!(self.open.remove(&id), Some(token));
                assert_eq!(std::mem::replace(&mut self.requests[token as usize], Fate::Answered), Fate::Open);
                if matches!(answer, Answer::Popped { has_claim: true, .. }) {
                    self.holds.push(id);
                }
            }
        }
        self.back.drain(..start);
    }

    fn check(&self) {
        assert!(self.dialing.outstanding() <= 20 && self.accepted.outstanding() <= 20);
        assert!(self.dialing.waiting_bytes() <= 600_200 + 3_000 + 20 * 100);
        assert!(self.accepted.waiting_bytes() <= 600_200 + 3_000 + 20 * 2_200);
    }

    /// The connection ends wherever it is.
    fn end(mut self) {
        for token in self.dialing.end() {
            assert_eq!(std::mem::replace(&mut self.requests[token as usize], Fate::Failed), Fate::Open);
        }
        assert!(!self.requests.contains(&Fate::Open), "every request is over");
        let left = self.accepted.end();
        assert!(left.unanswered.iter().all(|id| self.due.contains(id)));
        for claim in left.claims {
            let before = std::mem::replace(&mut self.claims[claim as usize], ClaimFate::Back);
            assert_eq!(before, ClaimFate::Open, "a claim ends once");
        }
        assert!(!self.claims.contains(&ClaimFate::Open), "no claim is lost");
        // Messages of which nobody said that they were settled are never taken to be.
        for (id, claim) in self.claim_of {
            let is_settled = self.claims[claim as usize] == ClaimFate::Settled;
            assert!(!is_settled || self.said.get(&id) == Some(&ClaimFate::Settled));
        }
    }
}

fn run(seed: u64) {
    let (mut random, mut world) = (Random(seed), World::new());
    for _ in 0..random.below(400) {
        match random.below(10) {
            0..2 => world.request(&mut random),
            2 => world.cancel(&mut random),
            3 => world.resolve(&mut random),
            4 => world.answer(&mut random),
            5..7 => world.back(&mut random),
            _ => world.forward(&mut random),
        }
        world.check();
    }
    world.end();
}

#[test]
fn everything_is_over_once_wherever_a_connection_ends() {
    for seed in 0..500 {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_link_that_stays_up_comes_to_rest_with_nothing_open() {
    for seed in 1_000..1_050 {
        let (mut random, mut world) = (Random(seed), World::new());
        for step in 0..2_000 {
            match random.below(6) {
                0 if step < 400 => world.request(&mut random),
                1 if step < 400 => world.cancel(&mut random),
                0 | 1 => {}
                2 => world.resolve(&mut random),
                3 => world.answer(&mut random),
                4 => world.back(&mut random),
                _ => world.forward(&mut random),
            }
        }
        for _ in 0..1_000 {
            world.resolve(&mut random);
            world.answer(&mut random);
            world.back(&mut random);
            world.forward(&mut random);
        }
        assert_eq!((world.dialing.outstanding(), world.accepted.outstanding()), (0, 0), "seed {seed}");
        assert!(world.claims.iter().all(|fate| *fate != ClaimFate::Open), "seed {seed}");
        assert!(world.dialing.credit() >= 4, "seed {seed}: {} credits of 5", world.dialing.credit());
        world.end();
    }
}
