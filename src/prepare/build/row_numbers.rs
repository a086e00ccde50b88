//! A number of each row of a table: in memory while they are few, then in a file that the system keeps in
//! memory while there is room.

use std::io::{BufWriter, Write};
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use bytemuck::{AnyBitPattern, NoUninit};

use super::chain::unnamed;
use crate::bytes::append;
use crate::error::{Error, Result};
use crate::map::Map;

/// No more bytes of numbers are in memory alone.
const MEMORY_BYTES: usize = 1 << 20;

/// Numbers that are complete.
pub(super) enum RowNumbers<T> {
    Memory(Vec<T>),
    File(Map, PhantomData<T>),
}

/// Numbers to which more come.
pub(super) struct RowNumbersWriter<T> {
    folder: PathBuf,
    memory: Vec<T>,
    file: Option<(PathBuf, BufWriter<std::fs::File>)>,
}

impl<T: NoUninit> RowNumbersWriter<T> {
    /// Spills to `folder`, if need be.
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), memory: Vec::new(), file: None }
    }

    pub(super) fn extend(&mut self, numbers: &[T]) -> Result<()> {
        if self.file.is_none() && size_of_val(&*self.memory) + size_of_val(numbers) > MEMORY_BYTES {
            let (path, file) = unnamed(&self.folder)?;
            self.file = Some((path, BufWriter::with_capacity(MEMORY_BYTES, file)));
            let memory = std::mem::take(&mut self.memory);
            self.write(&memory)?;
        }
        match self.file {
            None => append(&mut self.memory, numbers),
            Some(_) => self.write(numbers),
        }
    }

    fn write(&mut self, numbers: &[T]) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        file.write_all(bytemuck::cast_slice(numbers)).map_err(|e| Error::io(path, "writing", e))
    }

    pub(super) fn finish(self) -> Result<RowNumbers<T>> {
        let Some((path, file)) = self.file else { return Ok(RowNumbers::Memory(self.memory)) };
        let file = file.into_inner().map_err(|e| Error::io(&path, "writing", e.into_error()))?;
        Ok(RowNumbers::File(Map::of_unnamed(&file, &path)?, PhantomData))
    }
}

impl<T: NoUninit> RowNumbers<T> {
    /// Writes numbers as they come; spills to `folder`, if need be.
    pub(super) fn collect(folder: &Path, numbers: impl Iterator<Item = T>) -> Result<Self> {
        const TOGETHER: usize = 8192;
        let (mut writer, mut numbers) = (RowNumbersWriter::new(folder), numbers);
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
            Self::Memory(numbers) => numbers,
            // A map begins at a page.
            Self::File(map, _) => bytemuck::cast_slice(map.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MEMORY_BYTES, RowNumbers, RowNumbersWriter};

    #[test]
    fn few_numbers_stay_in_memory_and_many_go_to_a_file_without_a_name() {
        let folder = tempfile::tempdir().unwrap();
        for count in [0, 1, MEMORY_BYTES / 8, MEMORY_BYTES / 8 + 1, MEMORY_BYTES] {
            let all: Vec<i64> = (0..count as i64).collect();
            let mut writer = RowNumbersWriter::new(folder.path());
            for some in all.chunks(1000) {
                writer.extend(some).unwrap();
            }
            let numbers = writer.finish().unwrap();
            assert_eq!(*numbers, *all);
            let is_in_memory = matches!(numbers, RowNumbers::Memory(_));
            assert_eq!(is_in_memory, size_of_val(&*all) <= MEMORY_BYTES, "{count}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}
