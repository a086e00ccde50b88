//! Runs of the texts of a table, which threads number at once.
//!
//! Which texts of a run are the first of their entries is told by the entries alone. So the texts before a run
//! are counted before any text is read, and threads read several runs and encode what is new in them.

use std::io::{self, Write};

use super::chain::{Chain, ChainReader};
use super::keys::PARTS;
use crate::container::EncodedStrings;
use crate::error::{Error, Result};

/// A run ends with the row in which it has so many bytes.
const RUN_BYTES: u64 = 2 << 20;

/// The most distinct texts: the greatest number is reserved.
const TEXTS_MAX: u32 = u32::MAX - 1;

/// The partition and the length of a text, before its bytes.
const HEAD_BYTES: usize = 1 + size_of::<u32>();

/// Texts that follow each other in the file of a table.
pub(super) struct TextRun {
    /// The bytes in the file.
    pub bytes: u64,
    /// The number of texts in each partition.
    pub counts: Vec<u32>,
}

impl TextRun {
    /// Returns the run to which the next row is added.
    pub(super) fn last_of(runs: &mut Vec<Self>) -> &mut Self {
        let last = runs.pop_if(|last| last.bytes < RUN_BYTES);
        runs.push_mut(last.unwrap_or_else(|| Self { bytes: 0, counts: vec![0; PARTS] }))
    }

    /// Adds a text of a partition, and writes it to the table's file.
    pub(super) fn write(
        &mut self,
        file: &mut impl Write,
        partition: u8,
        text: &str,
    ) -> io::Result<()> {
        let mut head = [partition; HEAD_BYTES];
        head[1..].copy_from_slice(&(text.len() as u32).to_le_bytes());
        file.write_all(&head)?;
        file.write_all(text.as_bytes())?;
        self.bytes += (HEAD_BYTES + text.len()) as u64;
        self.counts[usize::from(partition)] += 1;
        Ok(())
    }

    /// Returns the number of texts.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }
}

/// The entries of the runs that are to be numbered.
pub(super) struct Unnumbered {
    /// The entries of each partition.
    entries: Vec<ChainReader>,
    /// The number of different entries of each partition before the next run.
    known: Vec<u32>,
    /// Their sum.
    count: u32,
}

impl Unnumbered {
    /// Takes the entries of the texts of each partition.
    pub(super) fn new(entries: &[Chain]) -> Self {
        let entries: Vec<_> = entries.iter().map(|entries| entries.reader(0)).collect();
        Self { known: vec![0; entries.len()], entries, count: 0 }
    }

    /// Returns the number of different texts so far.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Finds the texts of the next run that are the first of their entries.
    pub(super) fn next(&mut self, run: &TextRun) -> Result<Firsts> {
        let (before, mut is_first) = (self.count, Vec::with_capacity(PARTS));
        for ((&count, entries), known) in
            run.counts.iter().zip(&mut self.entries).zip(&mut self.known)
        {
            let mut of_partition = Vec::with_capacity(count as usize);
            for _ in 0..count {
                let is_new = entries.next()? == *known;
                *known += u32::from(is_new);
                of_partition.push(is_new);
            }
            is_first.push(of_partition.into_iter());
        }
        let count = self.known.iter().map(|&known| u64::from(known)).sum::<u64>();
        self.count =
            u32::try_from(count).ok().filter(|&count| count <= TEXTS_MAX).ok_or_else(|| {
                Error::limit(format!("expected at most {TEXTS_MAX} texts, found more"))
            })?;
        Ok(Firsts { before, is_first })
    }
}

/// Which texts of a run are the first of their entries.
pub(super) struct Firsts {
    /// The number of those before the run.
    before: u32,
    /// For each partition, whether each of its texts is.
    is_first: Vec<std::vec::IntoIter<bool>>,
}

/// The first texts of a run.
pub(super) struct Numbered {
    pub strings: EncodedStrings,
    /// The numbers of those of each partition.
    pub numbers: Vec<Vec<u8>>,
}

impl Firsts {
    /// Numbers and encodes the first texts among those of the run, whose bytes in the file are `texts`.
    pub(super) fn number(mut self, mut texts: &[u8]) -> Result<Numbered> {
        let mut strings = EncodedStrings::after(self.before as usize);
        let mut numbers = vec![Vec::new(); self.is_first.len()];
        let mut number = self.before;
        while let Some((&[partition, ref length @ ..], rest)) =
            texts.split_first_chunk::<HEAD_BYTES>()
        {
            let cut = || Error::corrupt("internal error: a spilled text is cut off");
            let length = u32::from_le_bytes(*length) as usize;
            let (text, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
            if self.is_first[usize::from(partition)].next() == Some(true) {
                strings.push(text);
                numbers[usize::from(partition)].extend(number.to_le_bytes());
                number += 1;
            }
            texts = rest;
        }
        Ok(Numbered { strings, numbers })
    }
}
