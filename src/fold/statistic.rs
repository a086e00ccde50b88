//! What everything that is folded over rows has in common.

use rayon::ThreadPool;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::error::{Error, Result};

use super::control;
use super::node::Node;

/// What is known of the rows of one node of the tree.
pub trait Partial {
    /// Takes in `right`, the partial of the rows that follow those of `self`.
    ///
    /// # Panics
    /// When the two are of different statistics.
    fn merge(&mut self, right: &Self);

    /// Whether both hold the same bits.
    fn same_bits(&self, other: &Self) -> bool;
}

/// A partial that can be copied, or there is no memory for it.
pub trait Copied: Sized {
    /// The same once more.
    ///
    /// # Errors
    /// `LimitExceeded` when there is no memory for it.
    fn copied(&self) -> Result<Self>;
}

/// What comes to a tree: a partial, or the bytes of one that were looked through and lie where they are.
pub trait Arrival<P> {
    /// Whether it holds the same bits as one that is there.
    fn has_bits_of(&self, held: &P) -> bool;

    /// Merges with its sibling, with the sibling of the node that they make, and so on; becomes a partial
    /// of its own where there is none. What is left of `siblings`, and holds memory for a later one, may
    /// go to `spent`.
    ///
    /// # Errors
    /// `LimitExceeded` when there is no memory for one of its own, never where there are siblings.
    fn join(self, siblings: Vec<(Node, P)>, spent: &mut Vec<P>) -> Result<P>;
}

impl<P: Partial> Arrival<P> for P {
    fn has_bits_of(&self, held: &P) -> bool {
        self.same_bits(held)
    }

    fn join(self, siblings: Vec<(Node, P)>, _: &mut Vec<P>) -> Result<P> {
        Ok(siblings.into_iter().fold(self, |own, (node, sibling)| {
            let (mut left, right) = if node.is_left() { (sibling, own) } else { (own, sibling) };
            left.merge(&right);
            left
        }))
    }
}

/// A statistic over rows: how a chunk becomes a partial, and a partial bytes.
///
/// # Determinism
/// A partial depends on the statistic and on the rows of its node, on nothing else: not on threads,
/// on the kind of processor or on the way in which its caller has set the processor's arithmetic.
pub trait Statistic {
    /// The rows of one chunk, as this statistic wants them.
    type Chunk<'a>;
    /// What is known of the rows of a node.
    type Partial: Partial;
    /// A partial that comes as bytes.
    type Arrived<'a>: Arrival<Self::Partial>;

    /// The partial of one chunk.
    ///
    /// # Errors
    /// `InvalidArgument` when the chunk has not the form that the statistic was made for, and
    /// `LimitExceeded` when memory is not to be had.
    fn leaf(&self, chunk: &Self::Chunk<'_>) -> Result<Self::Partial>;

    /// How many bytes every partial has.
    fn partial_bytes(&self) -> usize;

    /// Appends the bytes of a partial, little endian.
    fn write(&self, partial: &Self::Partial, bytes: &mut Vec<u8>);

    /// The bytes of a partial, by themselves.
    fn encode(&self, partial: &Self::Partial) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.partial_bytes());
        self.write(partial, &mut bytes);
        bytes
    }

    /// Looks through the bytes of a partial.
    ///
    /// # Errors
    /// `Corrupt` when [`Statistic::write`] cannot have written them.
    fn read<'a>(&self, bytes: &'a [u8]) -> Result<Self::Arrived<'a>>;

    /// The partial of `bytes`.
    ///
    /// # Errors
    /// As [`Statistic::read`], and `LimitExceeded` when memory is not to be had.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Partial> {
        self.read(bytes)?.join(Vec::new(), &mut Vec::new())
    }

    /// Whether what arrived can be of so many rows, as far as it tells.
    fn can_be_of(&self, _arrived: &Self::Arrived<'_>, _rows: u64) -> bool {
        true
    }
}

/// The partial of each chunk, each made by one of the threads of a pool.
///
/// # Errors
/// As [`Statistic::leaf`], with the place of the chunk among them.
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

/// The error of one of the chunks that were given together.
pub(super) fn of_chunk(place: usize, error: Error) -> Error {
    error.context(format!("chunk {place}"))
}

/// Refuses another number of `what` than `expected`.
pub(super) fn same_count(what: &str, expected: usize, found: usize) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::invalid(format!("expected {expected} {what}, found {found}")))
}

/// The bits of the only NaN that a partial holds.
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// `value`, and of all NaN the same one: which of several a processor yields is its own affair.
#[inline]
pub(super) fn canonical(value: f64) -> f64 {
    if value.is_nan() { NAN } else { value }
}

/// Adds `right` to `left`, element by element.
pub(super) fn add(left: &mut [f64], right: &[f64]) {
    assert_eq!(left.len(), right.len(), "partials of one statistic have one size");
    control::in_default_environment(|| add_each(left, right.iter().copied()));
}

/// [`add`], within the environment that it is defined by.
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
