//! The coordinator's state machine: gives orders to ranks, and takes in the portions that they fold.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::bytes::Digest;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::fold::Statistic;
use crate::plan::Plan;

use super::message::{Order, Report};
use super::orders::Orders;
use super::policy::Policy;
use super::portion::Portion;
use super::reduction::Reduction;

/// The orders that a rank has at a time: one that it folds, and one that it goes on with at once. So
/// it is also the most that a rank ships before it is heard.
const ORDERS_HELD: usize = 2;

/// So many reports may arrive damaged, until something is taken to be broken.
const DAMAGED_MAX: u64 = 100;

/// The orders to be sent, each with its rank.
pub type Outbox = Vec<(u32, Order)>;

/// A job that is folded by many. A state machine without input, output and clock: it is told what
/// came and what time it is, and says what is to be sent.
///
/// It needs no message to arrive, or to arrive once or in order: a worker that has nothing to do
/// says so again and again, and is given its orders anew; what comes twice changes nothing. Nor need
/// a death be noticed: an order that takes too long is given to another rank as well.
///
/// # Determinism
/// The result depends on the job and its rows alone, not on messages and their order.
pub struct Coordinator<S: Statistic> {
    reduction: Reduction<S>,
    orders: Orders,
    /// The ranks that are there.
    ranks: BTreeMap<u32, Present>,
    /// The ranks that died.
    lost: BTreeSet<u32>,
    damaged: u64,
    /// Whether two ranks came to different bits.
    is_doubtful: bool,
    now: u64,
    /// What each rank's process has taken, as it said last.
    cpu_microseconds: BTreeMap<u32, u64>,
}

/// What is known of a rank.
struct Present {
    readable: Vec<Range<u64>>,
    heard_at: u64,
}

impl<S: Statistic> Coordinator<S> {
    /// Goes on from what was folded before.
    ///
    /// # Errors
    /// `LimitExceeded` for more blocks than can be listed.
    pub fn new(reduction: Reduction<S>, policy: &Policy) -> Result<Self> {
        let Policy { blocks, cuts, audited_per_mille, patience } = policy;
        let missing = reduction.missing();
        let orders = Orders::new(&missing, blocks, cuts, *audited_per_mille, *patience)?;
        Ok(Self {
            reduction,
            orders,
            ranks: BTreeMap::new(),
            lost: BTreeSet::new(),
            damaged: 0,
            is_doubtful: false,
            now: 0,
            cpu_microseconds: BTreeMap::new(),
        })
    }

    /// Takes in what a rank has said.
    ///
    /// # Errors
    /// The worker's own when it has failed; `PlanMismatch` when it folds another job; `Corrupt` when
    /// two ranks come to different bits. What was folded before stays, to go on from.
    pub fn hear(&mut self, now: u64, rank: u32, message: &[u8]) -> Result<Outbox> {
        self.now = now;
        if let Some(present) = self.ranks.get_mut(&rank) {
            present.heard_at = now;
        }
        match Report::decode(message) {
            Ok(Report::Ready { job, readable }) => self.welcome(rank, job, readable),
            Ok(Report::Folded { cpu_microseconds, portion }) => {
                self.cpu_microseconds.insert(rank, cpu_microseconds);
                self.take_in(rank, portion)
            }
            Ok(Report::Failed(failure)) => Err(failure.into_error()),
            Ok(Report::Leaving) => Ok(self.lose(now, rank)),
            Err(damaged) => self.ask_again(rank, damaged),
        }
        .context(|| format!("rank {rank}"))
    }

    fn welcome(&mut self, rank: u32, job: &[u8], readable: Vec<Range<u64>>) -> Result<Outbox> {
        let (plan, rest) = match Plan::decode_first(job) {
            Ok(decoded) => decoded,
            Err(what) => {
                return self
                    .ask_again(rank, Error::corrupt(format!("its plan is damaged: {what}")));
            }
        };
        if !rest.is_empty() {
            let damaged = format!("{} bytes follow its plan", rest.len());
            return self.ask_again(rank, Error::corrupt(damaged));
        }
        self.reduction.job().plan().compare(&plan).context(|| "it folds another job")?;
        self.ranks.insert(rank, Present { readable, heard_at: self.now });
        self.lost.remove(&rank);
        let mut outbox = self.given_again(rank);
        self.supply(rank, &mut outbox);
        Ok(outbox)
    }

    fn take_in(&mut self, rank: u32, portion: &[u8]) -> Result<Outbox> {
        let job = self.reduction.job();
        let arrived = match Portion::of(job, self.reduction.statistic()).read(portion) {
            // Foreign bytes and versions, too: the plans were compared when the rank joined.
            Err(damaged) if damaged.is_foreign() => return self.ask_again(rank, damaged),
            arrived => arrived?,
        };
        let ends = arrived.first().zip(arrived.last());
        let ends = ends.map(|(a, b)| a.0.chunks().start..b.0.chunks().end);
        if let (Some(chunks), Some(hash)) = (ends, portion.last_chunk()) {
            let came = self.orders.came(rank, &chunks, Digest(*hash), self.now);
            self.is_doubtful |= came.is_err();
            came?;
        }
        let inserted = self.reduction.insert_all(arrived);
        self.is_doubtful |=
            inserted.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt);
        inserted?;
        let mut outbox = Outbox::new();
        if self.ranks.contains_key(&rank) {
            self.supply(rank, &mut outbox);
        }
        Ok(outbox)
    }

    /// What came from a rank cannot be read: it is to fold it once more.
    fn ask_again(&mut self, rank: u32, damaged: Error) -> Result<Outbox> {
        self.damaged += 1;
        if self.damaged > DAMAGED_MAX {
            return Err(damaged.context(format!("{DAMAGED_MAX} messages arrived damaged")));
        }
        Ok(self.given_again(rank))
    }

    fn given_again(&self, rank: u32) -> Outbox {
        self.orders.held_by(rank).map(|chunks| (rank, Order::Fold(chunks))).collect()
    }

    /// Gives a rank as many orders as it may have.
    fn supply(&mut self, rank: u32, outbox: &mut Outbox) {
        let Some(Present { readable, .. }) = self.ranks.get(&rank) else { return };
        while self.orders.held_count(rank) < ORDERS_HELD {
            let Some(chunks) = self.orders.give(rank, readable, self.now) else { return };
            outbox.push((rank, Order::Fold(chunks)));
        }
    }

    /// Notes that a rank is no more. What it was given is given to others.
    pub fn lose(&mut self, now: u64, rank: u32) -> Outbox {
        self.orders.lose(rank);
        self.ranks.remove(&rank);
        self.lost.insert(rank);
        self.tick(now)
    }

    /// Gives orders to those that have none, should there be any by now.
    pub fn tick(&mut self, now: u64) -> Outbox {
        self.now = now;
        let mut outbox = Outbox::new();
        let ranks: Vec<u32> = self.ranks.keys().copied().collect();
        for rank in ranks {
            if self.orders.held_count(rank) == 0 {
                self.supply(rank, &mut outbox);
            }
        }
        outbox
    }

    /// Whether so many ranks have said that they are there, or are known to be no more.
    #[must_use]
    pub fn has_heard_of(&self, expected: u32) -> bool {
        self.ranks.len() + self.lost.len() >= expected as usize
    }

    /// Refuses to wait for rows that none of the ranks can read, once all `expected` are known;
    /// `files_of` names the files that some rows lie in.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the chunks and the files.
    pub fn check_readable(
        &self,
        expected: u32,
        files_of: impl FnOnce(Range<u64>) -> String,
    ) -> Result<()> {
        if !self.has_heard_of(expected) {
            return Ok(());
        }
        let readers: Vec<&[Range<u64>]> =
            self.ranks.values().map(|present| present.readable.as_slice()).collect();
        let Some(chunks) = self.orders.unreadable(&readers) else { return Ok(()) };
        let rows = self.reduction.job().rows_of(chunks.start).start
            ..self.reduction.job().rows_of(chunks.end - 1).end;
        Err(Error::invalid(format!(
            "no rank can read rows {} to {} (chunks {} to {}), which lie in {}; give each rank the \
             files that the manifest lists for it, with rows that fill whole chunks",
            rows.start,
            rows.end - 1,
            chunks.start,
            chunks.end - 1,
            files_of(rows.clone())
        )))
    }

    /// Whether all was folded, and all confirmed that is to be and can be, by ranks that are heard of.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let silence = self.orders.lateness();
        let heard =
            self.ranks.iter().filter(|(_, p)| self.now.saturating_sub(p.heard_at) <= silence);
        let readers: Vec<_> = heard.map(|(rank, p)| (*rank, p.readable.as_slice())).collect();
        self.reduction.is_complete() && !self.orders.awaits_confirmation(&readers)
    }

    /// What was folded so far.
    #[must_use]
    pub fn reduction(&self) -> &Reduction<S> {
        &self.reduction
    }

    /// What was folded, when nothing more is to come.
    #[must_use]
    pub fn into_reduction(self) -> Reduction<S> {
        self.reduction
    }

    /// Whether two ranks came to different bits, so that what was folded may be wrong.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// The ranks that died.
    pub fn lost(&self) -> impl Iterator<Item = u32> {
        self.lost.iter().copied()
    }

    /// How many blocks two ranks have folded, with the same bits.
    #[must_use]
    pub fn audited_count(&self) -> usize {
        self.orders.confirmed_count()
    }

    /// How many messages arrived damaged, and were asked for again.
    #[must_use]
    pub fn damaged_count(&self) -> u64 {
        self.damaged
    }

    /// The CPU time that the other ranks have taken.
    #[must_use]
    pub fn cpu_microseconds_elsewhere(&self) -> u64 {
        self.cpu_microseconds.iter().filter(|(rank, _)| **rank != 0).map(|(_, cpu)| cpu).sum()
    }
}
