//! The commands `headwater` and `headwater-reduce`: arguments and words.

#[cfg(feature = "cli")]
pub mod headwater;
mod output;
mod progress;
pub mod reduce;
pub mod signals;

use std::io::Write;
use std::time::Duration;

use crate::error::{ErrorKind, Result};

/// Whether the user wants the work to end. Called again and again, and once before anything is
/// written, so that it may begin to listen for signals then.
pub type Interrupted<'a> = dyn Fn() -> bool + Sync + 'a;

/// Prints the help that was asked for, or what is wrong with the arguments; returns the exit status.
fn refused(error: &clap::Error) -> u8 {
    // Nobody can be told that telling failed.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Says what went wrong, if anything; returns the exit status.
fn exit_status(command: &str, result: Result<()>) -> u8 {
    told(command, result).map_or_else(status_of, |()| 0)
}

/// Says what went wrong, if anything, and keeps only its kind.
fn told(command: &str, result: Result<()>) -> Result<(), ErrorKind> {
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

/// The CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
