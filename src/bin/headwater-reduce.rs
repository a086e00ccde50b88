//! The `headwater-reduce` command.

use std::process::ExitCode;

use headwater::cli::{Hooks, reduce, signals};

fn main() -> ExitCode {
    let hooks = Hooks { interrupted: Some(&signals::interrupted), ..Hooks::default() };
    ExitCode::from(reduce::main(std::env::args_os(), &hooks))
}
