//! The `headwater-reduce` command, without MPI: the package `headwater-mpi` has it with MPI.

use std::process::ExitCode;

use headwater::cli::{reduce, signals};

fn main() -> ExitCode {
    ExitCode::from(reduce::main(std::env::args_os(), Some(&signals::interrupted), None))
}
