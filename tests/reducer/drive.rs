//! The loops that run a coordinator and its workers, over wires that are threads or that a test writes.
//! Times are those of a clock that moves as often as a wire is looked at.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use headwater::fold::Gram;
use headwater::plan::Assignment;
use headwater::reducer::wire::{
    Coordinator, Environment, Event, Failure, JobEnd, NoPeers, Order, PassEnd, Report, Wire,
    coordinate, shut_down, work,
};
use headwater::reducer::{Blocks, Job, Policy, WorkerCursor};
use headwater::{Error, ErrorKind, Result};

use crate::in_memory::InMemory;
use crate::{bits, job, plainly, reduction, rows};

const CHUNKS: u64 = 16;
/// More looks at a wire than any test takes; past them, something waits for ever.
const POLLS_MAX: u64 = 20_000;

/// The coordinator of some ranks; blocks have `1 << level` chunks.
fn coordinator(ranks: u32, level: u32) -> Coordinator<Gram> {
    let blocks = Blocks::new(CHUNKS, level).unwrap();
    let cuts = BTreeSet::new();
    let policy = Policy { blocks, ranks, cuts, audited_per_mille: 0, patience: 1000 };
    Coordinator::new(reduction(&job(CHUNKS, 1)), &policy).unwrap()
}

#[track_caller]
fn assert_right(coordinator: Coordinator<Gram>) {
    let whole = coordinator.into_reduction().finish().unwrap();
    assert_eq!(bits(&whole), bits(&plainly(&job(CHUNKS, 1), &rows(CHUNKS))));
}

fn environment(now: &dyn Fn() -> u64) -> Environment<'_> {
    Environment { now, cpu: &|| 7, interrupted: &|| false }
}

fn fold(chunks: Range<u64>) -> Vec<u8> {
    let cursor =
        WorkerCursor::new(Assignment::new(1, 2).unwrap(), &Blocks::new(CHUNKS, 0).unwrap());
    Order::Fold { chunks, cursor }.encode()
}

fn ready(readable: Range<u64>) -> Vec<u8> {
    let job = job(CHUNKS, 1).plan().encode().unwrap();
    Report::Ready { job: &job, readable: vec![readable] }.encode()
}

fn failed(error: &Error) -> Vec<u8> {
    Report::Failed(Failure::from(error)).encode()
}

#[expect(clippy::unnecessary_wraps, reason = "what a poll returns")]
fn message(rank: u32, message: Vec<u8>) -> Result<Option<Event>> {
    Ok(Some(Event::Message(rank, message)))
}

#[expect(clippy::unnecessary_wraps, reason = "what a poll returns")]
fn lost(rank: u32) -> Result<Option<Event>> {
    Ok(Some(Event::Lost(rank)))
}

fn end(end: JobEnd) -> Vec<u8> {
    Order::End(end).encode()
}

fn broken() -> Error {
    Error::data("the wire is cut")
}

/// A wire whose events are given, which keeps what is sent. When there are no more events, none comes.
struct Given<'a> {
    size: u32,
    /// The events, each after the number of messages that must have been sent before.
    events: VecDeque<(usize, Result<Option<Event>>)>,
    sent: Vec<(u32, Vec<u8>)>,
    polls: u64,
    /// The polls during which messages are in transit.
    busy: u64,
    clock: &'a Cell<u64>,
    /// The milliseconds that pass with each poll.
    step: u64,
}

impl<'a> Given<'a> {
    fn new<const N: usize>(
        size: u32,
        (clock, step): (&'a Cell<u64>, u64),
        events: [Result<Option<Event>>; N],
    ) -> Self {
        let events = events.into_iter().map(|event| (0, event)).collect();
        Self { size, events, sent: Vec::new(), polls: 0, busy: 0, clock, step }
    }

    /// Adds an event that comes when so many messages have been sent.
    fn add_after(&mut self, sent: usize, event: Result<Option<Event>>) {
        self.events.push_back((sent, event));
    }
}

impl Wire for Given<'_> {
    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, rank: u32, message: Vec<u8>) -> Result<()> {
        self.sent.push((rank, message));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Event>> {
        self.polls += 1;
        assert!(self.polls < POLLS_MAX, "it goes on for ever");
        self.clock.set(self.clock.get() + self.step);
        let next = self.events.pop_front_if(|(sent, _)| *sent <= self.sent.len());
        next.map_or(Ok(None), |(_, event)| event)
    }

    fn is_busy(&self) -> bool {
        self.polls < self.busy
    }
}

/// The wire of a rank that is a thread.
struct Threads {
    rank: u32,
    others: Vec<Sender<Event>>,
    events: Receiver<Event>,
}

impl Threads {
    fn connected(size: u32) -> Vec<Self> {
        let (others, events): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
        let wire = |(rank, events)| Self { rank, others: others.clone(), events };
        (0..).zip(events).map(wire).collect()
    }
}

impl Wire for Threads {
    fn size(&self) -> u32 {
        self.others.len() as u32
    }

    fn send(&mut self, rank: u32, message: Vec<u8>) -> Result<()> {
        // As to a rank that has died.
        let _ = self.others[rank as usize].send(Event::Message(self.rank, message));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Event>> {
        Ok(self.events.try_recv().ok())
    }

    fn is_busy(&self) -> bool {
        false
    }
}

#[test]
fn p1_ranks_on_wires_have_the_bits_of_one_process() {
    let start = Instant::now();
    let now = || start.elapsed().as_millis() as u64;
    let folded = [const { AtomicU64::new(0) }; 3];
    // Each rank waits with its first chunk until each has one.
    let of_rank = |rank: usize| {
        let folded = &folded;
        move |_: u64| {
            folded[rank].fetch_add(1, Ordering::SeqCst);
            while folded.iter().any(|count| count.load(Ordering::SeqCst) == 0) {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
    };
    let mut wires = Threads::connected(3);
    thread::scope(|scope| {
        let others: Vec<_> = wires
            .drain(1..)
            .map(|mut wire| {
                let before = of_rank(wire.rank as usize);
                scope.spawn(move || {
                    let source = InMemory::new(CHUNKS, &before);
                    let now = || start.elapsed().as_millis() as u64;
                    let (rank, job) = (u64::from(wire.rank), source.job.clone());
                    let cpu = move || 100 + rank;
                    let environment = Environment { cpu: &cpu, ..environment(&now) };
                    work(Ok((job, source)), b"", &mut wire, &environment).unwrap()
                })
            })
            .collect();
        let (mut coordinator, before) = (coordinator(3, 0), of_rank(0));
        let source = InMemory::new(CHUNKS, &before);
        let environment = environment(&now);
        coordinate(&mut coordinator, &source, &mut wires[0], &environment, &mut |_| Ok(()))
            .unwrap();
        assert_eq!(coordinator.cpu_microseconds_elsewhere(), 101 + 102);
        let silent = shut_down(&mut wires[0], BTreeSet::new(), JobEnd::Done, &environment);
        assert_eq!(silent, BTreeSet::new());
        for other in others {
            assert_eq!(other.join().unwrap(), PassEnd::End(JobEnd::Done));
        }
        assert_right(coordinator);
    });
}

#[test]
fn a_process_without_peers_is_one_rank_that_hears_nothing() {
    let mut wire = NoPeers;
    wire.send(1, b"lost".to_vec()).unwrap();
    assert_eq!((wire.size(), wire.is_busy()), (1, false));
    assert!(wire.poll().unwrap().is_none());
}

/// Without pauses, the thread of the messages would take the time of the one that folds.
#[test]
fn a_process_alone_pauses_for_long_while_it_folds() {
    let slow = |chunk| {
        thread::sleep(Duration::from_millis(if chunk == 0 { 300 } else { 0 }));
        Ok(())
    };
    let (clock, mut coordinator) = (Cell::new(0), coordinator(1, 4));
    let mut wire = Given::new(1, (&clock, 0), []);
    let (begin, mut watched) = (Instant::now(), 0);
    coordinate(
        &mut coordinator,
        &InMemory::new(CHUNKS, &slow),
        &mut wire,
        &environment(&|| clock.get()),
        &mut |_| {
            watched += 1;
            Ok(())
        },
    )
    .unwrap();
    assert!(u128::from(wire.polls) <= 3 + begin.elapsed().as_millis() / 50, "{}", wire.polls);
    assert_eq!(watched, wire.polls);
    assert!(wire.sent.is_empty());
    assert_right(coordinator);
}

/// Lets rank 0 fold beside a wire; returns the looks at the wire after all was folded, too.
fn coordinated(
    coordinator: &mut Coordinator<Gram>,
    wire: &mut Given<'_>,
    source: &InMemory<'_>,
) -> (Result<()>, u64) {
    let (clock, mut after) = (wire.clock, 0);
    let result =
        coordinate(coordinator, source, wire, &environment(&|| clock.get()), &mut |coordinator| {
            after += u64::from(coordinator.is_complete());
            Ok(())
        });
    (result, after)
}

#[test]
fn a_rank_that_never_joins_is_waited_for_for_ten_seconds() {
    let (clock, mut coordinator) = (Cell::new(70), coordinator(2, 0));
    let mut wire = Given::new(2, (&clock, 100), []);
    let (result, after) =
        coordinated(&mut coordinator, &mut wire, &InMemory::new(CHUNKS, &|_| Ok(())));
    result.unwrap();
    // The first look is that at which the last chunk arrived; at 10 s it is still waited for.
    assert_eq!(after, 1 + 101);
    assert!(wire.sent.is_empty());
    assert_right(coordinator);
}

#[test]
fn nobody_waits_for_a_rank_that_died() {
    let (clock, mut coordinator) = (Cell::new(0), coordinator(2, 0));
    let mut wire = Given::new(2, (&clock, 0), [lost(1)]);
    let (result, after) =
        coordinated(&mut coordinator, &mut wire, &InMemory::new(CHUNKS, &|_| Ok(())));
    result.unwrap();
    assert_eq!(after, 1);
    assert_eq!(coordinator.lost().collect::<Vec<_>>(), [1]);
    assert_right(coordinator);
}

#[test]
fn the_error_of_a_rank_that_joins_last_is_reported() {
    let (clock, mut coordinator) = (Cell::new(0), coordinator(2, 4));
    let mut wire = Given::new(2, (&clock, 100), []);
    wire.events.extend((0..50).map(|_| (0, Ok(None))));
    wire.add_after(0, message(1, failed(&Error::data("no such column"))));
    let (result, _) = coordinated(&mut coordinator, &mut wire, &InMemory::new(CHUNKS, &|_| Ok(())));
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Data, "rank 1: no such column")
    );
}

#[test]
fn rank_0_folds_the_orders_of_a_rank_that_is_late() {
    let (clock, mut coordinator) = (Cell::new(0), coordinator(2, 2));
    let mut wire = Given::new(2, (&clock, 0), [message(1, ready(0..CHUNKS))]);
    // The first look comes before anything is folded here; time passes when the own half is.
    let has_joined = AtomicBool::new(false);
    let waiting = |_| {
        while !has_joined.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let source = InMemory::new(CHUNKS, &waiting);
    coordinate(
        &mut coordinator,
        &source,
        &mut wire,
        &environment(&|| clock.get()),
        &mut |coordinator| {
            has_joined.store(coordinator.has_heard_of(2), Ordering::SeqCst);
            let is_half = coordinator.reduction().covered_count() == CHUNKS / 2;
            clock.set(clock.get() + 100 * u64::from(is_half));
            Ok(())
        },
    )
    .unwrap();
    let orders: Vec<_> =
        wire.sent.iter().map(|(rank, o)| (*rank, Order::decode(o).unwrap())).collect();
    assert!(matches!(&orders[..], [(1, Order::Fold { chunks, .. }), ..] if *chunks == (4..8)));
    assert!(clock.get() > 1000, "{}", clock.get());
    assert_eq!(coordinator.passed_over().map(|(rank, _)| rank).collect::<Vec<_>>(), [1]);
    assert_right(coordinator);
}

#[test]
fn rows_that_no_rank_can_read_end_the_job_with_their_files() {
    let (clock, mut coordinator) = (Cell::new(0), coordinator(1, 0));
    let mut wire = Given::new(1, (&clock, 0), []);
    let source = InMemory { readable: 0..10, ..InMemory::new(CHUNKS, &|_| Ok(())) };
    let error = coordinated(&mut coordinator, &mut wire, &source).0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("which lie in the file of rows 10..11"), "{error}");
}

#[test]
fn an_error_of_the_source_or_of_the_wire_ends_the_job() {
    let (clock, source) = (Cell::new(0), InMemory::new(CHUNKS, &|_| Ok(())));
    let mut wire = Given::new(2, (&clock, 0), [Err(broken())]);
    let error = coordinated(&mut coordinator(2, 0), &mut wire, &source).0.unwrap_err();
    assert_eq!(error.to_string(), broken().to_string());
    let bad = InMemory::new(CHUNKS, &|chunk| match chunk {
        3 => Err(Error::data("a NaN")),
        _ => Ok(()),
    });
    let mut wire = Given::new(1, (&clock, 0), []);
    let mut coordinator = coordinator(1, 0);
    let error = coordinated(&mut coordinator, &mut wire, &bad).0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert_eq!(error.to_string(), "rank 0: chunks 3 to 3: a NaN");
    assert_eq!(coordinator.reduction().covered_count(), 3);
}

#[test]
fn a_fold_stops_amid_its_order_when_the_job_ends() {
    let (folded, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let slow = |_| {
        folded.fetch_add(1, Ordering::SeqCst);
        while !has_ended.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(100));
        Ok(())
    };
    let (clock, mut coordinator) = (Cell::new(0), coordinator(1, 4));
    let error = coordinate(
        &mut coordinator,
        &InMemory::new(CHUNKS, &slow),
        &mut Given::new(1, (&clock, 0), []),
        &environment(&|| clock.get()),
        &mut |_| {
            has_ended.store(true, Ordering::SeqCst);
            Err(Error::interrupted("enough"))
        },
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "enough");
    assert!(folded.load(Ordering::SeqCst) < CHUNKS, "all chunks were folded first");
}

#[test]
fn ranks_are_told_the_end_and_that_they_may_leave() {
    let (clock, done) = (Cell::new(0), end(JobEnd::Done));
    let leaving = || Report::Leaving.encode();
    let mut wire = Given::new(
        4,
        (&clock, 0),
        [message(1, leaving()), message(3, ready(0..1)), Ok(None), message(3, leaving())],
    );
    let now = || clock.get();
    let environment = environment(&now);
    let silent = shut_down(&mut wire, BTreeSet::from([2]), JobEnd::Done, &environment);
    assert_eq!(silent, BTreeSet::new());
    assert_eq!(wire.sent, [(1, done.clone()), (3, done.clone()), (1, done.clone()), (3, done)]);
    assert_eq!(wire.polls, 4);
}

#[test]
fn the_end_waits_until_the_last_message_has_left() {
    let clock = Cell::new(0);
    let mut wire = Given::new(2, (&clock, 0), [lost(1)]);
    wire.busy = 5;
    let failed = JobEnd::Failed(ErrorKind::Data);
    let silent = shut_down(&mut wire, BTreeSet::new(), failed, &environment(&|| clock.get()));
    assert_eq!(silent, BTreeSet::new());
    assert_eq!((wire.polls, wire.sent), (5, vec![(1, end(failed))]));
}

#[test]
fn ranks_that_have_not_left_after_ten_seconds_are_named() {
    let clock = Cell::new(5000);
    let mut wire = Given::new(4, (&clock, 1000), [message(2, Report::Leaving.encode())]);
    let now = || clock.get();
    let environment = environment(&now);
    let silent = shut_down(&mut wire, BTreeSet::new(), JobEnd::Done, &environment);
    assert_eq!(silent, BTreeSet::from([1, 3]));
    assert_eq!(wire.polls, 10);
}

#[test]
fn no_rank_is_named_when_the_wire_is_cut_at_the_end() {
    let clock = Cell::new(0);
    let mut wire = Given::new(3, (&clock, 0), [lost(1), Err(broken())]);
    let now = || clock.get();
    let environment = environment(&now);
    let silent = shut_down(&mut wire, BTreeSet::new(), JobEnd::Done, &environment);
    assert_eq!(silent, BTreeSet::new());
}

/// Lets a rank work whose pass began with "known".
fn worked(wire: &mut Given<'_>, source: InMemory<'_>) -> Result<PassEnd> {
    let clock = wire.clock;
    work(Ok((source.job.clone(), source)), b"known", wire, &environment(&|| clock.get()))
}

/// What the messages to rank 0 are.
fn kinds(sent: &[(u32, Vec<u8>)]) -> Vec<&'static str> {
    let kind = |(rank, message): &(u32, Vec<u8>)| {
        assert_eq!(*rank, 0);
        match Report::decode(message).unwrap() {
            Report::Ready { readable, .. } => {
                assert_eq!(readable, [0..CHUNKS]);
                "ready"
            }
            Report::Folded { cpu_microseconds, .. } => {
                assert_eq!(cpu_microseconds, 7);
                "folded"
            }
            Report::Failed(_) => "failed",
            Report::Leaving => "leaving",
        }
    };
    sent.iter().map(kind).collect()
}

#[test]
fn a_rank_that_is_told_the_end_leaves_when_that_is_confirmed() {
    let (clock, done) = (Cell::new(0), end(JobEnd::Done));
    let events = [message(0, done.clone()), lost(2), Ok(None), message(0, done), Ok(None)];
    let mut wire = Given::new(3, (&clock, 0), events);
    let ended = worked(&mut wire, InMemory::new(CHUNKS, &|_| Ok(()))).unwrap();
    assert_eq!(ended, PassEnd::End(JobEnd::Done));
    assert_eq!(kinds(&wire.sent), ["ready", "leaving"]);
    assert_eq!(wire.events.len(), 1, "it leaves at the second message");
}

#[test]
fn a_rank_leaves_with_rank_0_or_after_ten_seconds() {
    let (clock, failed) = (Cell::new(0), JobEnd::Failed(ErrorKind::Io));
    let source = || InMemory::new(CHUNKS, &|_| Ok(()));
    let mut wire = Given::new(2, (&clock, 0), [message(0, end(failed)), lost(0), Ok(None)]);
    assert_eq!(worked(&mut wire, source()).unwrap(), PassEnd::End(failed));
    assert_eq!(wire.events.len(), 1);
    let clock = Cell::new(5000);
    let mut wire = Given::new(2, (&clock, 1000), [message(0, end(failed))]);
    assert_eq!(worked(&mut wire, source()).unwrap(), PassEnd::End(failed));
    assert_eq!(wire.polls, 1 + 10);
}

#[test]
fn a_rank_sends_a_portion_for_each_order() {
    let clock = Cell::new(0);
    let mut wire = Given::new(2, (&clock, 0), [message(0, fold(2..4)), message(0, fold(5..6))]);
    wire.add_after(3, message(0, end(JobEnd::Done)));
    wire.add_after(4, lost(0));
    let ended = worked(&mut wire, InMemory::new(CHUNKS, &|_| Ok(()))).unwrap();
    assert_eq!(ended, PassEnd::End(JobEnd::Done));
    assert_eq!(kinds(&wire.sent), ["ready", "folded", "folded", "leaving"]);
    let mut whole = reduction(&job(CHUNKS, 1));
    for (_, message) in &wire.sent {
        if let Report::Folded { portion, .. } = Report::decode(message).unwrap() {
            whole.receive(portion).unwrap();
        }
    }
    assert_eq!(whole.missing(), [0..2, 4..5, 6..CHUNKS]);
}

#[test]
fn a_rank_goes_to_the_next_pass_and_not_to_its_own_again() {
    let (clock, next) = (Cell::new(0), |known: &[u8]| Order::Next(known.to_vec()).encode());
    let events = [message(0, next(b"known")), message(0, next(b"more")), Ok(None)];
    let mut wire = Given::new(2, (&clock, 0), events);
    let ended = worked(&mut wire, InMemory::new(CHUNKS, &|_| Ok(()))).unwrap();
    assert_eq!(ended, PassEnd::Next(b"more".to_vec()));
    assert_eq!((kinds(&wire.sent), wire.events.len()), (vec!["ready"], 1));
}

#[test]
fn a_rank_that_hears_nothing_is_ready_again_after_five_seconds() {
    let clock = Cell::new(300);
    let mut wire = Given::new(2, (&clock, 1000), []);
    wire.events.extend((0..12).map(|_| (0, Ok(None))));
    wire.add_after(0, message(0, end(JobEnd::Done)));
    wire.add_after(0, lost(0));
    worked(&mut wire, InMemory::new(CHUNKS, &|_| Ok(()))).unwrap();
    // At the sixth and at the twelfth second.
    assert_eq!(kinds(&wire.sent), ["ready", "ready", "ready", "leaving"]);
}

#[test]
fn an_interrupted_rank_says_so_once_and_waits_for_the_end() {
    let clock = Cell::new(0);
    let mut wire = Given::new(2, (&clock, 0), [Ok(None), Ok(None), Ok(None)]);
    let interrupted = JobEnd::Failed(ErrorKind::Interrupted);
    wire.add_after(2, message(0, end(interrupted)));
    wire.add_after(3, lost(0));
    let source = InMemory::new(CHUNKS, &|_| Ok(()));
    let now = || clock.get();
    let environment = Environment { interrupted: &|| true, ..environment(&now) };
    let ended = work(Ok((source.job.clone(), source)), b"", &mut wire, &environment).unwrap();
    assert_eq!(ended, PassEnd::End(interrupted));
    assert_eq!(kinds(&wire.sent), ["ready", "failed", "leaving"]);
    assert_eq!(wire.sent[1].1, failed(&Error::interrupted("interrupted")));
}

#[test]
fn a_rank_ends_when_rank_0_dies_and_says_how_to_go_on() {
    let clock = Cell::new(0);
    let mut wire = Given::new(3, (&clock, 0), [lost(2), Ok(None), lost(0), Ok(None)]);
    let error = worked(&mut wire, InMemory::new(CHUNKS, &|_| Ok(()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shutdown);
    assert!(error.to_string().contains("rank 0 has died; run again with --resume"), "{error}");
    assert_eq!(wire.events.len(), 1);
}

#[test]
fn a_rank_that_cannot_open_its_rows_says_so_and_waits_for_the_end() {
    let (clock, ended) = (Cell::new(0), JobEnd::Failed(ErrorKind::Io));
    let refused = || Err::<(Job, InMemory<'_>), _>(Error::data("no such file"));
    let now = || clock.get();
    let environment = environment(&now);
    let events = [lost(2), message(0, fold(0..1)), Ok(None), message(0, end(ended)), lost(0)];
    let mut wire = Given::new(3, (&clock, 0), events);
    assert_eq!(work(refused(), b"", &mut wire, &environment).unwrap(), PassEnd::End(ended));
    assert_eq!(wire.sent.len(), 2);
    assert_eq!(wire.sent[0], (0, failed(&Error::data("no such file"))));
    assert_eq!(kinds(&wire.sent[1..]), ["leaving"]);
    let mut wire = Given::new(2, (&clock, 0), [lost(0), Ok(None)]);
    let error = work(refused(), b"", &mut wire, &environment).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shutdown);
}

#[test]
fn an_error_of_its_rows_is_reported_by_the_rank() {
    let clock = Cell::new(0);
    let mut wire = Given::new(2, (&clock, 0), [message(0, fold(3..4))]);
    let ended = JobEnd::Failed(ErrorKind::Data);
    wire.add_after(2, message(0, end(ended)));
    wire.add_after(3, lost(0));
    let source = InMemory::new(CHUNKS, &|_| Err(Error::data("a NaN")));
    assert_eq!(worked(&mut wire, source).unwrap(), PassEnd::End(ended));
    assert_eq!(kinds(&wire.sent), ["ready", "failed", "leaving"]);
    assert_eq!(wire.sent[1].1, failed(&Error::data("chunks 3 to 3: a NaN")));
}
