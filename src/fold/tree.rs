//! The tree of a fold: disjoint nodes that merge as soon as they are siblings.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};

use super::node::Node;
use super::statistic::{Incoming, Partial, TryClone};

/// The outcome of [`Tree::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The node covers chunks that were missing.
    New,
    /// The tree had the same node with the same bits.
    Same,
    /// The tree had the node's chunks, merged into a larger node; the bits cannot be compared.
    Covered,
}

/// The words for one unit of a tree and for several.
pub type Words = [&'static str; 2];

/// The partials of some chunks of a fold, merged as far as possible.
///
/// # Determinism
/// [`Tree::finish`] depends on the partials of the chunks and their number. It does not depend on
/// the order in which nodes are inserted, on how often each is, or on how much of the tree was
/// merged before.
///
/// # Cost
/// A tree holds one partial for each node of [`Tree::nodes`]: when chunks are inserted in order, at
/// most one for each bit of their number. The memory of merged partials is used again for partials
/// that are read from bytes; it never exceeds the most that the tree held at once.
#[derive(Clone, Debug)]
pub struct Tree<P> {
    chunk_count: u64,
    /// The words for one chunk and for several in messages.
    words: Words,
    /// The nodes and their partials, by the first chunk of each node.
    nodes: BTreeMap<u64, (Node, P)>,
    /// The number of chunks of all nodes: counting them takes as long as there are nodes.
    covered_count: u64,
    /// Merged partials, kept for their memory.
    unused: Vec<P>,
}

/// A value whose insertion cannot fail: it has its memory, or needs none.
enum Ready<P, A> {
    Partial(P),
    Incoming(A),
}

/// A node without a partial, which records whether it finds a sibling in an outline of the tree.
struct OutlineNode<'a> {
    has_no_sibling: &'a mut bool,
}

impl Partial for () {
    fn merge(&mut self, (): &Self) {}

    fn same_bits(&self, (): &Self) -> bool {
        true
    }
}

impl Incoming<()> for OutlineNode<'_> {
    fn has_bits_of(&self, (): &()) -> bool {
        true
    }

    fn join(self, siblings: Vec<(Node, ())>, _: &mut Vec<()>) -> Result<()> {
        *self.has_no_sibling = siblings.is_empty();
        Ok(())
    }
}

impl<P: Partial> Tree<P> {
    /// Returns an empty tree over `chunk_count` chunks.
    #[must_use]
    pub fn new(chunk_count: u64) -> Self {
        Self::of(["chunk", "chunks"], chunk_count)
    }

    /// Returns an empty tree over `count` units that messages call by these words.
    #[must_use]
    pub fn of(words: Words, count: u64) -> Self {
        let (nodes, unused) = (BTreeMap::new(), Vec::new());
        Self { chunk_count: count, words, nodes, covered_count: 0, unused }
    }

    /// Names some units in messages.
    fn named(&self, units: &Range<u64>) -> String {
        let [one, several] = self.words;
        match units.end - units.start {
            1 => format!("{one} {}", units.start),
            _ => format!("{several} {} to {}", units.start, units.end - 1),
        }
    }

    /// Inserts a node, and merges it with its sibling as long as there is one.
    ///
    /// # Errors
    /// `InvalidArgument` when the node reaches past the last chunk, `Corrupt` when the tree has the
    /// same node with different bits, and those of [`Incoming::join`]. An error leaves the tree
    /// unchanged.
    pub fn insert(&mut self, node: Node, incoming: impl Incoming<P>) -> Result<Inserted> {
        let chunks = node.chunks();
        if chunks.end > self.chunk_count {
            return Err(Error::invalid(format!(
                "expected a node within the {} {} of the fold, found the node of {}",
                self.chunk_count,
                self.words[1],
                self.named(&chunks)
            )));
        }
        self.check_bits(node, &incoming)?;
        if let Some((found, _)) = self.covering(chunks.start)
            && found.level() >= node.level()
        {
            let same = *found == node;
            return Ok(if same { Inserted::Same } else { Inserted::Covered });
        }
        let (joined, partial) = self.join(node, incoming)?;
        // The nodes that it covers would be counted twice.
        let inner: Vec<u64> = self.nodes.range(chunks.clone()).map(|(&start, _)| start).collect();
        for start in inner {
            if let Some((inner, _)) = self.nodes.remove(&start) {
                self.covered_count -= inner.chunk_count();
            }
        }
        self.covered_count += node.chunk_count();
        self.nodes.insert(joined.chunks().start, (joined, partial));
        Ok(Inserted::New)
    }

    /// Inserts disjoint nodes, each as [`Tree::insert`] does: all of them, or none. Returns the
    /// number of nodes that cover chunks that were missing.
    ///
    /// # Errors
    /// Those of [`Tree::insert`] for any of them. An error leaves the tree unchanged.
    pub fn insert_all<A: Incoming<P>>(&mut self, mut incoming: Vec<(Node, A)>) -> Result<usize> {
        // A single node needs no preparation.
        if incoming.len() == 1
            && let Some((node, incoming)) = incoming.pop()
        {
            return Ok(usize::from(self.insert(node, incoming)? == Inserted::New));
        }
        for (node, incoming) in &incoming {
            self.check_bits(*node, incoming)?;
        }
        // Only nodes without a sibling need memory; if it runs out here, the tree is still
        // unchanged.
        let mut outline = self.outline_near(incoming.iter().map(|(node, _)| *node));
        let mut ready = Vec::with_capacity(incoming.len());
        for (node, incoming) in incoming {
            let mut has_no_sibling = false;
            outline.insert(node, OutlineNode { has_no_sibling: &mut has_no_sibling })?;
            ready.push((
                node,
                match has_no_sibling {
                    true => Ready::Partial(incoming.join(Vec::new(), &mut self.unused)?),
                    false => Ready::Incoming(incoming),
                },
            ));
        }
        let mut new = 0;
        for (node, incoming) in ready {
            let inserted = match incoming {
                Ready::Partial(partial) => self.insert(node, partial),
                Ready::Incoming(incoming) => self.insert(node, incoming),
            };
            new += usize::from(inserted? == Inserted::New);
        }
        Ok(new)
    }

    /// Rejects bits that differ from those of the same node in the tree.
    fn check_bits(&self, node: Node, incoming: &impl Incoming<P>) -> Result<()> {
        match self.covering(node.chunks().start) {
            Some((found, its)) if *found == node && !incoming.has_bits_of(its) => {
                Err(Error::corrupt(format!(
                    "the sum of {} arrived twice, and the two differ; let every rank read the same \
                     files and run the same build of headwater",
                    self.named(&node.chunks())
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the nodes, without partials, that can cover, or merge with, one of `incoming`. Others do not
    /// decide which of those find a sibling, and there may be many.
    fn outline_near(&self, incoming: impl Iterator<Item = Node>) -> Tree<()> {
        let top = self.chunk_count.checked_ilog2().unwrap_or(0);
        let mut near = BTreeMap::new();
        let mut add = |(node, _): &(Node, P)| {
            near.insert(node.chunks().start, (*node, ()));
        };
        for mut node in incoming {
            self.covering(node.chunks().start).map(&mut add);
            while node.level() < top {
                self.get(node.sibling()).map(&mut add);
                node = node.parent();
            }
        }
        let covered_count = near.values().map(|(node, ())| node.chunk_count()).sum();
        Tree { nodes: near, covered_count, ..Tree::of(self.words, self.chunk_count) }
    }

    /// Returns the node that covers `chunk`.
    fn covering(&self, chunk: u64) -> Option<&(Node, P)> {
        let (_, found) = self.nodes.range(..=chunk).next_back()?;
        (chunk < found.0.chunks().end).then_some(found)
    }

    /// Merges a node with its sibling, as long as there is one.
    fn join(&mut self, mut node: Node, incoming: impl Incoming<P>) -> Result<(Node, P)> {
        let mut siblings = Vec::new();
        while let Some(sibling) = self.remove(node.sibling()) {
            siblings.push(sibling);
            node = node.parent();
        }
        Ok((node, incoming.join(siblings, &mut self.unused)?))
    }

    /// Returns this very node, if the tree has it.
    fn get(&self, node: Node) -> Option<&(Node, P)> {
        self.nodes.get(&node.chunks().start).filter(|(found, _)| *found == node)
    }

    fn remove(&mut self, node: Node) -> Option<(Node, P)> {
        self.get(node)?;
        self.nodes.remove(&node.chunks().start)
    }

    /// Returns the number of chunks of the fold.
    #[must_use]
    pub fn chunk_count(&self) -> u64 {
        self.chunk_count
    }

    /// Returns the nodes of the tree, in the order of their chunks.
    pub fn nodes(&self) -> impl Iterator<Item = (Node, &P)> {
        self.nodes.values().map(|(node, partial)| (*node, partial))
    }

    /// Returns the number of chunks that were inserted.
    #[must_use]
    pub fn covered_count(&self) -> u64 {
        self.covered_count
    }

    /// Whether a chunk was inserted.
    #[must_use]
    pub fn covers(&self, chunk: u64) -> bool {
        self.covering(chunk).is_some()
    }

    /// Returns the chunks that were inserted, as ranges that do not touch.
    #[must_use]
    pub fn covered(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (node, _) in self.nodes.values() {
            let chunks = node.chunks();
            match ranges.last_mut().filter(|last| last.end == chunks.start) {
                Some(last) => last.end = chunks.end,
                None => ranges.push(chunks),
            }
        }
        ranges
    }

    /// Returns the chunks that are missing, as ranges that do not touch.
    #[must_use]
    pub fn missing(&self) -> Vec<Range<u64>> {
        let covered = self.covered();
        let starts = std::iter::once(0).chain(covered.iter().map(|range| range.end));
        let ends = covered.iter().map(|range| range.start).chain([self.chunk_count]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty()).collect()
    }

    /// Returns the partial of the whole fold; `None` for a fold without chunks.
    ///
    /// # Errors
    /// `InvalidArgument` when chunks are missing.
    pub fn finish(self) -> Result<Option<P>> {
        self.check_complete()?;
        let from_the_right = self.nodes.into_values().rev().map(|(_, partial)| partial);
        Ok(from_the_right.reduce(|right, mut left| {
            left.merge(&right);
            left
        }))
    }

    /// As [`Tree::finish`], and keeps the tree.
    ///
    /// # Errors
    /// As [`Tree::finish`], and `LimitExceeded` when memory for two more partials runs out.
    pub fn whole(&self) -> Result<Option<P>>
    where
        P: TryClone,
    {
        self.check_complete()?;
        let mut whole: Option<P> = None;
        for (_, partial) in self.nodes.values().rev() {
            let mut left = partial.try_clone()?;
            if let Some(right) = &whole {
                left.merge(right);
            }
            whole = Some(left);
        }
        Ok(whole)
    }

    fn check_complete(&self) -> Result<()> {
        if let Some(gap) = self.missing().first() {
            let verb = if gap.end - gap.start == 1 { "is" } else { "are" };
            return Err(Error::invalid(format!(
                "the fold is not complete: {} {verb} missing",
                self.named(gap)
            )));
        }
        Ok(())
    }
}
