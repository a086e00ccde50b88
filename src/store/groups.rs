//! `Groups`: in which part of a task each seed is, so that nobody hashes all seeds to find its splits.

use std::ops::Range;

use crate::container::{Container, Section};
use crate::error::{Error, Result};
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
pub(crate) struct GroupSet([Range<u16>; 2]);

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
    ) -> GroupSet {
        let labelled = match self.group_count == group_count(true) {
            true => split as u16..split as u16 + 1,
            false => ratios.buckets(split),
        };
        let first = self.group_count;
        let others = match require_label {
            true => first..first,
            false => first + labelled.start..first + labelled.end,
        };
        GroupSet([labelled, others])
    }

    /// Returns the number of runs of seeds.
    pub(crate) fn run_count(&self) -> usize {
        (self.seed_count as usize).div_ceil(RUN)
    }

    /// Checks that the counts of each run add up to its seeds, so that no seed is left out by a wrong count.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub(crate) fn check_counts(&self) -> Result<()> {
        let all = GroupSet([0..self.group_count, self.group_count..2 * self.group_count]);
        for run in 0..self.run_count() {
            let (counted, seeds) = (self.count(run, &all)?, self.seeds_of(run).len());
            if counted as usize != seeds {
                return Err(self.counts.corrupt(format!(
                    "expected counts that add up to the {seeds} seeds from {} on, found {counted}",
                    run * RUN
                )));
            }
        }
        Ok(())
    }

    /// Checks the group of every seed against the counts.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub(super) fn verify(&self) -> Result<()> {
        let mut counted = vec![0_u16; usize::from(self.group_count) * 2];
        for run in 0..self.run_count() {
            counted.fill(0);
            for (seed, &group) in self.seeds_of(run).zip(self.of_run(run)?) {
                let count = counted.get_mut(usize::from(group));
                *count.ok_or_else(|| self.no_such_group(seed as u32, group))? += 1;
            }
            if *self.counts.slice::<u16>(run * counted.len(), counted.len())? != counted {
                return Err(self.miscounted(run));
            }
        }
        Ok(())
    }

    /// Reads the groups of a run ahead, if memory does not hold the store.
    pub(crate) fn read_ahead(&self, run: usize) {
        let seeds = self.seeds_of(run);
        self.of_seeds.read_ahead(seeds.start * 2, seeds.len() * 2);
    }

    fn seeds_of(&self, run: usize) -> Range<usize> {
        run * RUN..(run * RUN + RUN).min(self.seed_count as usize)
    }

    /// Returns how many seeds of a run are in the wanted groups.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub(crate) fn count(&self, run: usize, wanted: &GroupSet) -> Result<u32> {
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
        let seeds = self.seeds_of(run);
        self.of_seeds.slice(seeds.start, seeds.len())
    }

    /// Returns the group of a seed.
    ///
    /// # Errors
    /// `Corrupt` when damaged, or when there is no such seed.
    pub(crate) fn of_seed(&self, seed_index: u32) -> Result<u16> {
        let group = self.of_seeds.value(seed_index as usize)?;
        match group < 2 * self.group_count {
            true => Ok(group),
            false => Err(self.no_such_group(seed_index, group)),
        }
    }

    /// The error of a run whose groups are not those that were counted.
    pub(crate) fn miscounted(&self, run: usize) -> Error {
        self.of_seeds.corrupt(format!(
            "the groups of the seeds from {} on are not those that {GROUP_COUNTS:?} has",
            run * RUN
        ))
    }

    fn no_such_group(&self, seed_index: u32, group: u16) -> Error {
        self.of_seeds.corrupt(format!(
            "seed {seed_index}: expected a group below {}, found {group}",
            2 * self.group_count
        ))
    }
}

impl GroupSet {
    /// Whether a group is among these.
    #[inline]
    pub(crate) fn contains(&self, group: u16) -> bool {
        // Without branches, so that many groups are compared at once.
        let [labelled, others] = &self.0;
        let is_in = |groups: &Range<u16>| group.wrapping_sub(groups.start) < groups.len() as u16;
        is_in(labelled) | is_in(others)
    }
}

#[cfg(all(test, feature = "prepare"))]
mod tests {
    use super::*;
    use crate::container::ContainerWriter;

    /// Seeds of a task that records its splits, more than one run of them.
    fn groups() -> Vec<u16> {
        (0..RUN as u16 + 10).map(|seed| seed % 6).collect()
    }

    /// How many seeds of each run are in each group.
    fn counts(groups: &[u16]) -> Vec<u16> {
        let of_run = |run: &[u16]| {
            [0, 1, 2, 3, 4, 5].map(|group| run.iter().filter(|&&of| of == group).count() as u16)
        };
        groups.chunks(RUN).flat_map(of_run).collect()
    }

    fn opened(groups: &[u16], counts: &[u16]) -> Groups {
        let folder = tempfile::TempDir::new().unwrap();
        let mut file = ContainerWriter::create(folder.path(), "task.bin").unwrap();
        file.section(GROUPS, groups).unwrap();
        file.section(GROUP_COUNTS, counts).unwrap();
        file.finish().unwrap();
        let container = Container::open(&folder.path().join("task.bin")).unwrap();
        Groups::open(&container, groups.len() as u32, true).unwrap()
    }

    fn message(result: Result<impl Sized>) -> String {
        let error = result.err().unwrap();
        assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
        error.to_string()
    }

    #[test]
    fn p6_groups_that_are_not_those_that_were_counted_are_found() {
        let groups = groups();
        for sound in [&groups[..], &groups[..1], &[]] {
            let opened = opened(sound, &counts(sound));
            opened.check_counts().unwrap();
            opened.verify().unwrap();
        }
        // Counts of too few and of too many seeds.
        for change in [-1, 1] {
            let mut wrong = counts(&groups);
            wrong[7] = wrong[7].wrapping_add_signed(change);
            let opened = opened(&groups, &wrong);
            let found = message(opened.check_counts());
            assert!(found.contains("add up to the 10 seeds from 8192 on, found"), "{found}");
            assert!(message(opened.verify()).contains("from 8192 on are not those that"));
        }
        // The number of seeds is right, their groups are not.
        let mut wrong = groups.clone();
        wrong[3] = 5;
        let changed = opened(&wrong, &counts(&groups));
        changed.check_counts().unwrap();
        assert!(
            message(changed.verify()).contains("from 0 on are not those that \"group_counts\"")
        );
        wrong[3] = 6;
        let changed = opened(&wrong, &counts(&groups));
        let expected = "seed 3: expected a group below 6, found 6; copy the store again";
        assert!(message(changed.verify()).contains(expected));
        assert!(message(changed.of_seed(3)).contains(expected));
    }
}
