//! The sampler's promises, over random databases, settings and histories.

#[path = "../shared/allocations.rs"]
mod allocations;
mod audit;
mod bad_input;
mod cases;
mod compact;
mod contexts;
#[allow(dead_code, reason = "the tests of the store read the rows themselves, too")]
#[path = "../shared/database.rs"]
mod database;
mod f1db;
#[path = "../shared/f1db.rs"]
mod f1db_files;
mod history;
mod int8;
mod known;
mod labels;
mod leak;
mod lengths;
mod masks;
mod passes;
mod perturbed;
mod pools;
#[path = "../shared/random.rs"]
mod random;
mod resume;
#[path = "../shared/resume_cost.rs"]
mod resume_cost;
mod same_bits;
mod several_databases;
mod splits;
mod staleness;
#[path = "../shared/stores.rs"]
mod stores;
mod summaries;
mod twin;
mod uniform;

use std::sync::Arc;

use headwater::plan::{Assignment, Cursor, Split, SplitRatios, SplitRule};
use headwater::prepare::schema::Delay;
use headwater::random::{Purpose, Stream};
use headwater::sampler::{
    Aggregates, Batch, Children, RowOrder, Sampler, Settings, Shape, Speed, Texts, Walk,
};
use headwater::store::Store;

/// A random database whose rows are the same for the same seed.
fn random_store(seed: u64) -> (tempfile::TempDir, Arc<Store>) {
    let mut database = random::database(seed, 4, 60);
    list_some_labels(&mut database);
    let (folder, store) = stores::store_of(&database, &[usize::MAX]);
    (folder, Arc::new(store))
}

/// Gives tasks a horizon where each seed has an observation time: their labels are rows of a table.
fn list_some_labels(database: &mut database::Database) {
    for (task, days) in database.schema.tasks.iter_mut().zip([100, 1, 2_000].into_iter().cycle()) {
        let Some(derived) = &mut task.derived else { continue };
        let data = &database.data[derived.source.as_ref().unwrap()];
        let (_, times) = data.iter().find(|(name, _)| name == "at").unwrap();
        if times.iter().all(|time| *time != database::Value::Null) {
            derived.horizon = Some(Delay(days * 86_400_000_000));
            task.sees_everything = false;
        }
    }
}

/// The first random databases that have a task with seeds in every split.
fn random_stores(count: usize) -> Vec<(tempfile::TempDir, Arc<Store>)> {
    let is_rich = |store: &Arc<Store>| {
        let sampler = sampler(store, &small(1), (0, 1), Speed::default());
        sampler.is_ok_and(|sampler| {
            Split::ALL.into_iter().all(|split| sampler.seed_count(0, split) > 0)
        })
    };
    (0..).map(random_store).filter(|(_, store)| is_rich(store)).take(count).collect()
}

fn sampler(
    store: &Arc<Store>,
    settings: &Settings,
    rank: (u64, u64),
    speed: Speed,
) -> headwater::Result<Sampler> {
    several(std::slice::from_ref(store), settings, rank, speed)
}

fn several(
    stores: &[Arc<Store>],
    settings: &Settings,
    (rank, world): (u64, u64),
    speed: Speed,
) -> headwater::Result<Sampler> {
    let assignment = Assignment::new(rank, world)?;
    Sampler::new(stores.to_vec(), settings.clone(), assignment, speed)
}

/// Returns small settings that vary with `seed`.
fn small(seed: u64) -> Settings {
    let mut random = Stream::new(seed, Purpose::Split, [0x5e77, 0, 0]);
    let mut one_of = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
    let children = [Children::Uniform, Children::Latest][one_of(&[0, 0, 1]) as usize];
    let child_width = one_of(&[1, 2, 3, 5, 16]);
    let (max_hops, budget) = (one_of(&[1, 2, 3]), one_of(&[1, 2, 4, 8]));
    let walk = match one_of(&[0, 0, 1]) {
        0 => Walk::Priority { child_width, children },
        _ => Walk::Breadth { max_hops, budget },
    };
    Settings {
        seed,
        split: SplitRule { seed: 3, ratios: SplitRatios::new(0.6, 0.2, 0.2).unwrap() },
        walk,
        keep_future_cells: one_of(&[0, 0, 1]) == 1,
        row_order: [RowOrder::Walk, RowOrder::CuthillMckee][one_of(&[0, 1]) as usize],
        shape: Shape {
            batch_size: one_of(&[1, 2, 3, 5]),
            sequence_length: one_of(&[16, 25, 40, 100]),
            sequence_buckets: Vec::new(),
            max_rows: one_of(&[1, 2, 4, 7, 30]),
            compact: false,
            permutations: true,
            texts: Texts::Batch(vec![]),
        },
        aggregates: Aggregates::ALL[one_of(&[0, 1, 2]) as usize],
        visible_until: [None, None, Some(0), Some(1_000_000_000_000_000)]
            [one_of(&[0, 1, 2, 3]) as usize],
        ..Settings::default()
    }
}

/// Makes every batch on request, on one thread.
const PLAIN: Speed = Speed { threads: Some(1), prefetch: 0 };

/// Tensors that belong to a batch as a whole.
const OF_THE_BATCH: [&str; 4] = ["target_stype", "task_idx", "cat_emb_start", "cat_emb_count"];
/// Tensors of a sequence that depend on the batch's other sequences.
const OF_THE_TEXTS: [&str; 2] = ["text_embed_ids", "text_batch_embeddings"];

/// Returns the bytes of each sequence of a batch, with texts as their vectors.
fn sequences(batch: &Batch) -> Vec<Vec<u8>> {
    let count = batch.get::<i32>("target_pos").unwrap().len();
    let semantic = batch.get::<i8>("semantic_types").unwrap();
    let cells = semantic.len() / count;
    let (texts, vectors) = (
        batch.get::<u32>("text_embed_ids").unwrap(),
        batch.get::<u16>("text_batch_embeddings").unwrap(),
    );
    (0..count)
        .map(|sequence| {
            let mut all = Vec::new();
            for (tensor, bytes) in batch.tensors() {
                if !OF_THE_BATCH.contains(&tensor.name) && !OF_THE_TEXTS.contains(&tensor.name) {
                    let each = bytes.len() / count;
                    all.extend_from_slice(&bytes[sequence * each..][..each]);
                }
            }
            for cell in sequence * cells..(sequence + 1) * cells {
                let is_null = batch.get::<u8>("is_null").unwrap()[cell] == 1;
                if semantic[cell] == 5 && !is_null {
                    let vector = &vectors[texts[cell] as usize * stores::DIMENSION..];
                    all.extend_from_slice(bytemuck::cast_slice(&vector[..stores::DIMENSION]));
                }
            }
            all
        })
        .collect()
}

/// Returns the bytes of each tensor of a batch of one sequence, with a zero at the target in the tensors of
/// `label`, whose elements are bytes.
fn content_without_label(batch: &Batch, label: &[&str]) -> Vec<(&'static str, Vec<u8>)> {
    let target = batch.get::<i32>("target_pos").unwrap()[0] as usize;
    let bytes = batch.tensors().map(|(tensor, bytes)| {
        let mut bytes = bytes.to_vec();
        if label.contains(&tensor.name) {
            bytes[target] = 0;
        }
        (tensor.name, bytes)
    });
    bytes.collect()
}

/// Returns the digests of the next global batches of a split, joined from all ranks.
fn digests(ranks: &[Sampler], split: Split, steps: usize) -> Vec<blake3::Hash> {
    let step = |_| {
        let batches: Vec<_> = ranks.iter().map(|rank| rank.next(split).unwrap().0).collect();
        let parts: Vec<_> = batches.iter().map(sequences).collect();
        let mut hasher = blake3::Hasher::new();
        for name in OF_THE_BATCH {
            let tensor = |batch: &Batch| {
                let (_, bytes) = batch.tensors().find(|(tensor, _)| tensor.name == name).unwrap();
                bytes.to_vec()
            };
            let expected = tensor(&batches[0]);
            assert!(batches.iter().all(|batch| tensor(batch) == expected), "{name} of all ranks");
            hasher.update(&expected);
        }
        // The rows go to the ranks in turn.
        for row in 0..parts[0].len() {
            parts.iter().for_each(|part| _ = hasher.update(&part[row]));
        }
        hasher.finalize()
    };
    (0..steps).map(step).collect()
}

/// Encodes and decodes a cursor.
fn stored(cursor: &Cursor) -> Cursor {
    Cursor::decode(&cursor.encode().unwrap()).unwrap()
}

fn world(stores: &[Arc<Store>], settings: &Settings, ranks: u64, speed: Speed) -> Vec<Sampler> {
    (0..ranks).map(|rank| several(stores, settings, (rank, ranks), speed).unwrap()).collect()
}
