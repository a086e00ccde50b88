//! Any bytes, opened as a SQLite file, give an error or the same rows twice.

#![no_main]

#[path = "../source.rs"]
mod source;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Other bytes are none.
    let start = b"SQLite format 3\0";
    let rest = bytes.get(start.len()..).unwrap_or_default();
    source::check("db", &[start, rest].concat());
});
