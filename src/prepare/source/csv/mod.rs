//! Reads tables in CSV files: a header line, double quotes, and the delimiter of the header.
//!
//! Every column is text. An empty field is NULL, also in quotes, because writers disagree about
//! their meaning. Blank lines and a byte order mark are skipped. In a quoted field a quote is
//! doubled; in any other field it is a plain character. A file may be packed (`.csv.gz`, `.csv.zst`).

mod delimiter;
mod input;
mod quotes;

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use csv::{ByteRecord, ErrorKind, ReaderBuilder};

use self::input::{Input, blamed, unreadable};
use self::quotes::{BadQuotes, CheckedQuotes, HEADER_BYTES_MAX, TooLong};
use super::{
    BATCH_BYTES, BATCH_ROWS, Batches, CELL_BYTES_MAX, SourceColumn, check_count, check_names,
    too_long,
};
use crate::error::{Context, Error, Result};

/// Returns the columns of the header line.
pub(super) fn columns(path: &Path) -> Result<Vec<SourceColumn>> {
    header(path).map_err(|error| blamed(path, error))
}

fn header(path: &Path) -> Result<Vec<SourceColumn>> {
    let mut reader = reader(path)?;
    let place = || path.display();
    let header = reader.byte_headers().map_err(|e| malformed(path, &e))?;
    if header.is_empty() {
        let message = "expected a header line with the column names, found an empty file";
        return Err(Error::data(message).context(place()));
    }
    check_count(header.len()).context(|| format!("{}: line 1", path.display()))?;
    let column = |name: &[u8]| match std::str::from_utf8(name) {
        Ok(name) => {
            Ok(SourceColumn { name: name.into(), data_type: DataType::Utf8, declared: None })
        }
        Err(_) => {
            let found = String::from_utf8_lossy(name);
            Err(Error::data(format!(
                "line 1: expected UTF-8, found {found:?}; convert the file to UTF-8"
            ))
            .context(place()))
        }
    };
    let columns = header.iter().map(column).collect::<Result<Vec<_>>>()?;
    check_names(&columns).context(|| format!("{}: line 1", path.display()))?;
    Ok(columns)
}

/// Streams the columns at `indices`.
pub(super) fn read(path: &Path, indices: Vec<usize>) -> Result<Batches> {
    let names = columns(path)?;
    let field = |&index: &usize| Field::new(&names[index].name, DataType::Utf8, true);
    let schema = Arc::new(Schema::new(indices.iter().map(field).collect::<Vec<_>>()));
    let mut reader = reader(path)?;
    reader.byte_headers().map_err(|e| malformed(path, &e))?;
    let path = path.to_owned();
    let columns = indices.iter().map(|_| TextColumn::default()).collect();
    let record = ByteRecord::new();
    Ok(Box::new(Rows { path, reader, record, indices, columns, schema, done: false }))
}

fn reader(path: &Path) -> Result<csv::Reader<CheckedQuotes<Input>>> {
    let delimiter = delimiter(path)?;
    Ok(parser(CheckedQuotes::new(Input::open(path)?, delimiter), delimiter))
}

fn parser<R: Read>(input: R, delimiter: u8) -> csv::Reader<R> {
    ReaderBuilder::new().delimiter(delimiter).buffer_capacity(256 << 10).from_reader(input)
}

/// Returns the delimiter of a file.
fn delimiter(path: &Path) -> Result<u8> {
    let input = BufReader::new(Input::open(path)?);
    delimiter::find(input.take(HEADER_BYTES_MAX)).map_err(|e| unreadable(path, &e))
}

/// The rows of one file.
struct Rows {
    path: PathBuf,
    reader: csv::Reader<CheckedQuotes<Input>>,
    record: ByteRecord,
    indices: Vec<usize>,
    columns: Vec<TextColumn>,
    schema: SchemaRef,
    done: bool,
}

/// The values of one column of a batch, one after another.
#[derive(Default)]
struct TextColumn {
    bytes: Vec<u8>,
    ends: Vec<i32>,
    valid: Vec<bool>,
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let batch = self.batch().map_err(|error| blamed(&self.path, error));
        // An error ends the stream, because the following records may be misread.
        self.done |= batch.is_err();
        batch.transpose()
    }
}

impl Rows {
    /// Returns the next batch; `None` at the end of the file.
    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut first = None;
        let mut rows = 0;
        let mut bytes = 0;
        while rows < BATCH_ROWS && bytes < BATCH_BYTES {
            let start = self.reader.position().byte();
            self.reader.get_mut().begin_row(start);
            let more = self.reader.read_byte_record(&mut self.record);
            if !more.map_err(|e| malformed(&self.path, &e))? {
                self.done = true;
                break;
            }
            first = first.or_else(|| self.record.position().cloned());
            for (column, &index) in self.columns.iter_mut().zip(&self.indices) {
                let field = self.record.get(index).unwrap_or_default();
                if field.len() > CELL_BYTES_MAX {
                    return Err(self.long_field(index, field.len()));
                }
                column.bytes.extend_from_slice(field);
                bytes += field.len();
                // A batch has at most the bytes of its limit and of one row.
                column.ends.push(column.bytes.len() as i32);
                column.valid.push(!field.is_empty());
            }
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let arrays = self.columns.iter_mut().map(TextColumn::take).collect::<Option<Vec<_>>>();
        let arrays = match (arrays, first) {
            (Some(arrays), _) => arrays,
            (None, first) => return Err(self.find_bad_text(first, rows)),
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map(Some)
            .map_err(|e| Error::data(e.to_string()).context(self.path.display()))
    }

    /// Returns the error about a field of the latest record that is too long.
    fn long_field(&self, index: usize, bytes: usize) -> Error {
        let place = || -> Result<String> {
            let start = csv::Position::new();
            let line = line_of(&self.path, self.record.position().unwrap_or(&start))?;
            let name = &columns(&self.path)?[index].name;
            Ok(format!("{}: line {line}: column {name:?}", self.path.display()))
        };
        match place() {
            Ok(place) => too_long(bytes).context(place),
            Err(error) => error,
        }
    }

    /// Reads the latest batch again to find the first field that is not UTF-8.
    fn find_bad_text(&self, first: Option<csv::Position>, rows: usize) -> Error {
        let search = || -> Result<Option<Error>> {
            let delimiter = delimiter(&self.path)?;
            let mut parser = parser(Input::open(&self.path)?, delimiter);
            let names = parser.byte_headers().map_err(|e| malformed(&self.path, &e))?;
            let first = first.unwrap_or_else(csv::Position::new);
            let mut input = Input::open(&self.path)?;
            input.skip(first.byte()).map_err(|e| unreadable(&self.path, &e))?;
            let mut records = ReaderBuilder::new();
            let records = records.delimiter(delimiter).has_headers(false).from_reader(input);
            for record in records.into_byte_records().take(rows) {
                let record = record.map_err(|e| malformed(&self.path, &e))?;
                for &index in &self.indices {
                    let field = record.get(index).unwrap_or_default();
                    let (Err(_), Some(position)) = (std::str::from_utf8(field), record.position())
                    else {
                        continue;
                    };
                    return Ok(Some(Error::data(format!(
                        "line {}: column {:?}: expected UTF-8, found {:?}; convert the file to \
                         UTF-8",
                        line_of(&self.path, &after(&first, position))?,
                        String::from_utf8_lossy(names.get(index).unwrap_or_default()),
                        String::from_utf8_lossy(field)
                    ))));
                }
            }
            Ok(None)
        };
        match search() {
            Ok(Some(error)) => error.context(self.path.display()),
            Ok(None) => {
                Error::data("the file changed while it was read; read it again when it is complete")
                    .context(self.path.display())
            }
            Err(error) => error,
        }
    }
}

impl TextColumn {
    /// Takes the values as an array; `None` if they are not UTF-8.
    fn take(&mut self) -> Option<ArrayRef> {
        let column = std::mem::take(self);
        self.ends.reserve(column.ends.len());
        self.valid.reserve(column.valid.len());
        self.bytes.reserve(column.bytes.len());
        let mut offsets = Vec::with_capacity(column.ends.len() + 1);
        offsets.push(0);
        offsets.extend_from_slice(&column.ends);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let nulls = Some(NullBuffer::from(column.valid)).filter(|nulls| nulls.null_count() > 0);
        let array = StringArray::try_new(offsets, Buffer::from_vec(column.bytes), nulls);
        array.ok().map(|array| Arc::new(array) as ArrayRef)
    }
}

/// Returns the error about a malformed file, with its place.
fn malformed(path: &Path, error: &csv::Error) -> Error {
    match error.kind() {
        ErrorKind::Io(e) => {
            let cause = e.get_ref();
            let bad = cause.and_then(|inner| inner.downcast_ref().map(|bad| bad_quotes(path, bad)));
            let long = || cause?.downcast_ref().map(|long| too_long_at(path, *long));
            match bad.or_else(long) {
                Some(found) => found.unwrap_or_else(|error| error),
                None => unreadable(path, e),
            }
        }
        ErrorKind::UnequalLengths { pos: Some(position), expected_len, len } => {
            let line = match line_of(path, position) {
                Ok(line) => line,
                Err(error) => return error,
            };
            let hint = match delimiter(path) {
                Ok(b',') => String::new(),
                Ok(other) => {
                    format!("; the delimiter is {:?}, as in the header", char::from(other))
                }
                Err(error) => return error,
            };
            Error::data(format!(
                "line {line}: expected {expected_len} fields as in the header, found {len}{hint}"
            ))
            .context(path.display())
        }
        _ => Error::data(error.to_string()).context(path.display()),
    }
}

/// Returns the place in the file of a record that is at `position` when reading begins at `start`.
fn after(start: &csv::Position, position: &csv::Position) -> csv::Position {
    let mut place = csv::Position::new();
    place.set_byte(start.byte() + position.byte()).set_line(start.line() + position.line() - 1);
    place
}

/// Returns the line on which a record begins.
fn line_of(path: &Path, position: &csv::Position) -> Result<u64> {
    let fail = |e| unreadable(path, &e);
    let mut input = Input::open(path)?;
    input.skip(position.byte()).map_err(fail)?;
    let mut line = position.line();
    for byte in BufReader::new(input).bytes() {
        match byte.map_err(fail)? {
            // After CR LF the reader begins the record at the LF, which ends the previous line.
            b'\n' => line += 1,
            b'\r' => {}
            _ => break,
        }
    }
    Ok(line)
}

/// Returns the error about a field with wrong quotes; reads the file again to find its place.
fn bad_quotes(path: &Path, bad: &BadQuotes) -> Result<Error> {
    let delimiter = delimiter(path)?;
    let opened = Place::of(path, bad.opened, delimiter)?;
    let column = opened.column(path, delimiter)?;
    let message = match bad.stray {
        None => format!(
            "line {}: {column}: expected a closing quote (\") before the end of the file, found \
             none; close the quote",
            opened.line
        ),
        Some(stray) => format!(
            "line {}: {column}: expected {} or the end of the line after a closing quote, found \
             {:?}; the field opens on line {}: double each quote inside it (\"\"), or remove the \
             wrong quote",
            Place::of(path, stray, delimiter)?.line,
            match delimiter {
                b',' => "a comma".to_owned(),
                other => format!("{:?}", char::from(other)),
            },
            text_at(path, stray, delimiter)?,
            opened.line
        ),
    };
    Ok(Error::data(message).context(path.display()))
}

/// Returns the error about a row or a field that is too long.
fn too_long_at(path: &Path, long: TooLong) -> Result<Error> {
    let delimiter = delimiter(path)?;
    let (TooLong::Row(at, _) | TooLong::Field(at)) = long;
    let place = Place::of(path, at, delimiter)?;
    let words = match long {
        TooLong::Field(_) => format!(
            "{}: expected a closing quote (\") within {} MiB, found none; close the quote, or shorten \
             the cell",
            place.column(path, delimiter)?,
            CELL_BYTES_MAX >> 20
        ),
        TooLong::Row(_, limit) => format!(
            "expected a {} of at most {} MiB, found a longer one; end each row with a line end, or \
             shorten its cells",
            if place.in_header { "header" } else { "row" },
            limit >> 20
        ),
    };
    let mut position = csv::Position::new();
    position.set_byte(at).set_line(place.line);
    // Blank lines stand before the row.
    let line = line_of(path, &position)?;
    Ok(Error::limit(format!("line {line}: {words}")).context(path.display()))
}

/// The place of a byte in a file.
struct Place {
    line: u64,
    field: usize,
    in_header: bool,
}

impl Place {
    /// Finds the place of the byte at `offset`; all quotes before it must be correct.
    fn of(path: &Path, offset: u64, delimiter: u8) -> Result<Self> {
        let mut place = Self { line: 1, field: 0, in_header: true };
        let (mut inside, mut at_start, mut blank) = (false, true, true);
        for byte in BufReader::new(Input::open(path)?).take(offset).bytes() {
            let byte = byte.map_err(|e| unreadable(path, &e))?;
            place.line += u64::from(byte == b'\n');
            let ends_line = matches!(byte, b'\n' | b'\r');
            blank &= ends_line;
            match byte {
                // A doubled quote closes the field and opens it again.
                b'"' if inside => (inside, at_start) = (false, true),
                _ if inside => {}
                b'"' if at_start => inside = true,
                _ if byte == delimiter => (place.field, at_start) = (place.field + 1, true),
                _ if ends_line => (place.field, at_start, place.in_header) = (0, true, blank),
                _ => at_start = false,
            }
        }
        Ok(place)
    }

    /// Returns the column's name, or its number if it has none.
    fn column(&self, path: &Path, delimiter: u8) -> Result<String> {
        let number = format!("column {}", self.field + 1);
        // A wrong header may have no end.
        if self.in_header {
            return Ok(number);
        }
        let mut parser = parser(Input::open(path)?, delimiter);
        let names = parser.byte_headers().map_err(|e| malformed(path, &e))?;
        let name = names.get(self.field).map(String::from_utf8_lossy);
        Ok(name.map_or(number, |name| format!("column {name:?}")))
    }
}

/// Returns the start of the text at `offset`, up to the end of its field.
fn text_at(path: &Path, offset: u64, delimiter: u8) -> Result<String> {
    const LENGTH: u64 = 20;
    let fail = |e| unreadable(path, &e);
    let mut input = Input::open(path)?;
    input.skip(offset).map_err(fail)?;
    let mut found = Vec::new();
    input.take(LENGTH).read_to_end(&mut found).map_err(fail)?;
    let end =
        found.iter().position(|&byte| quotes::ends_field(byte, delimiter)).unwrap_or(found.len());
    Ok(String::from_utf8_lossy(&found[..end]).into_owned())
}
