//! The `headwater` command.

use std::process::ExitCode;

use headwater::cli::{Hooks, main as run, signals};

fn main() -> ExitCode {
    let hooks = Hooks { interrupted: Some(&signals::interrupted), ..Hooks::default() };
    ExitCode::from(run(std::env::args_os(), &hooks))
}
