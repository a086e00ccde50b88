//! Random databases, settings and speeds as proptest strategies. A failing case shrinks to fewer
//! tables and rows, shorter sequences and narrower walks; the random seeds stay the same.

use std::fmt;
use std::sync::Arc;

use headwater::plan::{Split, SplitRatios, SplitRule};
use headwater::sampler::{
    Aggregates, Children, Masks, Pool, RowOrder, Sampler, Settings, Shape, Speed, Texts, Walk,
};
use headwater::store::{SEES_EVERYTHING, Store, TableMetadata};
use proptest::prelude::*;
use proptest::sample::select;

use crate::twin::Served;
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
    /// Returns none when no task has a train seed, or a target is past the end of every sequence. With
    /// pools, each table that a task is about is one.
    fn new(rows_of: Vec<RowsOf>, settings: Settings, has_pools: bool) -> Option<Self> {
        let opened = rows_of.iter().enumerate().map(|(number, &(seed, tables, rows))| {
            let mut database = random::database(seed, tables, rows);
            database.schema.database = format!("random {number}");
            stores::store_of(&database, &[usize::MAX])
        });
        let (folders, stores) = opened.map(|(folder, store)| (folder, Arc::new(store))).unzip();
        let mut case = Self { rows_of, settings, stores, _folders: folders };
        if has_pools {
            let names = case.plain_tasks()?;
            case.settings.tasks = Some(names);
            case.settings.pools = pools_of(&case.stores);
        }
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

    /// Returns the names of all tasks.
    fn plain_tasks(&self) -> Option<Vec<String>> {
        let sampler = several(&self.stores, &self.settings, (0, 1), PLAIN).ok()?;
        Some(sampler.tasks().map(str::to_owned).collect())
    }

    /// Returns the settings that serve one task or pool alone.
    pub(crate) fn settings_of(&self, name: &str) -> Settings {
        let mut settings = self.settings.clone();
        settings.pools.retain(|pool| name.replace("/pool:", "/") == pool.table);
        settings.tasks =
            Some(if settings.pools.is_empty() { vec![name.to_owned()] } else { vec![] });
        settings.require_label &= settings.pools.is_empty();
        settings
    }

    /// Returns what is served, each with its store.
    pub(crate) fn tasks(&self) -> Vec<(&Store, Served)> {
        let of_store = |store: &'_ Arc<Store>| (0..store.tasks().len()).map(Served::Task);
        let mut all: Vec<(&Store, Served)> = Vec::new();
        for store in &self.stores {
            all.extend(of_store(store).map(|task| (&**store, task)));
        }
        for pool in &self.settings.pools {
            let (database, table) = pool.table.split_once('/').unwrap();
            let is_it = |store: &&Arc<Store>| store.metadata().database == database;
            let store = self.stores.iter().find(is_it).unwrap();
            let place = store.tables().iter().position(|of| of.metadata().name == table).unwrap();
            all.push((store, Served::Pool(place, pool.obs_time)));
        }
        all
    }
}

/// Returns the tables that tasks are about as pools, in their order: another one may change how many links
/// a batch has room for.
fn pools_of(stores: &[Arc<Store>]) -> Vec<Pool> {
    let of_store = |store: &Arc<Store>| {
        let database = store.metadata().database.clone();
        let pool = |table: &TableMetadata| Pool {
            table: format!("{database}/{}", table.name),
            obs_time: table.time.is_none().then_some(SEES_EVERYTHING),
        };
        let has_task = |number: u32| store.metadata().tasks.iter().any(|of| of.anchor == number);
        let tables = (0..).zip(&store.metadata().tables);
        tables.filter(|(number, _)| has_task(*number)).map(|(_, of)| pool(of)).collect::<Vec<_>>()
    };
    stores.iter().flat_map(of_store).collect()
}

pub(crate) fn has_seeds(sampler: &Sampler, split: Split) -> bool {
    (0..sampler.tasks().count()).any(|task| sampler.seed_count(task, split) > 0)
}

/// Any case with batches of this size.
pub(crate) fn case(batch_size: impl Strategy<Value = u32>) -> impl Strategy<Value = Case> {
    let rows_of = (any::<u64>().no_shrink(), 1_usize..=4, 1_usize..=60);
    let has_pools = prop::bool::weighted(0.4);
    (prop::collection::vec(rows_of, 1..=2), settings(batch_size), has_pools)
        .prop_filter_map("nothing to train on", |(rows_of, settings, has_pools)| {
            Case::new(rows_of, settings, has_pools)
        })
}

pub(crate) fn settings(batch_size: impl Strategy<Value = u32>) -> impl Strategy<Value = Settings> {
    let shape = (batch_size, 1_u32..=100, 1_u32..=30, any::<bool>()).prop_map(
        |(batch_size, sequence_length, max_rows, compact)| Shape {
            batch_size,
            sequence_length,
            sequence_buckets: vec![],
            max_rows,
            compact,
            permutations: true,
            texts: Texts::Batch(vec![]),
        },
    );
    // The split seed of stores, which record its buckets, or any other.
    let split_seed = prop_oneof![Just(123), any::<u64>().no_shrink()];
    let split = (split_seed, 0_u32..=2, 0_u32..=2).prop_map(|(seed, val, test)| {
        let [train, val, test] = [10 - val - test, val, test].map(|part| f64::from(part) / 10.0);
        SplitRule { seed, ratios: SplitRatios::new(train, val, test).unwrap() }
    });
    let row_order = select(vec![RowOrder::Walk, RowOrder::CuthillMckee]);
    let seed = any::<u64>().no_shrink();
    let masks = proptest::option::weighted(0.4, (0.01_f64..0.99, proptest::option::of(1_u16..30)));
    let booleans = (any::<bool>(), any::<bool>());
    (seed, split, walk(), booleans, select(Aggregates::ALL.to_vec()), row_order, masks, shape)
        .prop_map(|(seed, split, walk, booleans, aggregates, row_order, masks, shape)| {
            let (keep_future_cells, require_label) = booleans;
            Settings {
                seed,
                split,
                aliases: None,
                tasks: None,
                pools: vec![],
                task_weights: None,
                require_label,
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
