//! Opens bytes as a file of a matrix, and reads all its rows.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use headwater::matrix::{Matrix, MatrixFormat};

/// The rows of one read.
const READ_ROWS: u64 = 1 << 16;

fn path(end: &str) -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        folder.join(format!("headwater-fuzz-{}.{end}", std::process::id()))
    })
}

pub fn check(end: &str, bytes: &[u8], format: &MatrixFormat) {
    let path = path(end);
    fs::write(path, bytes).expect("the file can be written");
    let Ok(matrix) = Matrix::open(std::slice::from_ref(path), format) else { return };
    let number_bytes = matrix.rows() as u128 * matrix.columns() as u128 * 2;
    assert!(number_bytes <= bytes.len() as u128, "more rows than there are bytes");
    let mut next = 0;
    while next < matrix.rows() {
        let end = matrix.rows().min(next + READ_ROWS);
        let read = matrix.read(next..end).expect("a row of the file");
        assert_eq!(read.rows().expect("all rows").count() as u64, end - next);
        next = end;
    }
    let _ = matrix.identity();
}
