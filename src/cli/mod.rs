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

#[cfg(all(test, feature = "cli"))]
mod tests {
    use clap::Command;

    use super::{headwater, reduce};

    /// The columns of the narrowest terminal for which help is laid out by hand.
    const COLUMNS: usize = 80;

    /// Returns both commands, each followed by its subcommands.
    fn commands() -> Vec<Command> {
        let both = [headwater::command(), reduce::command()];
        both.into_iter()
            .flat_map(|command| {
                let subcommands: Vec<Command> = command.get_subcommands().cloned().collect();
                [command].into_iter().chain(subcommands)
            })
            .collect()
    }

    #[test]
    fn summaries_are_in_the_third_person_and_end_without_a_period() {
        for command in commands() {
            let summary = command.get_about().map(ToString::to_string).unwrap_or_default();
            let verb = summary.split(' ').next().unwrap_or_default();
            let is_third_person = verb.ends_with('s') && verb.starts_with(char::is_uppercase);
            let name = command.get_name();
            assert!(is_third_person && verb != "This", "{name}: {summary}");
            assert!(!summary.ends_with('.'), "{name}: {summary}");
            assert!(!summary.contains('\n'), "{name}: {summary}");
        }
    }

    #[test]
    fn lines_of_help_that_are_broken_by_hand_fit_a_terminal() {
        for command in commands() {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            // The summary, and a paragraph of one line, are broken where the terminal ends.
            let by_hand = long.split("\n\n").skip(1).filter(|paragraph| {
                paragraph.starts_with(' ') || paragraph.trim_end().contains('\n')
            });
            for line in by_hand.flat_map(str::lines).chain(after.lines()) {
                let width = line.chars().count();
                assert!(width <= COLUMNS, "{}: {width} columns: {line}", command.get_name());
            }
        }
    }
}
