//! The commands `headwater` and `headwater-reduce`: arguments and output.

#[cfg(feature = "cli")]
pub mod headwater;
mod manual;
mod output;
mod progress;
pub mod reduce;
pub mod signals;

use std::io::Write;
use std::time::Duration;

use crate::error::{ErrorKind, Result};

/// Returns whether the user has interrupted the command. Called repeatedly, and once before any file is
/// written, so that it can install its signal handlers.
pub type Interrupted<'a> = dyn Fn() -> bool + Sync + 'a;

/// Prints the requested help, or the error in the arguments; returns the exit status.
fn print_usage(error: &clap::Error) -> u8 {
    // An error while printing cannot be printed either.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Prints the error, if there is one; returns the exit status.
fn exit_status(command: &str, result: Result<()>) -> u8 {
    print_error(command, result).map_or_else(status_of, |()| 0)
}

/// Prints the error, if there is one; returns only its kind.
fn print_error(command: &str, result: Result<()>) -> Result<(), ErrorKind> {
    match result {
        Err(error) if !output::is_closed_pipe(&error) => {
            let _ = writeln!(std::io::stderr(), "{command}: {error}");
            Err(error.kind())
        }
        _ => Ok(()),
    }
}

fn status_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::NotOurs | ErrorKind::Version | ErrorKind::Corrupt => 3,
        ErrorKind::Interrupted => 130,
        _ => 1,
    }
}

/// Returns the CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
