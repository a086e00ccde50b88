use headwater::prepare::demo::demo_data;
use headwater::prepare::draft::draft;
use headwater::prepare::schema::Schema;

use super::*;

/// The BLAKE3 digest of each file; a change here changes the demo for all users.
const FILES: &[(&str, &str)] = &[
    ("carriers.csv", "9cee49e5d62747cc30bb9aea8407de790bb1be104d86afdcc0bacdcebe17d475"),
    ("categories.csv", "ac37d59e43dec6d023aa60a7c1adcf0cf56a65d5f52137b19998da2adbe9dc62"),
    ("customers.csv", "2631bef1ed01aa23274ac1f3cacdf9e6fea31c0d1e553f1526e8a3b1d5e78837"),
    ("deliveries.csv", "db6e3aa899ef45d905082a98ab488d528530356a74db3d502922572044ea1a8f"),
    ("order_items.csv", "830c23819e4feafbcaa83e102895440f7255d53e92c3a66e640eb305e2b1e074"),
    ("orders.csv", "d96cf004a26cbb2330184ed3dab8155483998f539da2f1674e306f93d3e79520"),
    ("products.csv", "00e1543f9491774296d343816c62e7bd14a63439a31fb38f84e3f15a60d9083b"),
    ("reviews.csv", "84260236cad441ed7823c73eb73d0a88679aa139c00a85761825bd605494df20"),
    ("schema.toml", "e7376b3d08bb63456924c5e01ce2a2c6813776d6c72994ddbdd0ebc3469a68fb"),
    ("suppliers.csv", "1613322cc131f03b73601372793c130be263d72867f783d4ba8313844ea5a02b"),
    ("task_churn.csv", "49e5f8c1801909281499ba893471353c5065e47e2419db19418882f21218bc20"),
    ("task_spend.csv", "526a9f2d66229d3c8572ed5d2ddc0af6e4f11d3f70665df797883d04bcfce2a5"),
];

#[test]
fn the_demo_shop_is_the_same_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/demo");
    demo_data(&path).unwrap();
    // A second time into the same folder: files are replaced.
    let data = demo_data(&path).unwrap();
    let mut names: Vec<_> = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let found: Vec<_> = names
        .iter()
        .map(|name| {
            let digest = blake3::hash(&std::fs::read(path.join(name)).unwrap());
            format!("(\"{name}\", \"{digest}\"),")
        })
        .collect();
    let pinned: Vec<_> = FILES.iter().map(|(n, d)| format!("(\"{n}\", \"{d}\"),")).collect();
    assert!(found == pinned, "found\n{}", found.join("\n"));
    let total: u64 = data.tables.iter().map(|(_, rows)| rows).sum();
    assert_eq!((data.tables.len(), total), (11, 122_846));
}

#[test]
fn the_demo_schema_fits_its_tables_and_is_close_to_the_draft() {
    let folder = tempfile::tempdir().unwrap();
    demo_data(folder.path()).unwrap();
    let schema = Schema::read(&folder.path().join("schema.toml")).unwrap();
    let source = opened(folder.path());
    for table in &schema.tables {
        let columns: Vec<_> = table.columns.keys().map(String::as_str).collect();
        rows(&*source, table.source_name(), &columns).unwrap();
    }
    // Keys are unique, and references, composite ones too, find their rows.
    for table in &schema.tables {
        for reference in &table.references {
            let parent = &schema.tables[schema.table(&reference.to).unwrap()];
            let key: Vec<_> = parent.key.iter().map(String::as_str).collect();
            let mut keys = rows(&*source, &parent.name, &key).unwrap();
            let count = keys.len();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), count, "{}", parent.name);
            let columns: Vec<_> = reference.columns.iter().map(String::as_str).collect();
            let values = rows(&*source, &table.name, &columns).unwrap();
            let found = |value: &String| value.contains('-') || keys.binary_search(value).is_ok();
            assert!(values.iter().all(found), "{} {}", table.name, reference.name());
        }
    }
    let draft = draft(&*source, "demo-shop", &|_| Ok(())).unwrap().schema;
    for table in &schema.tables {
        let guessed = &draft.tables[draft.table(&table.name).unwrap()];
        // The names do not reveal composite keys, nor the key of deliveries.
        if table.key == ["id"] {
            assert_eq!(guessed.key, table.key, "{}", table.name);
        }
        assert_eq!(guessed.time, table.time, "{}", table.name);
        for reference in table.references.iter().filter(|r| r.columns.len() == 1) {
            assert!(guessed.references.contains(reference), "{} {reference:?}", table.name);
        }
    }
    let derived = |schema: &Schema, name: &str| {
        schema.tasks.iter().find(|task| task.name == name).unwrap().derived.clone().unwrap()
    };
    for name in ["churn", "spend"] {
        assert_eq!(derived(&schema, name).source, Some(format!("task_{name}")));
    }
}

#[test]
fn a_demo_that_cannot_be_written_names_its_path() {
    let folder = folder(&[("file", b"")]);
    let found = demo_data(&folder.path().join("file"));
    let found = message(found.map(|_| ()), ErrorKind::Io, folder.path());
    assert!(found.starts_with("creating DIR/file: "), "{found}");
}
