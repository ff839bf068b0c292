//! Peers of this broker, as the role sees them: the lane to the mesh, and what waits to be said there.
//!
//! One thing is on its way to the mesh at a time. What comes up meanwhile gathers, each partition once, and leaves
//! together: pushes that commit faster than the mesh takes them cost a longer frame, not more of them.

use std::{
    collections::{HashSet, VecDeque},
    mem,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use queen_fabric::{
    port::{Asked, Incoming, Port},
    protocol::mesh::{MeshAnswer, MeshAsk, MeshProtocol, mesh_seat},
};
use queen_log::engine::News;
use queen_wire::mesh::{Candidate, Message, PLACES_PER_FRAME, Place, QueueName};

/// Partitions that wait to be told of, at most: what is beyond is not, and counted. Others find it in their own time.
const PLACES_MAX: usize = 10 * PLACES_PER_FRAME;

/// Changes of queues that wait to be told of, at most.
const CHANGES_MAX: usize = 1_000;

/// How long partitions gather before others are told that they may have something for pops to come.
const HINT_WINDOW: Duration = Duration::from_millis(100);

/// The lane to the mesh.
pub(super) struct Peers {
    port: Port<MeshProtocol>,
    /// What is on its way.
    saying: Option<Asked<MeshProtocol>>,
    /// Where the maintenance switches are, if the mesh has not been told.
    switches: Option<MeshAsk>,
    changes: VecDeque<Message>,
    /// What those who wait are woken for.
    available: HashSet<News>,
    /// What pops to come may look at, and when they are told.
    hints: HashSet<News>,
    hints_due: Option<Instant>,
    /// What there was no room for since the mesh was last told something.
    unsaid: u64,
}

impl Peers {
    pub(super) fn new(port: Port<MeshProtocol>) -> Self {
        Self {
            port,
            saying: None,
            switches: None,
            changes: VecDeque::new(),
            available: HashSet::new(),
            hints: HashSet::new(),
            hints_due: None,
            unsaid: 0,
        }
    }

    /// Has others told of this.
    pub(super) fn tell(&mut self, news: News) {
        match news {
            News::Available { .. } => {
                self.unsaid += u64::from(!insert(&mut self.available, news.clone()));
                if insert(&mut self.hints, news) {
                    self.hints_due.get_or_insert_with(|| Instant::now() + HINT_WINDOW);
                }
            }
            _ if self.changes.len() >= CHANGES_MAX => self.unsaid += 1,
            News::Configured { tenant, queue } => {
                self.changes.push_back(Message::ConfigSet(QueueName::of(tenant.0, &queue)));
            }
            News::Deleted { tenant, queue } => {
                self.changes.push_back(Message::ConfigDelete(QueueName::of(tenant.0, &queue)));
            }
        }
    }

    /// The maintenance switches of the store are these. What was to be told and has not been still is.
    pub(super) fn switched(&mut self, mut switches: MeshAsk) {
        if let (
            MeshAsk::Switches { tell_push, tell_pop, .. },
            Some(MeshAsk::Switches { tell_push: push_untold, tell_pop: pop_untold, .. }),
        ) = (&mut switches, &self.switches)
        {
            *tell_push |= push_untold;
            *tell_pop |= pop_untold;
        }
        self.switches = Some(switches);
    }

    /// When hints are due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.hints_due.filter(|_| self.saying.is_none())
    }

    /// Sends what there is; what a peer has said comes out.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Message> {
        loop {
            if let Some(asked) = &mut self.saying {
                if Pin::new(asked).poll(cx).is_pending() {
                    break;
                }
                self.saying = None;
            }
            let Some(ask) = self.next_ask() else { break };
            match self.port.ask(mesh_seat(self.port.shards()), ask) {
                Ok(asked) => self.saying = Some(asked),
                Err(_) => unreachable!("one question at a time has its credit"),
            }
        }
        while let Poll::Ready(incoming) = self.port.poll_incoming(cx) {
            if let Incoming::Ask { ticket, ask } = incoming {
                self.port.answer(ticket, MeshAnswer::Done);
                if let MeshAsk::Heard(message) = ask {
                    return Poll::Ready(*message);
                }
            }
        }
        Poll::Pending
    }

    fn next_ask(&mut self) -> Option<MeshAsk> {
        if let Some(switches) = self.switches.take() {
            return Some(switches);
        }
        let message = self.next_message()?;
        Some(MeshAsk::Say { message: Box::new(message), unsaid: mem::take(&mut self.unsaid) })
    }

    fn next_message(&mut self) -> Option<Message> {
        if let Some(change) = self.changes.pop_front() {
            return Some(change);
        }
        if !self.available.is_empty() {
            return Some(Message::Available(take(&mut self.available)));
        }
        if self.hints_due.is_some_and(|due| due <= Instant::now()) {
            let places = take(&mut self.hints);
            if self.hints.is_empty() {
                self.hints_due = None;
            }
            return Some(Message::Dirty(places.into_iter().map(|place| Candidate { place, group: None }).collect()));
        }
        None
    }
}

/// False where there is no room.
fn insert(set: &mut HashSet<News>, news: News) -> bool {
    if set.len() >= PLACES_MAX && !set.contains(&news) {
        return false;
    }
    set.insert(news);
    true
}

/// A frame's worth of a set, which keeps the rest.
fn take(set: &mut HashSet<News>) -> Vec<Place> {
    set.extract_if(|news| matches!(news, News::Available { .. }))
        .take(PLACES_PER_FRAME)
        .filter_map(|news| match news {
            News::Available { tenant, queue, partition } => {
                Some(Place { queue: queue.to_string(), partition: Some(partition.to_string()), tenant: Some(tenant.0) })
            }
            News::Configured { .. } | News::Deleted { .. } => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use queen_fabric::port::{MeshOptions, mesh};
    use queen_log::id::Uuid;

    use super::*;

    fn available(partition: usize) -> News {
        News::Available { tenant: Uuid([1; 16]), queue: "q".into(), partition: partition.to_string().into() }
    }

    #[test]
    fn a_frame_of_the_longest_names_is_one_that_peers_take() {
        // What stands between quotes has to be escaped, to twice its length at the most.
        let place =
            Place { queue: "\u{1d11e}".repeat(255), partition: Some("\"".repeat(2_048)), tenant: Some([0xff; 16]) };
        let candidate = Candidate { place: place.clone(), group: None };
        for message in
            [Message::Available(vec![place; PLACES_PER_FRAME]), Message::Dirty(vec![candidate; PLACES_PER_FRAME])]
        {
            let (_, payload) = message.render();
            assert!(payload.len() < queen_wire::mesh::FRAME_BYTES_MAX * 9 / 10, "{}", payload.len());
        }
    }

    #[test]
    fn what_is_taken_is_a_frames_worth_and_the_rest_stays() {
        let mut set = (0..PLACES_PER_FRAME + 5).map(available).collect::<HashSet<_>>();
        assert_eq!(take(&mut set).len(), PLACES_PER_FRAME);
        assert_eq!(take(&mut set).len(), 5);
        assert!(set.is_empty());
    }

    #[test]
    fn a_partition_that_was_pushed_a_thousand_times_is_told_of_once_and_more_than_there_is_room_for_is_counted() {
        let executor = queen_fabric::rt::Executor::spawn("peers", None, Duration::ZERO, || async {
            let port = mesh::<MeshProtocol>(3, MeshOptions::default()).remove(1).open();
            let mut peers = Peers::new(port);
            (0..1_000).for_each(|_| peers.tell(available(7)));
            assert_eq!((peers.available.len(), peers.hints.len(), peers.unsaid), (1, 1, 0));
            (0..PLACES_MAX + 10).for_each(|partition| peers.tell(available(partition)));
            assert_eq!((peers.available.len(), peers.hints.len(), peers.unsaid), (PLACES_MAX, PLACES_MAX, 10));
            (0..CHANGES_MAX + 1).for_each(|_| {
                peers.tell(News::Configured { tenant: Uuid([1; 16]), queue: "q".into() });
            });
            assert_eq!((peers.changes.len(), peers.unsaid), (CHANGES_MAX, 11));
        });
        executor.expect("an executor").join().expect("the test holds");
    }
}
