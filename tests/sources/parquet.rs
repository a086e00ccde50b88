use std::fs::File;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::file::properties::WriterProperties;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, DictionaryArray, Int64Array, StringArray,
    StringViewArray, TimestampMicrosecondArray, TimestampNanosecondArray,
};
use arrow_schema::{DataType, TimeUnit};

use super::*;

fn write(path: &Path, batch: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(5000)).build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn numbers(from: i64, to: i64) -> RecordBatch {
    let a: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    let b: ArrayRef = Arc::new(StringArray::from_iter_values((from..to).map(|i| i.to_string())));
    RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap()
}

#[test]
fn arrow_types_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let decimal = Decimal128Array::from(vec![150]).with_precision_and_scale(15, 2).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("view", Arc::new(StringViewArray::from(vec!["x"]))),
        ("decimal", Arc::new(decimal)),
        ("dictionary", Arc::new(DictionaryArray::<Int32Type>::from_iter(["y"]))),
        ("date", Arc::new(Date32Array::from(vec![Some(-1)]))),
        ("us", Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC"))),
        ("ns", Arc::new(TimestampNanosecondArray::from(vec![1]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    write(&folder.path().join("t.parquet"), &batch);
    let source = opened(folder.path());
    let types: Vec<_> =
        source.tables().unwrap()[0].columns.iter().map(|c| c.data_type.clone()).collect();
    assert_eq!(
        types,
        [
            DataType::Utf8View,
            DataType::Decimal128(15, 2),
            DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()),
            DataType::Date32,
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            DataType::Timestamp(TimeUnit::Nanosecond, None),
        ]
    );
    let names = ["ns", "us", "date", "dictionary", "decimal", "view"];
    let found = batches(&*source, "t", &names).unwrap();
    for (index, name) in names.iter().enumerate() {
        assert_eq!(found[0].column(index), batch.column_by_name(name).unwrap());
    }
}

#[test]
fn columns_have_the_requested_order() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("t.parquet"), &numbers(0, 20_000));
    let source = opened(folder.path());
    let found = batches(&*source, "t", &["b", "a", "b"]).unwrap();
    let rows: usize = found.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 20_000);
    assert!(found.iter().all(|b| b.num_rows() <= 8192));
    let all = arrow_select::concat::concat_batches(&found[0].schema(), &found).unwrap();
    assert_eq!(all.column(1), numbers(0, 20_000).column(0));
    assert_eq!(all.column(0), numbers(0, 20_000).column(1));
    assert_eq!(all.column(2), all.column(0));
    let none = batches(&*source, "t", &[]).unwrap();
    assert_eq!(none.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_000);
}

#[test]
fn a_sub_folder_of_parts_is_one_table_in_order_of_names() {
    for name in ["t", "t.parquet"] {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join(name);
        std::fs::create_dir(&parts).unwrap();
        write(&parts.join("part-1.parquet"), &numbers(10, 30));
        write(&parts.join("part-0.parquet"), &numbers(0, 10));
        std::fs::write(parts.join("_SUCCESS"), b"").unwrap();
        let found = batches(&*opened(folder.path()), "t", &["a"]).unwrap();
        let all = arrow_select::concat::concat_batches(&found[0].schema(), &found).unwrap();
        assert_eq!(all.column(0), numbers(0, 30).column(0));

        let other: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let odd = RecordBatch::try_from_iter([("a", other.clone()), ("c", other)]).unwrap();
        write(&parts.join("part-2.parquet"), &odd);
        let found = opened(folder.path()).tables();
        assert_eq!(
            message(found, ErrorKind::Data, &parts),
            "DIR/part-2.parquet: column 2: expected \"b\" as in DIR/part-0.parquet, found \"c\"; give \
             all parts of a table the same columns in the same order"
        );
    }
}

#[test]
fn a_truncated_file_is_rejected_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    write(&path, &numbers(0, 20_000));
    let whole = std::fs::read(&path).unwrap();
    for cut in (0..whole.len()).step_by(whole.len() / 40) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let found = opened(folder.path()).tables();
        let found = message(found, ErrorKind::Data, folder.path());
        assert!(found.starts_with("DIR/t.parquet: not a complete Parquet file: "), "{found}");
        assert!(found.ends_with("; it may be truncated, write it again"), "{found}");
    }
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(
        message(opened(folder.path()).tables(), ErrorKind::Data, folder.path()),
        "DIR/t.parquet: not a complete Parquet file: Parquet error: Invalid Parquet file. Corrupt \
         footer; it may be truncated, write it again"
    );
}
