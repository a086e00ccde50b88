//! The sequence.
