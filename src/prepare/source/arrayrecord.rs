//! Reads tables in ArrayRecord files, whose records are rows of events.
//!
//! A record is an IPC stream of Arrow with a binary column `measurements`; each value of it is an IPC
//! stream, too, whose rows are rows of the table. The other columns of a record are not read.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use arrow_select::concat::concat_batches;

use super::{BATCH_BYTES, BATCH_ROWS, Batches, SourceColumn, check_names};
use crate::error::{Context, Error, Result};
use crate::panics::caught;
use crate::prepare::arrayrecord::Reader;
use crate::prepare::names::listed;

/// The column of a record that has the rows.
const ROWS: &str = "measurements";

/// Returns the columns of a file: those of the rows in its first record.
pub(in crate::prepare) fn columns(path: &Path) -> Result<Vec<SourceColumn>> {
    let first = Reader::open(path)?.next_records()?;
    let Some(record) = first.as_ref().and_then(|records| records.iter().next()) else {
        return Err(Error::data(format!(
            "{}: expected records, whose rows have columns, found none; leave the file out",
            path.display()
        )));
    };
    let (schema, _) = rows_of(record).map_err(|e| in_record(path, 0, e))?;
    let column = |field: &arrow_schema::FieldRef| SourceColumn {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        declared: None,
    };
    let columns: Vec<_> = schema.fields().iter().map(column).collect();
    check_names(&columns).context(|| path.display().to_string())?;
    Ok(columns)
}

/// Streams the columns at `indices`.
pub(in crate::prepare) fn read(path: &Path, indices: Vec<usize>) -> Result<Batches> {
    let mut rows = Rows {
        reader: Reader::open(path)?,
        path: path.to_owned(),
        indices,
        schema: None,
        record: 0,
        waiting: VecDeque::new(),
        count: 0,
        bytes: 0,
        has_ended: false,
    };
    Ok(Box::new(std::iter::from_fn(move || rows.next_batch().transpose())))
}

/// The rows of a file.
struct Rows {
    reader: Reader,
    path: PathBuf,
    indices: Vec<usize>,
    /// The columns of the first record, which the others share.
    schema: Option<SchemaRef>,
    /// The number of records that were read.
    record: u64,
    /// Rows that are not yet part of a batch, their number, and the memory that they take.
    waiting: VecDeque<RecordBatch>,
    count: usize,
    bytes: usize,
    has_ended: bool,
}

impl Rows {
    /// Returns the next batch; none at the end.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while self.count < BATCH_ROWS && self.bytes < BATCH_BYTES && !self.has_ended {
            match self.reader.next_records()? {
                None => self.has_ended = true,
                Some(records) => records.iter().try_for_each(|record| self.append(record))?,
            }
        }
        let wanted = self.count.min(BATCH_ROWS);
        if wanted == 0 {
            return Ok(None);
        }
        self.count -= wanted;
        let (mut parts, mut left) = (Vec::new(), wanted);
        while left > 0
            && let Some(rows) = self.waiting.pop_front()
        {
            let now = rows.num_rows().min(left);
            if now < rows.num_rows() {
                self.waiting.push_front(rows.slice(now, rows.num_rows() - now));
            }
            parts.push(rows.slice(0, now));
            left -= now;
        }
        self.bytes = self.waiting.iter().map(RecordBatch::get_array_memory_size).sum();
        let schema = parts[0].schema();
        let batch = concat_batches(&schema, &parts);
        batch.map(Some).map_err(|e| Error::data(format!("{}: {e}", self.path.display())))
    }

    /// Appends the rows of a record to those that wait.
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let number = self.record;
        let wrong = |e| in_record(&self.path, number, e);
        let (schema, batches) = rows_of(record).map_err(wrong)?;
        match &self.schema {
            None => self.schema = Some(schema),
            Some(expected) => check_same(expected, &schema).map_err(wrong)?,
        }
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            let batch = batch.project(&self.indices).map_err(|e| wrong(e.to_string()))?;
            self.count += batch.num_rows();
            self.bytes += batch.get_array_memory_size();
            self.waiting.push_back(batch);
        }
        self.record += 1;
        Ok(())
    }
}

/// Returns the columns and the rows in a record; fails with what is wrong with it.
fn rows_of(record: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
    let (outer, records) = stream(&Buffer::from(record)).map_err(|e| {
        format!("expected a record that is an IPC stream of Arrow, found other bytes ({e})")
    })?;
    let place = outer.index_of(ROWS).map_err(|_| {
        let names = outer.fields().iter().map(|field| field.name().as_str());
        format!("expected a column {ROWS:?}, found {}", listed(names))
    })?;
    let mut found: Option<(SchemaRef, Vec<RecordBatch>)> = None;
    for batch in &records {
        let column = batch.column(place);
        if column.null_count() > 0 {
            return Err(format!("column {ROWS:?}: expected bytes, found NULL"));
        }
        for row in 0..column.len() {
            let value = match column.data_type() {
                DataType::Binary => column.as_binary::<i32>().value(row),
                DataType::LargeBinary => column.as_binary::<i64>().value(row),
                other => return Err(format!("column {ROWS:?}: expected bytes, found {other}")),
            };
            let (schema, rows) = stream(&Buffer::from(value)).map_err(|e| {
                format!("column {ROWS:?}: expected an IPC stream of Arrow, found other bytes ({e})")
            })?;
            match &mut found {
                None => found = Some((schema, rows)),
                Some((expected, all)) => {
                    check_same(expected, &schema)?;
                    all.extend(rows);
                }
            }
        }
    }
    found.ok_or_else(|| "expected one row, found none".to_owned())
}

/// Reads an IPC stream; fails with what is wrong with it.
fn stream(bytes: &Buffer) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
    let read = || {
        let (mut decoder, mut left, mut batches) =
            (StreamDecoder::new(), bytes.clone(), Vec::new());
        while let Some(batch) = decoder.decode(&mut left)? {
            batches.push(batch);
        }
        decoder.finish()?;
        let schema = decoder.schema();
        Ok((schema.ok_or_else(|| ArrowError::IpcError("no schema".to_owned()))?, batches))
    };
    // Arrow panics at some of the offsets that a stream should not have.
    caught(read)?.map_err(|e: ArrowError| e.to_string())
}

/// Checks that a record has the columns of the first one.
fn check_same(expected: &Schema, found: &Schema) -> Result<(), String> {
    let shown = |schema: &Schema| {
        let shown =
            |field: &arrow_schema::FieldRef| format!("{} {}", field.name(), field.data_type());
        schema.fields().iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    let (expected, found) = (shown(expected), shown(found));
    if expected == found {
        return Ok(());
    }
    Err(format!("expected the columns of the first record, {expected}; found {found}"))
}

fn in_record(path: &Path, record: u64, what: String) -> Error {
    Error::data(format!(
        "{}: record {record}: {what}; write the file again, with a row of events in each record",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, BinaryArray, Int64Array, StringArray};
    use arrow_ipc::writer::StreamWriter;
    use std::sync::Arc;

    use super::*;

    fn stream_of(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    /// No change of a record makes Arrow panic, or take memory that the record does not have.
    #[test]
    fn whatever_a_record_holds_is_rows_or_an_error() {
        let rows = stream_of(vec![
            ("time", Arc::new(Int64Array::from(vec![1, 2, 3]))),
            ("source", Arc::new(StringArray::from(vec!["a", "", "ccc"]))),
        ]);
        let record = stream_of(vec![(ROWS, Arc::new(BinaryArray::from_vec(vec![&rows])))]);
        assert_eq!(rows_of(&record).unwrap().1[0].num_rows(), 3);
        let mut refused = 0;
        for at in 0..record.len() {
            for change in [1, 0x10, 0x80, 0xff] {
                let mut changed = record.clone();
                changed[at] ^= change;
                refused += u32::from(rows_of(&changed).is_err());
            }
            // The end of a stream may be left out.
            if at < record.len() - 8 {
                assert!(rows_of(&record[..at]).is_err(), "{at} bytes");
            }
        }
        assert!(refused > 1000, "{refused}");
    }
}
