//! Jobs of several passes: ranks that are still in an earlier pass, and what they are told.

use std::collections::{BTreeSet, VecDeque};

use headwater::Result;
use headwater::plan::{Assignment, Plan};
use headwater::reducer::wire::{Event, Failure, JobEnd, Order, PassWire, Report, Wire, Worker};
use headwater::reducer::{Blocks, WorkerCursor};

use crate::job;

/// A wire whose events are given, which keeps what is sent.
#[derive(Default)]
struct Given {
    events: VecDeque<Event>,
    sent: Vec<(u32, Vec<u8>)>,
}

impl Wire for Given {
    fn size(&self) -> u32 {
        4
    }

    fn send(&mut self, rank: u32, message: Vec<u8>) -> Result<()> {
        self.sent.push((rank, message));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Event>> {
        Ok(self.events.pop_front())
    }

    fn is_busy(&self) -> bool {
        !self.events.is_empty()
    }
}

fn ready(plan: &Plan) -> Vec<u8> {
    Report::Ready { job: &plan.encode().unwrap(), readable: vec![0..1, 2..3] }.encode()
}

fn folded() -> Vec<u8> {
    let blocks = Blocks::new(5, 0).unwrap();
    let cursor = WorkerCursor::new(Assignment::new(1, 4).unwrap(), &blocks);
    Report::Folded { cursor, cpu_microseconds: 5, portion: b"sums" }.encode()
}

fn next() -> Vec<u8> {
    Order::Next(b"known".to_vec()).encode()
}

#[test]
fn messages_of_an_earlier_pass_are_answered_with_the_new_pass_and_dropped() {
    let (earlier, own) = ([job(9, 2).plan().clone()], job(10, 2).plan().clone());
    let mut given = Given::default();
    for message in [folded(), ready(&earlier[0]), b"damaged".to_vec(), ready(&own), folded()] {
        given.events.push_back(Event::Message(1, message));
    }
    given.events.push_back(Event::Message(2, ready(job(11, 2).plan())));
    given.events.push_back(Event::Lost(1));
    let lost = BTreeSet::from([3]);
    let mut wire = PassWire::begin(&mut given, &earlier, b"known".to_vec(), &lost).unwrap();
    assert_eq!((wire.size(), wire.is_busy()), (4, true));
    for _ in 0..3 {
        assert!(wire.poll().unwrap().is_none());
    }
    let mut heard = || match wire.poll().unwrap() {
        Some(Event::Message(rank, message)) => (rank, message),
        other => panic!("{other:?}"),
    };
    assert_eq!(heard(), (1, ready(&own)));
    assert_eq!(heard(), (1, folded()));
    // Of no pass of this job: the coordinator names what differs.
    assert_eq!(heard(), (2, ready(job(11, 2).plan())));
    assert!(matches!(wire.poll().unwrap(), Some(Event::Lost(1))));
    assert!(!wire.is_busy());
    wire.send(2, vec![9]).unwrap();
    assert_eq!(given.sent, [(1, next()), (2, next()), (1, next()), (2, vec![9])]);
}

#[test]
fn failed_and_lost_ranks_of_an_earlier_pass_are_reported() {
    let earlier = [job(9, 2).plan().clone()];
    let failed = Report::Failed(Failure::from(&headwater::Error::data("changed"))).encode();
    let mut given = Given::default();
    given.events.extend([Event::Message(1, failed.clone()), Event::Lost(2)]);
    let mut wire = PassWire::begin(&mut given, &earlier, Vec::new(), &BTreeSet::new()).unwrap();
    assert!(matches!(wire.poll().unwrap(), Some(Event::Message(1, m)) if m == failed));
    assert!(matches!(wire.poll().unwrap(), Some(Event::Lost(2))));
}

#[test]
fn the_first_pass_begins_without_a_message() {
    let mut given = Given::default();
    given.events.push_back(Event::Message(1, folded()));
    let mut wire = PassWire::begin(&mut given, &[], Vec::new(), &BTreeSet::new()).unwrap();
    assert!(matches!(wire.poll().unwrap(), Some(Event::Message(1, _))));
    assert!(given.sent.is_empty());
}

#[test]
fn a_worker_drops_its_orders_when_the_next_pass_begins() {
    let job = job(10, 2);
    let mut worker = Worker::new(&job, std::iter::once(0..5).collect(), 100).unwrap();
    let blocks = Blocks::new(job.chunk_count(), 0).unwrap();
    let cursor = WorkerCursor::new(Assignment::new(0, 1).unwrap(), &blocks);
    worker.hear(&Order::Fold { chunks: 0..1, cursor }.encode()).unwrap();
    worker.hear(&next()).unwrap();
    assert_eq!((worker.next_order(), worker.end()), (None, None));
    assert_eq!((worker.take_next(), worker.take_next()), (Some(b"known".to_vec()), None));
    worker.hear(&Order::End(JobEnd::Done).encode()).unwrap();
    assert_eq!(worker.end(), Some(JobEnd::Done));
}
