//! The `headwater` command.

use std::process::ExitCode;

use headwater::cli::{Hooks, main as run};

fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os(), &Hooks::default()))
}
