//! The slices that Burn cuts a loader into, one for each device.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use headwater::plan::Assignment;
use headwater::{Error, Result};

use crate::batch::GraphBatch;

/// The most devices whose slices are told apart.
const DEVICES_MAX: u64 = 64;

/// One of several equal parts of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub number: u64,
    pub count: u64,
}

impl Part {
    /// Returns the part whose slice of `items` is `start..end`.
    ///
    /// Burn says where a slice lies, not how many there are: slice r of W begins at r floor(N / W), and the
    /// last one takes what is left. So the count is found by trying.
    pub(crate) fn of_slice(items: u64, start: u64, end: u64) -> Result<Self> {
        let is_slice = |part: &Self| {
            let each = items / part.count;
            let is_last = part.number + 1 == part.count;
            each > 0
                && start == part.number * each
                && end == if is_last { items } else { start + each }
        };
        let part = |count: u64| {
            let each = (items / count).max(1);
            Self { number: (start / each).min(count - 1), count }
        };
        let mut found = (1..=DEVICES_MAX).map(part).filter(is_slice);
        match (found.next(), found.next()) {
            (Some(part), None) => Ok(part),
            (None, _) => Err(Error::invalid(format!(
                "expected a slice as split_dataloader cuts {items} seeds for at most {DEVICES_MAX} devices, \
                 found {start}..{end}; give each device a loader of its own, with Assignment::new(rank, \
                 devices)"
            ))),
            (Some(one), Some(other)) => Err(Error::invalid(format!(
                "expected a slice of one number of devices, found {start}..{end} of {items} seeds, which is \
                 one of {} and of {}; use fewer devices, or give each a loader of its own, with \
                 Assignment::new(rank, devices)",
                one.count, other.count
            ))),
        }
    }

    /// Returns the rank of this part of a rank: the parts of rank r of W take its elements in turn.
    pub(crate) fn of_rank(self, rank: Assignment) -> Result<Assignment> {
        Assignment::new(rank.rank() + self.number * rank.world(), rank.world() * self.count)
    }
}

/// Returns a slice, or a loader that says why there is none.
pub(crate) fn or_refused<L: DataLoader<GraphBatch> + 'static>(
    slice: Result<L>,
) -> Arc<dyn DataLoader<GraphBatch>> {
    match slice {
        Ok(slice) => Arc::new(slice),
        Err(error) => Arc::new(Refused(Arc::new(error))),
    }
}

/// A loader that only says why it has no batches, because Burn's slices cannot fail.
#[derive(Clone)]
struct Refused(Arc<Error>);

impl DataLoader<GraphBatch> for Refused {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<GraphBatch> + 'a> {
        Box::new(RefusedOnce(Some(Error::new(self.0.kind(), self.0.to_string()))))
    }

    fn num_items(&self) -> usize {
        0
    }

    fn to_device(&self, _: &Device) -> Arc<dyn DataLoader<GraphBatch>> {
        Arc::new(self.clone())
    }

    fn slice(&self, _: usize, _: usize) -> Arc<dyn DataLoader<GraphBatch>> {
        Arc::new(self.clone())
    }
}

/// An iterator of one error.
pub(crate) struct RefusedOnce(pub Option<Error>);

impl Iterator for RefusedOnce {
    type Item = Result<GraphBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(|error| Err(DatasetError::new(error)))
    }
}

impl DataLoaderIterator<GraphBatch> for RefusedOnce {
    fn progress(&self) -> Progress {
        progress(0, 0)
    }
}

/// Returns the progress of an epoch of `items` seeds.
pub(crate) fn progress(done: u64, items: u64) -> Progress {
    Progress::new(done as usize, items as usize, Some("seeds".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slices of `split_dataloader`, in its own words.
    fn slices(items: u64, devices: u64) -> impl Iterator<Item = (u64, u64)> {
        let each = items / devices;
        (0..devices).map(move |r| (r * each, if r + 1 == devices { items } else { (r + 1) * each }))
    }

    #[test]
    fn slices_of_enough_seeds_tell_the_number_of_devices() {
        for items in [720, 721, 839, 1000, 12_345, 1 << 40] {
            for count in 1..=8 {
                for (number, (start, end)) in (0..).zip(slices(items, count)) {
                    let found = Part::of_slice(items, start, end).unwrap();
                    assert_eq!(found, Part { number, count }, "{start}..{end} of {items}");
                }
            }
        }
    }

    #[test]
    fn slices_that_no_split_cuts_are_refused() {
        for (start, end) in [(0, 1), (1, 1000), (500, 400), (10, 10), (0, 2000), (250, 501)] {
            let error = Part::of_slice(1000, start, end).unwrap_err().to_string();
            assert!(error.contains(&format!("{start}..{end}")), "{error}");
        }
        assert!(Part::of_slice(0, 0, 0).is_err());
        // The last of 7 and the last of 8.
        let error = Part::of_slice(100, 84, 100).unwrap_err().to_string();
        assert!(error.contains("one of 7 and of 8"), "{error}");
    }

    #[test]
    fn parts_of_all_ranks_are_the_ranks_of_a_larger_world() {
        let mut ranks = Vec::new();
        for rank in 0..3 {
            for number in 0..4 {
                let part = Part { number, count: 4 };
                let own = part.of_rank(Assignment::new(rank, 3).unwrap()).unwrap();
                assert_eq!((own.rank() % 3, own.world()), (rank, 12));
                ranks.push(own.rank());
            }
        }
        ranks.sort_unstable();
        assert_eq!(ranks, (0..12).collect::<Vec<_>>());
    }
}
