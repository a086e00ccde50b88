//! What a build without the feature `arrayrecord` says of ArrayRecord files.

use std::path::Path;

use super::source::{Batches, SourceColumn};
use crate::error::{Error, Result};

/// Returns the error about ArrayRecord files at `path`.
pub(crate) fn without_arrayrecord(path: &Path) -> Error {
    Error::invalid(format!(
        "{}: expected a build with ArrayRecord, found one without; build headwater with the feature \
         arrayrecord (cargo build --release --features arrayrecord)",
        path.display()
    ))
}

pub(super) fn columns(path: &Path) -> Result<Vec<SourceColumn>> {
    Err(without_arrayrecord(path))
}

pub(super) fn read(path: &Path, _indices: Vec<usize>) -> Result<Batches> {
    Err(without_arrayrecord(path))
}
