//! Runs the state machines: one thread exchanges messages, another folds.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError};

use crate::error::{Error, ErrorKind, Result};

use super::coordinator::{Coordinator, Outbox};
use super::job::Job;
use super::message::{Failure, JobEnd, Order, PassEnd, Report};
use super::source::{Source, fold_portion};
use super::worker::Worker;

/// Milliseconds without orders after which a worker reports again that it is ready.
const READY_AGAIN: u64 = 5_000;

/// The longest time in milliseconds that the coordinator waits for ranks that start or leave.
const SHUTDOWN_MAX: u64 = 10_000;

/// The pause between two polls of an idle wire: short pauses cost CPU time, long ones delay messages.
const PAUSE: Duration = Duration::from_millis(1);
/// The pause while a message is in transit: transports move bytes only when they are polled.
const PAUSE_BUSY: Duration = Duration::from_micros(100);
/// The pause of a process without peers.
const PAUSE_ALONE: Duration = Duration::from_millis(50);

/// Carries messages between the coordinator, which is rank 0, and the workers of other processes.
pub trait Wire {
    /// The number of ranks, this one included.
    fn size(&self) -> u32;

    /// Begins to send a message; drops it when the rank has died.
    ///
    /// # Errors
    /// Those of the wire.
    fn send(&mut self, rank: u32, message: Vec<u8>) -> Result<()>;

    /// Returns the next event, or `None` at once.
    ///
    /// # Errors
    /// Those of the wire.
    fn poll(&mut self) -> Result<Option<Event>>;

    /// Whether a message is in transit, so that [`Wire::poll`] must be called again soon.
    fn is_busy(&self) -> bool;
}

/// The ranks of a job that a launcher started, as a transport connects them.
pub trait Ranks: Wire {
    /// The rank of this process.
    fn rank(&self) -> u32;

    /// Ends all ranks at once, those that no longer answer too, for which [`Ranks::leave`] would wait.
    fn abort(&self, status: u8);

    /// Leaves the job, after it has ended on all live ranks.
    fn leave(self: Box<Self>);
}

/// An event on a wire.
#[derive(Debug)]
pub enum Event {
    /// A message from a rank.
    Message(u32, Vec<u8>),
    /// A rank has died.
    Lost(u32),
}

/// The wire of a process without peers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPeers;

impl Wire for NoPeers {
    fn size(&self) -> u32 {
        1
    }

    fn send(&mut self, _: u32, _: Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Event>> {
        Ok(None)
    }

    fn is_busy(&self) -> bool {
        false
    }
}

/// The clock, the CPU time and the interrupt of the process, which the state machines lack.
pub struct Environment<'a> {
    /// Milliseconds since a fixed moment.
    pub now: &'a dyn Fn() -> u64,
    /// The CPU time of this process, in microseconds.
    pub cpu: &'a (dyn Fn() -> u64 + Sync),
    /// Whether the user wants the job to end.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// A worker and the thread that folds for it.
struct LocalWorker<'a> {
    worker: Worker,
    orders: Sender<Range<u64>>,
    /// The portions, each with the CPU time of the process.
    folded: Receiver<Result<(Vec<u8>, u64), Failure>>,
    stop: &'a AtomicBool,
}

impl<'a> LocalWorker<'a> {
    fn new<'scope, S: Source>(
        scope: &'scope Scope<'scope, '_>,
        job: &'scope Job,
        source: &'scope S,
        cpu: &'scope (dyn Fn() -> u64 + Sync),
        stop: &'a AtomicBool,
    ) -> Result<Self>
    where
        'a: 'scope,
    {
        let worker = Worker::new(job, source.readable(), READY_AGAIN)?;
        let (orders, ordered) = crossbeam_channel::bounded::<Range<u64>>(1);
        let (done, folded) = crossbeam_channel::bounded(1);
        let folding = move || {
            for chunks in ordered {
                let stopped = || stop.load(Ordering::Relaxed);
                let portion = fold_portion(job, source, chunks, &stopped);
                let portion = portion.map(|portion| (portion, cpu()));
                if done.send(portion.map_err(|error| Failure::from(&error))).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().spawn_scoped(scope, folding).map_err(|e| {
            let remedy = "give each rank more memory, or run fewer on a machine";
            Error::limit(format!("cannot start the thread that folds: {e}; {remedy}"))
        })?;
        Ok(Self { worker, orders, folded, stop })
    }

    /// Returns the next report of the worker; waits for it for at most `pause`.
    fn step(&mut self, now: u64, pause: Duration) -> Result<Option<Vec<u8>>> {
        self.start_next_order()?;
        let folded = match self.folded.try_recv() {
            Err(TryRecvError::Empty) if !pause.is_zero() => self.folded.recv_timeout(pause),
            Err(TryRecvError::Empty) => Err(RecvTimeoutError::Timeout),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            Ok(folded) => Ok(folded),
        };
        match folded {
            Ok(folded) => {
                let cursor = self.worker.folded(now);
                self.start_next_order()?;
                Ok(match (folded, cursor) {
                    (Err(failure), _) => Some(Report::Failed(failure).encode()),
                    (Ok((portion, cpu)), Some(cursor)) => {
                        Some(Report::folded(portion, &cursor, cpu))
                    }
                    // The thread folds orders only, and each has a cursor.
                    (Ok(_), None) => None,
                })
            }
            Err(RecvTimeoutError::Timeout) => Ok(self.worker.tick(now)),
            Err(RecvTimeoutError::Disconnected) => Err(thread_ended()),
        }
    }

    /// Sends the next order to the thread that folds, when that thread is idle.
    fn start_next_order(&mut self) -> Result<()> {
        match self.worker.next_order() {
            Some(chunks) => self.orders.send(chunks).map_err(|_| thread_ended()),
            None => Ok(()),
        }
    }
}

impl Drop for LocalWorker<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn thread_ended() -> Error {
    Error::new(ErrorKind::Shutdown, "the thread that folds has ended; its message is above")
}

/// Folds the missing chunks as rank 0, together with the ranks on the wire.
///
/// Calls `watch` repeatedly with the coordinator; an error of `watch` ends the job. Afterwards the
/// coordinator holds the fold as far as it is done, and [`shut_down`] ends the job on the other ranks.
///
/// # Errors
/// Those of [`Coordinator::hear`], of the source and the wire, and of `watch`.
pub fn coordinate<S: Source>(
    coordinator: &mut Coordinator<S::Statistic>,
    source: &S,
    wire: &mut dyn Wire,
    environment: &Environment<'_>,
    watch: &mut dyn FnMut(&Coordinator<S::Statistic>) -> Result<()>,
) -> Result<()> {
    let job = coordinator.reduction().job().clone();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut local = LocalWorker::new(scope, &job, source, environment.cpu, &stop)?;
        let first = local.worker.begin((environment.now)());
        let outbox = coordinator.hear((environment.now)(), 0, &first)?;
        deliver(outbox, &mut local, wire)?;
        let mut complete_since = None;
        loop {
            let now = (environment.now)();
            if coordinator.is_complete() {
                // Waits for slow ranks to join, so that their errors are not reported by chance.
                let waited = now - *complete_since.get_or_insert(now);
                if coordinator.has_heard_of(wire.size()) || waited > SHUTDOWN_MAX {
                    return Ok(());
                }
            }
            let event = wire.poll()?;
            let pause = match event {
                Some(_) => Duration::ZERO,
                None if wire.is_busy() => PAUSE_BUSY,
                None if wire.size() == 1 => PAUSE_ALONE,
                None => PAUSE,
            };
            let mut outbox = match event {
                Some(Event::Message(rank, message)) => coordinator.hear(now, rank, &message)?,
                Some(Event::Lost(rank)) => coordinator.lose(now, rank),
                None => coordinator.tick(now),
            };
            if let Some(report) = local.step(now, pause)? {
                outbox.extend(coordinator.hear((environment.now)(), 0, &report)?);
            }
            coordinator.check_readable(wire.size(), |rows| source.files_of(rows))?;
            deliver(outbox, &mut local, wire)?;
            watch(coordinator)?;
        }
    })
}

/// Ends the job on all ranks: sends each rank the end, waits for its report that it leaves, and confirms
/// that, so that no rank leaves before its messages have arrived. `lost` are the ranks that died. Returns
/// the ranks that have not left within 10 s.
pub fn shut_down(
    wire: &mut dyn Wire,
    lost: BTreeSet<u32>,
    end: JobEnd,
    environment: &Environment<'_>,
) -> BTreeSet<u32> {
    let mut gone = lost;
    for rank in (1..wire.size()).filter(|rank| !gone.contains(rank)) {
        // A rank that cannot be reached dies with the job.
        let _ = wire.send(rank, Order::End(end).encode());
    }
    let until = (environment.now)() + SHUTDOWN_MAX;
    while (gone.len() + 1 < wire.size() as usize || wire.is_busy()) && (environment.now)() < until {
        match wire.poll() {
            Ok(Some(Event::Lost(rank))) => _ = gone.insert(rank),
            Ok(Some(Event::Message(rank, message))) => {
                if matches!(Report::decode(&message), Ok(Report::Leaving)) {
                    gone.insert(rank);
                    let _ = wire.send(rank, Order::End(end).encode());
                }
            }
            Ok(None) => thread::sleep(PAUSE),
            // The job already has its result, or has reported its first error; nothing tells who answers.
            Err(_) => return BTreeSet::new(),
        }
    }
    (1..wire.size()).filter(|rank| !gone.contains(rank)).collect()
}

fn deliver(outbox: Outbox, local: &mut LocalWorker<'_>, wire: &mut dyn Wire) -> Result<()> {
    for (rank, order) in outbox {
        match rank {
            0 => local.worker.hear(&order.encode())?,
            _ => wire.send(rank, order.encode())?,
        }
    }
    Ok(())
}

/// Folds the orders of rank 0 until the pass or the job ends; returns how it ended. `known` is what the pass
/// began with, nothing for the first.
///
/// When `source` is the error of opening it, reports that error to rank 0.
///
/// # Errors
/// Those of the wire, and `Shutdown` when rank 0 dies.
pub fn work<S: Source>(
    source: Result<(Job, S)>,
    known: &[u8],
    wire: &mut dyn Wire,
    environment: &Environment<'_>,
) -> Result<PassEnd> {
    let stop = AtomicBool::new(false);
    let ended = match &source {
        Ok((job, source)) => thread::scope(|scope| {
            let mut local = match LocalWorker::new(scope, job, source, environment.cpu, &stop) {
                Ok(local) => local,
                Err(error) => return fail(&error, wire).map(PassEnd::End),
            };
            wire.send(0, local.worker.begin((environment.now)()))?;
            let mut has_reported = false;
            loop {
                let event = wire.poll()?;
                let pause = match event {
                    Some(_) => Duration::ZERO,
                    None if wire.is_busy() => PAUSE_BUSY,
                    None => PAUSE,
                };
                match event {
                    Some(Event::Message(_, message)) => local.worker.hear(&message)?,
                    Some(Event::Lost(0)) => return Err(rank_0_died()),
                    Some(Event::Lost(_)) | None => {}
                }
                if let Some(end) = local.worker.end() {
                    return Ok(PassEnd::End(end));
                }
                // Rank 0 repeats what this pass began with when it hears late from the pass before.
                if let Some(next) = local.worker.take_next().filter(|next| next != known) {
                    return Ok(PassEnd::Next(next));
                }
                if let Some(report) = local.step((environment.now)(), pause)? {
                    wire.send(0, report)?;
                }
                if (environment.interrupted)() && !has_reported {
                    has_reported = true;
                    let failure = Failure::from(&Error::interrupted("interrupted"));
                    wire.send(0, Report::Failed(failure).encode())?;
                }
            }
        }),
        Err(error) => fail(error, wire).map(PassEnd::End),
    }?;
    if matches!(ended, PassEnd::Next(_)) {
        return Ok(ended);
    }
    wire.send(0, Report::Leaving.encode())?;
    let until = (environment.now)() + SHUTDOWN_MAX;
    while (environment.now)() < until {
        match wire.poll()? {
            // Rank 0 has confirmed, or has left after the last report that it waited for.
            Some(Event::Message(..) | Event::Lost(0)) => break,
            Some(Event::Lost(_)) => {}
            None => thread::sleep(PAUSE),
        }
    }
    Ok(ended)
}

/// Reports an error to rank 0 before any order, and waits for the end of the job.
fn fail(error: &Error, wire: &mut dyn Wire) -> Result<JobEnd> {
    wire.send(0, Report::Failed(Failure::from(error)).encode())?;
    loop {
        match wire.poll()? {
            Some(Event::Message(_, message)) => {
                if let Order::End(end) = Order::decode(&message)? {
                    return Ok(end);
                }
            }
            Some(Event::Lost(0)) => return Err(rank_0_died()),
            Some(Event::Lost(_)) => {}
            None => thread::sleep(PAUSE),
        }
    }
}

fn rank_0_died() -> Error {
    Error::new(
        ErrorKind::Shutdown,
        "rank 0 has died; run again with --resume to continue from its checkpoints",
    )
}
