//! Writes the groups of a task's seeds: their recorded splits, or the buckets that a hash gives them.

use rayon::prelude::*;

use crate::container::ContainerWriter;
use crate::error::Result;
use crate::plan::{SplitRule, bucket_of};
use crate::progress::Progress;
use crate::random::name_identity;
use crate::store::{GROUP_COUNTS, GROUPS, RUN, Table, group_count};

/// The number of runs of seeds that threads share, before they are written.
const RUNS_TOGETHER: usize = 64;

/// Puts seeds into buckets by the keys of their anchors.
pub(super) struct Buckets<'a> {
    task: u64,
    anchor: &'a Table,
}

impl<'a> Buckets<'a> {
    pub(super) fn new(task: &str, anchor: &'a Table) -> Self {
        Self { task: name_identity(task), anchor }
    }

    /// Returns the bucket of a seed in this row.
    pub(super) fn of(&self, row: u32) -> Result<u16> {
        let key = self.anchor.identity(row)?;
        Ok(bucket_of(SplitRule::DEFAULT_SEED, self.task, key) as u16)
    }
}

/// Writes the groups of the seeds to the file of their task. `group_of` returns the recorded split or the
/// bucket of a seed, and whether it has no target.
///
/// # Cost
/// Memory of half a byte for each seed in a bucket.
pub(super) fn write(
    file: &mut ContainerWriter,
    seed_count: u32,
    records_split: bool,
    progress: &dyn Progress,
    group_of: impl Fn(u32) -> Result<(u16, bool)> + Sync,
) -> Result<()> {
    let width = group_count(records_split);
    let run_count = (seed_count as usize).div_ceil(RUN);
    let of_run = |run: usize| -> Result<(Vec<u16>, Vec<u16>)> {
        let seeds = run * RUN..(run * RUN + RUN).min(seed_count as usize);
        let mut groups = Vec::with_capacity(seeds.len());
        let mut counts = vec![0; usize::from(width) * 2];
        for seed in seeds {
            let (group, is_null) = group_of(seed as u32)?;
            let group = if is_null { width + group } else { group };
            counts[usize::from(group)] += 1;
            groups.push(group);
        }
        Ok((groups, counts))
    };
    file.begin(GROUPS)?;
    let mut all_counts = Vec::new();
    for first in (0..run_count).step_by(RUNS_TOGETHER) {
        let runs = first..run_count.min(first + RUNS_TOGETHER);
        progress.advance((runs.len() * RUN) as u64)?;
        for (groups, counts) in runs.into_par_iter().map(of_run).collect::<Result<Vec<_>>>()? {
            file.write(bytemuck::cast_slice(&groups))?;
            all_counts.extend(counts);
        }
    }
    file.section(GROUP_COUNTS, &all_counts)
}
