//! The process that owns threads, and its thread pools.

use rayon::ThreadPool;

use crate::environment::in_default_environment;
use crate::error::{Error, Result};

/// The most threads of a pool; more only take time to start.
pub const THREADS_MAX: usize = 1024;

/// Starts a pool of `threads` threads; default: all cores.
///
/// # Errors
/// `InvalidArgument` for 0 or more than 1,024 threads, `LimitExceeded` when the system starts none.
pub fn pool(threads: Option<usize>) -> Result<ThreadPool> {
    check_threads(threads)?;
    let mut pool = rayon::ThreadPoolBuilder::new();
    if let Some(threads) = threads {
        pool = pool.num_threads(threads);
    }
    // Its threads work with the usual settings, whatever the caller's are.
    in_default_environment(|| pool.build()).map_err(|e| {
        Error::limit(format!("cannot start threads: {e}; use fewer threads, or free some memory"))
    })
}

/// Checks a number of threads.
///
/// # Errors
/// `InvalidArgument` for 0 or more than 1,024.
pub(crate) fn check_threads(threads: Option<usize>) -> Result<()> {
    match threads.filter(|threads| !(1..=THREADS_MAX).contains(threads)) {
        None => Ok(()),
        Some(threads) => Err(Error::invalid(format!(
            "expected 1 to {THREADS_MAX} threads, found {threads}; give none for all cores"
        ))),
    }
}

/// Rejects an object that another process made, because a forked child has none of its threads. `what` names
/// the object, and `remedy` what the child should do.
///
/// # Errors
/// `InvalidArgument` in a forked child.
pub fn check_process(process: u32, what: &str, remedy: &str) -> Result<()> {
    if std::process::id() == process {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "this {what} was made in process {process}, and a forked child has none of its threads; \
         {remedy}"
    )))
}
