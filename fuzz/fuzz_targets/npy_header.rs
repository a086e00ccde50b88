//! Any bytes, opened as a `.npy` file, give an error or rows that can all be read.

#![no_main]

#[path = "../matrix.rs"]
mod matrix;

use headwater::matrix::{Element, MatrixFormat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    matrix::check("npy", bytes, &MatrixFormat::Npy(None));
    matrix::check("npy", bytes, &MatrixFormat::Npy(Some(Element::Bf16)));
    // Few inputs start like a .npy file: the bytes are also tried as the text of a valid start.
    let start: &[u8] = if bytes.len() % 2 == 0 { b"\x93NUMPY\x01\x00" } else { b"\x93NUMPY\x02\x00" };
    let length = (bytes.len() as u32).to_le_bytes();
    let length = if bytes.len() % 2 == 0 { &length[..2] } else { &length[..] };
    let framed = [start, length, bytes].concat();
    matrix::check("npy", &framed, &MatrixFormat::Npy(None));
});
