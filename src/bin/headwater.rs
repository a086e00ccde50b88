//! The `headwater` command.

use std::process::ExitCode;

use headwater::cli::headwater::{Hooks, main as run};
use headwater::cli::signals;

fn main() -> ExitCode {
    let hooks = Hooks { interrupted: Some(&signals::interrupted), ..Hooks::default() };
    ExitCode::from(run(std::env::args_os(), &hooks))
}
