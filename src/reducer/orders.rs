//! Which rank folds which chunks: each order is assigned to one rank, and to another when that dies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::error::{Error, Result};
use crate::plan::Assignment;

use super::cursor::WorkerCursor;
use super::job::Blocks;
use super::policy::Policy;

/// More orders than any job needs, and few enough to list.
const ORDERS_MAX: u64 = 1 << 24;

/// An order that takes this many times as long as the slowest so far is assigned to another rank too.
const LATE: u64 = 4;

/// The rounds of one block for each rank by which a rank may be ahead of the lowest block that waits.
/// Beyond them the owner of that block is late, and the rank folds the block in its place: else the
/// partials between the two, which cannot be merged yet, would fill the memory of rank 0.
const ROUNDS_AHEAD: u64 = 2;

/// The missing chunks of a job, cut into orders.
pub(super) struct Orders {
    /// All orders, by their first chunks.
    all: Vec<Order>,
    blocks: Blocks,
    ranks: u32,
    waiting: Waiting,
    /// How far each rank will be in its own blocks when it has folded its orders.
    cursors: BTreeMap<u32, u64>,
    /// For each rank that others did not wait for any longer, an order that it has not folded.
    passed_over: BTreeMap<u32, LateOrder>,
    /// The audited orders that one rank has folded; a second rank folds them for comparison.
    unconfirmed: BTreeSet<usize>,
    /// The orders that each rank folds now.
    assigned: BTreeMap<u32, BTreeSet<usize>>,
    /// An order is never late before this time, in milliseconds.
    patience: u64,
    /// The time of the slowest order, in milliseconds.
    longest: u64,
}

/// The orders that no rank folds or has folded.
#[derive(Default)]
struct Waiting {
    places: BTreeSet<usize>,
    /// The same, each after the rank that owns its block.
    owned: BTreeSet<(u32, usize)>,
}

impl Waiting {
    fn insert(&mut self, owner: u32, place: usize) {
        self.places.insert(place);
        self.owned.insert((owner, place));
    }

    fn remove(&mut self, owner: u32, place: usize) {
        self.places.remove(&place);
        self.owned.remove(&(owner, place));
    }
}

/// An order for which the others no longer wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateOrder {
    /// Its chunks, which another rank folds now.
    pub chunks: Range<u64>,
    /// The milliseconds after which it was assigned to another rank.
    pub milliseconds: u64,
}

struct Order {
    chunks: Range<u64>,
    block: u64,
    /// The rank that owns the block.
    owner: u32,
    /// The ranks that fold this order, and since when.
    assigned: Vec<(u32, u64)>,
    /// The ranks that folded this order, and the digests of the nodes that they folded.
    folded: Vec<(u32, u128)>,
    /// Whether a second rank must fold this order.
    audited: bool,
}

impl Orders {
    /// Makes one order for each part of `missing` that lies in one block and between two cuts.
    pub(super) fn new(missing: &[Range<u64>], policy: &Policy) -> Result<Self> {
        let &Policy { ref blocks, ranks, ref cuts, audited_per_mille, patience } = policy;
        let ranks = ranks.max(1);
        let mut all = Vec::new();
        let mut waiting = Waiting::default();
        for gap in missing {
            let mut start = gap.start;
            while start < gap.end {
                let cut = cuts.range(start + 1..).next().copied().unwrap_or(u64::MAX);
                let block = blocks.block_with(start);
                let end = blocks.chunks(block).end.min(gap.end).min(cut);
                let owner = (block % u64::from(ranks)) as u32;
                waiting.insert(owner, all.len());
                let place = all.len() as u64;
                let audited_before = |place: u64| place * audited_per_mille / 1000;
                let audited = audited_before(place) != audited_before(place + 1);
                let (assigned, folded) = (vec![], vec![]);
                all.push(Order { chunks: start..end, block, owner, assigned, folded, audited });
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
            all,
            blocks: *blocks,
            ranks,
            waiting,
            cursors: BTreeMap::new(),
            passed_over: BTreeMap::new(),
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

    /// The chunks of the orders that a rank folds, each with the cursor after it.
    pub(super) fn assigned_to(
        &self,
        rank: u32,
    ) -> impl Iterator<Item = (Range<u64>, WorkerCursor)> {
        let places = self.assigned.get(&rank).into_iter().flatten();
        places.filter_map(move |&place| {
            Some((self.all[place].chunks.clone(), self.cursor_after(rank, place)?))
        })
    }

    /// Assigns to a rank the next order that it can fold: one that waits, then one to confirm, then a
    /// late one. Returns its chunks, and the cursor of the rank after it.
    pub(super) fn assign(
        &mut self,
        rank: u32,
        readable: &[Range<u64>],
        now: u64,
    ) -> Option<(Range<u64>, WorkerCursor)> {
        let place =
            self.next_waiting(rank, readable).or_else(|| self.next_unconfirmed(rank, readable));
        let place = match place {
            Some(place) => place,
            None => {
                let place = self.late(rank, readable, now)?;
                self.pass_over(place, now);
                place
            }
        };
        let cursor = self.cursor_after(rank, place)?;
        self.cursors.insert(rank, cursor.ordinal());
        self.waiting.remove(self.all[place].owner, place);
        self.all[place].assigned.push((rank, now));
        self.assigned.entry(rank).or_default().insert(place);
        Some((self.all[place].chunks.clone(), cursor))
    }

    /// The cursor of a rank before its first block; `None` for a rank beyond their number.
    pub(super) fn beginning_of(&self, rank: u32) -> Option<WorkerCursor> {
        let assignment = Assignment::new(u64::from(rank), u64::from(self.ranks)).ok()?;
        Some(WorkerCursor::new(assignment, &self.blocks))
    }

    /// The blocks.
    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The cursor of a rank when it has folded an order too.
    fn cursor_after(&self, rank: u32, place: usize) -> Option<WorkerCursor> {
        let beginning = self.beginning_of(rank)?;
        let order = &self.all[place];
        let ends_block = self.all.get(place + 1).is_none_or(|next| next.block != order.block);
        let own = (order.owner == rank)
            .then(|| order.block / u64::from(self.ranks) + u64::from(ends_block));
        let before = self.cursors.get(&rank).copied();
        Some(beginning.after(own.max(before).unwrap_or(0)))
    }

    /// The next order that waits: of the lowest block that the rank owns; of the lowest of all, when that
    /// is far behind, or when the rank has folded all its own.
    fn next_waiting(&self, rank: u32, readable: &[Range<u64>]) -> Option<usize> {
        let Waiting { places, owned } = &self.waiting;
        let any = self.lowest(readable, |first| places.range(first..).next().copied())?;
        let own = self.lowest(readable, |first| {
            owned.range((rank, first)..=(rank, usize::MAX)).next().map(|(_, place)| *place)
        });
        let block = |place: usize| self.all[place].block;
        let ahead = u64::from(self.ranks).saturating_mul(ROUNDS_AHEAD);
        match own {
            Some(own) if block(own) - block(any) <= ahead => Some(own),
            None if self.assigned_count(rank) > 0 => None,
            _ => Some(any),
        }
    }

    /// The lowest order that is readable, if `from` returns the lowest one from a place on.
    fn lowest(
        &self,
        readable: &[Range<u64>],
        from: impl Fn(usize) -> Option<usize>,
    ) -> Option<usize> {
        let in_range = |chunks: &Range<u64>| {
            let first = self.all.partition_point(|order| order.chunks.start < chunks.start);
            from(first).filter(|&place| self.all[place].chunks.end <= chunks.end)
        };
        readable.iter().filter_map(in_range).min()
    }

    /// Records the ranks that have not folded an order in time.
    fn pass_over(&mut self, place: usize, now: u64) {
        let Order { chunks, assigned, .. } = &self.all[place];
        for (rank, since) in assigned {
            let milliseconds = now.saturating_sub(*since);
            let late = LateOrder { chunks: chunks.clone(), milliseconds };
            self.passed_over.entry(*rank).or_insert(late);
        }
    }

    /// Records that a rank still works.
    pub(super) fn hear_from(&mut self, rank: u32) {
        self.passed_over.remove(&rank);
    }

    /// The ranks for whose orders the others no longer wait.
    pub(super) fn passed_over(&self) -> impl Iterator<Item = (u32, &LateOrder)> {
        self.passed_over.iter().map(|(rank, late)| (*rank, late))
    }

    /// The lowest order that one rank has folded, and no other one folds now.
    fn next_unconfirmed(&self, rank: u32, readable: &[Range<u64>]) -> Option<usize> {
        let mut free = self.unconfirmed.iter().copied();
        free.find(|&place| {
            self.all[place].assigned.is_empty() && self.is_for(place, rank, readable)
        })
    }

    /// Whether a rank can fold an order, and neither does nor did.
    fn is_for(&self, place: usize, rank: u32, readable: &[Range<u64>]) -> bool {
        let order = &self.all[place];
        !order.has_rank(rank) && can_read(readable, &order.chunks)
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
        late.filter(|&place| self.is_for(place, rank, readable)).min()
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
        self.waiting.remove(order.owner, place);
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
        self.passed_over.remove(&rank);
        for place in self.assigned.remove(&rank).unwrap_or_default() {
            let order = &mut self.all[place];
            order.assigned.retain(|(other, _)| *other != rank);
            if order.assigned.is_empty() && order.folded.is_empty() {
                self.waiting.insert(order.owner, place);
            }
        }
    }

    /// The chunks of the first order that no rank folds and none of these ranks can read.
    pub(super) fn unreadable(&self, readers: &[&[Range<u64>]]) -> Option<Range<u64>> {
        let chunks = self.waiting.places.iter().map(|&place| &self.all[place].chunks);
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
