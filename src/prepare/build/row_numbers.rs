//! A number of each row of a table: in memory while some is left, then in a file that the system keeps in
//! memory while there is room.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::PathBuf;

use bytemuck::{AnyBitPattern, NoUninit};

use super::scratch::{Scratch, Taken};
use crate::bytes::append;
use crate::error::{Error, Result};
use crate::map::Map;

/// A table's few numbers need no file, even if no memory is left.
const FEW_BYTES: usize = 64 << 10;

/// Numbers that are complete.
pub(super) enum RowNumbers<T> {
    Memory { numbers: Vec<T>, _taken: Vec<Taken> },
    File(Map, PhantomData<T>),
}

/// Numbers to which more come.
pub(super) struct RowNumbersWriter<T> {
    scratch: Scratch,
    memory: Vec<T>,
    taken: Vec<Taken>,
    file: Option<(PathBuf, BufWriter<File>)>,
}

impl<T: NoUninit> RowNumbersWriter<T> {
    pub(super) fn new(scratch: &Scratch) -> Self {
        Self { scratch: scratch.clone(), memory: Vec::new(), taken: Vec::new(), file: None }
    }

    pub(super) fn extend(&mut self, numbers: &[T]) -> Result<()> {
        if self.file.is_none() {
            let bytes = size_of_val(numbers);
            if size_of_val(&*self.memory) + bytes <= FEW_BYTES {
                return append(&mut self.memory, numbers);
            }
            if let Some(taken) = self.scratch.take(bytes) {
                self.taken.push(taken);
                return append(&mut self.memory, numbers);
            }
            let (path, file) = self.scratch.unnamed_file()?;
            self.file = Some((path, BufWriter::with_capacity(1 << 20, file)));
            let memory = std::mem::take(&mut self.memory);
            self.write(&memory)?;
            self.taken.clear();
        }
        self.write(numbers)
    }

    fn write(&mut self, numbers: &[T]) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        file.write_all(bytemuck::cast_slice(numbers)).map_err(|e| Error::io(path, "writing", e))
    }

    pub(super) fn finish(self) -> Result<RowNumbers<T>> {
        let Some((path, file)) = self.file else {
            return Ok(RowNumbers::Memory { numbers: self.memory, _taken: self.taken });
        };
        let file = file.into_inner().map_err(|e| Error::io(&path, "writing", e.into_error()))?;
        Ok(RowNumbers::File(Map::of_unnamed(&file, &path)?, PhantomData))
    }
}

impl<T> From<Vec<T>> for RowNumbers<T> {
    fn from(numbers: Vec<T>) -> Self {
        Self::Memory { numbers, _taken: Vec::new() }
    }
}

impl<T: NoUninit> RowNumbers<T> {
    /// Writes numbers as they come.
    pub(super) fn collect(scratch: &Scratch, numbers: impl Iterator<Item = T>) -> Result<Self> {
        const TOGETHER: usize = 8192;
        let (mut writer, mut numbers) = (RowNumbersWriter::new(scratch), numbers);
        loop {
            let some: Vec<T> = numbers.by_ref().take(TOGETHER).collect();
            if some.is_empty() {
                return writer.finish();
            }
            writer.extend(&some)?;
        }
    }
}

impl<T: AnyBitPattern + NoUninit> Deref for RowNumbers<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Memory { numbers, .. } => numbers,
            // A map begins at a page.
            Self::File(map, _) => bytemuck::cast_slice(map.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW_BYTES, RowNumbers, RowNumbersWriter};
    use crate::prepare::build::scratch::Scratch;

    #[test]
    fn numbers_stay_in_memory_while_there_is_some_and_then_go_to_a_file_without_a_name() {
        const MEMORY: usize = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(folder.path().to_owned(), MEMORY as u64);
        for bytes in [0, 8, FEW_BYTES, MEMORY, MEMORY + FEW_BYTES, 2 * MEMORY] {
            let all: Vec<i64> = (0..bytes as i64 / 8).collect();
            let mut writer = RowNumbersWriter::new(&scratch);
            for some in all.chunks(1024) {
                writer.extend(some).unwrap();
            }
            let numbers = writer.finish().unwrap();
            assert_eq!(*numbers, *all);
            let is_in_memory = matches!(numbers, RowNumbers::Memory { .. });
            assert_eq!(is_in_memory, bytes <= MEMORY + FEW_BYTES, "{bytes}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            drop(numbers);
            assert!(scratch.take(MEMORY).is_some());
        }
    }
}
