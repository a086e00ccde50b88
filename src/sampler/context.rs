//! `Context`: the rows of one seed's context, how the walk reached each, and what time hides.

use super::Sampler;
use super::aggregates::{SeedRow, write_aggregates};
use super::database::{Database, TableRelation};
use super::engine::SequenceSource;
use super::sequence::Observation;
use super::summaries::{Sight, latest_rows};
use super::walk::{Visit, Walker};
use crate::error::Result;
use crate::plan::Split;
use crate::store::{Cell, Row, TargetMetadata, is_visible};

/// The context of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The task, as `database/task`.
    pub task: String,
    /// The place of the database among the sampler's stores.
    pub database: usize,
    /// When the seed is observed.
    pub obs_time: i64,
    /// The split that the seed belongs to.
    pub split: Split,
    /// The target: the value to predict; NULL for a pool, which has none.
    pub target: Cell,
    /// The target's column in the seed row; none for a derived task, whose target is an extra cell, and for
    /// a pool.
    pub target_column: Option<u32>,
    /// The rows in the order of the walk, the seed first.
    pub rows: Vec<Visit>,
    /// The links among the rows, in the order of the rows and of the relations.
    pub links: Vec<Link>,
    /// The neighbours of each row by relation, in the order of the rows, relations to parents first.
    /// Relations through which a row has no links are left out.
    pub neighbours: Vec<Neighbours>,
    /// The cells with a value that the model sees as NULL, in the order of the rows and columns, without
    /// the target.
    pub unseen: Vec<Unseen>,
    /// The aggregates of the children of the rows that have them, in the order of the rows and of the
    /// store.
    pub aggregates: Vec<AggregateCell>,
    /// The number of rows that the walk reached and skipped, because they came to exist later.
    ///
    /// It is at most the sum of the hidden [`neighbours`](Self::neighbours): a walk that is full, at
    /// its last hop or out of budget reads no further, nor does it read a relation whose child width
    /// is 0. A walk by priority that never fills up, without such widths, reaches all of them.
    pub hidden_count: u64,
    /// The number of cells of the rows; a sequence may have fewer.
    pub cell_count: usize,
}

/// A child row and its parent row, both in the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The place of the child row, which refers to the parent.
    pub child: u32,
    /// The place of the parent row.
    pub parent: u32,
    /// The number of the store's relation.
    pub relation: u32,
}

/// A cell of a row of a context that has a value, and that the model sees as NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// The place of the row in the context.
    pub place: u32,
    /// The number of the column in the row's table.
    pub column: u32,
    /// The reason.
    pub why: WhyUnseen,
}

/// The reason why the model sees NULL in place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyUnseen {
    /// The value is known later than the observation.
    KnownLater,
    /// The task hides it in the seed row, because it would tell the target.
    HiddenByTask,
}

/// An aggregate of the children of a row of a context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AggregateCell {
    /// The place of the row in the context.
    pub place: u32,
    /// The number of the store's aggregate.
    pub aggregate: u32,
    /// The cell, as a batch has it.
    pub cell: Cell,
}

/// How many neighbours a row of a context has through one relation, in the context or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// The place of the row in the context.
    pub place: u32,
    /// The number of the store's relation.
    pub relation: u32,
    /// Whether the neighbour is the row's parent; else they are its children.
    pub is_parent: bool,
    /// The number of neighbours that exist at the observation time.
    pub visible: u64,
    /// The number of neighbours that came to exist later.
    pub hidden: u64,
}

impl Sampler {
    /// Returns the context of one seed of a task, as the first epoch has it.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such task or seed.
    pub fn context(&self, task: &str, seed_index: u32) -> Result<Context> {
        self.streams.check_alive()?;
        let engine = self.engine();
        let task = &engine.tasks[self.task_number(task)?];
        let database = &engine.databases[task.database];
        let mut scratch = engine.take_scratch();
        let source = SequenceSource::Seed { seed_index, epoch: 0 };
        let (seed, Observation { at, sees_until }) = engine.collect(task, source, &mut scratch)?;
        let walker = &scratch.walker;
        let hidden = &task.hidden[..];
        let (links, neighbours) = links_and_neighbours(database, walker, sees_until, hidden)?;
        let target = task.stored(&engine.databases).map(|task| &task.metadata().target);
        let target_column = match target {
            Some(TargetMetadata::Cell { column, .. }) => Some(*column),
            Some(TargetMetadata::Derived { .. }) | None => None,
        };
        let keep_future = engine.settings.keep_future_cells;
        let mut unseen = Vec::new();
        for (place, visit) in (0..).zip(walker.visits()) {
            let table = &database.store.tables()[visit.table as usize];
            let record = table.row(visit.row)?;
            for column in 0..table.metadata().columns.len() as u32 {
                let is_target = place == 0 && target_column == Some(column);
                let hides = if place == 0 { hidden } else { &[] };
                let why = why_unseen((&record, column), hides, place == 0, sees_until, keep_future);
                let why = why.filter(|_| !is_target);
                unseen.extend(why.map(|why| Unseen { place, column, why }));
            }
        }
        Ok(Context {
            task: task.name.clone(),
            database: task.database,
            obs_time: at,
            split: task.split_of(seed_index)?,
            target: seed.target,
            target_column,
            unseen,
            rows: walker.visits().to_vec(),
            links,
            neighbours,
            aggregates: aggregates(database, walker, sees_until, hidden)?,
            hidden_count: walker.hidden(),
            cell_count: walker.cells(),
        })
    }
}

/// Returns why a batch has NULL in place of the value of a cell, if it has.
fn why_unseen(
    (record, column): (&Row<'_>, u32),
    hidden: &[u32],
    is_seed: bool,
    obs_time: i64,
    keep_future: bool,
) -> Option<WhyUnseen> {
    let place = column as usize;
    if record.cell(place) == Cell::Null {
        return None;
    }
    if hidden.contains(&column) {
        return Some(WhyUnseen::HiddenByTask);
    }
    let is_later = (is_seed && !is_visible(record.time(), obs_time))
        || match record.cell_known_at(place, obs_time) {
            Cell::Null => true,
            Cell::Timestamp(time) => time > obs_time && !keep_future,
            _ => false,
        };
    is_later.then_some(WhyUnseen::KnownLater)
}

/// Returns the aggregates that a batch has for the rows of a walk.
fn aggregates(
    database: &Database,
    walker: &Walker,
    obs_time: i64,
    hidden: &[u32],
) -> Result<Vec<AggregateCell>> {
    let seed = SeedRow::of(database, walker.visits()[0], obs_time, hidden)?;
    let mut cells = Vec::new();
    for (place, visit) in (0..).zip(walker.visits()).filter(|(_, visit)| visit.has_aggregates) {
        write_aggregates(database, *visit, &seed, |aggregate, cell| {
            cells.push(AggregateCell { place, aggregate: aggregate.number, cell });
        })?;
    }
    Ok(cells)
}

/// Reads the links and neighbours of a walk's rows from the store: the walk itself keeps only what
/// a batch needs.
fn links_and_neighbours(
    database: &Database,
    walker: &Walker,
    obs_time: i64,
    hidden: &[u32],
) -> Result<(Vec<Link>, Vec<Neighbours>)> {
    let (mut links, mut neighbours) = (Vec::new(), Vec::new());
    let tables = database.store.tables();
    let Visit { table, row, .. } = walker.visits()[0];
    let own_time = tables[table as usize].row(row)?.time();
    let sight = Sight { obs_time, table, own_time, hidden };
    for (place, visit) in (0..).zip(walker.visits()) {
        let record = tables[visit.table as usize].row(visit.row)?;
        // Only the seed can be invisible; then its links are not known.
        if !is_visible(record.time(), obs_time) {
            continue;
        }
        let shape = &database.tables[visit.table as usize];
        for &table_relation in &shape.parents {
            let Some(row) = database.relation(table_relation).parent(&record)? else { continue };
            let TableRelation { index: relation, table } = table_relation;
            if let Some(parent) = walker.place(table, row) {
                links.push(Link { child: place, parent, relation });
            }
            let is_visible = is_visible(tables[table as usize].row(row)?.time(), obs_time);
            let (visible, hidden) = (u64::from(is_visible), u64::from(!is_visible));
            neighbours.push(Neighbours { place, relation, is_parent: true, visible, hidden });
        }
        // The seed refers to summaries as if they were its parents.
        let summaries = (place == 0).then(|| latest_rows(database, sight));
        for latest in summaries.into_iter().flatten() {
            let (TableRelation { index: relation, table }, row) = latest?;
            if let Some(parent) = walker.place(table, row) {
                links.push(Link { child: place, parent, relation });
            }
            let (visible, hidden) = (1, 0);
            neighbours.push(Neighbours { place, relation, is_parent: true, visible, hidden });
        }
        for &table_relation in &shape.children {
            let children = database.relation(table_relation).children(visit.row)?;
            let until = sight.until_of(database, table_relation);
            let visible = children.visible_count(until)? as u64;
            let hidden = children.count() as u64 - visible;
            if visible + hidden > 0 {
                let relation = table_relation.index;
                neighbours.push(Neighbours { place, relation, is_parent: false, visible, hidden });
            }
        }
    }
    Ok((links, neighbours))
}
