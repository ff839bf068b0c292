//! Handing out what is due to whoever is free.
//!
//! An executor has one pacer for each flow of messages. A connection that is free takes what is due from it; when
//! nothing is, it waits in the pacer's line, and the executor's timer gives it the next request when that is due. So
//! one timer serves all, and none runs while every connection is busy.

use std::collections::VecDeque;

use crate::schedule::Schedule;

/// When a flow's requests are due on this executor.
pub(super) enum Clockwork {
    /// As soon as a connection is free.
    Closed {
        /// From then on.
        begin_ns: u64,
    },
    /// By a schedule.
    Open(Schedule),
}

/// The requests of one flow and the connections that wait for one.
pub(super) struct Pacer {
    clockwork: Clockwork,
    line: VecDeque<usize>,
}

impl Pacer {
    pub(super) fn new(clockwork: Clockwork) -> Self {
        Self { clockwork, line: VecDeque::new() }
    }

    /// When the next request is due; `None` when none is before `end_ns`.
    fn due_ns(&self, end_ns: u64) -> Option<u64> {
        let due_ns = match &self.clockwork {
            Clockwork::Closed { begin_ns } => *begin_ns,
            Clockwork::Open(schedule) => schedule.due_ns(),
        };
        (due_ns < end_ns).then_some(due_ns)
    }

    /// Takes the next request if it is due, and says since when. What was due before the end in an open loop is handed
    /// out after it, too: leaving it out would hide that it waited.
    pub(super) fn take(&mut self, now_ns: u64, end_ns: u64) -> Option<u64> {
        let due_ns = self.due_ns(end_ns).filter(|&due_ns| due_ns <= now_ns)?;
        match &mut self.clockwork {
            Clockwork::Closed { .. } => (now_ns < end_ns).then_some(now_ns),
            Clockwork::Open(schedule) => {
                schedule.advance();
                Some(due_ns)
            }
        }
    }

    /// Puts a connection into the line, at its end.
    pub(super) fn wait(&mut self, seat: usize) {
        self.line.push_back(seat);
    }

    /// Takes a connection out of the line.
    pub(super) fn leave(&mut self, seat: usize) {
        self.line.retain(|&waiting| waiting != seat);
    }

    /// When somebody in the line gets something to do.
    pub(super) fn wakes_at_ns(&self, now_ns: u64, end_ns: u64) -> Option<u64> {
        let is_over = matches!(self.clockwork, Clockwork::Closed { .. }) && now_ns >= end_ns;
        if self.line.is_empty() || is_over { None } else { self.due_ns(end_ns) }
    }

    /// The first in the line and the request for it, if one is due.
    pub(super) fn hand_out(&mut self, now_ns: u64, end_ns: u64) -> Option<(usize, u64)> {
        let seat = *self.line.front()?;
        let due_ns = self.take(now_ns, end_ns)?;
        self.line.pop_front();
        Some((seat, due_ns))
    }

    /// Whether a request is due that nobody has taken.
    pub(super) fn is_behind(&self, now_ns: u64, end_ns: u64) -> bool {
        match self.clockwork {
            Clockwork::Closed { .. } => false,
            Clockwork::Open(_) => self.due_ns(end_ns).is_some_and(|due_ns| due_ns <= now_ns),
        }
    }

    /// Gives up on all requests before the end, and says how many they were.
    pub(super) fn give_up(&mut self, end_ns: u64) -> u64 {
        let mut count = 0;
        while let Clockwork::Open(schedule) = &mut self.clockwork
            && schedule.due_ns() < end_ns
        {
            schedule.advance();
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::Arrivals, random::Random};

    const END_NS: u64 = 10_000;

    /// A request each 1000 ns from 1000 on.
    fn pacer() -> Pacer {
        let schedule = Schedule::new(Arrivals::Constant, 1e6, 1_000, 0.0, Random::new(1, 0));
        Pacer::new(Clockwork::Open(schedule))
    }

    #[test]
    fn what_a_busy_time_delays_is_handed_out_as_of_when_it_was_due() {
        let mut pacer = pacer();
        assert_eq!(pacer.take(999, END_NS), None);
        let taken: Vec<_> = std::iter::from_fn(|| pacer.take(4_500, END_NS)).collect();
        assert_eq!(taken, [1_000, 2_000, 3_000, 4_000]);
    }

    #[test]
    fn what_was_due_before_the_end_is_handed_out_after_it_and_nothing_else() {
        let mut pacer = pacer();
        let taken: Vec<_> = std::iter::from_fn(|| pacer.take(50_000, END_NS)).collect();
        assert_eq!(taken.len(), 9);
        assert_eq!(pacer.wakes_at_ns(0, END_NS), None);
    }

    #[test]
    fn those_who_wait_are_served_in_their_order() {
        let mut pacer = pacer();
        assert_eq!(pacer.wakes_at_ns(0, END_NS), None);
        [3, 1, 2].into_iter().for_each(|seat| pacer.wait(seat));
        pacer.leave(1);
        assert_eq!(pacer.wakes_at_ns(0, END_NS), Some(1_000));
        assert_eq!(pacer.hand_out(999, END_NS), None);
        assert_eq!(pacer.hand_out(9_000, END_NS), Some((3, 1_000)));
        assert_eq!(pacer.hand_out(9_000, END_NS), Some((2, 2_000)));
        assert_eq!(pacer.hand_out(9_000, END_NS), None);
        assert!(pacer.is_behind(9_000, END_NS));
        assert_eq!(pacer.give_up(END_NS), 7);
        assert!(!pacer.is_behind(9_000, END_NS));
    }

    #[test]
    fn a_closed_loop_is_due_now_until_the_end() {
        let mut pacer = Pacer::new(Clockwork::Closed { begin_ns: 1_000 });
        assert_eq!(pacer.take(999, END_NS), None);
        assert_eq!(pacer.take(5_000, END_NS), Some(5_000));
        assert_eq!(pacer.take(END_NS, END_NS), None);
        pacer.wait(0);
        assert_eq!(pacer.wakes_at_ns(0, END_NS), Some(1_000));
        assert_eq!(pacer.wakes_at_ns(END_NS, END_NS), None);
    }
}
