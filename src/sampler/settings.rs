//! The settings of a sampler: those that determine its sequence, and the form of its batches.

use crate::days::DAY_US;
use crate::error::{Error, Result};
use crate::plan::{Plan, Split, SplitRule};
use crate::store::is_time;

use super::masks::Masks;
use super::pools::Pool;

/// The version of the sequence that `FORMAT.md` describes; it is part of every plan.
const SEQUENCE_VERSION: u64 = 3;

/// The most rows of a context and cells of a sequence: both are numbered in 16 bits, and the last
/// number means none.
const PLACES_MAX: u32 = u16::MAX as u32;

/// How a context is collected around its seed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Parents first, always; then children hop by hop, in random order within a hop.
    Priority {
        /// The most children that one row brings in through one relation.
        child_width: u32,
        /// The children that are taken when there are more.
        children: Children,
    },
    /// Breadth first: each row in turn brings in its parents, then its children.
    Breadth {
        /// The most links between the seed and a row.
        max_hops: u32,
        /// The most rows that one row brings in, in each of the two directions.
        budget: u32,
    },
}

/// The children that are taken when there are more than the child width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// A uniform draw without replacement.
    Uniform,
    /// The latest before the observation time.
    Latest,
}

/// The order of `out_perm` and `in_perm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// The order of the walk.
    Walk,
    /// Reverse Cuthill-McKee: linked rows come close to each other.
    CuthillMckee,
}

/// The number and size of a batch's sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// B, the sequences of one rank's batch.
    pub batch_size: u32,
    /// S, the most cells of a sequence.
    pub sequence_length: u32,
    /// Lengths below S. A batch is padded to the least of them, or S, that holds its longest sequence
    /// (default: none, so that all batches have one shape).
    pub sequence_buckets: Vec<u32>,
    /// R, the most rows of a context.
    pub max_rows: u32,
    /// Whether times and links come in the compact form, which the device expands.
    pub compact: bool,
    /// Whether a batch has the orders of its cells: `col_perm`, `out_perm` and `in_perm`.
    pub permutations: bool,
    /// The place of the texts' vectors.
    pub texts: Texts,
}

/// The rows that have aggregates of their children as cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregates {
    /// None.
    None,
    /// The seed and its parents.
    Near,
    /// The seed and every row that was reached as a parent.
    All,
}

impl Aggregates {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Near, Self::All];

    /// Returns its name in Python and in a plan.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Near => "near",
            Self::All => "all",
        }
    }
}

/// The place of the vectors of a batch's texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Texts {
    /// In the batch, each text once, padded to the smallest of these counts that holds them. An empty
    /// list means the number of cells, and the powers of two from 256 on that are below it.
    Batch(Vec<u32>),
    /// Outside the batch: the caller has all vectors of the store, the batch has their indexes.
    Global,
}

/// The greatest staleness in days: 10,000 years.
pub const STALENESS_DAYS_MAX: u32 = 10_000 * 365;

/// The default of `width` in `Walk::Priority`.
pub const CHILD_WIDTH: u32 = 16;
/// The default of `max_hops` in `Walk::Breadth`.
pub const MAX_HOPS: u32 = 3;
/// The default of `budget` in `Walk::Breadth`.
pub const BUDGET: u32 = 16;

/// The settings of a sampler.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The random seed of the shuffles and of the walks.
    pub seed: u64,
    /// The rule that divides the seeds of tasks without recorded splits.
    pub split: SplitRule,
    /// The names of the stores, in their order, in place of their own (default: their own). They are part
    /// of the names of the tasks, and so of the order.
    pub aliases: Option<Vec<String>>,
    /// The tasks to serve, as `task` or `database/task` (default: all, and none where there are pools).
    pub tasks: Option<Vec<String>>,
    /// The tables whose rows are served as seeds without a target, after the tasks (default: none).
    pub pools: Vec<Pool>,
    /// The weight of each of `tasks`, then of each of `pools` (default: equal).
    pub task_weights: Option<Vec<f64>>,
    /// Whether seeds whose target is NULL are left out.
    pub require_label: bool,
    /// The walk that collects a context.
    pub walk: Walk,
    /// The child widths of single relations, in place of the walk's. A relation is written as
    /// `table.columns` or `database/table.columns` of its child table.
    pub child_widths: Vec<(String, u32)>,
    /// Which rows have the store's aggregates of their children as cells.
    pub aggregates: Aggregates,
    /// The latest observation time, in microseconds: a seed observed later, or that sees everything, is
    /// observed at this time.
    pub visible_until: Option<i64>,
    /// The most microseconds by which a seed is observed earlier in the shuffled stream of the train
    /// split: in each epoch by a random time up to this. So a model learns to predict from data that
    /// are not of the day.
    pub staleness: i64,
    /// Whether timestamp cells after the observation time are kept; else they are NULL.
    pub keep_future_cells: bool,
    /// The order of `out_perm` and `in_perm`.
    pub row_order: RowOrder,
    /// Which cells are masked beside the target (default: none).
    pub masks: Option<Masks>,
    /// The shape of a batch.
    pub shape: Shape,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 42,
            split: SplitRule::default(),
            aliases: None,
            tasks: None,
            pools: Vec::new(),
            task_weights: None,
            require_label: false,
            walk: Walk::Priority { child_width: CHILD_WIDTH, children: Children::Uniform },
            child_widths: Vec::new(),
            aggregates: Aggregates::Near,
            visible_until: None,
            staleness: 0,
            keep_future_cells: false,
            row_order: RowOrder::Walk,
            masks: None,
            shape: Shape {
                batch_size: 32,
                sequence_length: 1024,
                sequence_buckets: Vec::new(),
                max_rows: 208,
                compact: false,
                permutations: false,
                texts: Texts::Batch(Vec::new()),
            },
        }
    }
}

impl Shape {
    /// Returns the lengths that sequences are padded to, ascending; S is the last.
    pub(super) fn sequence_lengths(&self) -> Vec<u32> {
        let mut lengths = self.sequence_buckets.clone();
        lengths.push(self.sequence_length);
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }
}

impl Settings {
    /// Rejects settings out of range or in conflict.
    pub(super) fn check(&self) -> Result<()> {
        let Shape { batch_size, sequence_length, max_rows, .. } = self.shape;
        if batch_size == 0 {
            return Err(Error::invalid("expected a batch size of at least 1, found 0"));
        }
        for (name, value) in [("sequence length", sequence_length), ("max_rows", max_rows)] {
            if value == 0 || value > PLACES_MAX {
                return Err(Error::invalid(format!(
                    "expected a {name} of 1 to {PLACES_MAX}, found {value}: cells and rows are \
                     numbered in 16 bits"
                )));
            }
        }
        let mut buckets = self.shape.sequence_buckets.iter();
        if let Some(bucket) = buckets.find(|bucket| !(1..=sequence_length).contains(*bucket)) {
            return Err(Error::invalid(format!(
                "sequence_buckets: expected lengths of 1 to {sequence_length}, the sequence length, found \
                 {bucket}; leave it out"
            )));
        }
        if let Some(time) = self.visible_until.filter(|&time| !is_time(time)) {
            return Err(Error::invalid(format!(
                "visible_until: expected a time within 292,000 years of 1970, found {time} us; leave \
                 it out for no limit"
            )));
        }
        let longest = i64::from(STALENESS_DAYS_MAX) * DAY_US;
        if !(0..=longest).contains(&self.staleness) {
            return Err(Error::invalid(format!(
                "staleness: expected 0 to {longest} us, found {}",
                self.staleness
            )));
        }
        let widths = match self.walk {
            Walk::Priority { child_width, .. } => [("child width", child_width), ("", 1)],
            Walk::Breadth { max_hops, budget } => [("budget", budget), ("max_hops", max_hops)],
        };
        for (name, value) in widths {
            if value == 0 || value > PLACES_MAX {
                return Err(Error::invalid(format!(
                    "expected a {name} of 1 to {PLACES_MAX}, found {value}"
                )));
            }
        }
        for (relation, width) in &self.child_widths {
            if *width > PLACES_MAX {
                return Err(Error::invalid(format!(
                    "expected a child width of 0 to {PLACES_MAX} for {relation:?}, found {width}"
                )));
            }
        }
        if let (Walk::Breadth { .. }, Some((relation, _))) = (self.walk, self.child_widths.first())
        {
            return Err(Error::invalid(format!(
                "expected the walk by priority, because child_widths names {relation:?}, found the walk \
                 breadth first; change the walk, or remove child_widths"
            )));
        }
        self.masks.map_or(Ok(()), |masks| check_masks(masks, sequence_length))?;
        let is_of_pools = !self.pools.is_empty() && self.tasks.as_ref().is_none_or(Vec::is_empty);
        if self.require_label && is_of_pools {
            return Err(Error::invalid(
                "require_label: expected a task whose seeds have labels, found pools alone, whose rows have \
                 none; name a task in tasks, or leave require_label out",
            ));
        }
        if !self.shape.permutations && self.row_order != RowOrder::Walk {
            return Err(Error::invalid(
                "row_order: expected \"walk\", because a batch without permutations has no order of \
                 rows, found \"cuthill-mckee\"; leave it out, or ask for the permutations",
            ));
        }
        if let (None, true, Some(weights)) =
            (&self.tasks, self.pools.is_empty(), &self.task_weights)
        {
            return Err(Error::invalid(format!(
                "expected task names with the {} task weights, found none; name the tasks too",
                weights.len()
            )));
        }
        Ok(())
    }

    /// Adds the settings that determine the sequence to a plan; data and tasks are added elsewhere.
    ///
    /// The size and form of a batch are not in the plan: they may change on a resume.
    pub(super) fn add_to(&self, plan: &mut Plan) -> Result<()> {
        plan.add("sampler", SEQUENCE_VERSION)?;
        plan.add("seed", self.seed)?;
        plan.add("split_seed", self.split.seed)?;
        for split in Split::ALL {
            let buckets = self.split.ratios.bucket_count(split);
            plan.add(format!("split_ratios/{}", split.name()), buckets)?;
        }
        match self.walk {
            Walk::Priority { child_width, children } => {
                plan.add("walk", "priority")?;
                plan.add("child_width", u64::from(child_width))?;
                let latest = children == Children::Latest;
                plan.add("children", if latest { "latest" } else { "uniform" })?;
            }
            Walk::Breadth { max_hops, budget } => {
                plan.add("walk", "breadth")?;
                plan.add("max_hops", u64::from(max_hops))?;
                plan.add("budget", u64::from(budget))?;
            }
        }
        plan.add("aggregates", self.aggregates.name())?;
        if let Some(time) = self.visible_until {
            plan.add("visible_until", time.to_string().as_str())?;
        }
        if self.staleness > 0 {
            plan.add("staleness", self.staleness.cast_unsigned())?;
        }
        plan.add("keep_future_cells", self.keep_future_cells)?;
        let by_walk = self.row_order == RowOrder::Walk;
        plan.add("row_order", if by_walk { "walk" } else { "cuthill-mckee" })?;
        if let Some(masks) = &self.masks {
            masks.add_to(plan)?;
        }
        if self.require_label {
            plan.add("require_label", true)?;
        }
        plan.add("sequence_length", u64::from(self.shape.sequence_length))?;
        plan.add("max_rows", u64::from(self.shape.max_rows))
    }
}

/// Rejects masks of no cell, and more masked cells than a sequence has.
fn check_masks(masks: Masks, sequence_length: u32) -> Result<()> {
    if masks.share == 0 {
        return Err(Error::invalid(
            "mask_share: expected more than 0, found 0; to mask no cell but the target, leave the masks out",
        ));
    }
    match (1..=sequence_length).contains(&masks.most.into()) {
        true => Ok(()),
        false => Err(mask_most_beyond(masks.most.into(), sequence_length)),
    }
}

/// The error of a limit of masked cells that no sequence can reach, or that allows none.
#[must_use]
pub fn mask_most_beyond(found: i128, sequence_length: u32) -> Error {
    Error::invalid(format!(
        "mask_most: expected 1 to {sequence_length}, because a sequence has {sequence_length} cells, found \
         {found}; leave it out for what sequences rarely exceed, or leave out mask_share to mask no cell"
    ))
}
