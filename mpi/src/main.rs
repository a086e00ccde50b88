//! The `headwater-reduce` command over MPI.

use std::process::ExitCode;

use headwater::cli::{reduce, signals};

fn main() -> ExitCode {
    let join = headwater_mpi::join;
    ExitCode::from(reduce::main(std::env::args_os(), Some(&signals::interrupted), Some(join)))
}
