//! Tells the linker where the MPI library is, so that programs find it without an environment, and
//! also when mpi-sys was built for another folder with the same MPI.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Whose mpicc is found there tells which library it is.
    println!("cargo::rerun-if-env-changed=PATH");
    match build_probe_mpi::probe() {
        Ok(library) => {
            for folder in library.lib_paths {
                let folder = folder.display();
                println!("cargo::rustc-link-search=native={folder}");
                println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
            }
        }
        Err(errors) => {
            for error in errors {
                println!("cargo::error={error}");
            }
            println!(
                "cargo::error=headwater-mpi needs an MPI: expected mpicc on the PATH; make setup installs one"
            );
        }
    }
}
