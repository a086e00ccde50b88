//! The process that owns threads, and its thread pools.

use rayon::ThreadPool;

use crate::environment::in_default_environment;
use crate::error::{Error, Result};

/// The most threads of a pool; more only take time to start.
pub(crate) const THREADS_MAX: usize = 1024;

/// Starts a pool of `threads` threads; default: all cores.
///
/// # Errors
/// `InvalidArgument` for 0 or more than 1,024 threads, `LimitExceeded` when the system starts none.
pub(crate) fn pool(threads: Option<usize>) -> Result<ThreadPool> {
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
pub(crate) fn check_process(process: u32, what: &str, remedy: &str) -> Result<()> {
    if std::process::id() == process {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "this {what} was made in process {process}, and a forked child has none of its threads; \
         {remedy}"
    )))
}

/// Returns the bytes of memory that are free for this process, where the system tells (Linux): what the
/// machine has, or what its control group leaves.
pub(crate) fn memory_available() -> Option<u64> {
    let read = |path| std::fs::read_to_string(path).ok();
    let of_machine = number_after(&read("/proc/meminfo")?, "MemAvailable:")?.saturating_mul(1024);
    let of_group = || {
        let groups = read("/proc/self/cgroup")?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
        let file =
            |name: &str| std::fs::read_to_string(format!("/sys/fs/cgroup{group}/{name}")).ok();
        let number = |name| file(name)?.trim().parse::<u64>().ok();
        // Pages of files are given back when memory is needed.
        let used = number("memory.current")?;
        let of_files = number_after(&file("memory.stat")?, "file ").unwrap_or(0);
        Some(number("memory.max")?.saturating_sub(used.saturating_sub(of_files)))
    };
    Some(of_group().map_or(of_machine, |of_group: u64| of_group.min(of_machine)))
}

/// Returns the number after `name` at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_the_beginning_of_their_line() {
        let text = "MemTotal:  24655104 kB\nMemAvailable:   24210000 kB\nfile 7\nfile_mapped 9\n";
        assert_eq!(number_after(text, "MemAvailable:"), Some(24_210_000));
        assert_eq!(number_after(text, "file "), Some(7));
        assert_eq!(number_after(text, "MemFree:"), None);
        assert_eq!(number_after("MemFree: much", "MemFree:"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn some_memory_is_available() {
        assert!(memory_available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
