//! Metadata whose digests fit and whose words do not: refused when the store is opened.

use std::fs;

use headwater::ErrorKind;
use headwater::store::{ColumnStats, METADATA_FILE, Metadata, Store, TargetMetadata, TimeMetadata};

use crate::{store_of, tiny};

/// What opening says when the metadata are changed in this way and sealed again.
fn refused(edit: impl FnOnce(&mut Metadata)) -> String {
    let (folder, store) = store_of(&tiny::database(), &[5]);
    let mut metadata = store.metadata().clone();
    drop(store);
    edit(&mut metadata);
    let path = folder.path().join("store");
    fs::write(path.join(METADATA_FILE), metadata.encode().unwrap()).unwrap();
    let error = Store::open(&path).err().expect("this must be refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    error.to_string().replace(&path.display().to_string(), "DB")
}

fn wrong(what: &str) -> String {
    format!("DB/metadata.json: the metadata are wrong: {what}")
}

#[test]
fn p6_columns_and_categories_that_are_not_there() {
    let index = refused(|m| m.tables[1].columns[0].index = 9);
    assert_eq!(index, wrong("column \"customer\" is number 9, its place is 5"));
    let count = refused(|m| m.embedding.column_count += 1);
    assert_eq!(count, wrong("14 columns have a name's vector, and there are 13"));
    let categories = refused(|m| match &mut m.tables[0].columns[3].stats {
        ColumnStats::Categorical { cat_emb_start, .. } => *cat_emb_start = 3,
        other => panic!("{other:?}"),
    });
    assert_eq!(categories, wrong("column \"city\" has categories of others"));
    let layout = "DB/metadata.json: the layout of table \"customers\" is wrong: ";
    let outside = refused(|m| m.tables[0].columns[1].offset = m.tables[0].stride);
    assert_eq!(outside, format!("{layout}column \"since\" lies outside"));
    let bits = refused(|m| m.tables[0].null_offset = u32::MAX);
    assert_eq!(bits, format!("{layout}its null bits lie outside the record"));
}

#[test]
fn p6_links_and_tasks_that_lead_nowhere() {
    let nowhere = wrong("relation \"advisor\" leads nowhere");
    assert_eq!(refused(|m| m.relations[0].parent = 3), nowhere);
    assert_eq!(refused(|m| m.relations[0].child = u32::MAX), nowhere);
    assert_eq!(refused(|m| m.relations[0].parent_offset = u32::MAX), nowhere);
    let task = wrong("task \"vip\" leads nowhere");
    assert_eq!(refused(|m| m.tasks[0].anchor = 3), task);
    assert_eq!(refused(|m| m.tasks[0].seed_count += 1), task);
    assert_eq!(refused(|m| m.tasks[0].target = TargetMetadata::Cell { column: 5 }), task);
    let early = refused(|m| match &mut m.tables[1].time {
        Some(TimeMetadata::Inherited { delay_us, .. }) => *delay_us = -1,
        other => panic!("{other:?}"),
    });
    assert_eq!(early, wrong("rows of table \"orders\" are known before they are"));
    // The first is the customers' own.
    for not_of_the_orders in [0, 3] {
        let through = refused(|m| match &mut m.tables[1].time {
            Some(TimeMetadata::Inherited { relation, .. }) => *relation = not_of_the_orders,
            other => panic!("{other:?}"),
        });
        let own = "table \"orders\" inherits its time through no relation of its own";
        assert_eq!(through, wrong(own));
    }
    for path in ["../x", "/etc/x", "tables/../../x", "a\\b", ""] {
        let outside = refused(|m| m.files[0].path = path.to_owned());
        assert_eq!(outside, wrong(&format!("the file {path:?} lies outside the store")));
    }
}

/// Counts at the edge of what their types hold neither overflow nor ask for memory.
#[test]
fn p6_counts_that_lie_about_the_files() {
    let most = u32::MAX;
    let edits: [fn(&mut Metadata); 8] = [
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
    let message = refused(|m| m.tables[1].row_count = most);
    assert_eq!(
        message,
        format!(
            "DB/tables/orders.bin: section \"keys.offsets\" is 8 bytes long, the metadata call for \
             {}; copy the store again from where it is whole, or prepare it anew",
            (u64::from(most).div_ceil(16)) * 8
        )
    );
}
