//! The options of benches on the command line, and CPU time.
#![allow(dead_code, reason = "each bench uses a part of it")]

use rustix::time::{ClockId, clock_gettime};

/// Calls `set` with the name of each option, and with what returns its value; `set` returns whether it
/// knows the name.
pub(crate) fn each_option(mut set: impl FnMut(&str, &mut dyn FnMut() -> String) -> bool) {
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
        // Cargo adds the option --bench.
        assert!(name == "--bench" || set(&name, &mut value), "unknown option {name}");
    }
}

/// Returns the CPU time of this thread in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
