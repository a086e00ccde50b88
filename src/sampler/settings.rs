//! What a sampler is told: what determines its sequence, and what only its speed and its form.

use crate::error::{Error, Result};
use crate::plan::{Plan, Split, SplitRatios, SplitRule};

/// The version of the sequence that `FORMAT.md` describes; it is part of every plan.
const SEQUENCE_VERSION: u64 = 1;

/// The most rows of a context and the most cells of a sequence: both are numbered in 16 bits, and
/// the last number stands for "none".
const PLACES_MAX: u32 = u16::MAX as u32;

/// How a context is collected around its seed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Parents first, always; then children hop by hop, in random order within a hop.
    Priority {
        /// The most children that one row brings in through one relation.
        child_width: u32,
        /// Which of the children.
        children: Children,
    },
    /// Breadth first, as in a queue: each row brings in its parents, then its children.
    Breadth {
        /// How many links away from the seed a row may be.
        max_hops: u32,
        /// The most rows that one row brings in, in each of the two directions.
        budget: u32,
    },
}

/// Which children are taken when there are more than the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// Any, each as likely as the other, none twice.
    Uniform,
    /// Those that came last before the observation time.
    Latest,
}

/// The order of `out_perm` and `in_perm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// As the walk came upon them.
    Walk,
    /// Reverse Cuthill-McKee: rows that are linked come near to each other.
    CuthillMckee,
}

/// How many sequences a batch has and how large they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// B, the sequences of one rank's batch.
    pub batch_size: u32,
    /// S, the cells of a sequence.
    pub sequence_length: u32,
    /// R, the most rows of a context.
    pub max_rows: u32,
    /// Times and links in the short form, for a device that expands them.
    pub compact: bool,
    /// Where the vectors of the texts are.
    pub texts: Texts,
}

/// Where the vectors of a batch's texts are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Texts {
    /// In the batch, each once, as many as the smallest of these counts that holds them. Without
    /// counts: 256, 1024, 4096, 16384 and as many as there are cells.
    Batch(Vec<u32>),
    /// With the caller, who has all of the store's; the batch has their indexes.
    Global,
}

/// What a sampler is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The seed of the shuffles and of the walks.
    pub seed: u64,
    /// How rows are divided where a task does not record it.
    pub split: SplitRule,
    /// The tasks to serve, as `task` or `database/task`; all where it is not said.
    pub tasks: Option<Vec<String>>,
    /// How often each of `tasks` is served; all alike where it is not said.
    pub task_weights: Option<Vec<f64>>,
    /// How contexts are collected.
    pub walk: Walk,
    /// How many children one row brings in through some relations, in place of the child width; a
    /// relation as `table.columns` or `database/table.columns`, named after who refers.
    pub child_widths: Vec<(String, u32)>,
    /// Whether a timestamp cell that lies after the observation time is kept; it is NULL otherwise.
    pub keep_future_cells: bool,
    /// The order of `out_perm` and `in_perm`.
    pub row_order: RowOrder,
    /// The shape of a batch.
    pub shape: Shape,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 42,
            split: SplitRule { seed: 123, ratios: SplitRatios::default() },
            tasks: None,
            task_weights: None,
            walk: Walk::Priority { child_width: 16, children: Children::Uniform },
            child_widths: Vec::new(),
            keep_future_cells: false,
            row_order: RowOrder::Walk,
            shape: Shape {
                batch_size: 32,
                sequence_length: 1024,
                max_rows: 208,
                compact: false,
                texts: Texts::Batch(Vec::new()),
            },
        }
    }
}

impl Settings {
    /// Refuses what cannot be.
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
                "found a child width for {relation:?} and a walk by breadth, which has none; walk by \
                 priority"
            )));
        }
        if let (None, Some(weights)) = (&self.tasks, &self.task_weights) {
            return Err(Error::invalid(format!(
                "found {} task weights without the tasks that they belong to; name the tasks too",
                weights.len()
            )));
        }
        Ok(())
    }

    /// Adds to a plan all that determines the sequence, but for the data and the tasks.
    ///
    /// The batch's size and form are no part of it: they may change when a run goes on.
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
        plan.add("keep_future_cells", self.keep_future_cells)?;
        let by_walk = self.row_order == RowOrder::Walk;
        plan.add("row_order", if by_walk { "walk" } else { "cuthill-mckee" })?;
        plan.add("sequence_length", u64::from(self.shape.sequence_length))?;
        plan.add("max_rows", u64::from(self.shape.max_rows))
    }
}
