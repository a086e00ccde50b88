//! Metadata with right digests and wrong content: rejected when the store is opened.

use std::fs;

use headwater::ErrorKind;
use headwater::prepare::schema::Summary;
use headwater::store::{
    AggregateValue, ColumnStats, KnownMetadata, LinkMetadata, METADATA_FILE, Metadata, Period,
    Scale, Store, TargetMetadata, TextEncoding, TimeMetadata,
};

use crate::database::{Database, Value};
use crate::{store_of, tiny};

/// Returns the error of opening a store after its metadata are edited and sealed again.
fn refused(edit: impl FnOnce(&mut Metadata)) -> String {
    refused_of(&tiny::database(), edit)
}

fn refused_of(database: &Database, edit: impl FnOnce(&mut Metadata)) -> String {
    let (folder, opened) = edited(database, edit);
    let error = opened.err().expect("this must be refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    error.to_string().replace(&folder.path().join("store").display().to_string(), "DB")
}

/// Opens a store after its metadata are edited and sealed again.
fn edited(
    database: &Database,
    edit: impl FnOnce(&mut Metadata),
) -> (tempfile::TempDir, headwater::Result<Store>) {
    let (folder, store) = store_of(database, &[5]);
    let mut metadata = store.metadata().clone();
    drop(store);
    edit(&mut metadata);
    let path = folder.path().join("store");
    fs::write(path.join(METADATA_FILE), metadata.encode().unwrap()).unwrap();
    (folder, Store::open(&path))
}

fn wrong(what: &str) -> String {
    format!("DB/metadata.json: the metadata are wrong: {what}; prepare the store again")
}

type Edit = fn(&mut Metadata);

#[test]
fn p6_wrong_columns_and_categories_are_rejected() {
    let index = refused(|m| m.tables[1].columns[0].index = 9);
    assert_eq!(index, wrong("column \"customer\": expected index 5, found 9"));
    let count = refused(|m| m.embedding.column_count += 1);
    let expected = "expected 21 column embeddings, one for each column and aggregate, found 22";
    assert_eq!(count, wrong(expected));
    let edits: [Edit; 8] = [
        |m| m.aggregates[1].index += 1,
        |m| m.aggregates[1].relation = 9,
        |m| m.aggregates[1].window_us = Some(0),
        |m| m.aggregates[1].window_us = Some(-1),
        |m| m.aggregates[1].value = AggregateValue::Mean { column: 0 },
        |m| m.aggregates[1].value = AggregateValue::Mean { column: 9 },
        // Remarks have no time.
        |m| (m.aggregates[1].relation, m.aggregates[1].value) = (2, AggregateValue::SinceLast),
        |m| (m.aggregates[1].relation, m.aggregates[1].value) = (2, AggregateValue::Count),
    ];
    for edit in edits {
        let name = "orders by customer, last 15 days: mean of number";
        let what = "names an index, a relation, a column or a window that does not exist";
        assert_eq!(refused(edit), wrong(&format!("aggregate {name:?} {what}")));
    }
    let categories = refused(|m| match &mut m.tables[0].columns[3].stats {
        ColumnStats::Categorical { cat_emb_start, .. } => *cat_emb_start = 3,
        other => panic!("{other:?}"),
    });
    assert_eq!(
        categories,
        wrong("the categories of column \"city\" lie outside the categorical embeddings")
    );
    let layout = "DB/metadata.json: the layout of table \"customers\" is wrong: ";
    let outside = refused(|m| m.tables[0].columns[1].offset = m.tables[0].stride);
    assert_eq!(
        outside,
        format!("{layout}column \"since\" lies outside the record; prepare the store again")
    );
    // The value of a time has eight bytes.
    let last = |m: &mut Metadata| m.tables[0].columns[1].offset = m.tables[0].stride - 8;
    assert!(edited(&tiny::database(), last).1.is_ok());
    let bits = refused(|m| m.tables[0].null_offset = u32::MAX);
    assert_eq!(
        bits,
        format!("{layout}its null bits lie outside the record; prepare the store again")
    );
}

#[test]
fn p6_wrong_places_in_a_record_are_rejected() {
    let layout =
        |what| format!("DB/metadata.json: the layout of table {what}; prepare the store again");
    let with = |after_the_last: u32| {
        move |m: &mut Metadata| {
            let bits = 8 * (m.tables[0].stride - m.tables[0].null_offset);
            m.tables[0].columns[2].offset = bits - 1 + after_the_last;
        }
    };
    assert!(edited(&tiny::database(), with(0)).1.is_ok());
    let bit = refused(with(1));
    assert_eq!(bit, layout("\"customers\" is wrong: its null bits lie outside the record"));
    // A boolean.
    let column = TimeMetadata::Column { column: 2, delay_us: 0 };
    let kind = refused(|m| m.tables[0].time = Some(column));
    assert_eq!(kind, layout("\"customers\" is wrong: its time is not a timestamp column"));
    let with = |before_the_end: u32| {
        move |m: &mut Metadata| {
            let stride = m.tables[1].stride;
            match &mut m.tables[1].time {
                Some(TimeMetadata::Inherited { offset, .. }) => *offset = stride - before_the_end,
                other => panic!("{other:?}"),
            }
        }
    };
    assert!(edited(&tiny::database(), with(8)).1.is_ok());
    let time = refused(with(7));
    assert_eq!(time, layout("\"orders\" is wrong: its time lies outside the record"));
}

#[test]
fn p6_more_known_categories_than_there_are_are_rejected() {
    let known = |more: u32| {
        move |m: &mut Metadata| match &mut m.tables[0].columns[3].stats {
            ColumnStats::Categorical { cat_emb_count, known_count, .. } => {
                *known_count = Some(*cat_emb_count + more);
            }
            other => panic!("{other:?}"),
        }
    };
    let (_folder, all) = edited(&tiny::database(), known(0));
    assert!(all.is_ok(), "all are known");
    let more = refused(known(1));
    assert_eq!(more, wrong("column \"city\": expected at most 2 known categories, found more"));
}

#[test]
fn p6_scales_that_cannot_be_read_are_rejected() {
    let with = |quantiles: Vec<f64>| {
        move |m: &mut Metadata| match &mut m.tables[1].columns[1].stats {
            ColumnStats::Numerical { scale, .. } => *scale = Scale::Rank { quantiles },
            other => panic!("{other:?}"),
        }
    };
    let (_folder, sound) = edited(&tiny::database(), with(vec![1.0, 1.0, 2.0]));
    assert!(sound.is_ok());
    for quantiles in [vec![], vec![1.0], vec![2.0, 1.0]] {
        assert_eq!(
            refused(with(quantiles)),
            wrong("the quantiles of a column are not in ascending order")
        );
    }
}

#[test]
fn p6_wrong_times_of_knowledge_are_rejected() {
    let at = |offset| Some(KnownMetadata::At { column: "then".into(), offset });
    let outside = refused(|m| m.tables[0].columns[0].known = at(u32::MAX));
    assert!(outside.contains("lies outside the record"), "{outside}");
    let known = |before_the_end| {
        move |m: &mut Metadata| {
            m.tables[0].columns[0].known = at(m.tables[0].stride - before_the_end);
        }
    };
    assert!(edited(&tiny::database(), known(8)).1.is_ok());
    let outside = refused(known(7));
    assert!(outside.contains("lies outside the record"), "{outside}");
    let delay = KnownMetadata::Delay { delay_us: -1 };
    let early = refused(|m| m.tables[0].columns[0].known = Some(delay));
    assert_eq!(early, wrong("a column of table \"customers\" has a negative delay"));
}

#[test]
fn p6_wrong_summaries_are_rejected() {
    let mut database = tiny::database();
    let (table, period) = ("orders".to_owned(), Period::Month);
    let summary = |by: Option<&str>| Summary {
        table: table.clone(),
        columns: vec!["number".into()],
        period,
        by: by.map(str::to_owned),
    };
    database.schema.summaries = vec![summary(None), summary(Some("customer"))];
    let edits: [(u32, Edit); 8] = [
        (9, |m| m.summaries[0].table = 9),
        (1, |m| m.summaries[0].table = 1),
        (3, |m| m.summaries[0].of = 9),
        (3, |m| m.summaries[0].columns = vec![3]),
        // The first is of no parent, the second by relation 3.
        (3, |m| m.summaries[0].relation = 5),
        (3, |m| m.summaries[0].relation = 3),
        (4, |m| m.summaries[1].relation = 4),
        (4, |m| m.summaries[1].relation = 1),
    ];
    for (table, edit) in edits {
        let what = "names a table, a column or a relation that does not exist";
        let expected = wrong(&format!("the summary with table {table} {what}"));
        assert_eq!(refused_of(&database, edit), expected);
    }
}

/// Returns the relations of the pairs of the second task.
fn link(metadata: &mut Metadata) -> &mut LinkMetadata {
    match &mut metadata.tasks[1].target {
        TargetMetadata::Derived { link: Some(link), .. } => link,
        other => panic!("{other:?}"),
    }
}

#[test]
fn p7_wrong_pairs_are_rejected() {
    // Remarks, which refer to orders (2), as if they were pairs: the metadata are sound, the links are not.
    let of_remarks = |m: &mut Metadata| {
        (m.tasks[1].anchor, m.tasks[1].seed_count) = (2, m.tables[2].row_count);
        m.relations[2].edge_count = 0;
        let TargetMetadata::Derived { link, .. } = &mut m.tasks[1].target else {
            panic!("expected a derived task")
        };
        *link = Some(LinkMetadata {
            anchor: 2,
            candidate: 2,
            from_anchor: 2,
            from_candidate: 2,
            negatives: 20,
        });
    };
    let what =
        "are not its seeds, or have relations that do not exist or that list them as children";
    let expected = wrong(&format!("the pairs of task \"next order\" {what}"));
    assert_ne!(refused(of_remarks), expected);
    let edits: [Edit; 8] = [
        |m| m.relations[2].edge_count = 3,
        |m| m.tasks[1].seed_count -= 1,
        |m| m.relations[0].parent = 2,
        |m| link(m).candidate = 9,
        // Orders are the parents of the first, customers those of the second.
        |m| link(m).anchor = 1,
        |m| link(m).from_anchor = 1,
        |m| link(m).from_candidate = 1,
        |m| (link(m).from_anchor, link(m).from_candidate) = (1, 1),
    ];
    for edit in edits {
        let error = refused(|m| {
            of_remarks(m);
            edit(m);
        });
        assert_eq!(error, expected);
    }
}

#[test]
fn p6_wrong_relations_tasks_and_paths_are_rejected() {
    let nowhere = wrong("relation \"advisor\" names a table or an offset that does not exist");
    assert_eq!(refused(|m| m.relations[0].parent = 3), nowhere);
    assert_eq!(refused(|m| m.relations[0].child = u32::MAX), nowhere);
    assert_eq!(refused(|m| m.relations[0].parent_offset = u32::MAX), nowhere);
    let last = |m: &mut Metadata| {
        m.relations[0].parent_offset = m.tables[m.relations[0].child as usize].stride - 4;
    };
    assert!(edited(&tiny::database(), last).1.is_ok(), "the last four bytes of a record");
    let beyond = |m: &mut Metadata| {
        last(m);
        m.relations[0].parent_offset += 1;
    };
    assert_eq!(refused(beyond), nowhere);
    let task = wrong("task \"vip\" names a table, a column or seeds that do not exist");
    assert_eq!(refused(|m| m.tasks[0].anchor = 3), task);
    assert_eq!(refused(|m| m.tasks[0].seed_count += 1), task);
    let cell = |column, hide| TargetMetadata::Cell { column, hide };
    assert_eq!(refused(|m| m.tasks[0].target = cell(5, vec![])), task);
    assert_eq!(refused(|m| m.tasks[0].target = cell(0, vec![0, 5])), task);
    let early = refused(|m| match &mut m.tables[1].time {
        Some(TimeMetadata::Inherited { delay_us, .. }) => *delay_us = -1,
        other => panic!("{other:?}"),
    });
    assert_eq!(early, wrong("table \"orders\" has a negative delay"));
    // The first is the customers' own.
    for not_of_the_orders in [0, 3] {
        let through = refused(|m| match &mut m.tables[1].time {
            Some(TimeMetadata::Inherited { relation, .. }) => *relation = not_of_the_orders,
            other => panic!("{other:?}"),
        });
        let own = "table \"orders\" inherits its time through a relation of another table";
        assert_eq!(through, wrong(own));
    }
    for path in ["../x", "/etc/x", "tables/../../x", "a\\b", ""] {
        let outside = refused(|m| m.files[0].path = path.to_owned());
        assert_eq!(outside, wrong(&format!("the file {path:?} lies outside the store")));
    }
}

/// The greatest counts of their types cause neither an overflow nor an allocation.
#[test]
fn p6_counts_that_disagree_with_the_files_are_rejected() {
    let most = u32::MAX;
    let edits: [Edit; 9] = [
        |m| m.embedding.text_encoding = TextEncoding::Int8,
        |m| (m.embedding.dimension, m.embedding.text_count) = (u32::MAX, u32::MAX),
        |m| (m.embedding.dimension, m.embedding.category_count) = (u32::MAX, u32::MAX),
        |m| m.embedding.dimension = 0,
        |m| m.tables[1].row_count = u32::MAX,
        |m| m.tables[1].stride = 1 << 31,
        |m| m.relations[1].edge_count = u32::MAX,
        |m| m.tasks[1].seed_count = u32::MAX,
        |m| m.tasks.truncate(0),
    ];
    for (place, edit) in edits.into_iter().enumerate() {
        let message = refused(edit);
        assert!(message.starts_with("DB/"), "{place}: {message}");
    }
    let without = refused(|m| {
        (m.embedding.text_encoding, m.embedding.text_vectors) = (TextEncoding::Int8, false);
    });
    assert_eq!(without, wrong("the texts have no vectors, and yet an encoding of vectors"));
    let message = refused(|m| m.tables[1].row_count = most);
    assert_eq!(
        message,
        format!(
            "DB/tables/orders.bin: section \"keys.offsets\": expected {} bytes by the metadata, \
             found 8; copy the store again from an intact copy, or prepare it again",
            (u64::from(most).div_ceil(16)) * 8
        )
    );
}

/// Users bought goods; pairs of a user and a good, and wishes for a good.
const PAIRS: &str = r#"
database = "shop"

[[table]]
name = "users"
key = "id"
columns = { id = "identifier" }

[[table]]
name = "goods"
key = "id"
columns = { id = "identifier" }

[[table]]
name = "buys"
columns = { user = "identifier", good = "identifier" }
references = [{ columns = "user", to = "users" }, { columns = "good", to = "goods" }]

[[table]]
name = "pairs"
columns = { user = "identifier", good = "identifier" }
references = [{ columns = "user", to = "users" }, { columns = "good", to = "goods" }]

[[table]]
name = "wishes"
columns = { good = "identifier" }
references = [{ columns = "good", to = "goods" }]

[[task]]
name = "next"
derived = { anchor = "users", source = "next", key = "id", time = "at", target = "y", type = "boolean" }
"#;

/// Each relation of the pairs is checked, not one for both.
#[test]
fn p7_pairs_that_a_row_lists_as_children_are_rejected() {
    let ids = || [1, 2].map(Value::Integer).to_vec();
    let both = || vec![("user", ids()), ("good", ids())];
    let next = vec![
        ("id", ids()),
        ("at", vec![Value::Time(1); 2]),
        ("y", vec![Value::Truth(true), Value::Truth(false)]),
    ];
    let tables = [
        ("users", vec![("id", ids())]),
        ("goods", vec![("id", ids())]),
        ("buys", both()),
        ("pairs", both()),
        ("wishes", vec![("good", ids())]),
        ("next", next),
    ];
    let database = Database::new(PAIRS, tables);
    // Relations 0 and 1 are those of what was bought, 2 and 3 those of the pairs, 4 that of the wishes.
    let with = |edit: Edit| {
        refused_of(&database, |m| {
            m.tasks[0].anchor = 3;
            for own in [2, 3, 4] {
                m.relations[own].edge_count = 0;
            }
            let TargetMetadata::Derived { link, .. } = &mut m.tasks[0].target else {
                panic!("expected a derived task")
            };
            let (anchor, candidate, from_anchor, from_candidate) = (2, 3, 0, 1);
            *link = Some(LinkMetadata {
                anchor,
                candidate,
                from_anchor,
                from_candidate,
                negatives: 20,
            });
            edit(m);
        })
    };
    let what =
        "are not its seeds, or have relations that do not exist or that list them as children";
    let expected = wrong(&format!("the pairs of task \"next\" {what}"));
    assert_ne!(with(|_| ()), expected);
    let edits: [Edit; 3] = [
        |m| m.relations[2].edge_count = 2,
        |m| m.relations[3].edge_count = 2,
        |m| match &mut m.tasks[0].target {
            TargetMetadata::Derived { link: Some(link), .. } => link.candidate = 4,
            other => panic!("{other:?}"),
        },
    ];
    for edit in edits {
        assert_eq!(with(edit), expected);
    }
}
