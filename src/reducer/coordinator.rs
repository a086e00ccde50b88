//! The coordinator's state machine: assigns orders to ranks, and receives the portions that they fold.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::error::{Context, Error, ErrorKind, Result};
use crate::fold::Statistic;
use crate::plan::Plan;

use super::cursor::WorkerCursor;
use super::message::{Order, Report};
use super::orders::{LateOrder, Orders};
use super::policy::Policy;
use super::portion::Portion;
use super::reduction::Reduction;

/// The orders that a rank has at a time: the one that it folds, and the next one, so that it never
/// waits. A rank sends at most so many portions before the coordinator answers.
const ORDERS_PER_RANK: usize = 2;

/// The damaged messages of a job that the coordinator asks for again; one more ends the job.
const DAMAGED_MAX: u64 = 100;

/// The orders to send, each with its rank.
pub type Outbox = Vec<(u32, Order)>;

/// The coordinator of a job that several ranks fold. A state machine without input, output and clock:
/// the caller passes in messages and times, and sends the orders that the coordinator returns.
///
/// Messages may be lost, repeated or reordered: an idle worker repeats that it is ready and receives
/// its orders again, and a portion that arrives twice changes nothing. The death of a rank may go
/// unnoticed: an order that takes too long is assigned to another rank too.
///
/// # Determinism
/// The result depends on the job and its rows alone, not on messages and their order.
pub struct Coordinator<S: Statistic> {
    reduction: Reduction<S>,
    orders: Orders,
    /// The ranks that joined, without those that died.
    ranks: BTreeMap<u32, RankState>,
    /// The ranks that died.
    lost: BTreeSet<u32>,
    damaged_messages: u64,
    /// Whether two ranks folded the same chunks to different bits.
    is_doubtful: bool,
    now: u64,
    /// The CPU time of each rank's process, by its last report.
    cpu_microseconds: BTreeMap<u32, u64>,
    /// The cursor of each rank, by its last portion.
    cursors: BTreeMap<u32, WorkerCursor>,
    /// Whether the chunks that live ranks can read must be compared with those that wait.
    readers_changed: bool,
}

/// The state of a rank that joined.
struct RankState {
    readable: Vec<Range<u64>>,
    last_message_at: u64,
}

impl<S: Statistic> Coordinator<S> {
    /// Returns the coordinator of the chunks that `reduction` still misses.
    ///
    /// # Errors
    /// `LimitExceeded` for too many blocks to list.
    pub fn new(reduction: Reduction<S>, policy: &Policy) -> Result<Self> {
        let orders = Orders::new(&reduction.missing(), policy)?;
        Ok(Self {
            reduction,
            orders,
            ranks: BTreeMap::new(),
            lost: BTreeSet::new(),
            damaged_messages: 0,
            is_doubtful: false,
            now: 0,
            cpu_microseconds: BTreeMap::new(),
            cursors: BTreeMap::new(),
            readers_changed: true,
        })
    }

    /// Receives the message of a rank, and returns the orders to send.
    ///
    /// # Errors
    /// The worker's own error when it failed; `PlanMismatch` when it folds another job; `Corrupt` when
    /// two ranks fold the same chunks to different bits. Portions received before stay, for a
    /// checkpoint.
    pub fn hear(&mut self, now: u64, rank: u32, message: &[u8]) -> Result<Outbox> {
        self.now = now;
        if let Some(state) = self.ranks.get_mut(&rank) {
            state.last_message_at = now;
        }
        self.orders.hear_from(rank);
        match Report::decode(message) {
            Ok(Report::Ready { job, readable }) => self.register(rank, job, readable),
            Ok(Report::Folded { cursor, cpu_microseconds, portion }) => {
                self.cpu_microseconds.insert(rank, cpu_microseconds);
                match self.receive_cursor(rank, cursor) {
                    Ok(()) => self.receive_portion(rank, portion),
                    Err(damaged) => self.request_again(rank, damaged),
                }
            }
            Ok(Report::Failed(failure)) => Err(failure.into_error()),
            Ok(Report::Leaving) => Ok(self.lose(now, rank)),
            Err(damaged) => self.request_again(rank, damaged),
        }
        .context(|| format!("rank {rank}"))
    }

    fn register(&mut self, rank: u32, job: &[u8], readable: Vec<Range<u64>>) -> Result<Outbox> {
        let (plan, rest) = match Plan::decode_first(job) {
            Ok(decoded) => decoded,
            Err(what) => {
                let damaged = format!("the plan of its job is damaged: {what}");
                return self.request_again(rank, Error::corrupt(damaged));
            }
        };
        if !rest.is_empty() {
            let damaged = format!("{} bytes follow the plan of its job", rest.len());
            return self.request_again(rank, Error::corrupt(damaged));
        }
        self.reduction
            .job()
            .plan()
            .compare_rank(rank, &plan)
            .context(|| "expected the job of rank 0, found another")?;
        // An idle rank reports again and again, and reads the same chunks.
        let known = self.ranks.get(&rank).is_some_and(|state| state.readable == readable);
        self.readers_changed |= !known;
        self.ranks.insert(rank, RankState { readable, last_message_at: self.now });
        self.lost.remove(&rank);
        let mut outbox = self.repeat_orders(rank);
        self.assign_orders(rank, &mut outbox);
        Ok(outbox)
    }

    /// Keeps the cursor of a rank. A message with the cursor of another worker is damaged.
    fn receive_cursor(&mut self, rank: u32, cursor: WorkerCursor) -> Result<()> {
        let beginning = self.orders.beginning_of(rank).ok_or_else(|| {
            Error::corrupt(format!("expected a rank below the number of ranks, found {rank}"))
        })?;
        self.cursors.insert(rank, beginning.accept(self.orders.blocks(), cursor)?);
        Ok(())
    }

    fn receive_portion(&mut self, rank: u32, portion: &[u8]) -> Result<Outbox> {
        let job = self.reduction.job();
        let arrived = match Portion::of(job, &**self.reduction.statistic()).read_undamaged(portion)
        {
            // A foreign format or version is damage too: the plans agreed when the rank joined.
            Err(damaged) if damaged.is_foreign() => return self.request_again(rank, damaged),
            arrived => arrived?,
        };
        self.reduction.check_versions(&arrived)?;
        let ends = arrived.nodes.first().zip(arrived.nodes.last());
        if let Some((first, last)) = ends {
            let chunks = first.0.chunks().start..last.0.chunks().end;
            let recorded = self.orders.record(rank, &chunks, arrived.nodes_digest(), self.now);
            self.is_doubtful |= recorded.is_err();
            recorded?;
        }
        let inserted = self.reduction.insert_all(arrived);
        self.is_doubtful |=
            inserted.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt);
        inserted?;
        let mut outbox = Outbox::new();
        self.assign_orders(rank, &mut outbox);
        Ok(outbox)
    }

    /// Sends the orders of a rank again, because its message arrived damaged.
    fn request_again(&mut self, rank: u32, damaged: Error) -> Result<Outbox> {
        self.damaged_messages += 1;
        if self.damaged_messages > DAMAGED_MAX {
            return Err(damaged.context(format!("{DAMAGED_MAX} messages arrived damaged")));
        }
        Ok(self.repeat_orders(rank))
    }

    fn repeat_orders(&self, rank: u32) -> Outbox {
        let orders = self.orders.assigned_to(rank);
        orders.map(|(chunks, cursor)| (rank, Order::Fold { chunks, cursor })).collect()
    }

    /// Assigns new orders to a rank that joined, up to [`ORDERS_PER_RANK`].
    fn assign_orders(&mut self, rank: u32, outbox: &mut Outbox) {
        let Some(RankState { readable, .. }) = self.ranks.get(&rank) else { return };
        while self.orders.assigned_count(rank) < ORDERS_PER_RANK {
            let order = self.orders.assign(rank, readable, self.now);
            let Some((chunks, cursor)) = order else { return };
            outbox.push((rank, Order::Fold { chunks, cursor }));
        }
    }

    /// Records the death of a rank, and assigns its orders to idle ranks.
    pub fn lose(&mut self, now: u64, rank: u32) -> Outbox {
        self.orders.lose(rank);
        self.ranks.remove(&rank);
        self.lost.insert(rank);
        self.readers_changed = true;
        self.tick(now)
    }

    /// Assigns orders to idle ranks: an order may have become late since the last call.
    pub fn tick(&mut self, now: u64) -> Outbox {
        self.now = now;
        let mut outbox = Outbox::new();
        let ranks: Vec<u32> = self.ranks.keys().copied().collect();
        for rank in ranks {
            if self.orders.assigned_count(rank) == 0 {
                self.assign_orders(rank, &mut outbox);
            }
        }
        outbox
    }

    /// Whether at least `expected` ranks have joined or died.
    #[must_use]
    pub fn has_heard_of(&self, expected: u32) -> bool {
        self.ranks.len() + self.lost.len() >= expected as usize
    }

    /// Checks that a rank can read each missing chunk, once all `expected` ranks have joined or died;
    /// `files_of` names the files of a range of rows.
    ///
    /// # Errors
    /// `InvalidArgument` with the first unreadable chunks and their files.
    pub fn check_readable(
        &mut self,
        expected: u32,
        files_of: impl FnOnce(Range<u64>) -> String,
    ) -> Result<()> {
        if !self.readers_changed || !self.has_heard_of(expected) {
            return Ok(());
        }
        let readers: Vec<&[Range<u64>]> =
            self.ranks.values().map(|state| state.readable.as_slice()).collect();
        let Some(chunks) = self.orders.unreadable(&readers) else {
            self.readers_changed = false;
            return Ok(());
        };
        let rows = self.reduction.job().rows_of(chunks.start).start
            ..self.reduction.job().rows_of(chunks.end - 1).end;
        Err(Error::invalid(format!(
            "no rank can read rows {} to {} (chunks {} to {}), which lie in {}; copy these files to \
             the machine of a rank; a chunk that lies in two files needs both on one machine",
            rows.start,
            rows.end - 1,
            chunks.start,
            chunks.end - 1,
            files_of(rows.clone())
        )))
    }

    /// Whether every chunk is folded, and every audited block is confirmed or has no live rank left to
    /// confirm it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        if !self.reduction.is_complete() {
            return false;
        }
        let silence_max = self.orders.lateness();
        let is_live =
            |state: &RankState| self.now.saturating_sub(state.last_message_at) <= silence_max;
        let live = self.ranks.iter().filter(|(_, state)| is_live(state));
        let readers: Vec<_> = live.map(|(rank, s)| (*rank, s.readable.as_slice())).collect();
        !self.orders.awaits_confirmation(&readers)
    }

    /// The fold as far as it is done.
    #[must_use]
    pub fn reduction(&self) -> &Reduction<S> {
        &self.reduction
    }

    /// Returns the fold, and ends the coordinator.
    #[must_use]
    pub fn into_reduction(self) -> Reduction<S> {
        self.reduction
    }

    /// Whether two ranks folded the same chunks to different bits, so that the sums may be wrong.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// The ranks that died.
    pub fn lost(&self) -> impl Iterator<Item = u32> {
        self.lost.iter().copied()
    }

    /// The ranks below `expected` that have neither joined nor died.
    pub fn absent(&self, expected: u32) -> impl Iterator<Item = u32> {
        (0..expected).filter(|rank| !self.ranks.contains_key(rank) && !self.lost.contains(rank))
    }

    /// The ranks for whose orders the others no longer wait, each with one of these orders. A rank that
    /// sends a message again is no longer among them.
    pub fn passed_over(&self) -> impl Iterator<Item = (u32, &LateOrder)> {
        self.orders.passed_over()
    }

    /// How far each rank is in its own blocks, by the portions that it sent.
    pub fn cursors(&self) -> impl Iterator<Item = &WorkerCursor> {
        self.cursors.values()
    }

    /// The number of blocks that two ranks folded to the same bits.
    #[must_use]
    pub fn audited_count(&self) -> usize {
        self.orders.confirmed_count()
    }

    /// The number of damaged messages, each of which was asked for again.
    #[must_use]
    pub fn damaged_count(&self) -> u64 {
        self.damaged_messages
    }

    /// The CPU time of all ranks but rank 0.
    #[must_use]
    pub fn cpu_microseconds_elsewhere(&self) -> u64 {
        self.cpu_microseconds.iter().filter(|(rank, _)| **rank != 0).map(|(_, cpu)| cpu).sum()
    }
}
