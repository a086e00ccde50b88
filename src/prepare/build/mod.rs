//! Builds a store from a source: two passes over its tables, then the tasks and the texts.
//!
//! The first pass reads each table once from its source and stages its cells; the second pass
//! writes records and lists of children, when all statistics, categories and keys are known. Memory
//! holds keys, links and the digests of texts, not the cells.

mod aggregates;
pub(super) mod columns;
mod first_pass;
pub(super) mod keys;
mod layout;
mod leaks;
mod links;
mod numbers;
mod pipeline;
mod records;
pub(super) mod references;
mod second_pass;
mod tasks;
mod texts;

pub(super) use pipeline::Preparation;
