use std::fs::File;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray,
    StringArray, StringViewArray, TimestampMicrosecondArray, TimestampNanosecondArray,
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
    // Texts come as views.
    let texts = all.column(0).as_string_view().iter().flatten();
    assert!(texts.eq(numbers(0, 20_000).column(1).as_string::<i32>().iter().flatten()));
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

/// Columns of the types that the format has, also nested ones, with NULLs and repeated values.
#[test]
fn an_encrypted_file_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    write(&path, &numbers(0, 10));
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len() - 4;
    bytes[end..].copy_from_slice(b"PARE");
    std::fs::write(&path, bytes).unwrap();
    let error = opened(folder.path()).tables().unwrap_err().to_string();
    assert!(error.contains("found an encrypted one; write it again without encryption"), "{error}");
}

fn of_all_types(rows: i32) -> RecordBatch {
    let some = |n: i32| (n % 7 != 3).then_some(n);
    let all = || (0..rows).map(some);
    let words = || all().map(|n| n.map(|n| format!("word {}", n % 11)));
    let bytes: Vec<_> = words().map(|word| word.map(String::into_bytes)).collect();
    let fixed = (0..rows).map(|n| (n % 5).to_le_bytes());
    let decimals: Decimal128Array = all().map(|n| n.map(|n| i128::from(n) << 70)).collect();
    let lists = all().map(|n| n.map(|n| vec![Some(f64::from(n)), None]));
    let owned: Vec<_> = words().collect();
    let dictionary: DictionaryArray<Int32Type> = owned.iter().map(Option::as_deref).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i32", Arc::new(all().collect::<Int32Array>())),
        ("i64", Arc::new(all().map(|n| n.map(i64::from)).collect::<Int64Array>())),
        ("f32", Arc::new(all().map(|n| n.map(|n| n as f32)).collect::<Float32Array>())),
        ("f64", Arc::new(all().map(|n| n.map(f64::from)).collect::<Float64Array>())),
        ("truth", Arc::new(all().map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>())),
        ("text", Arc::new(words().collect::<StringArray>())),
        ("bytes", Arc::new(BinaryArray::from_iter(bytes))),
        ("fixed", Arc::new(FixedSizeBinaryArray::try_from_iter(fixed).unwrap())),
        ("decimal", Arc::new(decimals.with_precision_and_scale(38, 2).unwrap())),
        ("day", Arc::new(all().collect::<Date32Array>())),
        ("list", Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(lists))),
        ("dictionary", Arc::new(dictionary)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Files of every codec, of both versions of pages, and of every encoding that a writer may choose.
fn of_all_kinds() -> Vec<Vec<u8>> {
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ];
    let of = |codec, version, is_delta| {
        let mut properties = WriterProperties::builder()
            .set_compression(codec)
            .set_writer_version(version)
            .set_max_row_group_row_count(Some(40))
            .set_data_page_row_count_limit(20);
        if is_delta {
            properties = properties.set_dictionary_enabled(false);
            for (column, encoding) in [
                ("i32", Encoding::DELTA_BINARY_PACKED),
                ("i64", Encoding::BYTE_STREAM_SPLIT),
                ("f64", Encoding::BYTE_STREAM_SPLIT),
                ("truth", Encoding::RLE),
                ("text", Encoding::DELTA_BYTE_ARRAY),
                ("bytes", Encoding::DELTA_LENGTH_BYTE_ARRAY),
            ] {
                properties = properties.set_column_encoding(column.into(), encoding);
            }
        }
        let batch = of_all_types(60);
        let mut bytes = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes
    };
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let plain = codecs.into_iter().zip(versions.into_iter().cycle());
    let plain: Vec<_> = plain.map(|(codec, version)| of(codec, version, false)).collect();
    let delta = versions.into_iter().map(|version| of(Compression::UNCOMPRESSED, version, true));
    delta.chain(plain).collect()
}

/// Reads a table of one file: its rows, or an error that names the file.
fn read_or_told(path: &Path) -> Result<usize, String> {
    let found = open(path).and_then(|source| {
        let columns = source.columns("t")?;
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        batches(&*source, "t", &names)
    });
    let found = found.map(|batches| batches.iter().map(RecordBatch::num_rows).sum());
    found.map_err(|error| {
        assert!(error.to_string().contains("t.parquet"), "{error}");
        assert!(matches!(error.kind(), ErrorKind::Data | ErrorKind::LimitExceeded), "{error}");
        error.to_string()
    })
}

#[test]
fn damaged_bytes_are_told_and_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut told = 0;
    for whole in of_all_kinds() {
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(read_or_told(&path), Ok(60));
        let mut read = |damaged: &[u8]| {
            std::fs::write(&path, damaged).unwrap();
            told += u32::from(read_or_told(&path).is_err());
        };
        for at in (0..whole.len()).step_by(1 + whole.len() / 900) {
            let mut damaged = whole.clone();
            damaged[at] ^= [0x01, 0x10, 0x80, 0xff][at % 4];
            read(&damaged);
            let end = (at + 1 + at % 9).min(whole.len());
            damaged[at..end].fill([0xff, 0, 0x7f][at % 3]);
            read(&damaged);
        }
        for cut in (0..whole.len()).step_by(1 + whole.len() / 60) {
            read(&whole[..cut]);
            // The end alone, whose places in the file are wrong.
            read(&whole[cut..]);
        }
    }
    assert!(told > 3000, "{told}");
}

/// A page of 2 MB, whose header claims 128 MiB for it: the most that the bytes of its number can say.
#[test]
fn a_page_that_claims_more_than_its_column_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..300_000).map(|n| n % 7)));
    let batch = RecordBatch::try_from_iter([("x", numbers)]).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_data_page_row_count_limit(300_000)
        .set_data_page_size_limit(8 << 20)
        .set_write_batch_size(300_000);
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert_eq!(read_or_told(&path), Ok(300_000));
    let mut bytes = std::fs::read(&path).unwrap();
    // The first page follows the magic: a field for its kind, and one for its bytes, in four groups.
    assert_eq!(bytes[4..7], [0x15, 0, 0x15]);
    assert!(bytes[7..10].iter().all(|byte| *byte >= 0x80) && bytes[10] < 0x80);
    bytes[7..11].copy_from_slice(&[0xfe, 0xff, 0xff, 0x7f]);
    std::fs::write(&path, &bytes).unwrap();
    let told = read_or_told(&path).unwrap_err();
    assert!(
        told.contains("a page claims 134217727 bytes, and its column has at most 67108864"),
        "{told}"
    );
}

#[test]
fn long_texts_come_in_small_batches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let texts: Vec<_> = (0..200).map(|n| format!("{n:07}").repeat(1 << 17)).collect();
    let column =
        |texts: StringArray| RecordBatch::try_from_iter([("x", Arc::new(texts) as ArrayRef)]);
    write(&path, &column(StringArray::from_iter_values(&texts)).unwrap());
    let found = batches(&*opened(&path), "t", &["x"]).unwrap();
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 200);
    assert!(found.iter().all(|batch| batch.num_rows() <= 80), "a batch of more than 64 MiB");
    let found = found.iter().flat_map(|batch| batch.column(0).as_string_view().iter().flatten());
    assert!(found.eq(texts.iter()), "other texts");
}

/// A dictionary holds a text once, however many rows have it: 8 GiB of texts in a file of 1 MB.
#[test]
fn repeated_long_texts_are_read_as_views() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let keys = Int32Array::from(vec![0; 8192]);
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1 << 20)]));
    let array: ArrayRef = Arc::new(DictionaryArray::try_new(keys, text).unwrap());
    // Without the schema of Arrow, the column is one of plain texts.
    let batch = RecordBatch::try_from_iter([("x", array)]).unwrap();
    let options = ::parquet::arrow::arrow_writer::ArrowWriterOptions::new();
    let options = options.with_skip_arrow_metadata(true).with_properties(
        WriterProperties::builder().set_dictionary_page_size_limit(4 << 20).build(),
    );
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new_with_options(file, batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 4 << 20);
    let source = opened(&path);
    assert_eq!(source.columns("t").unwrap()[0].data_type, DataType::Utf8);
    let found = batches(&*source, "t", &["x"]).unwrap();
    let lengths = found.iter().flat_map(|batch| batch.column(0).as_string_view().lengths());
    assert!(lengths.eq(std::iter::repeat_n(1 << 20, 8192)));
}
