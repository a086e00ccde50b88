//! Reads a file in the order of its records, and checks each of its bytes.

use std::path::Path;

use super::chunks::{
    BLOCK_BYTES, COLUMNS, Chunk, ChunkFile, METADATA, PADDING, RECORDS, SIGNATURE,
};
use super::messages::{Entry, Summary, VERSION, footer_of};
use super::records::Records;
use crate::error::{Error, Result};

/// A file that is read chunk by chunk.
pub(in crate::prepare) struct Reader {
    file: ChunkFile,
    /// The chunks of records, of which `read` are behind `at`.
    entries: Vec<Entry>,
    read: usize,
    at: u64,
    footer: u64,
}

impl Reader {
    /// Opens a file, and reads all of it but the records.
    pub(in crate::prepare) fn open(path: &Path) -> Result<Self> {
        let file = ChunkFile::open(path)?;
        let found = file.read(0, file.length);
        let Ok((_, at)) = found.and_then(|(chunk, end)| match chunk == signature() {
            true => Ok((chunk, end)),
            false => Err(file.damaged(0, "no signature")),
        }) else {
            return Err(file.wrong(
                "expected an ArrayRecord file, which begins with Riegeli's signature, found other \
                 bytes; write the file with ArrayRecordWriter",
            ));
        };
        let last = file.length.saturating_sub(BLOCK_BYTES);
        let footer = match file.length.is_multiple_of(BLOCK_BYTES) && last > 0 {
            true => postscript(&file, last)?,
            false => None,
        };
        let footer = footer.filter(|&footer| footer >= at && footer < last).ok_or_else(|| {
            file.wrong(
                "expected a postscript in the last 64 KiB, where an ArrayRecord file has one, found \
                 none; the file is truncated, or its writer was not closed: copy or write it again",
            )
        })?;
        let entries = entries(&file, footer, last)?;
        Ok(Self { file, entries, read: 0, at, footer })
    }

    /// Returns the records of the next chunk that has some; none at the end.
    pub(in crate::prepare) fn next_records(&mut self) -> Result<Option<Records>> {
        while self.at < self.footer {
            let begin = self.at;
            let (chunk, end) = self.file.read(begin, self.footer)?;
            self.at = end;
            match chunk.kind {
                PADDING | METADATA => {}
                RECORDS => {
                    let Chunk { record_count, record_bytes, .. } = chunk;
                    let found = Entry { offset: begin, record_bytes, record_count };
                    if self.entries.get(self.read) != Some(&found) {
                        return Err(self.file.damaged(begin, "the footer has another chunk"));
                    }
                    self.read += 1;
                    let unpacked = Records::unpack(&chunk);
                    return unpacked.map(Some).map_err(|e| self.file.damaged(begin, e));
                }
                COLUMNS => {
                    return Err(self.file.wrong(
                        "expected records one after another, found records in columns; write the file \
                         again without the option transpose",
                    ));
                }
                kind => return Err(unexpected(&self.file, begin, kind)),
            }
        }
        match self.read == self.entries.len() {
            true => Ok(None),
            false => Err(self.file.damaged(self.at, "the footer has more chunks than the file")),
        }
    }
}

fn signature() -> Chunk {
    Chunk::of(SIGNATURE, Vec::new())
}

/// Reads the last block; returns the offset of the footer, or none if the block has no postscript.
fn postscript(file: &ChunkFile, begin: u64) -> Result<Option<u64>> {
    let (chunk, end) = file.read(begin, file.length)?;
    let records = match chunk.kind == RECORDS {
        true => Records::unpack(&chunk).map_err(|e| file.damaged(begin, e))?,
        false => return Ok(None),
    };
    check_padding(file, end, file.length)?;
    let mut copies = records.iter().map(footer_of);
    let first = copies.next().flatten();
    match copies.all(|copy| copy == first) {
        true => Ok(first),
        false => Err(file.damaged(begin, "the copies of the postscript differ")),
    }
}

/// Reads the footer between two offsets.
fn entries(file: &ChunkFile, begin: u64, limit: u64) -> Result<Vec<Entry>> {
    let (chunk, end) = file.read(begin, limit)?;
    if chunk.kind != RECORDS {
        return Err(unexpected(file, begin, chunk.kind));
    }
    check_padding(file, end, limit)?;
    let records = Records::unpack(&chunk).map_err(|e| file.damaged(begin, e))?;
    let mut records = records.iter();
    let summary = records.next().and_then(Summary::decode);
    let summary = summary.ok_or_else(|| file.damaged(begin, "expected a footer"))?;
    if summary.version != VERSION {
        return Err(file.wrong(format_args!(
            "expected version {VERSION} of ArrayRecord, found version {}; write the file again with \
             array_record 0.8",
            summary.version
        )));
    }
    let entries: Option<Vec<_>> = records.map(Entry::decode).collect();
    let entries = entries.ok_or_else(|| file.damaged(begin, "the footer has other records"))?;
    let count = entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.record_count));
    if (entries.len() as u64, count) != (summary.chunk_count, summary.record_count) {
        return Err(file.damaged(begin, "the footer has another number of chunks or records"));
    }
    Ok(entries)
}

/// Checks that there is only padding between two offsets.
fn check_padding(file: &ChunkFile, mut at: u64, end: u64) -> Result<()> {
    while at < end {
        let begin = at;
        let (chunk, next) = file.read(begin, end)?;
        if chunk.kind != PADDING {
            return Err(unexpected(file, begin, chunk.kind));
        }
        at = next;
    }
    Ok(())
}

fn unexpected(file: &ChunkFile, at: u64, kind: u8) -> Error {
    file.damaged(at, format_args!("found a chunk of kind {:?} out of place", char::from(kind)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::chunks::padding;
    use super::super::messages::postscript;
    use super::super::records::plain;
    use super::*;

    fn entry(offset: u64) -> Vec<u8> {
        Entry { offset, record_bytes: 2, record_count: 2 }.encode()
    }

    fn summary(version: u64, chunk_count: u64, record_count: u64) -> Vec<u8> {
        Summary { version, chunk_count, record_count, options: String::new() }.encode()
    }

    /// Writes a file of two chunks with two records each, and reads it; returns the number of records.
    ///
    /// Whoever made the file meant what it says: every hash is right.
    fn read(footer: &[Vec<u8>], ends: &[i64]) -> Result<usize> {
        let (mut bytes, mut at) = (Vec::new(), 0);
        let mut append = |chunk: Option<Chunk>| {
            at = chunk.map_or(at, |chunk| chunk.write(&mut bytes, at).unwrap());
            at
        };
        append(Some(signature()));
        let records = || Some(plain(&[b"a".to_vec(), b"b".to_vec()]));
        append(records());
        let begin = append(records()).cast_signed();
        append(Some(plain(footer)));
        append(padding(begin.unsigned_abs() + plain(footer).data.len() as u64 + 40));
        let copies: Vec<_> =
            ends.iter().map(|end| postscript((begin + end).unsigned_abs())).collect();
        let end = append(Some(plain(&copies)));
        append(padding(end));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let mut reader = Reader::open(file.path())?;
        let mut count = 0;
        while let Some(records) = reader.next_records()? {
            count += records.iter().count();
        }
        Ok(count)
    }

    #[test]
    fn a_footer_that_does_not_fit_the_file_is_refused() {
        // The chunk of two records has 40 bytes and 6.
        let (one, two) = (entry(64), entry(64 + 46));
        let whole = [summary(1, 2, 4), one.clone(), two.clone()];
        assert_eq!(read(&whole, &[0, 0, 0]).unwrap(), 4);
        let refused =
            |footer: &[Vec<u8>], ends: &[i64]| read(footer, ends).unwrap_err().to_string();
        for (footer, message) in [
            ([summary(2, 2, 4), one.clone(), two.clone()].to_vec(), "found version 2"),
            ([summary(1, 3, 4), one.clone(), two.clone()].to_vec(), "another number of chunks"),
            ([summary(1, 2, 5), one.clone(), two.clone()].to_vec(), "another number of chunks"),
            ([summary(1, 2, 4), one.clone(), one.clone()].to_vec(), "the footer has another chunk"),
            ([summary(1, 1, 2), one.clone()].to_vec(), "the footer has another chunk"),
            (
                [summary(1, 3, 6), one.clone(), two.clone(), entry(200)].to_vec(),
                "the footer has more chunks than the file",
            ),
            ([b"?".to_vec(), one, two].to_vec(), "expected a footer"),
            (Vec::new(), "expected a footer"),
        ] {
            let found = refused(&footer, &[0, 0, 0]);
            assert!(found.contains(message), "{found}");
        }
        assert!(refused(&whole, &[0, 0, 1]).contains("the copies of the postscript differ"));
        for ends in [&[][..], &[1 << 40], &[-200]] {
            assert!(refused(&whole, ends).contains("expected a postscript"), "{ends:?}");
        }
        for ends in [-46, 1] {
            let found = refused(&whole, &[ends]);
            assert!(found.contains("copy or write it again"), "{ends}: {found}");
        }
    }
}
