//! Tests that need a process of their own: threads of rayon are started once in a process, and all tests of a
//! process draw their random numbers from one generator.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const STORE: &str = "HEADWATER_BURN_STORE";

/// Returns the store of a test that runs alone in this process; none in the process of all tests.
pub(crate) fn store_of_own_process() -> Option<PathBuf> {
    env::var_os(STORE).map(PathBuf::from)
}

/// Runs a test alone, on a store; it must pass. Returns what it prints.
pub(crate) fn run_in_own_process(test: &str, store: &Path, variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(STORE, store);
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}
