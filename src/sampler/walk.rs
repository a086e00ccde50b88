//! The walk: from a seed row along links, in both directions, to the rows of its context.
//!
//! The file is long, but the walk by priority is short. Parents come first, always; children come
//! hop by hop, in random order within a hop:
//!
//! ```text
//! visit the seed, and the latest row of each summary that is of no parent; level = 0
//! until the context is full:
//!     a parent waits?             visit the first one
//!     else a ticket is left?      draw one; visit a child of its row and relation
//!     else a row of this level?   give its children tickets, at most the width per relation; level += 1
//!     else                        stop
//! visit(row): skip it if visited or not visible yet; else add it, and let its parents wait
//! ```
//!
//! The real loop differs in three ways, none of which changes a draw:
//! 1. Children are drawn up to 16 ahead and prefetched in two steps (row number, then record),
//!    because a walk mostly waits for memory. Children of one level bring in no children before the
//!    next level, so that drawing ahead draws the same.
//! 2. A brood never lists its children. A binary search over their times counts the visible ones, and
//!    [`Choice`] shuffles only the places that it touches.
//! 3. Buffers and the visited set are kept from walk to walk; after the first walks nothing allocates.
//!
//! The walk breadth first is a plain queue. `sampler/FORMAT.md` has both, draw by draw.

use std::collections::VecDeque;

use super::choice::{Choice, Touched};
use super::database::{Database, TableRelation};
use super::settings::{Aggregates, Children, Walk};
use super::summaries::{Sight, latest_rows};
use super::visited::Visited;
use crate::error::Result;
use crate::random::Stream;
use crate::store::{Row, is_visible};

/// The seed row of a walk, and its observation time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    pub table: u32,
    pub row: u32,
    pub obs_time: i64,
    /// The extra cells of the seed row: 1 for the target of a derived task, else 0.
    pub extra_cells: usize,
    /// The columns of the table that the seed hides.
    pub hidden: &'a [u32],
}

/// The limits of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub walk: Walk,
    pub cells_max: usize,
    pub rows_max: usize,
    pub aggregates: Aggregates,
}

/// A row of a context; its place is its number in the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Its table's place in the store.
    pub table: u32,
    /// Its number in the table.
    pub row: u32,
    /// The number of links between it and the seed, on the walk's path.
    pub hop: u32,
    /// The place of the row that brought it in; the seed's own is 0.
    pub from: u32,
    /// The number of the store's relation; 0 for the seed.
    pub relation: u32,
    /// Whether it is a parent of that row; else it is a child.
    pub is_parent: bool,
    /// Whether it has cells for the aggregates of its children.
    pub has_aggregates: bool,
}

/// A row that waits to be visited.
#[derive(Clone, Copy)]
struct Candidate {
    relation: TableRelation,
    row: u32,
    from: u32,
}

/// The children that one row may bring in through one relation.
struct Brood {
    relation: TableRelation,
    parent: u32,
    from: u32,
    choice: Choice,
    /// The place of the first child to choose from.
    first: u64,
    /// Whether the children are rows of a summary, of which the latest come first.
    is_summary: bool,
}

/// A drawn child: the one at `place` among the parent's children.
struct Drawn {
    relation: TableRelation,
    parent: u32,
    from: u32,
    place: usize,
}

/// The number of children that are prefetched at a time, in each of two stages: first the row number
/// of a child, then its record. Eight cache lines at once take less time than eight in turn.
const AHEAD: usize = 8;

/// A link from a row of the context to its parent, which may be outside the context.
#[derive(Clone, Copy)]
struct Reference {
    from: u32,
    relation: TableRelation,
    row: u32,
}

/// A link between two rows of a context, as their places.
#[derive(Clone, Copy)]
pub(super) struct Edge {
    pub child: u16,
    pub parent: u16,
    /// The number of the store's relation.
    pub relation: u32,
}

/// Walks one seed after the other; allocates nothing once its buffers have grown.
pub(super) struct Walker {
    visited: Visited,
    visits: Vec<Visit>,
    cells: usize,
    parents: VecDeque<Candidate>,
    broods: Vec<Brood>,
    /// For each child that may still be drawn, its brood.
    tickets: Vec<u32>,
    /// Children that were drawn and not read yet.
    drawn: VecDeque<Drawn>,
    /// Children that were read and are visited next.
    read: VecDeque<Candidate>,
    touched: Vec<Touched>,
    references: Vec<Reference>,
    edges: Vec<Edge>,
    hidden: u64,
}

impl Walker {
    pub(super) fn new(rows_max: u32) -> Self {
        Self {
            visited: Visited::new(rows_max),
            visits: Vec::new(),
            cells: 0,
            parents: VecDeque::new(),
            broods: Vec::new(),
            tickets: Vec::new(),
            drawn: VecDeque::new(),
            read: VecDeque::new(),
            touched: Vec::new(),
            references: Vec::new(),
            edges: Vec::new(),
            hidden: 0,
        }
    }

    /// Returns the rows of the last walk, the seed first.
    pub(super) fn visits(&self) -> &[Visit] {
        &self.visits
    }

    /// Returns the place of a row in the last walk.
    pub(super) fn place(&self, table: u32, row: u32) -> Option<u32> {
        self.visited.get(table, row)
    }

    /// Returns the links among the rows of the last walk, in the order of the children and of the
    /// relations.
    pub(super) fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns the number of rows that the last walk reached and skipped, because they came to exist
    /// later.
    pub(super) fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Returns the number of cells of the rows of the last walk.
    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    /// Collects the context of a seed.
    ///
    /// # Determinism
    /// Depends on the database, the start, the bounds and the words of `random` alone.
    ///
    /// # Cost
    /// For each row its record, its parents and, if the walk takes its children, a binary search for
    /// each relation; the number of its children does not matter.
    pub(super) fn walk(
        &mut self,
        database: &Database,
        start: Start<'_>,
        bounds: &Bounds,
        random: &mut Stream,
    ) -> Result<()> {
        self.clear();
        let record = database.store.tables()[start.table as usize].row(start.row)?;
        let Start { table, obs_time, hidden, .. } = start;
        let sight = Sight { obs_time, table, own_time: record.time(), hidden };
        let mut walk = Walking { walker: self, database, start, sight, bounds, random };
        if walk.begin(&record)? {
            match bounds.walk {
                Walk::Priority { child_width, children } => walk.by_priority(child_width, children),
                Walk::Breadth { max_hops, budget } => walk.by_breadth(max_hops, budget),
            }?;
        }
        self.connect();
        Ok(())
    }

    fn clear(&mut self) {
        self.visited.clear();
        self.visits.clear();
        self.cells = 0;
        self.parents.clear();
        self.broods.clear();
        self.tickets.clear();
        self.drawn.clear();
        self.read.clear();
        self.touched.clear();
        self.references.clear();
        self.hidden = 0;
    }

    /// Finds the links with both ends in the context.
    fn connect(&mut self) {
        self.edges.clear();
        for &Reference { from, relation, row } in &self.references {
            if let Some(place) = self.visited.get(relation.table, row) {
                let (child, parent) = (from as u16, place as u16);
                self.edges.push(Edge { child, parent, relation: relation.index });
            }
        }
    }
}

/// A walk in progress.
struct Walking<'a> {
    walker: &'a mut Walker,
    database: &'a Database,
    start: Start<'a>,
    sight: Sight<'a>,
    bounds: &'a Bounds,
    random: &'a mut Stream,
}

impl Walking<'_> {
    fn is_full(&self) -> bool {
        self.walker.cells >= self.bounds.cells_max
            || self.walker.visits.len() >= self.bounds.rows_max
    }

    /// Visits the seed; false if its row came to exist after the observation time: then the row and
    /// its links are not known, and there is no context.
    fn begin(&mut self, record: &Row<'_>) -> Result<bool> {
        let Start { table, row, obs_time, extra_cells, .. } = self.start;
        self.walker.cells += extra_cells;
        let has_aggregates = self.bounds.aggregates != Aggregates::None;
        let (hop, from, relation, is_parent) = (0, 0, 0, false);
        self.enter(Visit { table, row, hop, from, relation, is_parent, has_aggregates });
        let is_known = is_visible(record.time(), obs_time);
        if is_known {
            self.queue_parents(0, table, record)?;
            self.visit_summaries()?;
        }
        Ok(is_known)
    }

    /// Visits the latest row of each summary that is of no parent, as if the seed referred to it.
    fn visit_summaries(&mut self) -> Result<()> {
        for latest in latest_rows(self.database, self.sight) {
            let (relation, row) = latest?;
            if self.is_full() {
                break;
            }
            self.walker.references.push(Reference { from: 0, relation, row });
            self.visit(Candidate { relation, row, from: 0 }, true)?;
        }
        Ok(())
    }

    fn enter(&mut self, visit: Visit) {
        let place = self.walker.visits.len() as u32;
        self.walker.visited.insert(visit.table, visit.row, place);
        let shape = &self.database.tables[visit.table as usize];
        let aggregates = if visit.has_aggregates { shape.aggregates.len() } else { 0 };
        self.walker.cells += shape.columns.len() + aggregates;
        self.walker.visits.push(visit);
    }

    /// Queues the parents of the row at `place`.
    fn queue_parents(&mut self, place: u32, table: u32, record: &Row<'_>) -> Result<()> {
        for &relation in &self.database.tables[table as usize].parents {
            if let Some(row) = self.database.relation(relation).parent(record)? {
                self.walker.references.push(Reference { from: place, relation, row });
                self.walker.parents.push_back(Candidate { relation, row, from: place });
                self.database.store.tables()[relation.table as usize].prefetch(row);
            }
        }
        Ok(())
    }

    /// Visits a row unless it was visited already or came to exist later.
    fn visit(&mut self, candidate: Candidate, is_parent: bool) -> Result<()> {
        let Candidate { relation, row, from } = candidate;
        if self.walker.visited.get(relation.table, row).is_some() {
            return Ok(());
        }
        let record = self.database.store.tables()[relation.table as usize].row(row)?;
        if !is_visible(record.time(), self.start.obs_time) {
            self.walker.hidden += 1;
            return Ok(());
        }
        let place = self.walker.visits.len() as u32;
        let hop = self.walker.visits[from as usize].hop + 1;
        let has_aggregates = match self.bounds.aggregates {
            Aggregates::None => false,
            Aggregates::Near => is_parent && hop == 1,
            Aggregates::All => is_parent,
        };
        let (table, relation) = (relation.table, relation.index);
        self.enter(Visit { table, row, hop, from, relation, is_parent, has_aggregates });
        self.queue_parents(place, table, &record)
    }

    fn by_priority(&mut self, width: u32, children: Children) -> Result<()> {
        // Rows of lower hops than this have brought in their children.
        let mut hop = 0;
        while !self.is_full() {
            if let Some(parent) = self.walker.parents.pop_front() {
                self.visit(parent, true)?;
            } else if let Some(child) = self.next_child(children)? {
                self.visit(child, false)?;
            } else if self.walker.visits.iter().any(|visit| visit.hop >= hop) {
                self.gather_broods(hop, width)?;
                hop += 1;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Returns the child width of a relation: its own, or 1 for a summary, or the walk's.
    fn width_of(&self, relation: TableRelation, default: u32) -> u32 {
        let is_summary = || self.database.summary_of(relation).is_some();
        let own = self.database.child_widths[relation.index as usize];
        own.unwrap_or_else(|| if is_summary() { 1 } else { default })
    }

    /// Makes the broods and tickets of the rows of one hop.
    fn gather_broods(&mut self, hop: u32, width: u32) -> Result<()> {
        self.walker.broods.clear();
        self.walker.touched.clear();
        self.prefetch_broods(hop, width)?;
        for from in 0..self.walker.visits.len() as u32 {
            let visit = self.walker.visits[from as usize];
            if visit.hop != hop {
                continue;
            }
            for &relation in &self.database.tables[visit.table as usize].children {
                let width = self.width_of(relation, width);
                if width == 0 {
                    continue;
                }
                let visible = self.visible_children(relation, visit.row)?;
                if visible == 0 {
                    continue;
                }
                let choice = Choice::new(visible, width, &mut self.walker.touched);
                let number = self.walker.broods.len() as u32;
                self.walker.tickets.extend(std::iter::repeat_n(number, choice.width() as usize));
                let is_summary = self.database.summary_of(relation).is_some();
                let (parent, first) = (visit.row, 0);
                let brood = Brood { relation, parent, from, choice, first, is_summary };
                self.walker.broods.push(brood);
            }
        }
        Ok(())
    }

    /// Prefetches what [`Self::gather_broods`] reads: the offsets of the children, then the time of
    /// the last child.
    fn prefetch_broods(&self, hop: u32, width: u32) -> Result<()> {
        let visits = || self.walker.visits.iter().filter(|visit| visit.hop == hop);
        let relations = |table: u32| {
            let all = self.database.tables[table as usize].children.iter();
            let followed = all.filter(|&&relation| self.width_of(relation, width) > 0);
            followed.map(|&relation| self.database.relation(relation))
        };
        for visit in visits() {
            relations(visit.table).for_each(|relation| relation.prefetch(visit.row));
        }
        for visit in visits() {
            for relation in relations(visit.table) {
                relation.children(visit.row)?.prefetch_last_time();
            }
        }
        Ok(())
    }

    fn visible_children(&mut self, relation: TableRelation, parent: u32) -> Result<u64> {
        let children = self.database.relation(relation).children(parent)?;
        let visible = children.visible_count(self.sight.until_of(self.database, relation))?;
        self.walker.hidden += (children.count() - visible) as u64;
        Ok(visible as u64)
    }

    /// Returns the next child to visit, in the order of the draws.
    ///
    /// Drawing ahead draws the same: rows that are visited meanwhile bring in no children yet.
    fn next_child(&mut self, order: Children) -> Result<Option<Candidate>> {
        while self.walker.drawn.len() + self.walker.read.len() < 2 * AHEAD
            && !self.walker.tickets.is_empty()
        {
            let drawn = self.draw_child(order);
            let relation = self.database.relation(drawn.relation);
            relation.children(drawn.parent)?.prefetch(drawn.place);
            self.walker.drawn.push_back(drawn);
        }
        while self.walker.read.len() < AHEAD
            && let Some(Drawn { relation, parent, from, place }) = self.walker.drawn.pop_front()
        {
            let row = self.database.relation(relation).children(parent)?.row(place)?;
            self.database.store.tables()[relation.table as usize].prefetch(row);
            self.walker.read.push_back(Candidate { relation, row, from });
        }
        Ok(self.walker.read.pop_front())
    }

    /// Draws one of the remaining children uniformly.
    fn draw_child(&mut self, order: Children) -> Drawn {
        let Walker { tickets, broods, touched, .. } = &mut *self.walker;
        let ticket = self.random.below(tickets.len() as u64) as usize;
        let brood = &mut broods[tickets.swap_remove(ticket) as usize];
        let place = match order {
            Children::Uniform if !brood.is_summary => brood.choice.draw(self.random, touched),
            _ => brood.choice.latest(),
        };
        let Brood { relation, parent, from, .. } = *brood;
        Drawn { relation, parent, from, place: place as usize }
    }

    fn by_breadth(&mut self, max_hops: u32, budget: u32) -> Result<()> {
        let mut next = 0;
        while next < self.walker.visits.len() && !self.is_full() {
            let visit = self.walker.visits[next];
            if visit.hop < max_hops {
                self.visit_parents_of(next as u32, budget)?;
                self.visit_children_of(next as u32, budget)?;
            }
            next += 1;
        }
        Ok(())
    }

    /// Visits at most `budget` of the parents of the row at `place`.
    fn visit_parents_of(&mut self, place: u32, budget: u32) -> Result<()> {
        // The queue holds a row's parents in one stretch, in the order of the visits.
        let waiting = self.walker.parents.iter();
        let count = waiting.take_while(|candidate| candidate.from == place).count();
        self.walker.touched.clear();
        let mut choice = Choice::new(count as u64, budget, &mut self.walker.touched);
        for _ in 0..choice.width() {
            if self.is_full() {
                break;
            }
            let drawn = choice.draw(self.random, &mut self.walker.touched);
            self.visit(self.walker.parents[drawn as usize], true)?;
        }
        self.walker.parents.drain(..count);
        Ok(())
    }

    /// Visits at most `budget` of the children of the row at `place`, of all relations together.
    fn visit_children_of(&mut self, place: u32, budget: u32) -> Result<()> {
        let visit = self.walker.visits[place as usize];
        self.walker.broods.clear();
        self.walker.touched.clear();
        let mut total = 0;
        for &relation in &self.database.tables[visit.table as usize].children {
            let visible = self.visible_children(relation, visit.row)?;
            // Of a summary only the latest row.
            let is_summary = self.database.summary_of(relation).is_some();
            let first = if is_summary { visible.saturating_sub(1) } else { 0 };
            total += visible - first;
            let choice = Choice::new(visible - first, 0, &mut self.walker.touched);
            let (parent, from) = (visit.row, place);
            let brood = Brood { relation, parent, from, choice, first, is_summary };
            self.walker.broods.push(brood);
        }
        let mut choice = Choice::new(total, budget, &mut self.walker.touched);
        for _ in 0..choice.width() {
            if self.is_full() {
                break;
            }
            let drawn = choice.draw(self.random, &mut self.walker.touched);
            let child = self.child_among_all(drawn)?;
            self.visit(child, false)?;
        }
        Ok(())
    }

    /// Returns the child at `place` of all broods in a row.
    fn child_among_all(&self, mut place: u64) -> Result<Candidate> {
        for brood in &self.walker.broods {
            if place < brood.choice.count() {
                let relation = self.database.relation(brood.relation);
                let row = relation.children(brood.parent)?.row((brood.first + place) as usize)?;
                return Ok(Candidate { relation: brood.relation, row, from: brood.from });
            }
            place -= brood.choice.count();
        }
        unreachable!("the choice is among as many children as the broods have")
    }
}
