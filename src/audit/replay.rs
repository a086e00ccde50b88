//! Replays seeds on a store in which all that comes later, and the label, is different: no other byte
//! of a sequence may change.

use std::sync::Arc;

use super::predictors::Sample;
use crate::error::{Error, Result};
use crate::plan::Assignment;
use crate::sampler::{Aggregates, Batch, Sampler, Settings, Shape, Speed, Texts};
use crate::store::{Change, NEVER_VISIBLE, Store};

/// The number of times after which everything is changed.
pub(super) const MOMENTS: usize = 8;
/// The most seeds that are replayed at one of these times.
const SEEDS: usize = 64;

/// What a replay showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Replayed {
    pub seeds: usize,
    pub moments: usize,
    /// The seeds whose sequences changed, and the tensors that differ.
    pub different: Vec<(u32, Vec<String>)>,
}

/// Replays the seeds of a sample, which are sorted by time; `seed_indices` are their numbers.
pub(super) fn replay(
    store: &Arc<Store>,
    sample: &Sample<'_>,
    seed_indices: &[u32],
    advance: &dyn Fn(u64) -> Result<()>,
) -> Result<Replayed> {
    let settings = Settings {
        tasks: Some(vec![sample.task.clone()]),
        aggregates: Aggregates::All,
        shape: Shape {
            batch_size: SEEDS as u32,
            compact: true,
            texts: Texts::Global,
            ..Settings::default().shape
        },
        ..Settings::default()
    };
    let speed = Speed { threads: None, prefetch: 0 };
    let open = |store: &Arc<Store>| {
        Sampler::new(vec![Arc::clone(store)], settings.clone(), Assignment::new(0, 1)?, speed)
    };
    let original = open(store)?;
    let mut replayed = Replayed::default();
    let count = sample.seeds.len();
    let mut from = 0;
    for moment in 1..=MOMENTS {
        // The last seed of each eighth, and those before it.
        let end = count * moment / MOMENTS;
        let first = from.max(end.saturating_sub(SEEDS));
        from = end;
        if first < end {
            let last = &sample.seeds[end - 1];
            let after = last.obs_time.min(NEVER_VISIBLE);
            let replay = |own, seeds| {
                let change = Change { after, own, seed: moment as u64 };
                let changed = open(&Arc::new(store.changed(&change)?))?;
                let batches = [
                    original.batch_of_seeds(&sample.task, seeds)?,
                    changed.batch_of_seeds(&sample.task, seeds)?,
                ];
                Ok::<_, Error>(differences(seeds, &batches))
            };
            let seeds = &seed_indices[first..end];
            replayed.different.extend(replay(None, seeds)?);
            // The label in a cell: of one seed alone, because others may see it.
            if !sample.hidden.is_empty() {
                let own = Some((sample.anchor, last.row, &sample.hidden[..]));
                replayed.different.extend(replay(own, &seeds[seeds.len() - 1..])?);
            }
            replayed.seeds += seeds.len();
            replayed.moments += 1;
        }
        advance(1)?;
    }
    Ok(replayed)
}

/// Returns the seeds whose sequences differ beside the label, and the names of the tensors.
fn differences(seeds: &[u32], [a, b]: &[Batch; 2]) -> Vec<(u32, Vec<String>)> {
    let positions = [a, b].map(|batch| batch.get::<i32>("target_pos").unwrap_or_default());
    let sequences = positions[0].len().max(1);
    let cells = a.get::<i8>("semantic_types").unwrap_or_default().len() / sequences;
    let mut different = Vec::new();
    for (place, &seed) in seeds.iter().enumerate() {
        let mut names = Vec::new();
        for ((tensor, of_a), (_, of_b)) in a.tensors().zip(b.tensors()) {
            // The tensors of the batch as a whole are those of the task.
            if tensor.shape[0] != sequences {
                continue;
            }
            let width = of_a.len() / sequences;
            let [mut of_a, mut of_b] =
                [of_a, of_b].map(|all| all[place * width..][..width].to_vec());
            if tensor.shape.get(1) == Some(&cells) {
                // The label is the content of the target's cell.
                let each = width / cells;
                let at = positions[0][place].max(0) as usize * each;
                of_a[at..at + each].fill(0);
                of_b[at..at + each].fill(0);
            }
            if of_a != of_b {
                names.push(tensor.name.to_owned());
            }
        }
        if !names.is_empty() {
            different.push((seed, names));
        }
    }
    different
}
