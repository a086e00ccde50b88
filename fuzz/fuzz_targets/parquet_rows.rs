//! Any bytes, opened as a Parquet file, give an error or the same rows twice.

#![no_main]

#[path = "../source.rs"]
mod source;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    source::check("parquet", bytes);
    // Few inputs have the ends of a Parquet file: the bytes are also tried between them.
    let length = (bytes.len() as u32).to_le_bytes();
    source::check("parquet", &[b"PAR1", bytes, &length, b"PAR1"].concat());
});
