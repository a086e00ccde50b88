//! One sequence of a batch: the rows of a context as cells, edges and orders.

use std::ops::Range;

use super::aggregates::{SeedRow, write_aggregates};
use super::calendar::{FEATURES, write_features};
use super::database::{ColumnShape, Database, TableShape};
use super::masks::{MaskSlices, Masks};
use super::order::Orders;
use super::settings::Settings;
use super::tensors::{PERMUTATIONS, Tensors};
use super::walk::{Edge, Walker};
use crate::error::Result;
use crate::random::Stream;
use crate::store::{ALWAYS_VISIBLE, CategoryPlace, Cell, CellPlace, Row, is_visible};

/// Fills the unused edges.
const NO_PLACE: u16 = u16::MAX;

/// The place of the target in a sequence without one.
const NO_TARGET: i32 = -1;

/// The direction in which a row was reached, in `row_direction`; 0 for the seed.
const BY_PARENT: u8 = 1;
const BY_CHILD: u8 = 2;

/// The slices of one sequence in every tensor of the batch.
pub(super) struct Sequence<'a> {
    semantic_types: &'a mut [i8],
    column_ids: &'a mut [i32],
    seq_row_ids: &'a mut [u16],
    numeric_values: &'a mut [f32],
    times: Times<'a>,
    bool_values: &'a mut [u8],
    categorical_embed_ids: &'a mut [u32],
    text_embed_ids: &'a mut [u32],
    is_null: &'a mut [u8],
    is_target: &'a mut [u8],
    is_padding: &'a mut [u8],
    /// Only in the full form.
    fk_adj: Option<&'a mut [u8]>,
    fk_edges: &'a mut [u16],
    fk_relations: &'a mut [i32],
    row_time: &'a mut [i64],
    row_hop: &'a mut [u16],
    row_relation: &'a mut [i32],
    row_direction: &'a mut [u8],
    /// Only where they are asked for.
    permutations: Option<[&'a mut [u16]; 3]>,
    /// Only where cells are masked.
    masks: Option<MaskSlices<'a>>,
    target_pos: &'a mut i32,
    seq_weight: &'a mut f32,
    obs_time: &'a mut i64,
    seed_row: &'a mut u32,
    num_rows: &'a mut i32,
}

enum Times<'a> {
    Features(&'a mut [f32]),
    Microseconds(&'a mut [i64]),
}

impl Times<'_> {
    fn write(&mut self, at: usize, time: i64, column: &ColumnShape) {
        match self {
            Self::Microseconds(times) => times[at] = time,
            Self::Features(features) => {
                let features = &mut features[at * FEATURES..][..FEATURES];
                write_features(time, column.time.of(time as f64), features);
            }
        }
    }
}

/// The task of a batch, as its tensors have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heading {
    pub target_stype: u8,
    pub task_idx: u32,
    pub cat_emb_start: u32,
    pub cat_emb_count: u32,
}

/// Cuts a batch's buffer into its sequences, and writes the tensors of the batch as a whole.
pub(super) fn sequences<'a>(
    tensors: &'a Tensors,
    buffer: &'a mut [u8],
    settings: &Settings,
    heading: Heading,
) -> impl Iterator<Item = Sequence<'a>> {
    let shape = &settings.shape;
    let mut carver = tensors.carve(buffer);
    let mut semantic_types = carver.rows("semantic_types");
    let mut column_ids = carver.rows("column_ids");
    let mut seq_row_ids = carver.rows("seq_row_ids");
    let mut numeric_values = carver.rows("numeric_values");
    let mut times: Box<dyn Iterator<Item = Times<'a>>> = match shape.compact {
        true => Box::new(carver.rows("timestamp_us").map(Times::Microseconds)),
        false => Box::new(carver.rows("timestamp_values").map(Times::Features)),
    };
    let mut bool_values = carver.rows("bool_values");
    let mut categorical_embed_ids = carver.rows("categorical_embed_ids");
    let mut text_embed_ids = carver.rows("text_embed_ids");
    let mut is_null = carver.rows("is_null");
    let mut is_target = carver.rows("is_target");
    let mut is_padding = carver.rows("is_padding");
    let mut fk_adj: Box<dyn Iterator<Item = Option<&mut [u8]>>> = match shape.compact {
        true => Box::new(std::iter::repeat_with(|| None)),
        false => Box::new(carver.rows("fk_adj").map(Some)),
    };
    let mut fk_edges = carver.rows("fk_edges");
    let mut fk_relations = carver.rows("fk_relations");
    let mut row_time = carver.rows("row_time");
    let mut row_hop = carver.rows("row_hop");
    let mut row_relation = carver.rows("row_relation");
    let mut row_direction = carver.rows("row_direction");
    let mut permutations =
        shape.permutations.then(|| PERMUTATIONS.map(|name| carver.rows::<u16>(name)));
    let mut masks = (settings.masks)
        .map(|_| (carver.rows::<u8>("is_masked"), carver.rows::<u16>("masked_pos")));
    let target_pos = carver.whole("target_pos");
    let mut seq_weight = carver.whole("seq_weight").iter_mut();
    let mut obs_time = carver.whole("obs_time").iter_mut();
    let mut seed_row = carver.whole("seed_row").iter_mut();
    let mut num_rows = carver.whole("num_rows").iter_mut();
    carver.whole("target_stype")[0] = heading.target_stype;
    carver.whole("task_idx")[0] = heading.task_idx;
    carver.whole("cat_emb_start")[0] = heading.cat_emb_start;
    carver.whole("cat_emb_count")[0] = heading.cat_emb_count;
    let sequence = move |target_pos| {
        Some(Sequence {
            semantic_types: semantic_types.next()?,
            column_ids: column_ids.next()?,
            seq_row_ids: seq_row_ids.next()?,
            numeric_values: numeric_values.next()?,
            times: times.next()?,
            bool_values: bool_values.next()?,
            categorical_embed_ids: categorical_embed_ids.next()?,
            text_embed_ids: text_embed_ids.next()?,
            is_null: is_null.next()?,
            is_target: is_target.next()?,
            is_padding: is_padding.next()?,
            fk_adj: fk_adj.next()?,
            fk_edges: fk_edges.next()?,
            fk_relations: fk_relations.next()?,
            row_time: row_time.next()?,
            row_hop: row_hop.next()?,
            row_relation: row_relation.next()?,
            row_direction: row_direction.next()?,
            permutations: match &mut permutations {
                Some([column, outgoing, incoming]) => {
                    Some([column.next()?, outgoing.next()?, incoming.next()?])
                }
                None => None,
            },
            masks: match &mut masks {
                Some((cells, places)) => {
                    Some(MaskSlices { is_masked: cells.next()?, masked_pos: places.next()? })
                }
                None => None,
            },
            target_pos,
            seq_weight: seq_weight.next()?,
            obs_time: obs_time.next()?,
            seed_row: seed_row.next()?,
            num_rows: num_rows.next()?,
        })
    };
    target_pos.iter_mut().map_while(sequence)
}

/// The target cell, its place in the seed row, and what the row hides for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    /// The place of its cell in the seed row; none for a pool, which has no target.
    pub cell: Option<usize>,
    /// The cell itself, for a derived task; else it is a cell of the table.
    pub own: Option<(ColumnShape, Cell)>,
    /// The columns of the table that the seed hides.
    pub hidden: &'a [u32],
}

impl Target<'_> {
    /// Makes NULL of what the seed row may not show; its target stays.
    fn write_nulls(&self, record: &Row<'_>, nulls: &mut [u8], is_known: bool, sees: Sees) {
        let cell = self.cell.filter(|_| self.own.is_none());
        let target = cell.and_then(|at| Some((at, *nulls.get(at)?)));
        if is_known {
            write_later_nulls(record, nulls, sees);
            for &column in self.hidden {
                if let Some(null) = nulls.get_mut(column as usize) {
                    *null = 1;
                }
            }
        } else {
            nulls.fill(1);
        }
        if let Some((at, is_null)) = target {
            nulls[at] = is_null;
        }
    }
}

/// Up to which time a seed sees values, and whether it sees later times that are known by then.
#[derive(Clone, Copy)]
struct Sees {
    until: i64,
    later_times: bool,
}

/// Makes NULL of the values that a seed does not see.
fn write_later_nulls(record: &Row<'_>, nulls: &mut [u8], sees: Sees) {
    let columns = record.cells();
    for &column in &columns.known_later {
        if let Some(null) = nulls.get_mut(column) {
            *null |= u8::from(!is_visible(record.known_time(column), sees.until));
        }
    }
    if !sees.later_times {
        for &CellPlace { column, offset } in &columns.times {
            if let Some(null) = nulls.get_mut(column) {
                *null |= u8::from(record.time_at(offset) > sees.until);
            }
        }
    }
}

/// Returns what stands for a text until all texts of the batch are numbered: plus one, because 0 means no text.
fn text_slot(text: u32) -> u32 {
    text.saturating_add(1)
}

impl Sequence<'_> {
    /// Writes a sequence that pads a batch: only padding cells, weight 0.
    pub(super) fn fill(mut self) {
        self.clear();
        self.is_padding.fill(1);
        for order in self.permutations.into_iter().flatten() {
            order.iter_mut().zip(0..).for_each(|(slot, place)| *slot = place);
        }
    }

    /// Writes the context that `walker` has collected at an observation; returns the number of its cells.
    /// The seed row hides some columns; `keep_future` keeps timestamp cells that lie after the observation.
    pub(super) fn write(
        mut self,
        database: &Database,
        walker: &Walker,
        target: Target<'_>,
        (observation, keep_future): (Observation, bool),
        masked: Option<(Masks, Stream)>,
        orders: &mut Orders,
    ) -> Result<usize> {
        self.clear();
        let obs_time = observation.sees_until;
        let sees = Sees { until: obs_time, later_times: keep_future };
        let visits = walker.visits();
        let seed = SeedRow::of(database, visits[0], obs_time, target.hidden)?;
        let mut length = 0;
        for (place, visit) in visits.iter().enumerate() {
            let record = database.store.tables()[visit.table as usize].row(visit.row)?;
            let shape = &database.tables[visit.table as usize];
            let own = target.own.filter(|_| place == 0);
            let is_known = place > 0 || is_visible(record.time(), obs_time);
            self.row_time[place] = if is_known { record.time() } else { ALWAYS_VISIBLE };
            self.row_hop[place] = visit.hop as u16;
            if place > 0 {
                self.row_relation[place] = visit.relation as i32;
                self.row_direction[place] = if visit.is_parent { BY_PARENT } else { BY_CHILD };
            }
            let cells_max = self.semantic_types.len();
            let end = (length + shape.columns.len() + usize::from(own.is_some())).min(cells_max);
            let cells = length..end.min(length + shape.columns.len());
            let nulls = &mut self.is_null[cells.clone()];
            record.write_nulls(nulls);
            match place {
                0 => target.write_nulls(&record, nulls, is_known, sees),
                _ => write_later_nulls(&record, nulls, sees),
            }
            self.write_columns(cells, &record, shape);
            if let Some((at, (shape, cell))) = target.cell.zip(own) {
                self.put(at, &shape, cell);
            }
            let mut next = end;
            if visit.has_aggregates {
                write_aggregates(database, *visit, &seed, |aggregate, cell| {
                    if next < cells_max {
                        self.put(next, &aggregate.column, cell);
                        next += 1;
                    }
                })?;
            }
            self.seq_row_ids[length..next].fill(place as u16);
            length = next;
        }
        if let Some(at) = target.cell {
            self.is_target[at] = 1;
            if let Some(masks) = &mut self.masks {
                masks.is_masked[at] = 0;
            }
        }
        match (&mut self.masks, masked) {
            (Some(slices), Some((masks, words))) => {
                slices.choose(&self.semantic_types[..length], masks, &words);
            }
            (Some(slices), None) => slices.clear(),
            (None, _) => {}
        }
        self.is_padding[length..].fill(1);
        self.connect(walker.edges());
        if let Some(permutations) = self.permutations {
            let (columns, rows) = (&self.column_ids[..length], &self.seq_row_ids[..length]);
            orders.write(columns, rows, walker, permutations);
        }
        *self.target_pos = target.cell.map_or(NO_TARGET, |at| at as i32);
        *self.seq_weight = 1.0;
        *self.obs_time = observation.at;
        *self.seed_row = visits[0].row;
        *self.num_rows = visits.len() as i32;
        Ok(length)
    }

    /// Zeroes all tensors that `write` may leave in part unwritten.
    fn clear(&mut self) {
        self.semantic_types.fill(0);
        self.column_ids.fill(0);
        self.seq_row_ids.fill(0);
        self.numeric_values.fill(0.0);
        match &mut self.times {
            Times::Features(features) => features.fill(0.0),
            Times::Microseconds(times) => times.fill(0),
        }
        self.bool_values.fill(0);
        self.categorical_embed_ids.fill(0);
        self.text_embed_ids.fill(0);
        self.is_null.fill(0);
        self.is_target.fill(0);
        self.is_padding.fill(0);
        if let Some(matrix) = &mut self.fk_adj {
            matrix.fill(0);
        }
        if let Some(masks) = &mut self.masks {
            masks.clear();
        }
        self.fk_edges.fill(NO_PLACE);
        self.fk_relations.fill(0);
        self.row_time.fill(0);
        self.row_hop.fill(0);
        self.row_relation.fill(0);
        self.row_direction.fill(0);
        *self.target_pos = 0;
        *self.seq_weight = 0.0;
        *self.obs_time = 0;
        *self.seed_row = 0;
        *self.num_rows = 0;
    }

    /// Writes the cells of a row's columns, as many as there is room for; `is_null` tells already which are NULL.
    fn write_columns(&mut self, cells: Range<usize>, record: &Row<'_>, shape: &TableShape) {
        let (by_type, template) = (record.cells(), &shape.template);
        let nulls = &self.is_null[cells.clone()];
        let count = nulls.len();
        self.semantic_types[cells.clone()].copy_from_slice(&template.semantic_types[..count]);
        self.column_ids[cells.clone()].copy_from_slice(&template.column_ids[..count]);
        if let Some(masks) = &mut self.masks {
            let may_be = template.may_be_masked.iter().zip(nulls);
            for (cell, (may_be, is_null)) in masks.is_masked[cells.clone()].iter_mut().zip(may_be) {
                *cell = may_be & (is_null ^ 1);
            }
        }
        // The slots of NULL stay zeros.
        let has_value = |column: usize| nulls.get(column) == Some(&0);
        let numbers = &mut self.numeric_values[cells.clone()];
        for &CellPlace { column, offset } in &by_type.numbers {
            if has_value(column) {
                numbers[column] = record.number_at(offset);
            }
        }
        for &CellPlace { column, offset } in by_type.times.iter().filter(|at| has_value(at.column))
        {
            let (time, at) = (record.time_at(offset), cells.start + column);
            self.times.write(at, time, &shape.columns[column]);
        }
        let truths = &mut self.bool_values[cells.clone()];
        for &CellPlace { column, offset } in &by_type.booleans {
            if has_value(column) {
                truths[column] = u8::from(record.bit(offset));
            }
        }
        let categories = &mut self.categorical_embed_ids[cells.clone()];
        for &CategoryPlace { column, offset, bytes, first } in &by_type.categories {
            if has_value(column) {
                categories[column] = first.saturating_add(record.index_at(offset, bytes));
            }
        }
        let texts = &mut self.text_embed_ids[cells];
        for &CellPlace { column, offset } in &by_type.texts {
            if has_value(column) {
                texts[column] = text_slot(record.index_at(offset, 4));
            }
        }
    }

    fn put(&mut self, at: usize, shape: &ColumnShape, cell: Cell) {
        self.semantic_types[at] = shape.semantic;
        self.column_ids[at] = shape.column_id;
        if let Some(masks) = &mut self.masks {
            masks.is_masked[at] = u8::from(shape.may_be_masked && cell != Cell::Null);
        }
        match cell {
            Cell::Null => self.is_null[at] = 1,
            Cell::Identifier => {}
            Cell::Numerical(number) => self.numeric_values[at] = number,
            Cell::Timestamp(time) => self.times.write(at, time, shape),
            Cell::Boolean(truth) => self.bool_values[at] = u8::from(truth),
            Cell::Categorical(category) => self.categorical_embed_ids[at] = category,
            Cell::Text(text) => self.text_embed_ids[at] = text_slot(text),
        }
    }

    fn connect(&mut self, edges: &[Edge]) {
        let (places, _) = self.fk_edges.as_chunks_mut::<2>();
        let slots = places.iter_mut().zip(&mut *self.fk_relations);
        for ((places, number), &Edge { child, parent, relation }) in slots.zip(edges) {
            (*places, *number) = ([child, parent], relation as i32);
        }
        if let Some(matrix) = &mut self.fk_adj {
            let rows = matrix.len().isqrt();
            for edge in edges {
                matrix[usize::from(edge.child) * rows + usize::from(edge.parent)] = 1;
            }
        }
    }
}

/// When a seed is observed, and the last time of which it sees rows.
#[derive(Clone, Copy)]
pub(super) struct Observation {
    pub at: i64,
    pub sees_until: i64,
}
