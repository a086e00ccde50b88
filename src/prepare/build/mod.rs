//! Builds a store from a source: two passes over its tables, then the tasks and the texts. `events/`
//! builds the store of a log of events.
//!
//! The first pass reads each table once from its source and stages its cells; the second pass
//! writes records and lists of children, when all statistics, categories and keys are known. Memory
//! holds keys, links and the digests of texts, not the cells; only the columns that aggregates or
//! summaries are of are in memory, those of one table at a time.

mod aggregates;
pub(super) mod columns;
mod events;
mod first_pass;
pub(super) mod keys;
mod layout;
mod leaks;
mod links;
mod numbers;
mod pipeline;
mod read_ahead;
mod read_batch;
mod records;
pub(super) mod references;
mod second_pass;
mod summaries;
mod tasks;
mod texts;
mod until;

pub(super) use events::build_events;
pub(super) use pipeline::Preparation;
