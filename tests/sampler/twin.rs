//! The plain twin of the walk and of a sequence: loops over all rows, linear searches, and the same
//! random words.

use std::borrow::Cow;
use std::sync::Arc;

use headwater::plan::Split;
use headwater::random::{Purpose, Stream, name_identity};
use headwater::sampler::{Aggregates, Batch, Children, Masks, Pool, Settings, Walk};
use headwater::store::{
    AggregateMetadata, AggregateValue, Cell, ColumnMetadata, ColumnStats, SEES_EVERYTHING, Scale,
    Seed, SemanticType, Store, TableMetadata, TargetMetadata, TimeMetadata, is_visible,
};

use crate::summaries::{Asked, Place, summary_of};
use crate::{PLAIN, random_store, sampler, small};

struct Twin<'a> {
    store: &'a Store,
    asked: Asked,
    cells_max: usize,
    rows_max: usize,
    random: Stream,
    rows: Vec<Place>,
    reached: Vec<Reached>,
    cells: usize,
    /// The rows that have aggregates.
    aggregates: Aggregates,
    /// Waiting parents, the rows that refer to them, and by which relation.
    parents: Vec<(usize, usize, Place)>,
}

/// How the walk reached a row.
#[derive(Clone, Copy)]
struct Reached {
    hop: u32,
    relation: usize,
    /// As in `row_direction`.
    direction: u8,
}

const SEED: Reached = Reached { hop: 0, relation: 0, direction: 0 };

impl Twin<'_> {
    fn time(&self, (table, row): Place) -> i64 {
        self.store.tables()[table].row(row).unwrap().time()
    }

    fn parents_of(&self, (table, row): Place) -> Vec<(usize, Place)> {
        let record = self.store.tables()[table].row(row).unwrap();
        (self.store.relations().iter().enumerate())
            .filter(|(_, relation)| relation.metadata().child as usize == table)
            .filter_map(|(number, relation)| {
                let parent = relation.parent(&record).unwrap()?;
                Some((number, (relation.metadata().parent as usize, parent)))
            })
            .collect()
    }

    /// The children that exist, for each relation, sorted by time and row.
    fn children_of(&self, (table, row): Place) -> Vec<(usize, Vec<Place>)> {
        (self.store.relations().iter().enumerate())
            .filter(|(_, relation)| relation.metadata().parent as usize == table)
            .map(|(number, relation)| {
                let child = relation.metadata().child as usize;
                let all = 0..self.store.tables()[child].row_count();
                let is_child = |child_row: &u32| {
                    let record = self.store.tables()[child].row(*child_row).unwrap();
                    let is_known = match summary_of(self.store, number) {
                        None => is_visible(record.time(), self.asked.obs_time),
                        Some(summary) => self.asked.sees(self.store, summary, record.time()),
                    };
                    relation.parent(&record).unwrap() == Some(row) && is_known
                };
                let mut rows: Vec<Place> = all.filter(is_child).map(|row| (child, row)).collect();
                rows.sort_by_key(|&place| (self.time(place), place.1));
                (number, rows)
            })
            .collect()
    }

    fn is_full(&self) -> bool {
        self.cells >= self.cells_max || self.rows.len() >= self.rows_max
    }

    fn enter(&mut self, place: Place, reached: Reached) {
        let number = self.rows.len();
        self.rows.push(place);
        self.reached.push(reached);
        self.cells += self.store.tables()[place.0].metadata().columns.len();
        if has_aggregates(self.aggregates, reached) {
            self.cells += aggregates_of(self.store, place.0).count();
        }
        let parents = self.parents_of(place).into_iter();
        self.parents.extend(parents.map(|(relation, parent)| (number, relation, parent)));
    }

    fn visit(&mut self, place: Place, hop: u32, relation: usize, direction: u8) {
        if !self.rows.contains(&place) && is_visible(self.time(place), self.asked.obs_time) {
            self.enter(place, Reached { hop, relation, direction });
        }
    }

    fn visit_summaries(&mut self) {
        for (relation, place) in self.asked.summary_rows(self.store) {
            if !self.is_full() {
                self.enter(place, Reached { hop: 1, relation, direction: 1 });
            }
        }
    }

    fn by_priority(&mut self, width: u32, widths: &[(String, u32)], order: Children) {
        let mut hop = 0;
        let mut broods: Vec<(u32, usize, Vec<Place>, usize)> = Vec::new();
        let mut tickets: Vec<usize> = Vec::new();
        while !self.is_full() {
            if !self.parents.is_empty() {
                let (from, relation, parent) = self.parents.remove(0);
                self.visit(parent, self.reached[from].hop + 1, relation, 1);
            } else if !tickets.is_empty() {
                let ticket = self.random.below(tickets.len() as u64) as usize;
                let brood = tickets.swap_remove(ticket);
                let (hop, relation, children, drawn) = &mut broods[brood];
                let last = children.len() - 1;
                let of_summary = summary_of(self.store, *relation).is_some();
                let order = if of_summary { Children::Latest } else { order };
                let at = match order {
                    Children::Uniform => {
                        *drawn + self.random.below((children.len() - *drawn) as u64) as usize
                    }
                    // Taken from the end; the rest stays sorted.
                    Children::Latest => last - *drawn,
                };
                let child = children[at];
                if order == Children::Uniform {
                    children.swap(*drawn, at);
                }
                *drawn += 1;
                let (hop, relation) = (*hop + 1, *relation);
                self.visit(child, hop, relation, 2);
            } else if self.reached.iter().any(|reached| reached.hop >= hop) {
                for number in 0..self.rows.len() {
                    if self.reached[number].hop == hop {
                        for (relation, children) in self.children_of(self.rows[number]) {
                            let name = self.store.relation_name(relation);
                            let own = widths.iter().find(|(wanted, _)| *wanted == name);
                            let of_summary = summary_of(self.store, relation).is_some();
                            let default = if of_summary { 1 } else { width };
                            let width = own.map_or(default, |&(_, width)| width);
                            let wanted = children.len().min(width as usize);
                            tickets.extend(std::iter::repeat_n(broods.len(), wanted));
                            broods.push((hop, relation, children, 0));
                        }
                    }
                }
                hop += 1;
            } else {
                break;
            }
        }
    }

    fn by_breadth(&mut self, max_hops: u32, budget: u32) {
        let mut next = 0;
        while next < self.rows.len() && !self.is_full() {
            if self.reached[next].hop < max_hops {
                let hop = self.reached[next].hop + 1;
                let parents = self.parents_of(self.rows[next]);
                self.visit_some(parents, hop, 1, budget);
                let children = self.children_of(self.rows[next]).into_iter();
                let of_relation = |(relation, rows): (usize, Vec<Place>)| {
                    let of_summary = summary_of(self.store, relation).is_some();
                    let first = if of_summary { rows.len().saturating_sub(1) } else { 0 };
                    rows.into_iter().skip(first).map(move |row| (relation, row))
                };
                let children = children.flat_map(of_relation).collect();
                self.visit_some(children, hop, 2, budget);
            }
            next += 1;
        }
    }

    fn visit_some(
        &mut self,
        mut places: Vec<(usize, Place)>,
        hop: u32,
        direction: u8,
        budget: u32,
    ) {
        for drawn in 0..places.len().min(budget as usize) {
            if self.is_full() {
                return;
            }
            let at = drawn + self.random.below((places.len() - drawn) as u64) as usize;
            places.swap(drawn, at);
            let (relation, place) = places[drawn];
            self.visit(place, hop, relation, direction);
        }
    }
}

/// What a sampler serves.
#[derive(Clone, Copy)]
pub(crate) enum Served {
    /// A task of the store.
    Task(usize),
    /// The rows of a table, all observed at a time or each at its own.
    Pool(usize, Option<i64>),
}

impl Served {
    pub(crate) fn target(self, store: &Store) -> Option<&TargetMetadata> {
        match self {
            Self::Task(task) => Some(&store.tasks()[task].metadata().target),
            Self::Pool(..) => None,
        }
    }

    pub(crate) fn anchor(self, store: &Store) -> usize {
        match self {
            Self::Task(task) => store.tasks()[task].metadata().anchor as usize,
            Self::Pool(table, _) => table,
        }
    }

    /// The name whose identity is part of the split's hash.
    fn name(self, store: &Store) -> String {
        match self {
            Self::Task(task) => store.tasks()[task].metadata().name.clone(),
            Self::Pool(table, _) => format!("pool:{}", store.tables()[table].metadata().name),
        }
    }

    /// The seeds by their numbers, without those that are left out.
    fn seeds(self, store: &Store, settings: &Settings) -> Vec<(u32, Seed)> {
        let anchor = &store.tables()[self.anchor(store)];
        let until = settings.visible_until.unwrap_or(i64::MAX);
        let mut seeds = Vec::new();
        match self {
            Self::Task(task) => {
                let task = &store.tasks()[task];
                for index in 0..task.metadata().seed_count {
                    let seed = task.seed(anchor, index).unwrap();
                    if seed.target != Cell::Null || !settings.require_label {
                        seeds.push((index, seed));
                    }
                }
            }
            Self::Pool(_, given) => {
                for row in 0..anchor.row_count() {
                    let time = anchor.row(row).unwrap().time();
                    let has_time = time != i64::MIN && time < i64::MAX - 1;
                    let obs_time = given.or(has_time.then_some(time));
                    let seed = obs_time.map(|obs_time| Seed {
                        row,
                        obs_time,
                        target: Cell::Null,
                        split: None,
                    });
                    let exists = |seed: &Seed| time == i64::MIN || time <= seed.obs_time.min(until);
                    seeds.extend(seed.filter(exists).map(|seed| (row, seed)));
                }
            }
        }
        for (_, seed) in &mut seeds {
            seed.obs_time = seed.obs_time.min(until);
        }
        seeds
    }
}

/// The rows of the context of a seed, and how the walk reached each.
fn context(
    store: &Store,
    settings: &Settings,
    served: Served,
    seed: &Seed,
    random: Stream,
) -> (Vec<Place>, Vec<Reached>) {
    let is_derived = matches!(served.target(store), Some(TargetMetadata::Derived { .. }));
    let mut twin = Twin {
        store,
        asked: Asked::of(store, served, seed),
        cells_max: settings.shape.sequence_length as usize,
        rows_max: settings.shape.max_rows as usize,
        random,
        rows: vec![],
        reached: vec![],
        cells: usize::from(is_derived),
        aggregates: settings.aggregates,
        parents: vec![],
    };
    let start = (served.anchor(store), seed.row);
    twin.enter(start, SEED);
    // Before it came to exist a row has no links.
    if is_visible(twin.time(start), seed.obs_time) {
        twin.visit_summaries();
        match settings.walk {
            Walk::Priority { child_width, children } => {
                twin.by_priority(child_width, &settings.child_widths, children);
            }
            Walk::Breadth { max_hops, budget } => twin.by_breadth(max_hops, budget),
        }
    }
    (twin.rows, twin.reached)
}

/// A cell of a sequence.
struct Expected<'a> {
    row: usize,
    column: Cow<'a, ColumnMetadata>,
    cell: Cell,
    is_target: bool,
}

fn cells<'a>(
    store: &'a Store,
    settings: &Settings,
    served: Served,
    seed: &Seed,
    (rows, reached): (&[Place], &[Reached]),
) -> Vec<Expected<'a>> {
    let asked = Asked::of(store, served, seed);
    let target = served.target(store);
    let mut cells = Vec::new();
    for (number, &(table, row)) in rows.iter().enumerate() {
        let record = store.tables()[table].row(row).unwrap();
        for (place, column) in store.tables()[table].metadata().columns.iter().enumerate() {
            let is_target = number == 0
                && matches!(target, Some(TargetMetadata::Cell { column, .. }) if *column as usize == place);
            let mut cell = record.cell(place);
            let is_hidden = number == 0 && asked.hidden.contains(&(place as u32));
            let is_later =
                record.known_time(place) != i64::MIN && record.known_time(place) > seed.obs_time;
            let from_the_future = matches!(cell, Cell::Timestamp(time) if time > seed.obs_time);
            let unknown = number == 0 && !is_visible(record.time(), seed.obs_time);
            let is_future = from_the_future && !settings.keep_future_cells;
            if !is_target && (unknown || is_hidden || is_later || is_future) {
                cell = Cell::Null;
            }
            cells.push(Expected { row: number, column: Cow::Borrowed(column), cell, is_target });
        }
        if let (0, Some(TargetMetadata::Derived { column, .. })) = (number, target) {
            let (column, cell) = (Cow::Borrowed(column), seed.target);
            cells.push(Expected { row: 0, column, cell, is_target: true });
        }
        if has_aggregates(settings.aggregates, reached[number]) {
            for aggregate in aggregates_of(store, table) {
                let is_known = number > 0 || is_visible(record.time(), seed.obs_time);
                let number_of = || aggregate_of(store, aggregate, row, &asked);
                let cell =
                    if is_known { number_of() } else { None }.map_or(Cell::Null, Cell::Numerical);
                let column = Cow::Owned(number_column(aggregate));
                cells.push(Expected { row: number, column, cell, is_target: false });
            }
        }
    }
    cells.truncate(settings.shape.sequence_length as usize);
    cells
}

fn has_aggregates(rows: Aggregates, reached: Reached) -> bool {
    match rows {
        Aggregates::None => false,
        Aggregates::Near => reached.hop == 0 || reached.hop == 1 && reached.direction == 1,
        Aggregates::All => reached.hop == 0 || reached.direction == 1,
    }
}

/// The aggregates of the children of the rows of a table.
fn aggregates_of(store: &Store, table: usize) -> impl Iterator<Item = &AggregateMetadata> {
    store.metadata().aggregates.iter().filter(move |aggregate| {
        store.relations()[aggregate.relation as usize].metadata().parent as usize == table
    })
}

/// The column that the cells of an aggregate have.
fn number_column(aggregate: &AggregateMetadata) -> ColumnMetadata {
    let stats =
        ColumnStats::Numerical { scale: Scale::Linear, mean: 0.0, std: 1.0, min: 0.0, max: 0.0 };
    let (name, index) = (aggregate.name.clone(), aggregate.index);
    ColumnMetadata { name, index, offset: 0, null_count: 0, stats, known: None }
}

/// An aggregate of the children of row `parent`, by a loop over all rows of their table.
fn aggregate_of(
    store: &Store,
    aggregate: &AggregateMetadata,
    parent: u32,
    asked: &Asked,
) -> Option<f32> {
    let (seed, now) = (asked.seed, asked.obs_time);
    let relation = &store.relations()[aggregate.relation as usize];
    let child = relation.metadata().child as usize;
    let table = &store.tables()[child];
    let own = store.tables()[seed.0].row(seed.1).unwrap();
    let is_of_siblings = seed.0 == child && relation.parent(&own).unwrap() == Some(parent);
    let mut times = Vec::new();
    let (mut sum, mut count) = (0_i128, 0_i128);
    for row in 0..table.row_count() {
        let record = table.row(row).unwrap();
        let is_child = relation.parent(&record).unwrap() == Some(parent) && (child, row) != seed;
        let is_in_window = match aggregate.window_us {
            None => true,
            Some(length) => {
                record.time() != i64::MIN
                    && i128::from(record.time()) > i128::from(now) - i128::from(length)
            }
        };
        if !is_child || !is_visible(record.time(), now) || !is_in_window {
            continue;
        }
        times.push(record.time());
        if let AggregateValue::Mean { column } = aggregate.value {
            // Of targets only those that were known before the seed came to exist.
            let is_earlier = own.time() != i64::MIN && record.time() < own.time();
            let known = record.known_time(column as usize);
            if is_of_siblings && asked.hidden.contains(&column) && !is_earlier
                || known != i64::MIN && known > now
            {
                continue;
            }
            let value = match record.cell(column as usize) {
                Cell::Numerical(score) => Some(f64::from(score).clamp(-1000.0, 1000.0)),
                Cell::Boolean(truth) => Some(f64::from(u8::from(truth))),
                _ => None,
            };
            sum += value.map_or(0, |value| (value * 1_048_576.0).round_ties_even() as i128);
            count += i128::from(value.is_some());
        }
    }
    if now == SEES_EVERYTHING
        && (aggregate.window_us.is_some() || aggregate.value == AggregateValue::SinceLast)
    {
        return None;
    }
    let logarithm = |n: f64, scale: f64| ((1.0 + n).log2() / scale) as f32;
    match aggregate.value {
        AggregateValue::Count => Some(logarithm(times.len() as f64, 8.0)),
        AggregateValue::Mean { .. } => {
            (count > 0).then(|| (sum as f64 / (count as f64 * 1_048_576.0)) as f32)
        }
        AggregateValue::SinceLast => {
            let last = times.into_iter().max().filter(|&last| last != i64::MIN)?;
            Some(logarithm(((i128::from(now) - i128::from(last)) / 1_000_000) as f64, 16.0))
        }
    }
}

/// Returns the part of a tensor for one sequence.
fn part<'a, T: bytemuck::Pod>(
    batch: &'a Batch,
    name: &str,
    sequence: usize,
    each: usize,
) -> &'a [T] {
    &batch.get::<T>(name).unwrap()[sequence * each..][..each]
}

fn check(
    store: &Store,
    settings: &Settings,
    batch: &Batch,
    sequence: usize,
    asked: &Asked,
    (rows, reached): (&[Place], &[Reached]),
    cells: &[Expected<'_>],
) {
    let (length, row_count) =
        (settings.shape.sequence_length as usize, settings.shape.max_rows as usize);
    macro_rules! of {
        ($name:literal, $type:ty) => {
            part::<$type>(batch, $name, sequence, length)
        };
    }
    let features = part::<f32>(batch, "timestamp_values", sequence, length * 15);
    let metadata = store.metadata();
    let first_aggregate = metadata.embedding.column_count - metadata.aggregates.len() as u32;
    for at in 0..length {
        let Some(expected) = cells.get(at) else {
            assert_eq!(of!("is_padding", u8)[at], 1);
            assert_eq!((of!("is_target", u8)[at], of!("is_null", u8)[at]), (0, 0));
            continue;
        };
        let Expected { row, column, cell, is_target } = expected;
        // The twin's logarithm may differ by a rounding from libm's.
        let number = |wanted: f32| {
            let found = of!("numeric_values", f32)[at];
            let slack = if column.index >= first_aggregate { 1e-6 } else { 0.0 };
            assert!((found - wanted).abs() <= slack * wanted.abs(), "{found} {wanted}");
        };
        assert_eq!(of!("is_padding", u8)[at], 0);
        assert_eq!(of!("semantic_types", i8)[at], column.semantic() as i8);
        assert_eq!(of!("column_ids", i32)[at], column.index as i32);
        assert_eq!(usize::from(of!("seq_row_ids", u16)[at]), *row);
        assert_eq!(of!("is_target", u8)[at], u8::from(*is_target));
        assert_eq!(of!("is_null", u8)[at], u8::from(*cell == Cell::Null));
        assert_eq!(of!("bool_values", u8)[at], u8::from(*cell == Cell::Boolean(true)));
        let category = if let Cell::Categorical(category) = cell { *category } else { 0 };
        assert_eq!(of!("categorical_embed_ids", u32)[at], category);
        number(if let Cell::Numerical(score) = cell { *score } else { 0.0 });
        if let Cell::Text(text) = cell {
            let number = of!("text_embed_ids", u32)[at] as usize;
            let vectors = batch.text_vectors().unwrap().to_f32_vec();
            let vector = store.text_embedding(*text).unwrap().unwrap().to_f32_vec();
            assert_eq!(vectors[number * vector.len()..][..vector.len()], vector);
        } else {
            assert_eq!(of!("text_embed_ids", u32)[at], 0);
        }
        let features = &features[at * 15..][..15];
        if let (Cell::Timestamp(time), ColumnStats::Timestamp { mean_us, std_us, .. }) =
            (cell, &column.stats)
        {
            let score = if *std_us > 0.0 { (*time as f64 - mean_us) / std_us } else { 0.0 };
            assert_eq!(features[14], score as f32);
            let second = time.div_euclid(1_000_000).rem_euclid(60) as f64;
            let (sine, cosine) = (std::f64::consts::TAU * second / 60.0).sin_cos();
            assert!((f64::from(features[0]) - sine).abs() < 1e-6);
            assert!((f64::from(features[1]) - cosine).abs() < 1e-6);
        } else {
            assert!(features.iter().all(|feature| *feature == 0.0));
        }
    }
    let adjacency = part::<u8>(batch, "fk_adj", sequence, row_count * row_count);
    let linked = summaries_linked(store, asked, rows);
    check_links(store, adjacency, row_count, rows, asked.obs_time, &linked);
    check_edges(store, batch, sequence, rows, asked.obs_time, &linked);
    check_rows(store, batch, sequence, (rows, reached), asked.obs_time);
    check_orders(batch, sequence, length, cells);
}

/// The places of the rows of summaries that the seed refers to, and their relations.
fn summaries_linked(store: &Store, asked: &Asked, rows: &[Place]) -> Vec<(usize, usize)> {
    // A seed from the future refers to nothing.
    let own = store.tables()[asked.seed.0].row(asked.seed.1).unwrap().time();
    let all = asked.summary_rows(store).into_iter().filter(|_| is_visible(own, asked.obs_time));
    let place = |wanted: Place| rows.iter().position(|&place| place == wanted);
    all.filter_map(|(relation, row)| Some((place(row)?, relation))).collect()
}

fn check_links(
    store: &Store,
    adjacency: &[u8],
    row_count: usize,
    rows: &[Place],
    now: i64,
    summaries: &[(usize, usize)],
) {
    for from in 0..row_count {
        for to in 0..row_count {
            let is_summary = from == 0 && summaries.iter().any(|&(place, _)| place == to);
            let is_linked = is_summary
                || from < rows.len() && to < rows.len() && {
                    let record = store.tables()[rows[from].0].row(rows[from].1).unwrap();
                    // A seed from the future has no links yet, not even to itself.
                    is_visible(record.time(), now)
                        && store.relations().iter().any(|relation| {
                            relation.metadata().child as usize == rows[from].0
                                && relation.metadata().parent as usize == rows[to].0
                                && relation.parent(&record).unwrap() == Some(rows[to].1)
                        })
                };
            assert_eq!(adjacency[from * row_count + to], u8::from(is_linked), "{from} to {to}");
        }
    }
}

fn check_edges(
    store: &Store,
    batch: &Batch,
    sequence: usize,
    rows: &[Place],
    now: i64,
    summaries: &[(usize, usize)],
) {
    let mut expected = Vec::new();
    for (from, &(table, row)) in rows.iter().enumerate() {
        let record = store.tables()[table].row(row).unwrap();
        for (number, relation) in store.relations().iter().enumerate() {
            // A seed from the future has no links yet.
            if relation.metadata().child as usize == table
                && is_visible(record.time(), now)
                && let Some(parent) = relation.parent(&record).unwrap()
            {
                let parent = (relation.metadata().parent as usize, parent);
                let to = rows.iter().position(|&place| place == parent);
                expected.extend(to.map(|to| ([from as u16, to as u16], number as i32)));
            }
        }
        if from == 0 {
            let edge = |&(to, relation): &(usize, usize)| ([0, to as u16], relation as i32);
            expected.extend(summaries.iter().map(edge));
        }
    }
    let sequences = batch.get::<f32>("seq_weight").unwrap().len();
    let each = batch.get::<i32>("fk_relations").unwrap().len() / sequences;
    expected.resize(each, ([u16::MAX; 2], 0));
    let (places, relations): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
    assert_eq!(part::<u16>(batch, "fk_edges", sequence, each * 2), places.as_flattened());
    assert_eq!(part::<i32>(batch, "fk_relations", sequence, each), relations);
}

fn check_rows(
    store: &Store,
    batch: &Batch,
    sequence: usize,
    (rows, reached): (&[Place], &[Reached]),
    now: i64,
) {
    let sequences = batch.get::<f32>("seq_weight").unwrap().len();
    let each = batch.get::<i64>("row_time").unwrap().len() / sequences;
    let time = |&(table, row): &Place| {
        let time = store.tables()[table].row(row).unwrap().time();
        if is_visible(time, now) { time } else { i64::MIN }
    };
    assert_eq!(part::<i64>(batch, "row_time", sequence, each), padded(rows.iter().map(time), each));
    let hops = padded(reached.iter().map(|reached| reached.hop as u16), each);
    assert_eq!(part::<u16>(batch, "row_hop", sequence, each), hops);
    let relations = padded(reached.iter().map(|reached| reached.relation as i32), each);
    assert_eq!(part::<i32>(batch, "row_relation", sequence, each), relations);
    let directions = padded(reached.iter().map(|reached| reached.direction), each);
    assert_eq!(part::<u8>(batch, "row_direction", sequence, each), directions);
}

fn padded<T: Clone + Default>(values: impl Iterator<Item = T>, length: usize) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.resize(length, T::default());
    values
}

/// Orders hold every place once, padding last; cells of one column, of one row, are together.
fn check_orders(batch: &Batch, sequence: usize, length: usize, cells: &[Expected<'_>]) {
    let order = |name: &str| -> Vec<usize> {
        let all = &batch.get::<u16>(name).unwrap()[sequence * length..][..length];
        all.iter().map(|place| usize::from(*place)).collect()
    };
    for name in ["col_perm", "out_perm", "in_perm"] {
        let order = order(name);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..length), "{name}");
        assert!(order[cells.len()..].iter().copied().eq(cells.len()..length), "{name}");
    }
    let mut by_column: Vec<usize> = (0..cells.len()).collect();
    by_column.sort_by_key(|&place| cells[place].column.index);
    assert_eq!(order("col_perm")[..cells.len()], by_column);
    for name in ["out_perm", "in_perm"] {
        let mut rows: Vec<usize> =
            order(name)[..cells.len()].iter().map(|place| cells[*place].row).collect();
        rows.dedup();
        let count = rows.len();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), count, "{name} cuts a row in pieces");
    }
}

/// Returns the columns whose cells are labels in some row, or made of other rows, or values that link rows.
fn never_masked(store: &Store) -> Vec<u32> {
    let metadata = store.metadata();
    let mut never = linking_values(store);
    never.extend(metadata.aggregates.iter().map(|aggregate| aggregate.index));
    for summary in &metadata.summaries {
        let own = &metadata.tables[summary.table as usize].columns;
        never.extend(own.iter().map(|column| column.index));
    }
    for task in &metadata.tasks {
        match &task.target {
            TargetMetadata::Cell { column, hide } => {
                let columns = &metadata.tables[task.anchor as usize].columns;
                let places = hide.iter().chain([column]);
                never.extend(places.map(|&place| columns[place as usize].index));
            }
            TargetMetadata::Derived { horizon_us: Some(_), .. } => {
                let own = store.table(&format!("{} labels", task.name)).unwrap().metadata();
                never.extend(own.columns.iter().map(|column| column.index));
            }
            TargetMetadata::Derived { horizon_us: None, .. } => {}
        }
    }
    never
}

/// Masked are the first cells that may be and whose 16 bits of the sequence's words are below the share.
fn check_masks(
    store: &Store,
    settings: &Settings,
    batch: &Batch,
    sequence: usize,
    (task, index): (&str, u32),
    cells: &[Expected<'_>],
) {
    let Some(masks) = settings.masks else {
        assert!(batch.get::<u8>("is_masked").is_none() && batch.get::<u16>("masked_pos").is_none());
        return;
    };
    let times: Vec<u32> = (store.metadata().tables.iter())
        .filter_map(|table| match table.time {
            Some(TimeMetadata::Column { column, .. }) => Some(table.columns[column as usize].index),
            _ => None,
        })
        .collect();
    let never = never_masked(store);
    let identity = [name_identity(task), 0, u64::from(index)];
    let words = Stream::new(settings.seed, Purpose::MaskedCell, identity);
    let may_be = |at: usize| {
        let Expected { column, cell, is_target, .. } = &cells[at];
        let is_told = *cell == Cell::Null || *cell == Cell::Identifier || *is_target;
        let is_out = times.contains(&column.index) || !masks.texts && matches!(cell, Cell::Text(_));
        !is_told && !is_out && !never.contains(&column.index)
    };
    let part_of_word = |at: usize| (words.word(at as u64 / 4) >> (16 * (at % 4))) % 65_536;
    let share = u64::from(masks.share);
    let chosen = (0..cells.len()).filter(|&at| may_be(at) && part_of_word(at) < share);
    let most = usize::from(masks.most);
    let mut expected: Vec<u16> = chosen.take(most).map(|at| at as u16).collect();
    let length = settings.shape.sequence_length as usize;
    let marks = (0..length).map(|at| u8::from(expected.contains(&(at as u16))));
    assert!(marks.eq(part::<u8>(batch, "is_masked", sequence, length).iter().copied()));
    expected.resize(most, u16::MAX);
    assert_eq!(part::<u16>(batch, "masked_pos", sequence, most), expected);
}

/// Returns the seeds of a split, in the order of the store, each read by itself.
pub(crate) fn seeds_of(
    store: &Store,
    settings: &Settings,
    served: Served,
    split: Split,
) -> Vec<(u32, Seed)> {
    let anchor = &store.tables()[served.anchor(store)];
    let split_of = |seed: &Seed| {
        seed.split.unwrap_or_else(|| {
            let identity = anchor.identity(seed.row).unwrap();
            settings.split.split_of(name_identity(&served.name(store)), identity)
        })
    };
    let mut seeds = served.seeds(store, settings);
    seeds.retain(|(_, seed)| split_of(seed) == split);
    seeds
}

/// Settings that name the widths of some relations, half of the time.
fn with_some_widths(mut settings: Settings, store: &Store) -> Settings {
    let mut random = Stream::new(settings.seed, Purpose::Split, [0x3d74, 0, 0]);
    if matches!(settings.walk, Walk::Priority { .. }) && random.below(2) == 1 {
        let names = (0..store.relations().len()).map(|relation| store.relation_name(relation));
        let mut widths: Vec<_> = names.map(|name| (name, random.below(5) as u32)).collect();
        widths.retain(|(_, width)| *width < 4);
        // A relation may refer by the same columns as another.
        widths.dedup_by(|a, b| a.0 == b.0);
        settings.child_widths = widths;
    }
    settings
}

/// Settings that mask few or many cells, with or without texts, half of the time.
fn with_some_masks(settings: Settings) -> Settings {
    let mut random = Stream::new(settings.seed, Purpose::Split, [0x3a5c, 0, 0]);
    let mut one_of = |count: u64| random.below(count) as usize;
    let share = [0.0, 0.0, 0.0, 0.15, 0.5, 0.9][one_of(6)];
    let most = [None, Some(3), Some(40)][one_of(3)];
    let texts = one_of(2) == 1;
    let length = settings.shape.sequence_length;
    let masks = (share > 0.0).then(|| Masks::new(share, most, length).unwrap());
    Settings { masks: masks.map(|masks| Masks { texts, ..masks }), ..settings }
}

/// Settings with all tasks, with or without those whose label is not known, and with pools of some tables.
fn with_some_pools(settings: Settings, store: &Store) -> Settings {
    let mut random = Stream::new(settings.seed, Purpose::Split, [0x900f, 0, 0]);
    let mut pools = Vec::new();
    let is_summary = |number: usize| {
        store.metadata().summaries.iter().any(|summary| summary.table as usize == number)
    };
    let has_labels = |table: &TableMetadata| table.name.ends_with(" labels");
    for (number, table) in store.metadata().tables.iter().enumerate() {
        // Most times of the random stores lie around here.
        let obs_time =
            [None, Some(1_000_000_000_000_000), Some(i64::MAX)][random.below(3) as usize];
        if random.below(2) == 1
            && !is_summary(number)
            && !has_labels(table)
            && (table.time.is_some() || obs_time.is_some())
        {
            pools.push(Pool { table: table.name.clone(), obs_time });
        }
    }
    let tasks = store.tasks().iter().map(|task| task.metadata().name.clone()).collect();
    Settings { tasks: Some(tasks), pools, require_label: random.below(2) == 1, ..settings }
}

#[test]
fn every_sequence_equals_that_of_the_plain_twin() {
    let (mut cut, mut links, mut contexts, mut aggregates, mut masked) = (0, 0, 0, 0, 0);
    let (mut of_pools, mut listed, mut linking) = (0, 0, 0);
    for number in 0..60 {
        let (_folder, store) = random_store(number);
        let settings = with_some_masks(with_some_widths(small(number), &store));
        let settings = with_some_pools(settings, &store);
        let Ok(sampler) = sampler(&store, &settings, (0, 1), PLAIN) else { continue };
        let tasks = (0..store.tasks().len()).map(Served::Task);
        let mut pools: Vec<_> = (settings.pools.iter())
            .map(|pool| {
                let is_it = |table: &headwater::store::Table| table.metadata().name == pool.table;
                (store.tables().iter().position(is_it).unwrap(), pool.obs_time)
            })
            .collect();
        pools.sort_by_key(|&(table, _)| table);
        let pools = pools.into_iter().map(|(table, obs_time)| Served::Pool(table, obs_time));
        let all: Vec<_> = tasks.chain(pools).collect();
        assert_eq!(all.len(), sampler.tasks().count());
        for (task, (name, &served)) in sampler.tasks().zip(&all).enumerate() {
            assert_eq!(name.split_once('/').unwrap().1, served.name(&store));
            let seeds = seeds_of(&store, &settings, served, Split::Train);
            assert_eq!(seeds.len() as u64, sampler.seed_count(task, Split::Train));
            if seeds.is_empty() {
                continue;
            }
            let names = [name.to_owned()];
            let batches = sampler.evaluate(Split::Train, Some(&names)).unwrap();
            let anchor = served.anchor(&store);
            let each = settings.shape.batch_size as usize;
            for (batch, seeds) in batches.zip(seeds.chunks(each)) {
                let batch = batch.unwrap();
                for (sequence, seed) in seeds.iter().enumerate() {
                    let rows =
                        check_sequence(&store, &settings, (served, name), &batch, sequence, seed);
                    contexts += 1;
                    of_pools += usize::from(matches!(served, Served::Pool(..)));
                    masked += usize::from(settings.masks.is_some());
                    listed += usize::from(settings.masks.is_some() && has_listed_labels(&store));
                    linking +=
                        usize::from(settings.masks.is_some() && !linking_values(&store).is_empty());
                    aggregates += aggregates_of(&store, anchor).count();
                    links += rows;
                    cut += usize::from(rows == settings.shape.max_rows as usize);
                }
                for filler in seeds.len()..each {
                    assert_eq!(batch.get::<f32>("seq_weight").unwrap()[filler], 0.0);
                    assert_eq!(batch.get::<i32>("num_rows").unwrap()[filler], 0);
                }
            }
        }
    }
    assert!(contexts > 500 && links > 1500 && cut > 50, "{contexts} {links} {cut}");
    assert!(
        aggregates > 1000 && masked > 100 && of_pools > 100,
        "{aggregates} {masked} {of_pools}"
    );
    assert!(listed > 50 && linking > 100, "{listed} {linking}");
}

/// Returns the columns with values that are part of keys or references; no name has a `+`.
fn linking_values(store: &Store) -> Vec<u32> {
    let metadata = store.metadata();
    let mut linking = Vec::new();
    for (number, table) in (0..).zip(&metadata.tables) {
        let mut names = table.key.clone();
        for relation in &metadata.relations {
            if relation.child == number {
                names.extend(relation.name.split('+').map(str::to_owned));
            }
            if relation.parent == number {
                names.extend(relation.to_columns.clone());
            }
        }
        let columns = table.columns.iter().filter(|column| names.contains(&column.name));
        let with_values = columns.filter(|column| column.semantic() != SemanticType::Identifier);
        linking.extend(with_values.map(|column| column.index));
    }
    linking
}

/// Whether a task of the store has its labels as rows of a table.
fn has_listed_labels(store: &Store) -> bool {
    let mut targets = store.tasks().iter().map(|task| &task.metadata().target);
    targets.any(|target| matches!(target, TargetMetadata::Derived { horizon_us: Some(_), .. }))
}

fn check_sequence(
    store: &Arc<Store>,
    settings: &Settings,
    (served, name): (Served, &str),
    batch: &Batch,
    sequence: usize,
    (index, seed): &(u32, Seed),
) -> usize {
    let random =
        Stream::new(settings.seed, Purpose::Walk, [name_identity(name), 0, u64::from(*index)]);
    let (rows, reached) = context(store, settings, served, seed, random);
    let cells = cells(store, settings, served, seed, (&rows, &reached));
    let asked = Asked::of(store, served, seed);
    check(store, settings, batch, sequence, &asked, (&rows, &reached), &cells);
    assert_eq!(batch.get::<u32>("seed_row").unwrap()[sequence], seed.row);
    assert_eq!(batch.get::<i64>("obs_time").unwrap()[sequence], seed.obs_time);
    assert_eq!(batch.get::<f32>("seq_weight").unwrap()[sequence], 1.0);
    assert_eq!(batch.get::<i32>("num_rows").unwrap()[sequence] as usize, rows.len());
    check_masks(store, settings, batch, sequence, (name, *index), &cells);
    let target = cells.iter().position(|cell| cell.is_target).map_or(-1, |at| at as i32);
    assert_eq!(batch.get::<i32>("target_pos").unwrap()[sequence], target);
    assert_eq!(target >= 0, matches!(served, Served::Task(_)));
    let categories = ["cat_emb_start", "cat_emb_count"];
    let categories = categories.map(|name| batch.get::<u32>(name).unwrap()[0]);
    let found = (batch.get::<u8>("target_stype").unwrap()[0], categories);
    assert_eq!(found, heading(store, served));
    rows.len()
}

/// Returns the type of the target, and the first and the number of the categories that it may have.
fn heading(store: &Store, served: Served) -> (u8, [u32; 2]) {
    let Served::Task(task) = served else { return (255, [0, 0]) };
    let column = store.metadata().target_column(store.tasks()[task].metadata());
    let categories = match column.stats {
        ColumnStats::Categorical { cat_emb_start, cat_emb_count, known_count } => {
            [cat_emb_start, known_count.unwrap_or(cat_emb_count)]
        }
        _ => [0, 0],
    };
    (column.semantic() as u8, categories)
}
