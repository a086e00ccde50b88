//! Values and files of wrong types: each has one clear message.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, Date32Array, Float64Array, ListArray, NullArray, RecordBatch, StringArray,
    TimestampSecondArray, UInt64Array,
};
use headwater::prepare::embed::HashingEmbedder;
use headwater::prepare::schema::Schema;
use headwater::prepare::source::{Batches, Source, SourceColumn, SourceTable};
use headwater::prepare::{Options, prepare};
use headwater::progress::Silent;
use headwater::store::Store;
use headwater::{ErrorKind, Result};

use crate::Workshop;

const SCHEMA: &str = r#"
database = "d"
[[table]]
name = "t"
columns = { x = "TYPE" }
"#;

/// A source of one batch for any table and columns.
struct Single(RecordBatch);

impl Source for Single {
    fn describe(&self) -> String {
        "memory".into()
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(vec![])
    }

    fn columns(&self, _table: &str) -> Result<Vec<SourceColumn>> {
        Ok(vec![])
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        Ok(vec![])
    }

    fn read(&self, _table: &str, _columns: &[String]) -> Result<Batches> {
        Ok(Box::new(std::iter::once(Ok(self.0.clone()))))
    }
}

/// Prepares a table with one column of this type.
fn outcome(array: ArrayRef, column: &str) -> Result<Store> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("db");
    let batch = RecordBatch::try_from_iter_with_nullable([("x", array, true)]).unwrap();
    let schema = Schema::parse(&SCHEMA.replace("\"TYPE\"", column)).unwrap();
    let embedder = HashingEmbedder::new(8);
    let options = Options {
        embedder: &embedder,
        text_vectors: None,
        threads: Some(1),
        memory: None,
        sql: None,
        progress: &Silent,
    };
    let report = prepare(&Single(batch), &schema, &out, &options);
    assert!(!folder.path().join("db.partial").exists());
    assert_eq!(report.is_ok(), out.exists());
    report.and_then(|_| Store::open(&out))
}

fn refused(array: impl arrow_array::Array + 'static, column: &str, kind: ErrorKind) -> String {
    let error = outcome(Arc::new(array), column).err().unwrap_or_else(|| panic!("{column}"));
    assert_eq!(error.kind(), kind, "{error}");
    error.to_string()
}

const NUMERICAL: &str = "\"numerical\"";
const TIMESTAMP: &str = "\"timestamp\"";
const SECONDS: &str = "{ type = \"timestamp\", unit = \"s\" }";

#[test]
fn values_that_are_not_finite_numbers_are_rejected() {
    let place = "table \"t\": column \"x\": ";
    for (number, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-f64::INFINITY, "-inf")] {
        let array = Float64Array::from(vec![1.0, number, number]);
        assert_eq!(
            refused(array, NUMERICAL, ErrorKind::Data),
            format!(
                "{place}2 values cannot be read as numerical: expected a finite number, found \
                 \"{shown}\" in row 2; correct the data or the column's type"
            )
        );
    }
    for array in [[1e308, -1e308], [1e200, -1e200]] {
        let message = refused(Float64Array::from(array.to_vec()), NUMERICAL, ErrorKind::Data);
        assert_eq!(
            message,
            format!(
                "{place}the numbers from {:e} to {:e} have no finite mean and standard deviation; \
                 scale them down, or make the column categorical or text",
                array[1], array[0]
            )
        );
    }
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
    let message = refused(lists, NUMERICAL, ErrorKind::Schema);
    assert!(
        message.starts_with(&format!("{place}expected values that can be numbers, found List"))
    );
    let advice = "; leave the column out of the schema, or give its values a table";
    assert!(message.ends_with(advice), "{message}");
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
    let message = refused(lists, "\"categorical\"", ErrorKind::Schema);
    let found = format!("{place}expected values that can be text, found List");
    assert!(message.starts_with(&found) && message.ends_with(advice), "{message}");
}

#[test]
fn times_out_of_range_are_rejected() {
    let message = |shown: &str| {
        format!(
            "table \"t\": column \"x\": 1 value cannot be read as timestamp: expected whole seconds \
             since 1970, found \"{shown}\" in row 2; correct the data or the column's type"
        )
    };
    // A conversion to NULL would make the row always visible.
    assert_eq!(
        refused(UInt64Array::from(vec![1, u64::MAX]), SECONDS, ErrorKind::Data),
        message(&u64::MAX.to_string())
    );
    assert_eq!(
        refused(arrow_array::Int64Array::from(vec![1, i64::MAX]), SECONDS, ErrorKind::Data),
        message(&i64::MAX.to_string())
    );
    let seconds =
        refused(TimestampSecondArray::from(vec![1, i64::MAX]), TIMESTAMP, ErrorKind::Data);
    assert!(seconds.contains(": 1 value cannot be read as timestamp: "), "{seconds}");
    let dates = refused(Date32Array::from(vec![1, i32::MAX]), TIMESTAMP, ErrorKind::Data);
    assert!(dates.contains(": 1 value cannot be read as timestamp: "), "{dates}");
    assert_eq!(
        refused(UInt64Array::from(vec![None, Some(7)]), TIMESTAMP, ErrorKind::Schema),
        "table \"t\": column \"x\": expected a time, found integers such as 7; give their unit, as \
         in { type = \"timestamp\", unit = \"s\" } (or ms, us, yyyymmdd, month, quarter, season, year)"
    );
    let fine = outcome(Arc::new(UInt64Array::from(vec![Some(86_400), None])), SECONDS).unwrap();
    assert_eq!(fine.tables()[0].metadata().columns[0].null_count, 1);
}

#[test]
fn years_are_not_read_as_seconds() {
    let years = || arrow_array::Int64Array::from(vec![Some(1998), None, Some(2003)]);
    let message = refused(years(), TIMESTAMP, ErrorKind::Schema);
    assert!(message.contains("integers such as 1998; give their unit, as in { type = \"timestamp\", unit = \"year\" }"), "{message}");
    assert_eq!(
        refused(years(), SECONDS, ErrorKind::Data),
        "table \"t\": column \"x\": every time is on 1970-01-01, the day on which counting begins, as \
         2003 would be; correct the unit, as in { type = \"timestamp\", unit = \"year\" }, or make the \
         column numerical"
    );
    assert_eq!(
        refused(StringArray::from(vec!["2003", "2004"]), TIMESTAMP, ErrorKind::Data),
        "table \"t\": column \"x\": 2 values cannot be read as timestamp: expected a time such as \
         2020-01-31 (a year or another period needs its unit, as in { type = \"timestamp\", unit = \
         \"year\" }), found \"2003\" in row 1; correct the data or the column's type"
    );
    assert_eq!(
        refused(years(), "{ type = \"timestamp\", unit = \"month\" }", ErrorKind::Data),
        "table \"t\": column \"x\": 2 values cannot be read as timestamp: expected a month such as \
         200304 or 2003-04, found \"1998\" in row 1; correct the data or the column's type"
    );
}

#[test]
fn a_period_has_one_time_in_every_type_of_the_source() {
    let year = "{ type = \"timestamp\", unit = \"year\", end = true }";
    let root = |array: ArrayRef| {
        let store = outcome(array, year).unwrap();
        store.metadata().files.clone()
    };
    let integers =
        root(Arc::new(arrow_array::Int32Array::from(vec![Some(1998), None, Some(2003)])));
    let floats = root(Arc::new(Float64Array::from(vec![Some(1998.0), None, Some(2003.0)])));
    let texts = root(Arc::new(StringArray::from(vec![Some("1998"), None, Some("2003.0")])));
    assert_eq!(integers, floats);
    assert_eq!(integers, texts);
}

#[test]
fn texts_that_are_not_booleans_are_rejected() {
    let array = StringArray::from(vec![Some("yes"), None, Some("perhaps"), Some("maybe")]);
    assert_eq!(
        refused(array, "\"boolean\"", ErrorKind::Data),
        "table \"t\": column \"x\": 2 values cannot be read as boolean: expected true or false (or \
         t/f, yes/no, y/n, 1/0), found \"perhaps\" in row 3; correct the data or the column's type"
    );
}

#[test]
fn more_categories_than_the_limit_are_rejected() {
    let words: Vec<_> = (0..4097).map(|number| number.to_string()).collect();
    assert_eq!(
        refused(StringArray::from(words), "\"categorical\"", ErrorKind::LimitExceeded),
        "table \"t\": column \"x\": 4097 categories or more, expected at most 4096; make the \
         column text, or raise limits.categories"
    );
}

#[test]
fn more_rows_than_the_format_counts_are_rejected() {
    let rows = u32::MAX as usize;
    assert_eq!(
        refused(NullArray::new(rows), "\"identifier\"", ErrorKind::LimitExceeded),
        "table \"t\": expected at most 4294967294 rows, found more; split the table"
    );
}

#[test]
fn malformed_csv_is_rejected_with_its_line() {
    let schema = SCHEMA.replace("TYPE", "text");
    let workshop = Workshop::new(&[("t.csv", "x,y\n1,2\n3\n5,6\n")]);
    assert_eq!(
        workshop.refused(&schema),
        "table \"t\": DIR/data/t.csv: line 3: expected 2 fields as in the header, found 1"
    );
    let workshop = Workshop::new(&[("t.csv", "x,y\n1,2\n3,\"4\n5,6\n")]);
    assert_eq!(
        workshop.refused(&schema),
        "table \"t\": DIR/data/t.csv: line 3: column \"y\": expected a closing quote (\") before \
         the end of the file, found none; close the quote"
    );
}

#[test]
fn truncated_and_damaged_parquet_is_rejected() {
    let workshop = Workshop::new(&[]);
    let path = workshop.path("data/t.parquet");
    let array: ArrayRef = Arc::new(StringArray::from_iter_values((0..999).map(|i| i.to_string())));
    let batch = RecordBatch::try_from_iter([("x", array)]).unwrap();
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let message = workshop.refused(&SCHEMA.replace("TYPE", "text"));
    let place = "table \"t\": DIR/data/t.parquet: not a complete Parquet file: ";
    assert!(message.starts_with(place), "{message}");
    assert!(message.ends_with("; it may be truncated, write it again"), "{message}");
    // A file of the right length with damaged pages.
    let mut damaged = whole.clone();
    damaged[4..whole.len() / 2].fill(0xa5);
    std::fs::write(&path, damaged).unwrap();
    let message = workshop.refused(&SCHEMA.replace("TYPE", "text"));
    assert!(message.starts_with(place), "{message}");
}
