//! What a store tells of itself.

use headwater::ErrorKind;
use headwater::prepare::schema::Summary;
use headwater::store::{
    ALWAYS_VISIBLE, Cell, ColumnStats, Period, SEES_EVERYTHING, Scale, TextVectors, TimeMetadata,
};

use crate::database::{Database, Value};
use crate::{DIMENSION, store_of, tiny};

#[test]
fn the_bytes_of_the_files_are_those_on_the_disk() {
    let (folder, store) = store_of(&tiny::database(), &[5]);
    let mut folders = vec![folder.path().join("store")];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let (path, metadata) = entry.map(|of| (of.path(), of.metadata().unwrap())).unwrap();
            match metadata.is_dir() {
                true => folders.push(path),
                false => bytes += metadata.len(),
            }
        }
    }
    assert_eq!(store.file_bytes(), bytes);
}

#[test]
fn relations_have_a_short_and_a_full_name() {
    let mut database = tiny::database();
    let by_month = Summary {
        table: "orders".to_owned(),
        columns: vec!["number".into()],
        period: Period::Month,
        by: None,
    };
    database.schema.summaries = vec![by_month];
    let (_folder, store) = store_of(&database, &[5]);
    let summary = store.tables().last().unwrap().metadata();
    assert!(matches!(summary.time, Some(TimeMetadata::Period { .. })));
    assert_eq!(summary.time.as_ref().unwrap().delay_us(), 0);
    let names = [
        ("advisor", "customers.advisor"),
        ("customer", "orders.customer"),
        ("customer+number", "remarks.customer+number"),
        // That of a summary of no parent is its table.
        (&*summary.name, &*summary.name),
    ];
    for (relation, (short, full)) in names.into_iter().enumerate() {
        assert_eq!(store.short_relation_name(relation), short);
        assert_eq!(store.relation_name(relation), full);
    }
}

#[test]
fn the_vectors_of_all_texts_are_those_of_each() {
    let (_folder, store) = store_of(&tiny::database(), &[5]);
    let vectors = store.text_embeddings().unwrap();
    let Some(TextVectors::F16(vectors)) = vectors else { panic!("{vectors:?}") };
    let count = store.metadata().embedding.text_count;
    assert!(count > 1);
    assert_eq!(vectors.len(), count as usize * DIMENSION);
    for (text, vector) in (0..count).zip(vectors.chunks(DIMENSION)) {
        assert_eq!(store.text_embedding(text).unwrap(), Some(TextVectors::F16(vector)));
    }
}

#[test]
fn a_number_is_read_back_from_its_cell() {
    let (min, max) = (0.0, 9.0);
    let numbers = ColumnStats::Numerical { scale: Scale::Linear, mean: 3.0, std: 2.0, min, max };
    assert_eq!([-1.5, 0.0, 2.0].map(|cell| numbers.number(cell)), [0.0, 3.0, 7.0].map(Some));
    let counts = ColumnStats::Count { min: 0, max: 255 };
    assert_eq!([0.0, 0.125, 1.0].map(|cell| counts.number(cell)), [0.0, 1.0, 255.0].map(Some));
    assert_eq!(ColumnStats::Text.number(1.0), None);
}

#[test]
fn a_value_has_the_width_that_its_type_needs() {
    let categories = |cat_emb_count| {
        ColumnStats::Categorical { cat_emb_start: 0, cat_emb_count, known_count: None }
            .value_bytes()
    };
    assert_eq!([0, 1, 256].map(categories), [1; 3]);
    assert_eq!([257, 65_536].map(categories), [2; 2]);
    assert_eq!([65_537, u32::MAX].map(categories), [4; 2]);
    assert_eq!([ColumnStats::Identifier, ColumnStats::Text].map(|of| of.value_bytes()), [0, 4]);
}

/// Categories of two bytes, followed in the record by one of one byte that is not 0.
#[test]
fn a_category_is_read_from_its_own_bytes() {
    const SCHEMA: &str = r#"
        database = "wide"
        [[table]]
        name = "t"
        columns = { many = "categorical", few = "categorical", other = "categorical" }
    "#;
    let column = |of: &dyn Fn(usize) -> usize| {
        (0..600).map(|row| Value::Word(of(row).to_string())).collect::<Vec<_>>()
    };
    let columns = vec![
        ("many", column(&|row| row % 300)),
        ("few", column(&|row| row % 7)),
        ("other", column(&|row| row % 5)),
    ];
    let database = Database::new(SCHEMA, vec![("t", columns)]);
    let (_folder, store) = store_of(&database, &[64]);
    let table = &store.tables()[0];
    for (place, count) in [(0, 300), (1, 7), (2, 5)] {
        let ColumnStats::Categorical { cat_emb_start, cat_emb_count, .. } =
            table.metadata().columns[place].stats
        else {
            panic!("a categorical column");
        };
        assert_eq!(cat_emb_count, count);
        let cells: Vec<_> = (0..600).map(|row| table.row(row).unwrap().cell(place)).collect();
        for (row, cell) in cells.iter().enumerate() {
            let Cell::Categorical(category) = *cell else { panic!("{cell:?}") };
            assert!((cat_emb_start..cat_emb_start + count).contains(&category));
            // Rows of one word have one category, and of others another one.
            assert_eq!(*cell, cells[row % count as usize]);
            assert!(row == 0 || row % count as usize == 0 || *cell != cells[0]);
        }
    }
}

#[test]
fn rows_and_children_beyond_the_last_are_refused() {
    let (_folder, store) = store_of(&tiny::database(), &[5]);
    let refused = |result: headwater::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument);
    };
    for table in store.tables() {
        let count = table.row_count();
        table.row(count - 1).unwrap();
        table.identity(count - 1).unwrap();
        refused(table.row(count).map(|_| ()));
        refused(table.key(count).map(|_| ()));
        refused(table.identity(count).map(|_| ()));
    }
    for task in store.tasks() {
        let (anchor, count) = (task.metadata().anchor, task.metadata().seed_count);
        let anchor = &store.tables()[anchor as usize];
        task.seed(anchor, count - 1).unwrap();
        let error = task.seed(anchor, count).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("expected a seed_index below"), "{error}");
    }
    for relation in store.relations() {
        let parents = store.tables()[relation.metadata().parent as usize].row_count();
        refused(relation.children(parents).map(|_| ()));
        for parent in 0..parents {
            let children = relation.children(parent).unwrap();
            refused(children.row(children.count()).map(|_| ()));
            refused(children.time(children.count()).map(|_| ()));
        }
    }
}

#[test]
fn p7_a_strict_task_sees_the_time_before_its_own_at_the_latest() {
    let mut database = tiny::database();
    for task in &mut database.schema.tasks {
        task.strict = task.name == "churn";
    }
    let (_folder, store) = store_of(&database, &[5]);
    let [strict, other] = ["churn", "next order"].map(|name| store.task(name).unwrap());
    // The least time stands for rows that are always visible.
    let least = ALWAYS_VISIBLE + 1;
    for (obs_time, until) in [(5, 4), (least, least), (least + 1, least), (least + 2, least + 1)] {
        assert_eq!((strict.sees_until(obs_time), other.sees_until(obs_time)), (until, obs_time));
    }
    assert_eq!(strict.sees_until(SEES_EVERYTHING), SEES_EVERYTHING);
}

const CITIES: &str = r#"
database = "cities"

[[table]]
name = "cities"
key = "id"
columns = { id = "identifier", name = "categorical" }
"#;

/// More than 256 categories have two bytes.
#[test]
fn many_categories_are_read_back() {
    let names: Vec<_> = (0..700).map(|city| format!("city {}", city % 350)).collect();
    let words = names.iter().cloned().map(Value::Word).collect();
    let ids = (0..700).map(Value::Integer).collect();
    let tables = [("cities", vec![("id", ids), ("name", words)])];
    let (_folder, store) = store_of(&Database::new(CITIES, tables), &[50]);
    let table = &store.tables()[0];
    assert_eq!(table.metadata().columns[1].stats.value_bytes(), 2);
    for (row, name) in (0..).zip(&names) {
        let Cell::Categorical(category) = table.row(row).unwrap().cell(1) else {
            panic!("expected a category in row {row}")
        };
        assert_eq!(store.category(category).unwrap(), name);
    }
}
