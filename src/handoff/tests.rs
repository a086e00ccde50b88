//! The hand-off under random thread schedules, and under schedules with few, badly timed switches.
//! The checker fails a schedule in which all threads wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::sync::Mutex;
use shuttle::thread;

use super::producer::{Gate, Producer, shut_down_error};
use crate::error::{Error, ErrorKind, Result};

/// The streams of a sampler.
const TRAIN: usize = 0;
const VAL: usize = 1;

/// The number of schedules of each kind.
const SCHEDULES: usize = 1500;
/// The number of badly timed switches: more than any known deadlock of this kind needs.
const CHANGES: usize = 4;

fn check(scenario: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random_with_seed(scenario, 0x5eed, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, CHANGES);
}

/// The streams of a sampler, each with a lock that its consumer holds while it waits.
struct Streams {
    gate: Arc<Gate>,
    producers: [Mutex<Option<Producer<u64>>>; 2],
    /// The number of items that each has made.
    made: [AtomicU64; 2],
    ahead: usize,
}

impl Streams {
    fn new(ahead: usize) -> Arc<Self> {
        let gate = Arc::default();
        Arc::new(Self { gate, producers: Default::default(), made: Default::default(), ahead })
    }

    /// Returns the next number of a stream; starts its producer at `from` if there is none.
    fn next(self: &Arc<Self>, stream: usize, from: u64) -> Result<u64> {
        let mut producer = self.producers[stream].lock().unwrap();
        if self.gate.is_closed() {
            return Err(shut_down_error());
        }
        if producer.is_none() {
            let (streams, mut place) = (Arc::clone(self), from);
            let make = move || {
                streams.made[stream].fetch_add(1, Ordering::SeqCst);
                place += 1;
                Ok(place - 1)
            };
            *producer =
                Some(Producer::start(stream, "test", self.ahead, Arc::clone(&self.gate), make)?);
        }
        producer.as_ref().unwrap().next()
    }

    /// As `Sampler::resume`: locks all streams, then ends their producers one by one.
    fn end_producers(&self) {
        let mut producers = self.producers.each_ref().map(|producer| producer.lock().unwrap());
        producers.iter_mut().for_each(|producer| **producer = None);
    }

    /// As `Sampler::shutdown`: a waiting consumer releases its stream because the producer ends.
    fn shutdown(&self) {
        self.gate.close();
        self.producers.iter().for_each(|producer| *producer.lock().unwrap() = None);
    }
}

#[test]
fn two_streams_keep_their_order_and_stay_within_their_bound() {
    for ahead in [1, 2] {
        check(move || {
            let streams = Streams::new(ahead);
            let consume = |stream: usize| {
                let streams = Arc::clone(&streams);
                move || {
                    for expected in 0..4 {
                        assert_eq!(streams.next(stream, 0).unwrap(), expected);
                        let made = streams.made[stream].load(Ordering::SeqCst);
                        // The queue is full, and one more item waits for room.
                        assert!(made <= expected + 1 + ahead as u64 + 1, "{made} {expected}");
                    }
                }
            };
            let val = thread::spawn(consume(VAL));
            consume(TRAIN)();
            val.join().unwrap();
            streams.end_producers();
        });
    }
}

/// Also when a val producer waits for a train producer that has ended.
#[test]
fn streams_restart_after_their_producers_end() {
    check(|| {
        let streams = Streams::new(3);
        for from in [0, 100, 200] {
            assert_eq!(streams.next(TRAIN, from).unwrap(), from);
            assert_eq!(streams.next(VAL, from).unwrap(), from);
            streams.end_producers();
        }
    });
}

#[test]
fn shutdown_wakes_consumers_and_ends_all_producers() {
    check(|| {
        let streams = Streams::new(2);
        let consume = |stream: usize| {
            let streams = Arc::clone(&streams);
            move || {
                // The loop ends even if a schedule never runs the shutdown.
                for expected in 0..8 {
                    match streams.next(stream, 0) {
                        Ok(found) => assert_eq!(found, expected),
                        Err(error) => return assert_eq!(error.kind(), ErrorKind::Shutdown),
                    }
                }
            }
        };
        let consumers = [TRAIN, VAL].map(|stream| thread::spawn(consume(stream)));
        streams.shutdown();
        consumers.into_iter().for_each(|consumer| consumer.join().unwrap());
        // Producers are joined: no more items are made.
        let made = || streams.made.each_ref().map(|made| made.load(Ordering::SeqCst));
        let before = made();
        thread::yield_now();
        assert_eq!(made(), before);
        assert_eq!(streams.next(VAL, 0).unwrap_err().kind(), ErrorKind::Shutdown);
    });
}

/// An error is returned once, after the items made before it. Val does not wait for the train
/// producer that it ended.
#[test]
fn an_error_ends_only_its_own_stream() {
    check(|| {
        let gate: Arc<Gate> = Arc::default();
        let mut left = 2;
        let failing = move || {
            left -= 1;
            if left == 0 { Err(Error::invalid("no more")) } else { Ok(left) }
        };
        let train = Producer::start(TRAIN, "test", 3, Arc::clone(&gate), failing).unwrap();
        let val = Producer::start(VAL, "test", 3, Arc::clone(&gate), || Ok(7)).unwrap();
        assert_eq!(train.next().unwrap(), 1);
        assert_eq!(train.next().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(train.next().unwrap_err().kind(), ErrorKind::Shutdown);
        for _ in 0..5 {
            assert_eq!(val.next().unwrap(), 7);
        }
    });
}

/// Val leaves the cores to train while no one waits for val.
#[test]
fn val_yields_to_a_train_that_is_behind() {
    check(|| {
        let gate: Arc<Gate> = Arc::default();
        gate.put_first_behind();
        let made = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&made);
        let make = move || Ok(counted.fetch_add(1, Ordering::SeqCst));
        let val = Producer::start(VAL, "test", 3, Arc::clone(&gate), make).unwrap();
        for _ in 0..20 {
            thread::yield_now();
        }
        assert_eq!(made.load(Ordering::SeqCst), 0);
        // A waiting consumer is served nevertheless.
        assert_eq!(val.next().unwrap(), 0);
    });
}
