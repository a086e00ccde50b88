//! Any bytes, opened as a CSV file, also as the text of an archive, give an error or the same rows twice.

#![no_main]

#[path = "../source.rs"]
mod source;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    source::check("csv", bytes);
    source::check("csv.gz", bytes);
    source::check("csv.zst", bytes);
});
