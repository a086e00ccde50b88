//! The `headwater-reduce` command.

use std::process::ExitCode;

use headwater::cli::{reduce, signals};

fn main() -> ExitCode {
    ExitCode::from(reduce::main(std::env::args_os(), Some(&signals::interrupted)))
}
