//! Which rank folds which chunks: each order is assigned to one rank, and to another when that dies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::error::{Error, Result};

use super::job::Blocks;

/// More orders than any job needs, and few enough to list.
const ORDERS_MAX: u64 = 1 << 24;

/// An order that takes this many times as long as the slowest so far is assigned to another rank too.
const LATE: u64 = 4;

/// The missing chunks of a job, cut into orders.
pub(super) struct Orders {
    /// All orders, by their first chunks.
    all: Vec<Order>,
    /// The orders that no rank folds or has folded.
    waiting: BTreeSet<usize>,
    /// The audited orders that one rank has folded; a second rank folds them for comparison.
    unconfirmed: BTreeSet<usize>,
    /// The orders that each rank folds now.
    assigned: BTreeMap<u32, BTreeSet<usize>>,
    /// An order is never late before this time, in milliseconds.
    patience: u64,
    /// The time of the slowest order, in milliseconds.
    longest: u64,
}

struct Order {
    chunks: Range<u64>,
    /// The ranks that fold this order, and since when.
    assigned: Vec<(u32, u64)>,
    /// The ranks that folded this order, and the digests of the nodes that they folded.
    folded: Vec<(u32, u128)>,
    /// Whether a second rank must fold this order.
    audited: bool,
}

impl Orders {
    /// Makes one order for each part of `missing` that lies in one of `blocks` and between two of `cuts`.
    pub(super) fn new(
        missing: &[Range<u64>],
        blocks: &Blocks,
        cuts: &BTreeSet<u64>,
        audited_per_mille: u64,
        patience: u64,
    ) -> Result<Self> {
        let mut all = Vec::new();
        for gap in missing {
            let mut start = gap.start;
            while start < gap.end {
                let cut = cuts.range(start + 1..).next().copied().unwrap_or(u64::MAX);
                let end = blocks.end_of_block_with(start).min(gap.end).min(cut);
                let place = all.len() as u64;
                let audited_before = |place: u64| place * audited_per_mille / 1000;
                let audited = audited_before(place) != audited_before(place + 1);
                all.push(Order { chunks: start..end, assigned: vec![], folded: vec![], audited });
                start = end;
                if place == ORDERS_MAX {
                    return Err(Error::limit(format!(
                        "expected at most {ORDERS_MAX} blocks, found more; set a larger \
                         --block-chunks or --chunk-rows"
                    )));
                }
            }
        }
        Ok(Self {
            waiting: (0..all.len()).collect(),
            all,
            unconfirmed: BTreeSet::new(),
            assigned: BTreeMap::new(),
            patience,
            longest: 0,
        })
    }

    /// The number of orders that a rank folds.
    pub(super) fn assigned_count(&self, rank: u32) -> usize {
        self.assigned.get(&rank).map_or(0, BTreeSet::len)
    }

    /// The chunks of the orders that a rank folds.
    pub(super) fn assigned_to(&self, rank: u32) -> impl Iterator<Item = Range<u64>> {
        self.assigned.get(&rank).into_iter().flatten().map(|&place| self.all[place].chunks.clone())
    }

    /// Assigns to a rank the next order that it can fold: the first that no rank folds, then one to
    /// confirm, then a late one.
    pub(super) fn assign(
        &mut self,
        rank: u32,
        readable: &[Range<u64>],
        now: u64,
    ) -> Option<Range<u64>> {
        let place = self
            .lowest_waiting(readable)
            .or_else(|| self.first_of(&self.unconfirmed, rank, readable))
            .or_else(|| self.late(rank, readable, now))?;
        self.waiting.remove(&place);
        self.all[place].assigned.push((rank, now));
        self.assigned.entry(rank).or_default().insert(place);
        Some(self.all[place].chunks.clone())
    }

    fn lowest_waiting(&self, readable: &[Range<u64>]) -> Option<usize> {
        readable
            .iter()
            .filter_map(|chunks| {
                let first = self.all.partition_point(|order| order.chunks.start < chunks.start);
                let place = *self.waiting.range(first..).next()?;
                (self.all[place].chunks.end <= chunks.end).then_some(place)
            })
            .min()
    }

    fn first_of(
        &self,
        places: &BTreeSet<usize>,
        rank: u32,
        readable: &[Range<u64>],
    ) -> Option<usize> {
        let is_for = |place: &usize| {
            let order = &self.all[*place];
            !order.has_rank(rank) && can_read(readable, &order.chunks)
        };
        places.iter().copied().find(is_for)
    }

    /// The time in milliseconds after which an order is late.
    pub(super) fn lateness(&self) -> u64 {
        self.patience.max(self.longest.saturating_mul(LATE))
    }

    fn late(&self, rank: u32, readable: &[Range<u64>], now: u64) -> Option<usize> {
        let patience = self.lateness();
        let late = self.assigned.values().flatten().copied().filter(|&place| {
            let since = self.all[place].assigned.iter().map(|(_, since)| *since).max();
            since.is_some_and(|since| now.saturating_sub(since) > patience)
        });
        self.first_of(&late.collect(), rank, readable)
    }

    /// Records that a rank folded these chunks, and the digest of the portion.
    ///
    /// # Errors
    /// `Corrupt` when another rank folded the chunks to other bits.
    pub(super) fn record(
        &mut self,
        rank: u32,
        chunks: &Range<u64>,
        digest: u128,
        now: u64,
    ) -> Result<()> {
        let Some(place) = self.place_of(chunks) else { return Ok(()) };
        if let Some(orders) = self.assigned.get_mut(&rank) {
            orders.remove(&place);
        }
        let order = &mut self.all[place];
        if let Some(at) = order.assigned.iter().position(|(other, _)| *other == rank) {
            let (_, since) = order.assigned.swap_remove(at);
            self.longest = self.longest.max(now.saturating_sub(since));
        }
        if let Some((other, _)) = order.folded.iter().find(|(_, before)| *before != digest) {
            return Err(Error::corrupt(format!(
                "ranks {other} and {rank} folded chunks {} to {} to different bits: one of them \
                 read other rows, or its memory or processor is faulty; fold again without it, \
                 because the checkpoints may hold the wrong bits",
                chunks.start,
                chunks.end - 1
            )));
        }
        if !order.folded.iter().any(|(other, _)| *other == rank) {
            order.folded.push((rank, digest));
        }
        let confirmed = !order.audited || order.folded.len() > 1;
        self.waiting.remove(&place);
        if confirmed {
            self.unconfirmed.remove(&place);
            // A rank that still folds this order may finish, and its bits are compared, but nothing
            // waits for that rank.
            for (other, _) in std::mem::take(&mut self.all[place].assigned) {
                if let Some(orders) = self.assigned.get_mut(&other) {
                    orders.remove(&place);
                }
            }
        } else {
            self.unconfirmed.insert(place);
        }
        Ok(())
    }

    /// Frees the orders of a rank that died.
    pub(super) fn lose(&mut self, rank: u32) {
        for place in self.assigned.remove(&rank).unwrap_or_default() {
            let order = &mut self.all[place];
            order.assigned.retain(|(other, _)| *other != rank);
            if order.assigned.is_empty() && order.folded.is_empty() {
                self.waiting.insert(place);
            }
        }
    }

    /// The chunks of the first order that no rank folds and none of these ranks can read.
    pub(super) fn unreadable(&self, readers: &[&[Range<u64>]]) -> Option<Range<u64>> {
        let chunks = self.waiting.iter().map(|&place| &self.all[place].chunks);
        chunks.clone().find(|chunks| !readers.iter().any(|r| can_read(r, chunks))).cloned()
    }

    /// Whether one of these ranks can confirm an order that is not confirmed yet.
    pub(super) fn awaits_confirmation(&self, readers: &[(u32, &[Range<u64>])]) -> bool {
        self.unconfirmed.iter().any(|&place| {
            let order = &self.all[place];
            let folded = |rank: u32| order.folded.iter().any(|(other, _)| *other == rank);
            readers.iter().any(|(rank, r)| !folded(*rank) && can_read(r, &order.chunks))
        })
    }

    /// The number of orders that two ranks folded to the same bits.
    pub(super) fn confirmed_count(&self) -> usize {
        self.all.iter().filter(|order| order.folded.len() > 1).count()
    }

    fn place_of(&self, chunks: &Range<u64>) -> Option<usize> {
        let place =
            self.all.binary_search_by_key(&chunks.start, |order| order.chunks.start).ok()?;
        (self.all[place].chunks == *chunks).then_some(place)
    }
}

impl Order {
    /// Whether `rank` folds or has folded this order.
    fn has_rank(&self, rank: u32) -> bool {
        self.assigned.iter().any(|(other, _)| *other == rank)
            || self.folded.iter().any(|(other, _)| *other == rank)
    }
}

fn can_read(readable: &[Range<u64>], chunks: &Range<u64>) -> bool {
    readable.iter().any(|r| r.start <= chunks.start && chunks.end <= r.end)
}
