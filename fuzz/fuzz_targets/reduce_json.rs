//! Whatever the JSON that `headwater-reduce` reads, it ends with an error or a result, and writes nowhere else.
//!
//! The first byte chooses what the rest is: the description of a job in a spool, whose seal fits; the
//! summary of an earlier result beside the new one; a manifest.

#![no_main]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use headwater::cli::reduce;
use headwater::matrix::{Element, Matrix, MatrixFormat};
use headwater::reducer::{Blocks, Job, Spool};
use libfuzzer_sys::fuzz_target;

const ROWS: u64 = 6;

/// The folder in which everything happens, and which is the current one, so that a description may name
/// `x.raw`: six rows of two numbers.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let memory = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = memory.join(format!("headwater-fuzz-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let rows: Vec<u8> = (0..ROWS * 2).flat_map(|n| (n as f64).to_le_bytes()).collect();
        fs::write(folder.join("x.raw"), rows).expect("a file");
        std::env::set_current_dir(&folder).expect("the folder");
        folder
    })
}

/// Runs the command; returns its exit status.
fn run(arguments: &[&str]) -> u8 {
    let all = [&["headwater-reduce"], arguments].concat();
    reduce::main(all.into_iter().map(OsString::from), None, None)
}

fn remove(names: &[&str]) {
    for name in names {
        let _ = fs::remove_file(folder().join(name));
        let _ = fs::remove_dir_all(folder().join(name));
    }
}

/// The job of the Gram matrix of `x.raw`.
fn job() -> Job {
    let format = MatrixFormat::Raw { element: Element::F64, columns: 2 };
    let matrix = Matrix::open(&["x.raw".into()], &format).expect("a matrix");
    Job::of_matrix("gram", (2, Element::F64), matrix.identity().0, (ROWS, 4096), &[]).expect("a job")
}

fn description(json: &[u8]) {
    remove(&["S", "g.npy", "g.json"]);
    let (job, blocks) = (job(), Blocks::new(1, 0).expect("blocks"));
    Spool::create(Path::new("S"), &job, &blocks, json).expect("a spool");
    let worked = run(&["work", "--spool", "S", "--rank", "0", "--of", "1", "--threads", "1"]);
    let folded = run(&["fold", "--spool", "S", "--out", "g.npy"]);
    assert_eq!(worked == 0, folded == 0, "only both or none accept a description");
    assert_eq!(folder().join("g.npy").exists(), folded == 0);
    let own = ["S", "x.raw", "g.npy", "g.json"];
    for entry in fs::read_dir(folder()).expect("the folder") {
        let name = entry.expect("an entry").file_name();
        assert!(own.iter().any(|own| name == *own), "{name:?} was written");
    }
}

fn summary(json: &[u8]) {
    remove(&["S", "g.npy", "g.json"]);
    fs::write(folder().join("g.json"), json).expect("a file");
    let columns = ["--dtype", "f64", "--columns", "2", "--threads", "1"];
    let status = run(&[&["gram", "--input", "x.raw", "--out", "g.npy"], &columns[..]].concat());
    let kept = fs::read(folder().join("g.json")).expect("the file") == json;
    assert!(status == 0 || kept, "a file that is not ours was replaced");
    assert_eq!(folder().join("g.npy").exists(), status == 0);
}

fn manifest(json: &[u8]) {
    fs::write(folder().join("m.json"), json).expect("a file");
    let opened = Matrix::open(&["m.json".into()], &MatrixFormat::ByName);
    remove(&["m.json"]);
    let Ok(matrix) = opened else { return };
    for first in (0..matrix.rows().min(1000)).step_by(100) {
        let _ = matrix.read(first..matrix.rows().min(first + 100)).map(|read| read.rows().is_ok());
    }
    let _ = matrix.identity();
}

fuzz_target!(|bytes: &[u8]| {
    folder();
    let Some((kind, json)) = bytes.split_first() else { return };
    match kind {
        b'j' => description(json),
        b's' => summary(json),
        _ => manifest(json),
    }
});
