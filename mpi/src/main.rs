//! The `headwater-reduce` command over MPI.

use std::process::ExitCode;

use headwater::cli::{reduce, signals};

fn main() -> ExitCode {
    ExitCode::from(reduce::main(
        std::env::args_os(),
        Some(&signals::interrupted),
        Some(headwater_mpi::join),
    ))
}
