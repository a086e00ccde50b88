//! The traits of statistics and of their partials.

use rayon::ThreadPool;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::environment::in_default_environment;
use crate::error::{Error, Result};

use super::node::Node;

/// The value of a statistic over the rows of one node of the tree.
pub trait Partial {
    /// Merges `right`, the partial of the rows after those of `self`.
    ///
    /// # Panics
    /// When the two belong to different statistics.
    fn merge(&mut self, right: &Self);

    /// Whether both hold the same bits.
    fn same_bits(&self, other: &Self) -> bool;
}

/// A partial that can be copied, if there is memory for it.
pub trait TryClone: Sized {
    /// Returns a copy.
    ///
    /// # Errors
    /// `LimitExceeded` when memory runs out.
    fn try_clone(&self) -> Result<Self>;
}

/// A node's value on its way into a tree: a partial, or the checked bytes of one, which are not
/// copied.
pub trait Incoming<P> {
    /// Whether it holds the same bits as `present`, a partial in the tree.
    fn has_bits_of(&self, present: &P) -> bool;

    /// Merges with its sibling, with the sibling of their parent, and so on; without siblings it
    /// becomes a partial of its own. Siblings whose memory a later partial can use may go to
    /// `unused`.
    ///
    /// # Errors
    /// `LimitExceeded` when memory for a partial of its own runs out; never when there are
    /// siblings.
    fn join(self, siblings: Vec<(Node, P)>, unused: &mut Vec<P>) -> Result<P>;
}

impl<P: Partial> Incoming<P> for P {
    fn has_bits_of(&self, present: &P) -> bool {
        self.same_bits(present)
    }

    fn join(self, siblings: Vec<(Node, P)>, _: &mut Vec<P>) -> Result<P> {
        Ok(siblings.into_iter().fold(self, |own, (node, sibling)| {
            let (mut left, right) = if node.is_left() { (sibling, own) } else { (own, sibling) };
            left.merge(&right);
            left
        }))
    }
}

/// A statistic over rows: how a chunk becomes a partial, and a partial becomes bytes.
///
/// # Example
///
/// ```
/// use headwater::fold::{Distinct, Node, Rows, Statistic, Tree};
///
/// let statistic = Distinct::new(1, Distinct::PRECISION)?;
/// let rows = |values: &'static [f64]| Rows::new(values, values.len(), 1, 1);
/// let mut tree = Tree::new(2);
/// tree.insert(Node::leaf(1)?, statistic.leaf(&rows(&[2.0, 3.0])?)?)?;
/// tree.insert(Node::leaf(0)?, statistic.leaf(&rows(&[1.0, 2.0])?)?)?;
/// let whole = tree.finish()?.expect("two chunks");
/// assert_eq!(whole, statistic.leaf(&rows(&[1.0, 2.0, 2.0, 3.0])?)?);
/// assert_eq!(statistic.estimates(&whole)[0].round(), 3.0);
/// # Ok::<(), headwater::Error>(())
/// ```
///
/// # Determinism
/// A partial depends on the statistic and on the rows of its node alone: not on threads, on the
/// kind of processor, or on the caller's floating-point settings.
pub trait Statistic {
    /// The rows of one chunk, in the form that this statistic takes.
    type Chunk<'a>;
    /// The value over the rows of a node.
    type Partial: Partial;
    /// A partial that is read from bytes.
    type Incoming<'a>: Incoming<Self::Partial>;

    /// Returns the partial of one chunk.
    ///
    /// # Errors
    /// `InvalidArgument` when the chunk's shape is not the statistic's, and `LimitExceeded` when
    /// memory runs out.
    fn leaf(&self, chunk: &Self::Chunk<'_>) -> Result<Self::Partial>;

    /// Returns the number of bytes of every partial.
    fn partial_bytes(&self) -> usize;

    /// Appends the bytes of a partial, little endian.
    fn write(&self, partial: &Self::Partial, bytes: &mut Vec<u8>);

    /// Returns the bytes of a partial.
    fn encode(&self, partial: &Self::Partial) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.partial_bytes());
        self.write(partial, &mut bytes);
        bytes
    }

    /// Checks the bytes of a partial.
    ///
    /// # Errors
    /// `Corrupt` when [`Statistic::write`] cannot have written them.
    fn read<'a>(&self, bytes: &'a [u8]) -> Result<Self::Incoming<'a>>;

    /// Returns the partial of `bytes`.
    ///
    /// # Errors
    /// As [`Statistic::read`], and `LimitExceeded` when memory runs out.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Partial> {
        self.read(bytes)?.join(Vec::new(), &mut Vec::new())
    }

    /// Whether a partial is possible for this number of rows, as far as its values show.
    fn fits_rows(&self, _partial: &Self::Incoming<'_>, _rows: u64) -> bool {
        true
    }
}

/// Returns the partial of each chunk, each made by one thread of a pool.
///
/// # Errors
/// As [`Statistic::leaf`], with the index of the chunk.
pub fn leaves<'a, S>(
    statistic: &S,
    chunks: &[S::Chunk<'a>],
    threads: &ThreadPool,
) -> Result<Vec<S::Partial>>
where
    S: Statistic<Chunk<'a>: Sync, Partial: Send> + Sync,
{
    let places: Vec<_> = chunks.iter().enumerate().collect();
    let leaf = |(place, chunk)| statistic.leaf(chunk).map_err(|e| of_chunk(place, e));
    threads.install(|| places.par_iter().map(|&chunk| leaf(chunk)).collect())
}

/// Adds the index of the chunk to an error.
pub(super) fn of_chunk(place: usize, error: Error) -> Error {
    error.context(format!("chunks[{place}]"))
}

/// Checks the number of `what`.
pub(super) fn same_count(what: &str, expected: usize, found: usize) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::invalid(format!("expected {expected} {what}, found {found}")))
}

/// The only NaN that a partial holds.
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// Returns `value`, with every NaN replaced by one: processors differ in the NaN that they yield.
#[inline]
pub(super) fn canonical(value: f64) -> f64 {
    if value.is_nan() { NAN } else { value }
}

/// Adds `right` to `left`, element by element.
pub(super) fn add(left: &mut [f64], right: &[f64]) {
    assert_eq!(left.len(), right.len(), "partials of one statistic have one size");
    in_default_environment(|| add_each(left, right.iter().copied()));
}

/// [`add`], for a caller that is in the default environment already.
#[inline]
pub(super) fn add_each(left: &mut [f64], right: impl Iterator<Item = f64>) {
    for (left, right) in left.iter_mut().zip(right) {
        *left = canonical(*left + right);
    }
}

/// Whether both hold the same bits.
pub(super) fn same_bits(left: &[f64], right: &[f64]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(a, b)| a.to_bits() == b.to_bits())
}
