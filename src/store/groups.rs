//! `Groups`: in which part of a task each seed is, so that nobody hashes all seeds to find its splits.

use std::ops::Range;

use crate::container::{Container, Section};
use crate::error::Result;
use crate::plan::{Split, SplitRatios};

/// The number of seeds that are counted together: their groups are one block of the file.
pub(crate) const RUN: usize = 8 * 1024;

/// The section with the group of each seed.
pub(crate) const GROUPS: &str = "groups";
/// The section that has, for each run of seeds, how many are in each group.
pub(crate) const GROUP_COUNTS: &str = "group_counts";

/// Returns the number of groups that a task's seeds with a target can be in: the splits, where they are
/// recorded, or the buckets of the split rule. Seeds without a target are in as many further groups.
pub(crate) fn group_count(records_split: bool) -> u16 {
    if records_split { Split::ALL.len() as u16 } else { SplitRatios::BUCKETS as u16 }
}

/// The groups of a task's seeds.
pub(crate) struct Groups {
    seed_count: u32,
    group_count: u16,
    of_seeds: Section,
    counts: Section,
}

/// Some of the groups: of seeds with a target, and of seeds without one.
#[derive(Clone, Debug)]
pub(crate) struct Wanted([Range<u16>; 2]);

impl Groups {
    pub(super) fn open(
        container: &Container,
        seed_count: u32,
        records_split: bool,
    ) -> Result<Self> {
        let group_count = group_count(records_split);
        let (seeds, runs) = (u64::from(seed_count), u64::from(seed_count).div_ceil(RUN as u64));
        Ok(Self {
            seed_count,
            group_count,
            of_seeds: container.section(GROUPS, seeds * 2)?,
            counts: container.section(GROUP_COUNTS, runs * u64::from(group_count) * 2 * 2)?,
        })
    }

    /// Returns the groups of a split, without the seeds that have no target if `require_label`.
    pub(crate) fn of_split(
        &self,
        split: Split,
        ratios: SplitRatios,
        require_label: bool,
    ) -> Wanted {
        let labelled = match self.group_count == group_count(true) {
            true => split as u16..split as u16 + 1,
            false => ratios.buckets(split),
        };
        let first = self.group_count;
        let others = match require_label {
            true => first..first,
            false => first + labelled.start..first + labelled.end,
        };
        Wanted([labelled, others])
    }

    /// Returns the number of runs of seeds.
    pub(crate) fn run_count(&self) -> usize {
        (self.seed_count as usize).div_ceil(RUN)
    }

    /// Returns how many seeds of a run are in the wanted groups.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub(crate) fn count(&self, run: usize, wanted: &Wanted) -> Result<u32> {
        let counts_of_run = usize::from(self.group_count) * 2;
        let mut count = 0;
        for groups in &wanted.0 {
            let first = run * counts_of_run + usize::from(groups.start);
            let counts = self.counts.slice::<u16>(first, groups.len())?;
            count += counts.iter().map(|&count| u32::from(count)).sum::<u32>();
        }
        Ok(count)
    }

    /// Returns the groups of the seeds of a run.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub(crate) fn of_run(&self, run: usize) -> Result<&[u16]> {
        let seeds = run * RUN..(run * RUN + RUN).min(self.seed_count as usize);
        self.of_seeds.slice(seeds.start, seeds.len())
    }

    /// Returns the group of a seed.
    ///
    /// # Errors
    /// `Corrupt` when damaged, or when there is no such seed.
    pub(crate) fn of_seed(&self, seed_index: u32) -> Result<u16> {
        self.of_seeds.value(seed_index as usize)
    }

    /// The error of a run whose groups are not those that were counted.
    pub(crate) fn miscounted(&self, run: usize) -> crate::error::Error {
        self.of_seeds.corrupt(format!(
            "the groups of the seeds from {} on are not those that {GROUP_COUNTS:?} has; prepare the store \
             again",
            run * RUN
        ))
    }
}

impl Wanted {
    /// Whether a group is among these.
    #[inline]
    pub(crate) fn contains(&self, group: u16) -> bool {
        // Without branches, so that many groups are compared at once.
        let [labelled, others] = &self.0;
        let is_in = |groups: &Range<u16>| group.wrapping_sub(groups.start) < groups.len() as u16;
        is_in(labelled) | is_in(others)
    }
}
