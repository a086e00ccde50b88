//! The fold: a set of disjoint nodes that grows together.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};

use super::node::Node;
use super::statistic::{Arrival, Copied, Partial};

/// What became of a node that was given to a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It covers chunks that were missing.
    New,
    /// The same node was there, with the same bits.
    Same,
    /// Its chunks were there, merged into a greater node; its bits cannot be compared any more.
    Covered,
}

/// The partials of some of the chunks of a whole, merged as far as they can be.
///
/// # Determinism
/// [`Tree::finish`] depends on the partials of the chunks and their number. It does not depend on
/// the order in which nodes arrive, on how often they do, or on how much of the tree was merged
/// before they came.
///
/// # Cost
/// It holds one partial for each node of [`Tree::nodes`]: when they come in order, at most one for
/// each bit of the number of chunks. The memory of those that were merged into others serves the next that
/// come as bytes; it is never more than what was held at once.
#[derive(Clone, Debug)]
pub struct Tree<P> {
    chunk_count: u64,
    /// By the first chunk of each node.
    held: BTreeMap<u64, (Node, P)>,
    /// Memory of partials that are no more.
    spent: Vec<P>,
}

/// What is to be taken in for certain: in memory of its own where it needs some.
enum Ready<P, A> {
    Alone(P),
    Arrived(A),
}

/// A node that comes to an outline of a tree, and learns whether it finds a sibling there.
struct Outlined<'a> {
    stands_alone: &'a mut bool,
}

impl Partial for () {
    fn merge(&mut self, (): &Self) {}

    fn same_bits(&self, (): &Self) -> bool {
        true
    }
}

impl Arrival<()> for Outlined<'_> {
    fn has_bits_of(&self, (): &()) -> bool {
        true
    }

    fn join(self, siblings: Vec<(Node, ())>, _: &mut Vec<()>) -> Result<()> {
        *self.stands_alone = siblings.is_empty();
        Ok(())
    }
}

impl<P: Partial> Tree<P> {
    /// A tree over `chunk_count` chunks, of which none is there.
    #[must_use]
    pub fn new(chunk_count: u64) -> Self {
        Self { chunk_count, held: BTreeMap::new(), spent: Vec::new() }
    }

    /// Takes in a node, and merges it with its sibling for as long as there is one.
    ///
    /// # Errors
    /// `InvalidArgument` when the node reaches past the last chunk, and `Corrupt` when the same node
    /// is there with other bits; those of [`Arrival::join`]. The tree stays as it was.
    pub fn insert(&mut self, node: Node, arrival: impl Arrival<P>) -> Result<Inserted> {
        let chunks = node.chunks();
        if chunks.end > self.chunk_count {
            let count = self.chunk_count;
            return Err(Error::invalid(format!("{node}: expected chunks below {count}")));
        }
        self.check_bits(node, &arrival)?;
        if let Some((found, _)) = self.holding(chunks.start)
            && found.level() >= node.level()
        {
            let same = *found == node;
            return Ok(if same { Inserted::Same } else { Inserted::Covered });
        }
        let (joined, partial) = self.join(node, arrival)?;
        // What it covers is part of it already, and would be counted twice.
        let inner: Vec<u64> = self.held.range(chunks).map(|(&start, _)| start).collect();
        for start in inner {
            self.held.remove(&start);
        }
        self.held.insert(joined.chunks().start, (joined, partial));
        Ok(Inserted::New)
    }

    /// Takes in nodes that cover nothing twice, each as [`Tree::insert`] does: all of them, or none.
    /// Returns how many cover chunks that were missing.
    ///
    /// # Errors
    /// Those of [`Tree::insert`] for any of them. The tree stays as it was.
    pub fn insert_all<A: Arrival<P>>(&mut self, mut arrivals: Vec<(Node, A)>) -> Result<usize> {
        // Alone it is taken in or not.
        if arrivals.len() == 1
            && let Some((node, arrival)) = arrivals.pop()
        {
            return Ok(usize::from(self.insert(node, arrival)? == Inserted::New));
        }
        for (node, arrival) in &arrivals {
            self.check_bits(*node, arrival)?;
        }
        // Memory is wanted for those alone that find no sibling; where there is none, nothing was done.
        let mut outline = self.outline_near(arrivals.iter().map(|(node, _)| *node));
        let mut ready = Vec::with_capacity(arrivals.len());
        for (node, arrival) in arrivals {
            let mut stands_alone = false;
            outline.insert(node, Outlined { stands_alone: &mut stands_alone })?;
            ready.push((
                node,
                match stands_alone {
                    true => Ready::Alone(arrival.join(Vec::new(), &mut self.spent)?),
                    false => Ready::Arrived(arrival),
                },
            ));
        }
        let mut new = 0;
        for (node, arrival) in ready {
            let inserted = match arrival {
                Ready::Alone(partial) => self.insert(node, partial),
                Ready::Arrived(arrival) => self.insert(node, arrival),
            };
            new += usize::from(inserted? == Inserted::New);
        }
        Ok(new)
    }

    /// Refuses other bits than those of the same node, where it is there and was not merged.
    fn check_bits(&self, node: Node, arrival: &impl Arrival<P>) -> Result<()> {
        match self.holding(node.chunks().start) {
            Some((found, its)) if *found == node && !arrival.has_bits_of(its) => {
                Err(Error::corrupt(format!("{node} arrived twice, with different bits")))
            }
            _ => Ok(()),
        }
    }

    /// The held nodes, without their partials, that can cover one of those which come, be covered by it,
    /// or be merged with it. All others stay as they are, however many they be.
    fn outline_near(&self, coming: impl Iterator<Item = Node>) -> Tree<()> {
        let top = self.chunk_count.checked_ilog2().unwrap_or(0);
        let mut near = BTreeMap::new();
        let mut add = |(node, _): &(Node, P)| {
            near.insert(node.chunks().start, (*node, ()));
        };
        for mut node in coming {
            let chunks = node.chunks();
            self.holding(chunks.start).map(&mut add);
            self.held.range(chunks).for_each(|(_, held)| add(held));
            while node.level() < top {
                self.at(node.sibling()).map(&mut add);
                node = node.parent();
            }
        }
        Tree { chunk_count: self.chunk_count, held: near, spent: Vec::new() }
    }

    /// The node that covers `chunk`.
    fn holding(&self, chunk: u64) -> Option<&(Node, P)> {
        let (_, held) = self.held.range(..=chunk).next_back()?;
        (chunk < held.0.chunks().end).then_some(held)
    }

    /// Merges a node with its sibling, for as long as there is one.
    fn join(&mut self, mut node: Node, arrival: impl Arrival<P>) -> Result<(Node, P)> {
        let mut siblings = Vec::new();
        while let Some(sibling) = self.take(node.sibling()) {
            siblings.push(sibling);
            node = node.parent();
        }
        Ok((node, arrival.join(siblings, &mut self.spent)?))
    }

    /// The node itself, where it is held.
    fn at(&self, node: Node) -> Option<&(Node, P)> {
        self.held.get(&node.chunks().start).filter(|(found, _)| *found == node)
    }

    fn take(&mut self, node: Node) -> Option<(Node, P)> {
        self.at(node)?;
        self.held.remove(&node.chunks().start)
    }

    /// How many chunks the whole has.
    #[must_use]
    pub fn chunk_count(&self) -> u64 {
        self.chunk_count
    }

    /// The nodes that are there, in the order of their chunks.
    pub fn nodes(&self) -> impl Iterator<Item = (Node, &P)> {
        self.held.values().map(|(node, partial)| (*node, partial))
    }

    /// The chunks that are there, as ranges with something missing between them.
    #[must_use]
    pub fn covered(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (node, _) in self.held.values() {
            let chunks = node.chunks();
            match ranges.last_mut().filter(|last| last.end == chunks.start) {
                Some(last) => last.end = chunks.end,
                None => ranges.push(chunks),
            }
        }
        ranges
    }

    /// The chunks that are not there, as ranges with something between them.
    #[must_use]
    pub fn missing(&self) -> Vec<Range<u64>> {
        let covered = self.covered();
        let starts = std::iter::once(0).chain(covered.iter().map(|range| range.end));
        let ends = covered.iter().map(|range| range.start).chain([self.chunk_count]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty()).collect()
    }

    /// The partial of the whole; `None` of a whole without chunks.
    ///
    /// # Errors
    /// `InvalidArgument` when chunks are missing.
    pub fn finish(self) -> Result<Option<P>> {
        self.check_complete()?;
        let from_the_right = self.held.into_values().rev().map(|(_, partial)| partial);
        Ok(from_the_right.reduce(|right, mut left| {
            left.merge(&right);
            left
        }))
    }

    /// As [`Tree::finish`], and the tree stays as it is.
    ///
    /// # Errors
    /// As [`Tree::finish`], and `LimitExceeded` when there is no memory for two partials more.
    pub fn whole(&self) -> Result<Option<P>>
    where
        P: Copied,
    {
        self.check_complete()?;
        let mut whole: Option<P> = None;
        for (_, partial) in self.held.values().rev() {
            let mut left = partial.copied()?;
            if let Some(right) = &whole {
                left.merge(right);
            }
            whole = Some(left);
        }
        Ok(whole)
    }

    fn check_complete(&self) -> Result<()> {
        if let Some(gap) = self.missing().first() {
            let Range { start, end } = gap;
            let which = if end - start == 1 {
                format!("chunk {start} is")
            } else {
                format!("chunks {start} to {} are", end - 1)
            };
            return Err(Error::invalid(format!("the fold is not complete: {which} missing")));
        }
        Ok(())
    }
}
