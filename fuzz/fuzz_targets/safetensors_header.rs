//! Any bytes, opened as a `.safetensors` file, give an error or rows that can all be read.

#![no_main]

#[path = "../matrix.rs"]
mod matrix;

use headwater::matrix::MatrixFormat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for format in [MatrixFormat::Safetensors(None), MatrixFormat::Safetensors(Some("x".to_owned()))] {
        matrix::check("safetensors", bytes, &format);
        // Also with a valid length before the header and as many bytes of numbers as the first byte
        // says.
        let Some((&data, header)) = bytes.split_first() else { continue };
        let length = (header.len() as u64).to_le_bytes();
        let framed = [&length[..], header, &vec![0; usize::from(data)]].concat();
        matrix::check("safetensors", &framed, &format);
    }
});
