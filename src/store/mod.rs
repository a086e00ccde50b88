//! The database on disk, memory-mapped: open, validate, verify, read, write.

mod semantic;

pub use semantic::SemanticType;
