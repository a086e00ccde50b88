//! A partial with the digest of the rows that it was folded from.

use crate::bytes::Digest;
use crate::error::Result;
use crate::fold::statistic::{Incoming, Partial, TryClone};
use crate::fold::{Node, Tree};

/// A value of a node, and the digest of the rows of the node.
///
/// The digest of two siblings together is the BLAKE3 of both digests. So it depends on the rows and on
/// the chunks, as the sum does, and not on who folded them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<P> {
    /// The value: a partial, or the bytes of one.
    pub partial: P,
    /// The digest of its rows.
    pub rows: Digest,
}

impl<P: Partial> Partial for Sourced<P> {
    fn merge(&mut self, right: &Self) {
        self.partial.merge(&right.partial);
        self.rows = of_siblings(self.rows, right.rows);
    }

    fn same_bits(&self, other: &Self) -> bool {
        self.rows == other.rows && self.partial.same_bits(&other.partial)
    }
}

impl<P: TryClone> TryClone for Sourced<P> {
    fn try_clone(&self) -> Result<Self> {
        Ok(Self { partial: self.partial.try_clone()?, rows: self.rows })
    }
}

/// The bytes of a partial on their way into a tree, with the digest of their rows.
pub struct Arriving<A>(pub(super) Sourced<A>);

impl<P, A: Incoming<P>> Incoming<Sourced<P>> for Arriving<A> {
    fn has_bits_of(&self, present: &Sourced<P>) -> bool {
        self.0.rows == present.rows && self.0.partial.has_bits_of(&present.partial)
    }

    fn join(
        self,
        siblings: Vec<(Node, Sourced<P>)>,
        unused: &mut Vec<Sourced<P>>,
    ) -> Result<Sourced<P>> {
        let Self(Sourced { partial, mut rows }) = self;
        let mut partials = Vec::with_capacity(siblings.len());
        for (node, sibling) in siblings {
            rows = match node.is_left() {
                true => of_siblings(sibling.rows, rows),
                false => of_siblings(rows, sibling.rows),
            };
            partials.push((node, sibling.partial));
        }
        let mut memory: Vec<P> = unused.drain(..).map(|sourced| sourced.partial).collect();
        let joined = partial.join(partials, &mut memory);
        // Their digests are of no more use than their sums.
        unused.extend(memory.into_iter().map(|partial| Sourced { partial, rows }));
        Ok(Sourced { partial: joined?, rows })
    }
}

/// The rows of a node without their sum, to compare with those of a fold.
#[derive(Clone, Copy)]
struct RowsAlone(Digest);

impl Partial for RowsAlone {
    fn merge(&mut self, right: &Self) {
        self.0 = of_siblings(self.0, right.0);
    }

    fn same_bits(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Returns the digest of the rows of `node` from those of its chunks, in their order.
pub(super) fn rows_of_node(
    node: Node,
    chunk_count: u64,
    chunks: impl Iterator<Item = Result<Digest>>,
) -> Result<Option<Digest>> {
    let mut tree = Tree::new(chunk_count);
    for (chunk, digest) in node.chunks().zip(chunks) {
        tree.insert(Node::leaf(chunk)?, RowsAlone(digest?))?;
    }
    let whole = tree.nodes().next().filter(|(found, _)| *found == node);
    Ok(whole.map(|(_, rows)| rows.0))
}

/// Returns the digest of the rows of two siblings.
pub(super) fn of_siblings(left: Digest, right: Digest) -> Digest {
    Digest::of(&[left.0, right.0].concat())
}
