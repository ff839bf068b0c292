//! The lanes under every interleaving that loom finds. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p queen-fabric --test loom --release`.
#![cfg(loom)]

use std::{
    sync::atomic::{AtomicUsize as PlainCount, Ordering as PlainOrdering},
    task::{Wake, Waker},
};

use loom::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use queen_fabric::lane::{ring::ring, wake::Doorbell};

#[test]
fn values_arrive_in_order_over_the_wrap() {
    bounded_model(|| {
        let (mut producer, mut consumer) = ring::<usize>(2);
        let sender = thread::spawn(move || {
            for value in 0..3 {
                let mut left = value;
                while let Err(back) = producer.stage(left) {
                    left = back;
                    thread::yield_now();
                }
                producer.publish();
            }
        });
        for expected in 0..3 {
            let value = loop {
                match consumer.pop() {
                    Some(value) => break value,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(value, expected);
        }
        assert!(consumer.pop().is_none());
        sender.join().unwrap();
    });
}

#[test]
fn a_batch_is_visible_whole_or_not_at_all() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::<usize>(4);
        let sender = thread::spawn(move || {
            producer.stage(1).unwrap();
            producer.stage(2).unwrap();
            producer.publish();
        });
        if consumer.pop() == Some(1) {
            assert_eq!(consumer.pop(), Some(2));
        }
        sender.join().unwrap();
    });
}

#[test]
fn what_is_not_taken_is_dropped_once_by_whoever_goes_last() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    loom::model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut producer, mut consumer) = ring(2);
        let counted = Arc::clone(&drops);
        let sender = thread::spawn(move || {
            assert!(producer.stage(Counted(Arc::clone(&counted))).is_ok());
            producer.publish();
            // Staged and never published.
            assert!(producer.stage(Counted(counted)).is_ok());
        });
        drop(consumer.pop());
        drop(consumer);
        sender.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_full_ring_tells_its_producer_of_room() {
    bounded_model(|| {
        let (mut producer, mut consumer) = ring::<usize>(1);
        let (told, tell) = parker();
        producer.stage(0).unwrap();
        producer.publish();
        let receiver = thread::spawn(move || {
            let mut taken = 0;
            while taken < 2 {
                if consumer.pop().is_some() {
                    taken += 1;
                    if consumer.owes_room() {
                        tell.wake_by_ref();
                    }
                } else {
                    thread::yield_now();
                }
            }
        });
        if producer.wait_for_room() {
            told.wait();
        }
        producer.stage(1).unwrap();
        producer.publish();
        receiver.join().unwrap();
    });
}

/// Where a thread waits to be woken. Not `thread::park`: loom takes a late unpark for the end of a later `join`.
#[derive(Default)]
struct Parker {
    woken: Mutex<bool>,
    wakes: Condvar,
}

impl Parker {
    /// Waits for a wake. Loom reports a deadlock when nobody wakes.
    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.wakes.wait(woken).unwrap();
        }
        *woken = false;
    }
}

impl Wake for Parker {
    fn wake(self: std::sync::Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.wakes.notify_one();
    }
}

/// A place to wait and its waker.
fn parker() -> (std::sync::Arc<Parker>, Waker) {
    let parker = std::sync::Arc::new(Parker::default());
    (std::sync::Arc::clone(&parker), parker.into())
}

/// Loom's model with at most three preemptions: enough for every known kind of failure, and it ends.
fn bounded_model(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

#[test]
fn no_wake_is_lost_between_two_senders_and_a_receiver_that_sleeps() {
    bounded_model(|| {
        let mut doorbell = Doorbell::new(2);
        let senders: Vec<_> = (0..2)
            .map(|sender| {
                let ringer = doorbell.ringer(sender);
                let (mut producer, consumer) = ring::<usize>(1);
                let thread = thread::spawn(move || {
                    producer.stage(sender).unwrap();
                    producer.publish();
                    ringer.ring();
                });
                (thread, consumer)
            })
            .collect();
        let (threads, mut lanes): (Vec<_>, Vec<_>) = senders.into_iter().unzip();

        let (parker, waker) = parker();
        let mut received = 0;
        while received < 2 {
            let mut dirty = [0];
            if doorbell.collect(&mut dirty) {
                for (sender, lane) in lanes.iter_mut().enumerate() {
                    if dirty[0] & (1 << sender) != 0 {
                        // The bit says that the value is there.
                        assert_eq!(lane.pop(), Some(sender));
                        received += 1;
                    }
                }
            } else if doorbell.sleep(&waker) {
                parker.wait();
                doorbell.awake();
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn two_rings_of_a_sleeper_wake_it_once() {
    static RUNS: PlainCount = PlainCount::new(0);
    loom::model(|| {
        let mut doorbell = Doorbell::new(65);
        // Two words of the bitmap: both senders find theirs clear.
        let ringers = [doorbell.ringer(0), doorbell.ringer(64)];
        assert!(doorbell.sleep(Waker::noop()));
        let threads = ringers.map(|ringer| thread::spawn(move || usize::from(ringer.ring())));
        let wakes: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(wakes, 1);
        RUNS.fetch_add(1, PlainOrdering::Relaxed);
    });
    assert!(RUNS.load(PlainOrdering::Relaxed) > 1);
}

#[test]
fn a_changed_waker_is_the_one_that_is_woken() {
    loom::model(|| {
        let mut doorbell = Doorbell::new(1);
        let ringer = doorbell.ringer(0);
        assert!(doorbell.sleep(Waker::noop()));
        doorbell.awake();
        let sender = thread::spawn(move || ringer.ring());
        // The task moved: it sleeps with another waker now.
        let (parker, waker) = parker();
        if doorbell.sleep(&waker) {
            parker.wait();
        }
        sender.join().unwrap();
        assert!(doorbell.collect(&mut [0]));
    });
}
