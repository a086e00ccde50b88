//! Which launcher started this process.

use headwater::internal::Launched;
use pyo3::prelude::*;

/// Returns the launcher, the rank, the number of ranks if it is known, and whether all are known to run on
/// this machine.
#[pyfunction]
pub(super) fn launched() -> Option<(&'static str, u32, Option<u32>, bool)> {
    let found = Launched::of_environment()?;
    Some((found.launcher(), found.rank(), found.size(), found.is_on_one_machine()))
}
