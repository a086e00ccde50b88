//! ArrayRecord files: records with random access, as Google's `array_record` has them.
//!
//! An ArrayRecord file is a Riegeli file with an index at its end. This page describes what this room
//! reads and writes; numbers are little-endian, and a *varint* is that of protobuf.
//!
//! # Blocks and chunks
//!
//! A **block** is 65,536 bytes, and begins with a header of 24 bytes. The rest of all blocks, one after
//! another, holds the chunks. A **chunk** is a header of 40 bytes and its data, and reaches over block
//! headers where it has to. One that begins right after a block header has the offset of the block.
//!
//! ```text
//! block header                              chunk header
//! 0   8  hash of the bytes 8 to 24          0   8  hash of the bytes 8 to 40
//! 8   8  bytes since the begin of the       8   8  bytes of the data
//!        chunk that lies here               16  8  hash of the data
//! 16  8  bytes to the end of this chunk     24  1  kind
//!                                           25  7  number of records
//!                                           32  8  bytes of the records
//! ```
//!
//! The hash is HighwayHash-64 with the key `Riegeli/records\n`, twice. A chunk of n records has at least n
//! bytes; zeros follow it if it is shorter. Kinds: `s` begins the file and is empty, `r` has records, `p` is
//! zeros up to the next block, `m` describes the file, `t` has records in columns (not read here).
//!
//! The data of a chunk of records is the byte of the compression (0 none, `z` zstd; `b` and `s` are not
//! read here), a varint with the length of the sizes, the sizes, and the records one after another. The
//! sizes are a varint for each record. Where they are compressed, sizes and records are each a varint with
//! their length and a frame of zstd.
//!
//! # The file
//!
//! ```text
//! s  r r r ...   r p        r p
//!    records     footer     postscript, in the last block
//! ```
//!
//! The records of the footer are messages of protobuf: first `{1: {1: version, 1; 2: number of chunks; 3:
//! number of records; 4: options, as text}}`, then for each chunk of records `{1: offset; 2: bytes of the
//! records; 3: number of records}`. All chunks but the last have the same number of records, the *group
//! size*. The postscript is not compressed, and has the record `{1: offset of the footer; 2: magic}` three
//! times.

mod chunks;
mod messages;
mod reader;
mod records;
mod writer;

pub(super) use reader::Reader;
pub(super) use writer::Writer;
