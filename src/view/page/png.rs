//! Writes pictures of four colours as PNG.

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// Four colours, the first of which is transparent.
const BITS: usize = 2;

/// Returns a picture as a `data:` URL; each pixel is the number of its colour, 0 is transparent.
pub(super) fn data_url(width: usize, pixels: &[u8], colours: [[u8; 3]; 3]) -> String {
    format!("data:image/png;base64,{}", BASE64_STANDARD.encode(encode(width, pixels, colours)))
}

fn encode(width: usize, pixels: &[u8], colours: [[u8; 3]; 3]) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(big_endian(width as u32));
    header.extend(big_endian((pixels.len() / width) as u32));
    // Bits per pixel, colours by palette; standard compression and filtering, not interlaced.
    header.extend([BITS as u8, 3, 0, 0, 0]);
    let palette: Vec<u8> = [[0; 3]].into_iter().chain(colours).flatten().collect();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, *b"IHDR", &header);
    chunk(&mut file, *b"PLTE", &palette);
    chunk(&mut file, *b"tRNS", &[0]);
    chunk(&mut file, *b"IDAT", &compressed(&packed(width, pixels)));
    chunk(&mut file, *b"IEND", &[]);
    file
}

/// Returns the lines of the picture, each after its filter number, 0.
fn packed(width: usize, pixels: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in pixels.chunks(width) {
        lines.push(0);
        lines.extend(line.chunks(8 / BITS).map(|some| {
            let places = some.iter().zip((0..8 / BITS).rev());
            places.fold(0, |byte, (pixel, place)| byte | pixel << (BITS * place))
        }));
    }
    lines
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all bytes")
}

fn chunk(file: &mut Vec<u8>, kind: [u8; 4], content: &[u8]) {
    let mut checksum = Crc::new();
    checksum.update(&kind);
    checksum.update(content);
    file.extend(big_endian(content.len() as u32));
    file.extend(kind);
    file.extend(content);
    file.extend(big_endian(checksum.sum()));
}

#[allow(clippy::big_endian_bytes, reason = "PNG numbers are big-endian")]
fn big_endian(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}
