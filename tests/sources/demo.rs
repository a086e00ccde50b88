use headwater::prepare::demo::demo_data;
use headwater::prepare::draft::draft;
use headwater::prepare::schema::Schema;

use super::*;

/// The BLAKE3 of each file; a change here changes everybody's demo.
const FILES: &[(&str, &str)] = &[
    ("carriers.csv", "9cee49e5d62747cc30bb9aea8407de790bb1be104d86afdcc0bacdcebe17d475"),
    ("categories.csv", "ac37d59e43dec6d023aa60a7c1adcf0cf56a65d5f52137b19998da2adbe9dc62"),
    ("customers.csv", "2483b26298e49379e23c661e44bfe118ecda5f932caa3b9885c338996017ec39"),
    ("deliveries.csv", "3d47cf7c899f193e920443e541cf53c9ef2f4ca164ecde5aaec04a810915a2c7"),
    ("order_items.csv", "2d1bca9e7337e519e09ebdd5c5a971e91fd0c2a4ea60251d647cdbf3db47f6a3"),
    ("orders.csv", "c7f17f50a150758e964b72cdd02054b66466b38a43db27fa5892748eede9b4ff"),
    ("products.csv", "5069293d26ea5474e14de88acf03ad039d422cb3b496d0eead760d5c2768a416"),
    ("reviews.csv", "fc68568ab16f691a02b7f38f25ea08e8abbb9c97616174a1ba453b5515325340"),
    ("schema.toml", "7c89801e612e2a78ba5c4a412e6d68c6f262ef1f5441f6bb5e13f35371da22c8"),
    ("suppliers.csv", "64777643f7ac7c54527036538e59ca4dac0b03155f81dce75c7ad12ecec302d1"),
    ("task_churn.csv", "e7b7bb0abf3f466b3c823b3b59427b006e8c3abb72a90045930eb4b4cb16d768"),
    ("task_spend.csv", "361434750c403cdceab612c0defc45527ee29f59ceb30209a650ee96bd6d5c79"),
];

#[test]
fn the_demo_shop_is_the_same_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/demo");
    demo_data(&path).unwrap();
    // Once more over the first: files are replaced, not added to.
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
    assert_eq!((data.tables.len(), total), (11, 119_036));
}

#[test]
fn the_demo_schema_fits_its_tables_and_the_draft_comes_near() {
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
        // What is nobody's name for a delivery, or two columns, no name tells.
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
fn a_demo_that_cannot_be_written_says_where() {
    let folder = folder(&[("file", b"")]);
    let found = demo_data(&folder.path().join("file"));
    let found = message(found.map(|_| ()), ErrorKind::Io, folder.path());
    assert!(found.starts_with("making DIR/file: "), "{found}");
}
