//! Coordinator and workers over a network that loses, delays, doubles, reorders and damages, on a disk
//! that fails and tears, also while a coordinator recovers, with deaths and restarts of anybody at any
//! step. All of it is drawn from one seed, which a failure prints.
//!
//! Held are: the bits of one process; what a coordinator has never becomes less, and a recovery has at
//! least what any checkpoint that was reported written has; after a recovery and a checkpoint the folder
//! has checkpoints alone, the last two and those that could not be read.
//!
//! `HEADWATER_SIMULATIONS=100000` runs more seeds than the ordinary 10,000, and
//! `HEADWATER_SIMULATION=seed` the one that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use headwater::durable::Storage;
use headwater::fold::Gram;
use headwater::random::{Purpose, Stream};
use headwater::reducer::wire::{Coordinator, Outbox, Report, Worker};
use headwater::reducer::{Blocks, Checkpoints, Job, Policy, Reduction};

use crate::simulated_disk::{Breakage, SURVIVALS, SimulatedDisk};
use crate::{COLUMNS, bits, job, plainly, portion, rows};

const FOLDER: &str = "ck";
/// Far more than the slowest seed needs; past it, something waits for ever.
const TIME_MAX: u64 = 2_000_000;
const COORDINATOR_DEATHS: u64 = 4;
/// The checkpoints that a folder keeps.
const KEPT: u64 = 2;

/// Something that is going to happen.
enum Event {
    /// A message of a rank arrives at the coordinator.
    Report(u32, Vec<u8>),
    /// A message of the coordinator arrives at a rank.
    Order(u32, Vec<u8>),
    /// A rank, in one of its lives, has folded something.
    Folded(u32, u64, Range<u64>),
    /// A rank may say that it has nothing to do.
    WorkerTick(u32),
    CoordinatorTick,
    Checkpoint,
    WorkerDies(u32),
    WorkerBegins(u32),
    CoordinatorDies,
    CoordinatorBegins,
}

/// How bad a seed's world is, in chances of a thousand.
struct Weather {
    lost: u64,
    doubled: u64,
    damaged: u64,
    delay: u64,
    worker_dies: u64,
    coordinator_dies: u64,
    disk_fails: u64,
    /// Whether deaths are noticed.
    detector: bool,
}

struct World {
    random: Stream,
    weather: Weather,
    job: Job,
    data: Vec<f64>,
    policy: Policy,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    numbers: u64,
    disk: SimulatedDisk,
    coordinator: Option<(Coordinator<Gram>, Checkpoints)>,
    deaths: u64,
    /// The checkpoints that the present coordinator could not read, and keeps.
    unread: u64,
    /// The chunks of the best checkpoint that was reported written.
    written: u64,
    /// The chunks that the present coordinator has.
    covered: u64,
    /// Each rank's life, and the worker while it lives.
    workers: Vec<(u64, Option<Worker>)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Stream::new(seed, Purpose::Demo, [0x51, 0, 0]);
        let mut below = |bound: u64| random.below(bound);
        let calm = below(4) == 0;
        let mut chance = |most: u64| if calm { 0 } else { below(most) };
        let weather = Weather {
            lost: chance(300),
            doubled: chance(300),
            damaged: chance(30),
            delay: chance(60) + 1,
            worker_dies: chance(40),
            coordinator_dies: chance(200),
            disk_fails: chance(300),
            detector: chance(2) == 0,
        };
        let rows_count = 1 + below(60);
        let job = job(rows_count, 1 + below(3));
        let blocks = Blocks::new(job.chunk_count(), below(4) as u32).unwrap();
        let cuts: BTreeSet<u64> = (0..below(3)).map(|_| below(60)).collect();
        let audited_per_mille = [0, 0, 300, 1000][below(4) as usize];
        let workers: Vec<_> = (0..=below(5)).map(|_| (0, None)).collect();
        let ranks = workers.len() as u32;
        let policy = Policy { blocks, ranks, cuts, audited_per_mille, patience: 400 };
        let disk = SimulatedDisk::new();
        disk.put_folder(Path::new(FOLDER));
        disk.sync_folder(Path::new(".")).unwrap();
        Self {
            random,
            weather,
            data: rows(rows_count),
            job,
            policy,
            now: 0,
            events: BTreeMap::new(),
            numbers: 0,
            disk,
            coordinator: None,
            deaths: 0,
            unread: 0,
            written: 0,
            covered: 0,
            workers,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    fn later(&mut self, most: u64, event: Event) {
        let at = self.now + 1 + self.below(most);
        self.numbers += 1;
        self.events.insert((at, self.numbers), event);
    }

    /// Sends a message, as the weather allows.
    fn send(&mut self, message: Vec<u8>, event: impl Fn(Vec<u8>) -> Event) {
        let copies = if self.happens(self.weather.lost) {
            0
        } else {
            1 + u64::from(self.happens(self.weather.doubled))
        };
        for _ in 0..copies {
            let mut message = message.clone();
            // What tells a portion from damage is its digest; shorter messages have none, and their
            // networks see to it.
            let is_portion = matches!(Report::decode(&message), Ok(Report::Folded { .. }));
            if is_portion && self.happens(self.weather.damaged) {
                let place = self.below(message.len() as u64 - 9) as usize;
                message[place] ^= 1 << self.below(8);
            }
            self.later(self.weather.delay, event(message));
        }
    }

    fn deliver(&mut self, outbox: Outbox) {
        for (rank, order) in outbox {
            self.send(order.encode(), |message| Event::Order(rank, message));
        }
    }

    /// Whether the disk fails now; not for ever, so that every seed ends.
    fn disk_fails(&mut self) -> bool {
        self.deaths < COORDINATOR_DEATHS && self.happens(self.weather.disk_fails)
    }

    /// Recovers what was folded; a coordinator whose disk fails meanwhile ends, and begins again later.
    fn begin_coordinator(&mut self) {
        let gram = Arc::new(Gram::new(COLUMNS).unwrap());
        let mut reduction = Reduction::new(self.job.clone(), gram);
        let (fails, way, call) = (self.disk_fails(), self.below(3), self.below(5) as usize);
        match way {
            _ if !fails => {}
            0 => self.disk.break_at(call, Breakage::FailOnce),
            1 => self.disk.break_at(call, Breakage::PowerLoss),
            _ => self.disk.break_reading_at(call),
        }
        let checkpoints = Checkpoints::on(Box::new(self.disk.clone()), Path::new(FOLDER));
        let recovered =
            checkpoints.remove_abandoned().and_then(|()| checkpoints.resume(&mut reduction));
        self.disk.mend();
        let Ok(resumed) = recovered else {
            assert!(fails, "a recovery failed on a disk that works");
            return self.kill_coordinator();
        };
        if fails && way == 1 {
            return self.kill_coordinator();
        }
        self.covered = reduction.covered_count();
        // What could not be read stays for a later recovery.
        self.unread = resumed.damaged.len() as u64;
        assert!(
            self.unread > 0 || self.covered >= self.written,
            "{} chunks after a recovery, of {} in a checkpoint that was reported written",
            self.covered,
            self.written
        );
        self.checkpoint_count();
        let coordinator = Coordinator::new(reduction, &self.policy).unwrap();
        self.coordinator = Some((coordinator, checkpoints));
    }

    /// Returns the number of checkpoints, and checks that the folder has nothing else.
    fn checkpoint_count(&self) -> u64 {
        let entries = self.disk.list(Path::new(FOLDER)).unwrap();
        let names: Vec<_> = entries.iter().map(|entry| entry.name.to_str().unwrap()).collect();
        let is_ours = |name: &&str| name.starts_with("fold-") && name.ends_with(".portion");
        assert!(names.iter().all(is_ours), "left over: {names:?}");
        names.len() as u64
    }

    /// Checks that no chunk is lost while a coordinator lives.
    fn check_progress(&mut self) {
        let Some((coordinator, _)) = &self.coordinator else { return };
        let covered = coordinator.reduction().covered_count();
        assert!(covered >= self.covered, "{covered} chunks after {}", self.covered);
        self.covered = covered;
    }

    fn kill_coordinator(&mut self) {
        self.coordinator = None;
        self.deaths += 1;
        let survival = SURVIVALS[self.below(4) as usize];
        self.disk = self.disk.after_power_loss(survival);
        self.later(300, Event::CoordinatorBegins);
    }

    fn write_checkpoint(&mut self) {
        if self.coordinator.is_none() {
            return;
        }
        let breakage = match self.below(3) {
            0 => Breakage::FailOnce,
            1 => Breakage::Full,
            _ => Breakage::PowerLoss,
        };
        let fails = self.disk_fails();
        if fails {
            let call = self.below(8) as usize;
            self.disk.break_at(call, breakage);
        }
        let Some((coordinator, checkpoints)) = &self.coordinator else { return };
        let written = checkpoints.write(coordinator.reduction());
        self.disk.mend();
        // A job whose disk fails ends; somebody makes room, and it goes on.
        if written.is_err() || (fails && breakage == Breakage::PowerLoss) {
            return self.kill_coordinator();
        }
        self.written = self.written.max(self.covered);
        let count = self.checkpoint_count();
        assert!(count <= KEPT + self.unread, "{count} checkpoints");
    }

    /// Lets a rank go on with what it has.
    fn work(&mut self, rank: u32) {
        let (life, worker) = &mut self.workers[rank as usize];
        let life = *life;
        if let Some(chunks) = worker.as_mut().and_then(Worker::next_order) {
            self.later(40, Event::Folded(rank, life, chunks));
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Report(rank, message) => {
                let Some((coordinator, _)) = &mut self.coordinator else { return };
                let outbox = coordinator.hear(now, rank, &message).unwrap();
                self.deliver(outbox);
            }
            Event::Order(rank, message) => {
                if let Some(worker) = &mut self.workers[rank as usize].1 {
                    worker.hear(&message).unwrap();
                    self.work(rank);
                }
            }
            Event::Folded(rank, of_life, chunks) => {
                let (life, worker) = &mut self.workers[rank as usize];
                let Some(worker) = worker.as_mut().filter(|_| *life == of_life) else { return };
                let cursor = worker.folded(now).unwrap();
                let portion = portion(&self.job, &self.data, chunks);
                let report = Report::Folded { cursor, cpu_microseconds: 0, portion: &portion };
                self.send(report.encode(), |message| Event::Report(rank, message));
                self.work(rank);
            }
            Event::WorkerTick(rank) => {
                if let Some(ready) =
                    self.workers[rank as usize].1.as_mut().and_then(|w| w.tick(now))
                {
                    self.send(ready, |message| Event::Report(rank, message));
                }
                self.later(60, Event::WorkerTick(rank));
            }
            Event::CoordinatorTick => {
                if let Some((coordinator, _)) = &mut self.coordinator {
                    let outbox = coordinator.tick(now);
                    self.deliver(outbox);
                }
                self.later(60, Event::CoordinatorTick);
            }
            Event::Checkpoint => {
                self.write_checkpoint();
                self.later(200, Event::Checkpoint);
            }
            Event::WorkerDies(rank) => {
                if self.happens(self.weather.worker_dies) {
                    self.lose_worker(rank);
                }
                self.later(100, Event::WorkerDies(rank));
            }
            Event::WorkerBegins(rank) => self.begin_worker(rank),
            Event::CoordinatorDies => {
                if self.coordinator.is_some()
                    && self.deaths < COORDINATOR_DEATHS
                    && self.happens(self.weather.coordinator_dies)
                {
                    self.kill_coordinator();
                }
                self.later(300, Event::CoordinatorDies);
            }
            Event::CoordinatorBegins => self.begin_coordinator(),
        }
    }

    fn begin_worker(&mut self, rank: u32) {
        let readable = vec![0..self.job.chunk_count()];
        let mut worker = Worker::new(&self.job, readable, 150).unwrap();
        let ready = worker.begin(self.now);
        let (life, own) = &mut self.workers[rank as usize];
        *life += 1;
        *own = Some(worker);
        self.send(ready, |message| Event::Report(rank, message));
    }

    fn lose_worker(&mut self, rank: u32) {
        if self.workers[rank as usize].1.take().is_none() {
            return;
        }
        let alone = self.workers.iter().all(|(_, worker)| worker.is_none());
        if alone || self.happens(500) {
            self.later(300, Event::WorkerBegins(rank));
        }
        let now = self.now;
        if let Some((coordinator, _)) = self.coordinator.as_mut().filter(|_| self.weather.detector)
        {
            let outbox = coordinator.lose(now, rank);
            self.deliver(outbox);
        }
    }

    /// Runs until everything is folded; yields the bits of the result.
    fn run(mut self) -> Vec<u64> {
        self.begin_coordinator();
        for rank in 0..self.workers.len() as u32 {
            self.begin_worker(rank);
            self.later(60, Event::WorkerTick(rank));
            self.later(100, Event::WorkerDies(rank));
        }
        self.later(60, Event::CoordinatorTick);
        self.later(200, Event::Checkpoint);
        self.later(300, Event::CoordinatorDies);
        while !self.coordinator.as_ref().is_some_and(|(of, _)| of.is_complete()) {
            let ((at, _), event) = self.events.pop_first().expect("something to happen");
            assert!(at < TIME_MAX, "somebody waits for ever");
            self.now = at;
            self.happen(event);
            self.check_progress();
        }
        let (coordinator, _) = self.coordinator.unwrap();
        bits(&coordinator.into_reduction().finish().unwrap())
    }
}

/// Runs `seed`; says which it was when it fails.
fn simulate(seed: u64) {
    let result = std::panic::catch_unwind(|| {
        let world = World::new(seed);
        let expected = bits(&plainly(&world.job, &world.data));
        assert_eq!(world.run(), expected, "other bits");
    });
    if let Err(panic) = result {
        eprintln!("HEADWATER_SIMULATION={seed} runs this again");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn p1_p2_bits_survive_lost_messages_dead_ranks_and_torn_writes() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().expect("a number"));
    if let Some(seed) = number("HEADWATER_SIMULATION") {
        return simulate(seed);
    }
    let count: u64 = number("HEADWATER_SIMULATIONS").unwrap_or(10_000);
    let threads = 2;
    std::thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || (first..count).step_by(threads as usize).for_each(simulate));
        }
    });
}
