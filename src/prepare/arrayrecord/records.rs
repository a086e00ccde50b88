//! The records of a chunk.

use std::io::Read;

use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::chunks::{Chunk, RECORDS};
use super::messages::{append_varint, take, take_varint};
use crate::error::{Error, Result};

/// How records are compressed: as `array_record` does it by itself.
pub(super) const ZSTD_LEVEL: i32 = 3;
pub(super) const WINDOW_LOG: u32 = 20;

/// The most bytes of the records of a chunk: no array of Arrow with 32-bit offsets is longer.
const RECORD_BYTES_MAX: u64 = i32::MAX as u64;

const NO_COMPRESSION: u8 = 0;
const ZSTD: u8 = b'z';

/// Returns the chunk of `records`, compressed.
pub(super) fn packed(records: &[Vec<u8>]) -> Result<Chunk> {
    let compress = |bytes: &[u8]| -> std::io::Result<Vec<u8>> {
        let mut zstd = Compressor::new(ZSTD_LEVEL)?;
        zstd.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
        let mut packed = Vec::new();
        append_varint(&mut packed, bytes.len() as u64);
        packed.extend_from_slice(&zstd.compress(bytes)?);
        Ok(packed)
    };
    let packed =
        compress(&sizes(records)).and_then(|sizes| Ok((sizes, compress(&records.concat())?)));
    let (sizes, values) = packed.map_err(|e| Error::limit(format!("zstd: {e}")))?;
    Ok(chunk(records, ZSTD, &sizes, &values))
}

/// Returns the chunk of `records` without compression.
pub(super) fn plain(records: &[Vec<u8>]) -> Chunk {
    chunk(records, NO_COMPRESSION, &sizes(records), &records.concat())
}

fn sizes(records: &[Vec<u8>]) -> Vec<u8> {
    let mut sizes = Vec::new();
    records.iter().for_each(|record| append_varint(&mut sizes, record.len() as u64));
    sizes
}

fn chunk(records: &[Vec<u8>], compression: u8, sizes: &[u8], values: &[u8]) -> Chunk {
    let mut data = vec![compression];
    append_varint(&mut data, sizes.len() as u64);
    data.extend_from_slice(sizes);
    data.extend_from_slice(values);
    Chunk {
        kind: RECORDS,
        record_count: records.len() as u64,
        record_bytes: records.iter().map(|record| record.len() as u64).sum(),
        data,
    }
}

/// The records of a chunk, in their order.
pub(in crate::prepare) struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    /// Unpacks the records of a chunk of kind [`RECORDS`]; fails with what is wrong with it.
    pub(super) fn unpack(chunk: &Chunk) -> Result<Self, String> {
        if chunk.record_bytes > RECORD_BYTES_MAX {
            return Err(format!(
                "expected a chunk with at most 2 GiB of records, found {} bytes; write the file again \
                 with a smaller group_size",
                chunk.record_bytes
            ));
        }
        let mut data = &chunk.data[..];
        let parts = (|| {
            let compression = *take(&mut data, 1)?.first()?;
            let length = take_varint(&mut data)?;
            Some((compression, take(&mut data, length)?, data))
        })();
        let (compression, sizes, values) = parts.ok_or(NOT_RECORDS)?;
        // A size has at most 10 bytes.
        let sizes_max = chunk.record_count.saturating_mul(10).min(RECORD_BYTES_MAX);
        let (sizes, bytes) = match compression {
            NO_COMPRESSION => (sizes.to_vec(), values.to_vec()),
            ZSTD => (unzstd(sizes, sizes_max)?, unzstd(values, chunk.record_bytes)?),
            other => {
                return Err(format!(
                    "expected records without compression or with zstd, found {}; write the file again \
                     with the option zstd",
                    match other {
                        b'b' => "brotli".to_owned(),
                        b's' => "snappy".to_owned(),
                        other => format!("the compression {other}"),
                    }
                ));
            }
        };
        let (mut left, mut ends, mut end) = (&sizes[..], Vec::new(), 0_u64);
        while !left.is_empty() {
            let size = take_varint(&mut left).ok_or(NOT_RECORDS)?;
            end = end.saturating_add(size);
            ends.push(usize::try_from(end).map_err(|_| NOT_RECORDS)?);
        }
        let is_whole = ends.len() as u64 == chunk.record_count
            && end == chunk.record_bytes
            && bytes.len() as u64 == end;
        if is_whole { Ok(Self { bytes, ends }) } else { Err(NOT_RECORDS.into()) }
    }

    pub(in crate::prepare) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.bytes[begin..end])
    }
}

const NOT_RECORDS: &str = "a chunk does not have the records that its header says";

/// Returns the bytes that were compressed, at most `limit`.
fn unzstd(mut packed: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let length = take_varint(&mut packed).filter(|&length| length <= limit).ok_or(NOT_RECORDS)?;
    let mut bytes = Vec::new();
    zstd::stream::read::Decoder::new(packed)
        .and_then(|decoder| decoder.take(length + 1).read_to_end(&mut bytes))
        .map_err(|e| format!("zstd: {e}"))?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(NOT_RECORDS.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash protects from accidents, and not from whoever makes a file: then these checks are left.
    #[test]
    fn whatever_a_chunk_holds_is_records_or_an_error() {
        let records = [b"one".to_vec(), Vec::new(), vec![7; 5000], (0..=255).collect()];
        for whole in [packed(&records).unwrap(), plain(&records)] {
            let unpacked = Records::unpack(&whole).unwrap();
            assert!(unpacked.iter().eq(records.iter().map(Vec::as_slice)));
            for at in 0..whole.data.len().min(600) {
                for change in [1, 0x80, 0xff] {
                    let Chunk { kind, record_count, record_bytes, mut data } = plain(&[]);
                    data.clone_from(&whole.data);
                    data[at] ^= change;
                    let counts = [
                        (whole.record_count, whole.record_bytes),
                        (record_count, record_bytes),
                        (u64::MAX >> 8, i32::MAX as u64),
                        (whole.record_count, u64::MAX),
                    ];
                    for (record_count, record_bytes) in counts {
                        let chunk =
                            Chunk { kind, record_count, record_bytes, data: data[..].to_vec() };
                        if let Ok(found) = Records::unpack(&chunk) {
                            let bytes: usize = found.iter().map(<[u8]>::len).sum();
                            assert_eq!(bytes as u64, record_bytes);
                            assert_eq!(found.iter().count() as u64, record_count);
                        }
                        let cut = Chunk { data: data[..at].to_vec(), ..chunk };
                        assert!(Records::unpack(&cut).is_err());
                    }
                }
            }
        }
    }
}
