//! `Assignment`: the elements of one rank, by arithmetic on the index.

use crate::{Error, Result};

/// One rank among `world`: element i of every sequence belongs to rank i mod `world`.
///
/// # Determinism
/// Every element belongs to exactly one rank, and ranks differ by at most one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    rank: u64,
    world: u64,
}

impl Assignment {
    /// Returns the assignment of `rank` among `world` ranks.
    ///
    /// # Errors
    /// `InvalidArgument` unless `rank` is below `world`.
    pub fn new(rank: u64, world: u64) -> Result<Self> {
        if rank >= world {
            return Err(Error::invalid(format!(
                "expected a rank below the number of ranks, found rank {rank} of {world}; ranks \
                 count from 0, and a run on its own is rank 0 of 1"
            )));
        }
        Ok(Self { rank, world })
    }

    /// Returns this rank.
    #[must_use]
    pub fn rank(self) -> u64 {
        self.rank
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn world(self) -> u64 {
        self.world
    }

    /// Whether this rank owns element `index`.
    #[must_use]
    pub fn owns(self, index: u64) -> bool {
        index % self.world == self.rank
    }

    /// Returns how many of the first `count` elements this rank owns.
    #[must_use]
    pub fn owned_count(self, count: u64) -> u64 {
        count / self.world + u64::from(self.rank < count % self.world)
    }

    /// Returns the index of this rank's element number `ordinal`, counted from 0.
    ///
    /// # Errors
    /// `LimitExceeded` when the index passes 2^64 - 1.
    pub fn owned(self, ordinal: u64) -> Result<u64> {
        ordinal.checked_mul(self.world).and_then(|i| i.checked_add(self.rank)).ok_or_else(|| {
            Error::limit(format!(
                "element {ordinal} of rank {} of {} lies past the last index, 2^64 - 1",
                self.rank, self.world
            ))
        })
    }

    /// Returns the index in the whole sequence of row `row` of this rank's batch at `step`, when each
    /// rank takes `batch_size` rows a step.
    ///
    /// Global batch `step` is the `batch_size * world` elements from `step * batch_size * world`
    /// on; its rows go to the ranks in turn.
    ///
    /// # Errors
    /// `InvalidArgument` when `row` is not below `batch_size`, `LimitExceeded` when the index
    /// passes 2^64 - 1.
    pub fn position(self, step: u64, batch_size: u64, row: u64) -> Result<u64> {
        if row >= batch_size {
            return Err(Error::invalid(format!(
                "expected a row below the batch size {batch_size}, found row {row}"
            )));
        }
        let ordinal = step.checked_mul(batch_size).and_then(|o| o.checked_add(row));
        match ordinal {
            Some(ordinal) => self.owned(ordinal),
            None => Err(Error::limit(format!(
                "step {step} with {batch_size} rows a step lies past the end of the sequence, \
                 element 2^64 - 1 of a rank"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn ranks_out_of_range_are_rejected() {
        for (rank, world) in [(0, 0), (1, 1), (7, 3)] {
            let error = Assignment::new(rank, world).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(&format!("rank {rank} of {world}")), "{error}");
        }
    }

    #[test]
    fn indices_past_the_end_are_rejected_and_never_wrap() {
        let last = Assignment::new(2, 3).unwrap();
        assert_eq!(last.owned(u64::MAX / 3 - 1).unwrap(), u64::MAX - 1);
        assert_eq!(last.owned(u64::MAX / 3).unwrap_err().kind(), ErrorKind::LimitExceeded);
        for (step, size) in [(u64::MAX, 2), (1 << 63, 1 << 62), (u64::MAX / 3 + 1, 1)] {
            let error = last.position(step, size, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
        }
        let error = last.position(0, 4, 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
