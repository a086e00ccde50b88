//! Builds a store from a source: two passes over its tables, then the tasks and the texts. `events/`
//! builds the store of a log of events. `parts/` lets several processes share the reading of the tables.
//!
//! The first pass reads each table once from its source and stages its cells; between the passes the
//! distinct texts are numbered, while rows find their parents and times; the second pass writes records
//! and lists of children, when all statistics, categories, keys and texts are known.
//!
//! Whatever there is once for each row goes to spill files without names: keys, links and texts parted by
//! their digests, children by their parents. Threads work off some parts at a time, so memory holds a part for
//! each thread; neither the number of threads nor that of parts changes a byte. Times and parents are
//! read through maps, whose pages the system takes back when it needs memory. In memory are batches,
//! categories, the seeds of tasks, and the columns that aggregates or summaries are of, those of one table
//! at a time.

mod aggregates;
mod chain;
mod children;
pub(super) mod columns;
mod events;
mod first_pass;
mod groups;
mod in_order;
mod key_list;
pub(super) mod keys;
mod layout;
mod leaks;
mod links;
mod names;
mod numbers;
mod parts;
mod pipeline;
mod read_ahead;
mod read_batch;
mod records;
pub(super) mod references;
mod remarks;
mod resolve;
mod row_keys;
mod row_numbers;
mod scratch;
mod second_pass;
mod summaries;
mod table_columns;
mod tasks;
mod text_runs;
mod texts;
mod until;

pub(super) use events::build_events;
pub use parts::Part;
pub(super) use parts::{Origin, Parts, write_part};
pub(super) use pipeline::Preparation;
