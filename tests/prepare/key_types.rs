//! Keys and references of different types match if their values are equal.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Decimal128Array, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    UInt64Array,
};
use headwater::store::{Store, Table};

use crate::{Workshop, succeed};

fn write(folder: &Path, name: &str, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(folder.join(format!("{name}.parquet"))).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Returns the parents of all rows of a store's only relation.
fn parents(store: &Store) -> Vec<Option<u32>> {
    let [relation] = store.relations() else { panic!("{} relations", store.relations().len()) };
    let child = &store.tables()[relation.metadata().child as usize];
    (0..child.row_count()).map(|row| relation.parent(&child.row(row).unwrap()).unwrap()).collect()
}

/// Drafts and prepares users and orders with these keys and references; returns the drafted schema
/// and the parents.
fn linked(keys: ArrayRef, references: ArrayRef) -> (String, Vec<Option<u32>>) {
    let workshop = Workshop::new(&[]);
    let data = workshop.path("data");
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..keys.len()).map(|i| format!("user {i}"))));
    write(&data, "users", vec![("id", keys), ("name", names)]);
    let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(0..references.len() as i64));
    write(&data, "orders", vec![("user_id", references), ("amount", counts)]);
    let store = workshop.unedited(&data);
    let text = std::fs::read_to_string(workshop.path("drafted.toml")).unwrap();
    (text, parents(&store))
}

#[test]
fn float_references_with_nulls_match_integer_keys() {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(1..=50));
    let gap = |i: i32| (i % 7 != 0).then_some(f64::from(i % 50 + 1));
    let references: Float64Array = (0..90).map(gap).collect();
    let (text, parents) = linked(keys, Arc::new(references));
    let note = "{ columns = \"user_id\", to = \"users\" }, # by its name; all 48 values are keys \
                there\n";
    assert!(text.contains(note), "{text}");
    let expected = (0..90).map(|i| (i % 7 != 0).then_some(i % 50));
    assert_eq!(parents, expected.collect::<Vec<_>>());
}

#[test]
fn integer_keys_of_all_types_match() {
    let near = u64::MAX - 2;
    let decimal = |values: &[i128], scale: i8| -> ArrayRef {
        let values = values.iter().map(|value| value * 10_i128.pow(scale.unsigned_abs().into()));
        let decimals = Decimal128Array::from_iter_values(values);
        Arc::new(decimals.with_precision_and_scale(38, scale).unwrap())
    };
    let small: [ArrayRef; 5] = [
        Arc::new(Int64Array::from(vec![1, 2, 30])),
        Arc::new(Float64Array::from(vec![1.0, 2.0, 30.0])),
        Arc::new(Float32Array::from(vec![1.0, 2.0, 30.0])),
        Arc::new(StringArray::from(vec!["1", "2", "30"])),
        decimal(&[1, 2, 30], 2),
    ];
    let great: [ArrayRef; 4] = [
        Arc::new(UInt64Array::from(vec![near, near + 1, near + 2])),
        decimal(&[near, near + 1, near + 2].map(i128::from), 0),
        decimal(&[near, near + 1, near + 2].map(i128::from), 4),
        Arc::new(StringArray::from([near, near + 1, near + 2].map(|v| v.to_string()).to_vec())),
    ];
    for arrays in [&small[..], &great[..]] {
        for keys in arrays {
            for references in arrays {
                let (text, parents) = linked(keys.clone(), references.clone());
                let types = (keys.data_type(), references.data_type());
                assert_eq!(parents, [Some(0), Some(1), Some(2)], "{types:?}");
                assert!(text.contains("key = \"id\" # by its name; unique"), "{types:?}: {text}");
            }
        }
    }
}

#[test]
fn reals_and_integers_of_sqlite_match() {
    let workshop = Workshop::new(&[]);
    let path = workshop.path("data").join("shop.db");
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT);
             CREATE TABLE orders (user_id REAL, note TEXT);
             INSERT INTO users VALUES (5, 'a'), (6, 'b'), (7, 'c');
             INSERT INTO orders VALUES (7.0, 'x'), (NULL, 'y'), (5.0, 'z');",
        )
        .unwrap();
    assert_eq!(parents(&workshop.unedited(&path)), [Some(2), None, Some(0)]);
}

#[test]
fn text_references_with_decimal_points_get_a_note() {
    let drafted = |reference: &dyn Fn(usize) -> String| {
        let users: String = (1..=50).map(|i| format!("{i},user {i}\n")).collect();
        let orders: String = (0..90).map(|i| format!("{},{i}\n", reference(i))).collect();
        let (users, orders) = (format!("id,name\n{users}"), format!("user_id,n\n{orders}"));
        let workshop = Workshop::new(&[("users.csv", &users), ("orders.csv", &orders)]);
        let text = succeed(&["schema", &workshop.text("data")]);
        let line = text.lines().find(|line| line.starts_with("user_id = ")).unwrap();
        line.to_owned()
    };
    let gap = |i: usize| match i % 7 {
        0 => String::new(),
        _ => format!("{}.0", i % 50 + 1),
    };
    assert_eq!(
        drafted(&gap),
        "user_id = \"identifier\" # named like a reference to \"users\", but 48 of 48 values are \
         not keys there: it has 1.0 where the keys have 1, as pandas writes integers with missing \
         values; write integers (astype(\"Int64\") in pandas)"
    );
    assert_eq!(
        drafted(&|i| format!("{}.0", i + 100)),
        "user_id = \"identifier\" # named like a reference to \"users\", but 90 of 90 values are \
         not keys there"
    );
}

#[test]
fn notes_give_the_reason_for_a_missing_key() {
    let fault = |keys: ArrayRef| {
        let workshop = Workshop::new(&[]);
        write(&workshop.path("data"), "users", vec![("id", keys)]);
        let text = succeed(&["schema", &workshop.text("data")]);
        let line = text.lines().find(|line| line.starts_with("# no key")).unwrap();
        line.to_owned()
    };
    let fractions = Float64Array::from(vec![1.5, 2.5]);
    assert_eq!(fault(Arc::new(fractions)), "# no key: \"id\" is neither text nor integers");
    let repeated = Float64Array::from(vec![1.0, 1.0]);
    assert_eq!(fault(Arc::new(repeated)), "# no key: \"id\" is not unique");
    let gaps = Float64Array::from(vec![Some(1.0), None]);
    assert_eq!(fault(Arc::new(gaps)), "# no key: \"id\" is NULL in 1 row");
}

#[test]
fn ignored_key_columns_link_rows_but_make_no_cells() {
    let workshop = Workshop::new(&[
        ("users.csv", "id,city\n7,Rome\n3,Oslo\n5,Rome\n"),
        ("orders.csv", "user_id,number,amount\n5,1,10\n,1,20\n7,2,30\n"),
    ]);
    let prepared = |linking: &str| {
        let schema = format!(
            "database = \"x\"\n\
             [[table]]\n\
             name = \"users\"\n\
             key = \"id\"\n\
             columns = {{ id = \"{linking}\", city = \"categorical\" }}\n\
             [[table]]\n\
             name = \"orders\"\n\
             key = [\"number\", \"amount\"]\n\
             references = [{{ columns = \"user_id\", to = \"users\" }}]\n\
             [table.columns]\n\
             user_id = \"{linking}\"\n\
             number = \"{linking}\"\n\
             amount = \"numerical\"\n"
        );
        let output = workshop.prepare(&schema);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let store = Store::open(&workshop.path("db")).unwrap();
        std::fs::remove_dir_all(workshop.path("db")).unwrap();
        let columns = |table: &Table| {
            table.metadata().columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>()
        };
        let keys = |table: &Table| {
            (0..3).map(|row| table.key(row).unwrap().to_owned()).collect::<Vec<_>>()
        };
        let tables = store.tables();
        let both =
            |of: &dyn Fn(&Table) -> Vec<String>| tables.iter().flat_map(of).collect::<Vec<_>>();
        (both(&columns), both(&keys), parents(&store))
    };
    let (columns, keys, linked) = prepared("ignored");
    assert_eq!(columns, ["city", "amount"]);
    assert_eq!(linked, [Some(2), None, Some(0)]);
    assert_eq!(keys, ["7", "3", "5", "1|10", "1|20", "2|30"]);
    let (columns, ..) = prepared("identifier");
    assert_eq!(columns, ["id", "city", "user_id", "number", "amount"]);
    assert_eq!(prepared("identifier"), (columns, keys, linked));
}
