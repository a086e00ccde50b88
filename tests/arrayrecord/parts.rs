//! Parts of a table in ArrayRecord files make the store of one process.

use std::fs;

use headwater::prepare::embed::HashingEmbedder;
use headwater::prepare::schema::Schema;
use headwater::prepare::{Merge, Options, Part, PartOptions, merge, prepare, prepare_part, source};
use headwater::progress::Silent;
use headwater::store::TextEncoding;

use crate::exported_pings;

const SCHEMA: &str = r#"
database = "pings"
[[table]]
name = "pings"
time = { column = "event_time" }
[table.columns]
event_time = { type = "timestamp", unit = "s" }
src_addr = "categorical"
dst_addr = "text"
rtt = "numerical"
"#;

#[test]
fn p1_parts_of_arrayrecord_files_make_the_store_of_one_process() {
    let (folder, files) = exported_pings(300, 4, "");
    let schema = Schema::parse(SCHEMA).unwrap();
    // A second file, so that the table has two blocks at least.
    let first = fs::read_dir(&files).unwrap().next().unwrap().unwrap().path();
    fs::copy(&first, files.join("zz.arrayrecord")).unwrap();
    let data = files.join("*.arrayrecord");
    let parts = folder.path().join("parts");
    for number in 1..=2 {
        let options = PartOptions { threads: Some(2), progress: &Silent };
        let part = Part::new(number, 2).unwrap();
        let report =
            prepare_part(&*source::open(&data).unwrap(), &schema, &parts, part, &options).unwrap();
        assert!(report.row_count > 0);
    }
    let options = Options {
        embedder: &HashingEmbedder::new(8),
        text_vectors: Some(TextEncoding::F16),
        threads: Some(2),
        memory: None,
        sql: None,
        progress: &Silent,
    };
    let (whole, out) = (folder.path().join("whole"), folder.path().join("merged"));
    let whole = prepare(&*source::open(&data).unwrap(), &schema, &whole, &options).unwrap();
    let to = Merge { parts: &parts, out: &out, replace: false };
    let merged = merge(&*source::open(&data).unwrap(), &schema, &to, &options).unwrap();
    assert_eq!(merged, whole);
}
