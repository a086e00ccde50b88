//! Random databases, settings and speeds as proptest strategies. A failing case shrinks to fewer
//! tables and rows, shorter sequences and narrower walks; the random seeds stay the same.

use std::fmt;
use std::sync::Arc;

use headwater::plan::{Split, SplitRatios, SplitRule};
use headwater::sampler::{
    Aggregates, Children, Masks, RowOrder, Sampler, Settings, Shape, Speed, Texts, Walk,
};
use headwater::store::Store;
use proptest::prelude::*;
use proptest::sample::select;

use crate::{PLAIN, random, several, stores, world};

/// The origin of a database: a random seed, the number of tables, and the most rows of a table.
type RowsOf = (u64, usize, usize);

/// One or two databases with train seeds, and settings that fit them.
pub(crate) struct Case {
    rows_of: Vec<RowsOf>,
    pub(crate) settings: Settings,
    pub(crate) stores: Vec<Arc<Store>>,
    _folders: Vec<tempfile::TempDir>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows_of, settings, .. } = self;
        f.debug_struct("Case").field("rows_of", rows_of).field("settings", settings).finish()
    }
}

impl Case {
    /// Returns none when no task has a train seed, or a target is past the end of every sequence.
    fn new(rows_of: Vec<RowsOf>, settings: Settings) -> Option<Self> {
        let opened = rows_of.iter().enumerate().map(|(number, &(seed, tables, rows))| {
            let mut database = random::database(seed, tables, rows);
            database.schema.database = format!("random {number}");
            stores::store_of(&database, &[usize::MAX])
        });
        let (folders, stores) = opened.map(|(folder, store)| (folder, Arc::new(store))).unzip();
        let case = Self { rows_of, settings, stores, _folders: folders };
        let sampler = several(&case.stores, &case.settings, (0, 1), PLAIN).ok()?;
        has_seeds(&sampler, Split::Train).then_some(case)
    }

    /// Returns all ranks of a run whose global batch has the size of the settings' batch.
    pub(crate) fn ranks(&self, ranks: u32, speed: Speed) -> Vec<Sampler> {
        let mut settings = self.settings.clone();
        assert_eq!(settings.shape.batch_size % ranks, 0);
        settings.shape.batch_size /= ranks;
        world(&self.stores, &settings, u64::from(ranks), speed)
    }

    /// Returns the only rank of a run that makes each batch on request, on one thread.
    pub(crate) fn plain(&self) -> Sampler {
        self.alone(&self.settings, PLAIN)
    }

    /// Returns the only rank of a run over the same databases.
    pub(crate) fn alone(&self, settings: &Settings, speed: Speed) -> Sampler {
        several(&self.stores, settings, (0, 1), speed).unwrap()
    }

    /// Returns the store of each task, and the task's place in it.
    pub(crate) fn tasks(&self) -> Vec<(&Store, usize)> {
        let of_store = |store| (0..Store::tasks(store).len()).map(move |place| (store, place));
        self.stores.iter().flat_map(|store| of_store(store)).collect()
    }
}

pub(crate) fn has_seeds(sampler: &Sampler, split: Split) -> bool {
    (0..sampler.tasks().count()).any(|task| sampler.seed_count(task, split) > 0)
}

/// Any case with batches of this size.
pub(crate) fn case(batch_size: impl Strategy<Value = u32>) -> impl Strategy<Value = Case> {
    let rows_of = (any::<u64>().no_shrink(), 1_usize..=4, 1_usize..=60);
    (prop::collection::vec(rows_of, 1..=2), settings(batch_size))
        .prop_filter_map("nothing to train on", |(rows_of, settings)| Case::new(rows_of, settings))
}

pub(crate) fn settings(batch_size: impl Strategy<Value = u32>) -> impl Strategy<Value = Settings> {
    let shape = (batch_size, 1_u32..=100, 1_u32..=30, any::<bool>()).prop_map(
        |(batch_size, sequence_length, max_rows, compact)| Shape {
            batch_size,
            sequence_length,
            max_rows,
            compact,
            permutations: true,
            texts: Texts::Batch(vec![]),
        },
    );
    let split = (any::<u64>().no_shrink(), 0_u32..=2, 0_u32..=2).prop_map(|(seed, val, test)| {
        let [train, val, test] = [10 - val - test, val, test].map(|part| f64::from(part) / 10.0);
        SplitRule { seed, ratios: SplitRatios::new(train, val, test).unwrap() }
    });
    let row_order = select(vec![RowOrder::Walk, RowOrder::CuthillMckee]);
    let seed = any::<u64>().no_shrink();
    let masks = proptest::option::weighted(0.4, (0.01_f64..0.99, proptest::option::of(1_u16..30)));
    (seed, split, walk(), any::<bool>(), select(Aggregates::ALL.to_vec()), row_order, masks, shape)
        .prop_map(|(seed, split, walk, keep_future_cells, aggregates, row_order, masks, shape)| {
            Settings {
                seed,
                split,
                aliases: None,
                tasks: None,
                task_weights: None,
                walk,
                child_widths: vec![],
                aggregates,
                visible_until: None,
                staleness: 0,
                keep_future_cells,
                row_order,
                masks: masks
                    .map(|(share, most)| Masks::new(share, most, shape.sequence_length).unwrap()),
                shape,
            }
        })
}

pub(crate) fn walk() -> impl Strategy<Value = Walk> {
    let children = select(vec![Children::Uniform, Children::Latest]);
    prop_oneof![
        2 => (1_u32..=16, children)
            .prop_map(|(child_width, children)| Walk::Priority { child_width, children }),
        1 => (1_u32..=3, 1_u32..=8)
            .prop_map(|(max_hops, budget)| Walk::Breadth { max_hops, budget }),
    ]
}

pub(crate) fn speed() -> impl Strategy<Value = Speed> {
    (select(vec![1, 2, 7]), select(vec![0, 1, 8]))
        .prop_map(|(threads, prefetch)| Speed { threads: Some(threads), prefetch })
}

/// Returns a configuration of this many cases, or of `PROPTEST_CASES`.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { count };
    ProptestConfig { cases, ..config }
}
