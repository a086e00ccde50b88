//! Which chunks are folded by whom: each order goes to one rank, and to another when that one dies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::bytes::Digest;
use crate::error::{Error, Result};

use super::job::Blocks;

/// More orders than any job needs, and few enough to be listed.
const ORDERS_MAX: u64 = 1 << 24;

/// An order that takes this many times as long as the slowest before is given to another rank too.
const LATE: u64 = 4;

/// The missing chunks of a job, cut into orders.
pub(super) struct Orders {
    /// By their first chunks.
    all: Vec<Order>,
    /// Those that no rank folds.
    waiting: BTreeSet<usize>,
    /// Those that came and are to be folded by another rank as well, to be compared.
    unconfirmed: BTreeSet<usize>,
    /// Those that each rank folds now.
    held: BTreeMap<u32, BTreeSet<usize>>,
    /// How long no order is late at least.
    patience: u64,
    /// The longest that an order took.
    longest: u64,
}

struct Order {
    chunks: Range<u64>,
    /// The ranks that fold it, and since when.
    given: Vec<(u32, u64)>,
    /// The ranks that folded it, and what they shipped.
    came: Vec<(u32, Digest)>,
    /// Whether a second rank is to fold it.
    audited: bool,
}

impl Orders {
    /// An order for each stretch of `missing` that lies in one of `blocks` and between two of `cuts`.
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
                all.push(Order { chunks: start..end, given: vec![], came: vec![], audited });
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
            held: BTreeMap::new(),
            patience,
            longest: 0,
        })
    }

    /// How many orders a rank has.
    pub(super) fn held_count(&self, rank: u32) -> usize {
        self.held.get(&rank).map_or(0, BTreeSet::len)
    }

    /// The orders that a rank has.
    pub(super) fn held_by(&self, rank: u32) -> impl Iterator<Item = Range<u64>> {
        self.held.get(&rank).into_iter().flatten().map(|&place| self.all[place].chunks.clone())
    }

    /// Gives a rank the next order that it can fold: the lowest that no rank folds, then what is to be
    /// folded twice, then what another rank takes too long for.
    pub(super) fn give(
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
        self.all[place].given.push((rank, now));
        self.held.entry(rank).or_default().insert(place);
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
            !order.is_known_to(rank) && can_read(readable, &order.chunks)
        };
        places.iter().copied().find(is_for)
    }

    /// How long an order takes at most, unless something is wrong with its rank.
    pub(super) fn lateness(&self) -> u64 {
        self.patience.max(self.longest.saturating_mul(LATE))
    }

    fn late(&self, rank: u32, readable: &[Range<u64>], now: u64) -> Option<usize> {
        let patience = self.lateness();
        let late = self.held.values().flatten().copied().filter(|&place| {
            let since = self.all[place].given.iter().map(|(_, since)| *since).max();
            since.is_some_and(|since| now.saturating_sub(since) > patience)
        });
        self.first_of(&late.collect(), rank, readable)
    }

    /// Notes that a rank has folded these chunks, with these bits.
    ///
    /// # Errors
    /// `Corrupt` when another rank has folded them with other bits.
    pub(super) fn came(
        &mut self,
        rank: u32,
        chunks: &Range<u64>,
        digest: Digest,
        now: u64,
    ) -> Result<()> {
        let Some(place) = self.place_of(chunks) else { return Ok(()) };
        if let Some(held) = self.held.get_mut(&rank) {
            held.remove(&place);
        }
        let order = &mut self.all[place];
        if let Some(at) = order.given.iter().position(|(given, _)| *given == rank) {
            let (_, since) = order.given.swap_remove(at);
            self.longest = self.longest.max(now.saturating_sub(since));
        }
        if let Some((other, _)) = order.came.iter().find(|(_, before)| *before != digest) {
            return Err(Error::corrupt(format!(
                "ranks {other} and {rank} folded chunks {} to {} to different bits: one of them \
                 read other rows, or its memory or processor is faulty; fold again without it, \
                 because the checkpoints may hold the wrong bits",
                chunks.start,
                chunks.end - 1
            )));
        }
        if !order.came.iter().any(|(before, _)| *before == rank) {
            order.came.push((rank, digest));
        }
        let confirmed = !order.audited || order.came.len() > 1;
        self.waiting.remove(&place);
        if confirmed {
            self.unconfirmed.remove(&place);
            // Who folds it still may go on, and his bits are compared; he is not waited for.
            for (other, _) in std::mem::take(&mut self.all[place].given) {
                if let Some(held) = self.held.get_mut(&other) {
                    held.remove(&place);
                }
            }
        } else {
            self.unconfirmed.insert(place);
        }
        Ok(())
    }

    /// Takes the orders of a rank that died from it.
    pub(super) fn lose(&mut self, rank: u32) {
        for place in self.held.remove(&rank).unwrap_or_default() {
            let order = &mut self.all[place];
            order.given.retain(|(given, _)| *given != rank);
            if order.given.is_empty() && order.came.is_empty() {
                self.waiting.insert(place);
            }
        }
    }

    /// The first chunks that no rank folds and none of these ranks can read.
    pub(super) fn unreadable(&self, readers: &[&[Range<u64>]]) -> Option<Range<u64>> {
        let chunks = self.waiting.iter().map(|&place| &self.all[place].chunks);
        chunks.clone().find(|chunks| !readers.iter().any(|r| can_read(r, chunks))).cloned()
    }

    /// Whether a second rank is still to fold something, and one of these can.
    pub(super) fn awaits_confirmation(&self, readers: &[(u32, &[Range<u64>])]) -> bool {
        self.unconfirmed.iter().any(|&place| {
            let order = &self.all[place];
            let folded = |rank: u32| order.came.iter().any(|(came, _)| *came == rank);
            readers.iter().any(|(rank, r)| !folded(*rank) && can_read(r, &order.chunks))
        })
    }

    /// How many orders two ranks have folded, with the same bits.
    pub(super) fn confirmed_count(&self) -> usize {
        self.all.iter().filter(|order| order.came.len() > 1).count()
    }

    fn place_of(&self, chunks: &Range<u64>) -> Option<usize> {
        let place =
            self.all.binary_search_by_key(&chunks.start, |order| order.chunks.start).ok()?;
        (self.all[place].chunks == *chunks).then_some(place)
    }
}

impl Order {
    fn is_known_to(&self, rank: u32) -> bool {
        self.given.iter().any(|(given, _)| *given == rank)
            || self.came.iter().any(|(came, _)| *came == rank)
    }
}

fn can_read(readable: &[Range<u64>], chunks: &Range<u64>) -> bool {
    readable.iter().any(|r| r.start <= chunks.start && chunks.end <= r.end)
}
