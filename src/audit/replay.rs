//! Replays seeds on copies of the store in which all that comes later, or the label, is different: no
//! other byte of a sequence may change.

use std::sync::Arc;

use super::predictors::Sample;
use crate::error::Result;
use crate::plan::Assignment;
use crate::sampler::{Aggregates, Batch, Sampler, Settings, Shape, Speed, Texts};
use crate::store::{Change, SEES_EVERYTHING, Store};

/// The most times after which everything is changed, and the most labels of a task in cells.
const MOMENTS: usize = 8;
/// The most seeds of a task that are replayed at one of these times.
const SEEDS: usize = 64;

/// What the replay of one task showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Replayed {
    /// The seeds that were replayed with later data changed.
    pub seeds: usize,
    /// Those of them that were observed at the very time after which everything was changed.
    pub exact: usize,
    /// The seeds whose label was changed.
    pub labels: usize,
    /// The seeds whose sequences changed, and the tensors that differ.
    pub different: Vec<(u32, Vec<String>)>,
}

/// Returns the number of steps of [`replay`].
pub(super) fn step_count(samples: &[Sample<'_>]) -> u64 {
    (MOMENTS + 1 + MOMENTS * samples.iter().filter(|sample| sample.is_cell()).count()) as u64
}

/// Replays up to `limit` seeds of each task; returns what each showed.
pub(super) fn replay(
    store: &Arc<Store>,
    samples: &[Sample<'_>],
    limit: u32,
    advance: &dyn Fn(u64) -> Result<()>,
) -> Result<Vec<Replayed>> {
    let mut tasks =
        samples.iter().map(|sample| Replay::of(store, sample)).collect::<Result<Vec<_>>>()?;
    let width = SEEDS.min((limit as usize).div_ceil(MOMENTS));
    let (moments, mut random_seed) = (moments(samples), 0);
    // Of each task the last seeds up to a time; of those that see everything the label alone.
    for after in moments.into_iter().chain([SEES_EVERYTHING]) {
        let ready: Vec<_> = tasks.iter_mut().filter_map(|task| task.next(after, width)).collect();
        if !ready.is_empty() {
            random_seed += 1;
            let (changed, rows) = store.changed(&Change::Later { after }, random_seed)?;
            let changed = Arc::new(changed);
            for (task, seeds) in ready {
                task.compare(&changed, &seeds)?;
                if rows > 0 {
                    task.shown.seeds += seeds.len();
                    task.shown.exact += seeds
                        .iter()
                        .filter(|&&seed| task.sample.seeds[seed].obs_time == after)
                        .count();
                }
                if !task.sample.is_cell() {
                    task.shown.labels += seeds.len();
                }
            }
        }
        advance(1)?;
    }
    // A label in a cell: of one seed at a time, because others may see it.
    for task in tasks.iter_mut().filter(|task| task.sample.is_cell()) {
        let count = task.sample.seeds.len();
        for part in 1..=MOMENTS.min(count) {
            let seed = count * part / MOMENTS.min(count) - 1;
            random_seed += 1;
            let change = Change::Cells {
                table: task.sample.anchor,
                row: task.sample.seeds[seed].row,
                columns: &task.sample.hidden,
            };
            let (changed, _) = store.changed(&change, random_seed)?;
            task.compare(&Arc::new(changed), &[seed])?;
            task.shown.labels += 1;
            advance(1)?;
        }
    }
    Ok(tasks.into_iter().map(|task| task.shown).collect())
}

/// Returns times at which seeds are observed, of each task about as many.
fn moments(samples: &[Sample<'_>]) -> Vec<i64> {
    // The last of each eighth.
    let eighths = |times: &[i64]| -> Vec<i64> {
        let last = |part: usize| Some(times[(times.len() * part / MOMENTS).checked_sub(1)?]);
        (1..=MOMENTS).filter_map(last).collect()
    };
    let of_task = |sample: &Sample<'_>| {
        let times = sample.seeds.iter().map(|seed| seed.obs_time);
        eighths(&times.filter(|&time| time != SEES_EVERYTHING).collect::<Vec<_>>())
    };
    let mut times: Vec<i64> = samples.iter().flat_map(of_task).collect();
    times.sort_unstable();
    let mut moments = eighths(&times);
    moments.dedup();
    moments
}

/// The replay of one task.
struct Replay<'a> {
    sample: &'a Sample<'a>,
    settings: Settings,
    original: Sampler,
    /// The number of seeds before the next ones.
    done: usize,
    shown: Replayed,
}

impl<'a> Replay<'a> {
    fn of(store: &Arc<Store>, sample: &'a Sample<'a>) -> Result<Self> {
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
        let original = open(store, &settings)?;
        Ok(Self { sample, settings, original, done: 0, shown: Replayed::default() })
    }

    /// Returns the next seeds observed by `after`, the last `width` of them.
    fn next(&mut self, after: i64, width: usize) -> Option<(&mut Self, Vec<usize>)> {
        let end = self.sample.seeds.partition_point(|seed| seed.obs_time <= after);
        let first = self.done.max(end.saturating_sub(width));
        self.done = end;
        // Nothing is later than a seed that sees everything, and the label of a cell is changed alone.
        let is_nothing_changed = after == SEES_EVERYTHING && self.sample.is_cell();
        (first < end && !is_nothing_changed).then(|| (self, (first..end).collect()))
    }

    /// Compares the sequences of some seeds of the sample on both stores.
    fn compare(&mut self, changed: &Arc<Store>, seeds: &[usize]) -> Result<()> {
        let seeds: Vec<u32> = seeds.iter().map(|&seed| self.sample.seed_indices[seed]).collect();
        let batches = [
            self.original.batch_of_seeds(&self.sample.task, &seeds)?,
            open(changed, &self.settings)?.batch_of_seeds(&self.sample.task, &seeds)?,
        ];
        self.shown.different.extend(differences(&seeds, &batches));
        Ok(())
    }
}

fn open(store: &Arc<Store>, settings: &Settings) -> Result<Sampler> {
    let speed = Speed { threads: None, prefetch: 0 };
    Sampler::new(vec![Arc::clone(store)], settings.clone(), Assignment::new(0, 1)?, speed)
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
