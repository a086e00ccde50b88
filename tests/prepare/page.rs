//! `inspect --html`: the page shows all of a context, and escapes its values.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use headwater::plan::Assignment;
use headwater::sampler::{Batch, Sampler, Settings, Shape, Speed, Texts};
use headwater::store::Store;
use serde_json::Value::Null;

use crate::{Workshop, run, succeed};

const SCHEMA: &str = r#"
database = "shop & <co>"

[[table]]
name = "customers"
key = "id"
time = { column = "since" }
columns = { id = "identifier", name = "text", since = "timestamp", "a<b" = "numerical" }

[[table]]
name = "orders"
key = "id"
time = { column = "at" }
columns = { id = "identifier", customer = "identifier", at = "timestamp", sent = "timestamp", paid = "boolean", note = "categorical" }
references = [{ columns = "customer", to = "customers" }]

[[task]]
name = "<paid>"
cell = { table = "orders", column = "paid", hide = "note" }
"#;

const CUSTOMERS: &str = "id,name,since,a<b\n\
    \"<b>1</b>\",\"</script><script>alert('x & \"\"y\"\"')</script>\",2023-01-01,1.5\n\
    2,Bo,2023-06-01,\n";
const ORDERS: &str = "id,customer,at,sent,paid,note\n\
    10,<b>1</b>,2023-02-01,2023-02-02,true,on time\n\
    11,<b>1</b>,2023-02-03,2023-02-05,false,reminded\n\
    12,<b>1</b>,2023-03-01,,true,\n\
    13,<b>1</b>,2023-03-02,2023-03-03,,\n\
    14,2,2023-02-01,,false,\n";

fn shop() -> Workshop {
    let workshop = Workshop::new(&[("customers.csv", CUSTOMERS), ("orders.csv", ORDERS)]);
    let output = workshop.prepare(SCHEMA);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    workshop
}

/// Draws a context; returns the page and the command's JSON.
fn drawn(workshop: &Workshop, task: &str, seed_index: &str) -> (String, serde_json::Value) {
    let (store, page) = (workshop.text("db"), workshop.text("page.html"));
    let context = ["inspect", &store, "--task", task, "--seed-index", seed_index];
    let json = succeed(&[&context[..], &["--json"]].concat());
    succeed(&[&context[..], &["--html", &page]].concat());
    (std::fs::read_to_string(page).unwrap(), serde_json::from_str(&json).unwrap())
}

/// The page's own text, whatever the values are: it has no way out.
fn check_asks_for_nothing(page: &str) {
    for way in ["http:", "https:", "//", " src=", "@import", "<link", "<iframe", "<form"] {
        // A line of the script that begins with // is a comment.
        let found = page.lines().filter(|line| !line.trim_start().starts_with("//"));
        // Pictures are base64, in which anything may be.
        let found = found.filter(|line| line.split("href=\"data:").next().unwrap().contains(way));
        assert_eq!(found.count(), 0, "{way}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn values_are_text_and_not_markup() {
    let workshop = shop();
    let (page, json) = drawn(&workshop, "<paid>", "1");
    check_asks_for_nothing(&page);
    assert_eq!(page.matches("<script>").count(), 1, "the page's own");
    let name = "&lt;/script&gt;&lt;script&gt;alert(&#39;x &amp; &quot;y&quot;&#39;)&lt;/script&gt;";
    assert_eq!(page.matches(name).count(), 2, "the cell and its tooltip");
    assert!(page.contains("<title>shop &amp; &lt;co&gt;/&lt;paid&gt;, seed_index 1</title>"));
    assert!(page.contains("<b>customers</b> <code>&lt;b&gt;1&lt;/b&gt;</code>"));
    assert!(page.contains("a&lt;b (numerical): 1.5"));
    // The order of the first of February is there, those of March are not yet.
    assert!(page.contains("orders.customer <small>2 of 2, <mark>2 later</mark></small>"));
    assert_eq!(json["hidden_count"], 2);
    assert!(page.contains("The walk reached all of them."));
    // That it was sent two days later was not known.
    assert!(page.contains("sent (timestamp): 2023-02-05 00:00:00\ncell"));
    assert_eq!(page.matches("NULL, known later").count(), 1);
    // The task hides the note, which was known.
    assert_eq!(page.matches("NULL, hidden by the task").count(), 1);
    assert!(page.contains("the model sees NULL: the task hides it in the seed row"));
    // The label stands apart from its cell, which does not tell it.
    assert!(page.contains("Label, hidden from the model</h2><b>paid</b> <small>boolean</small>"));
    let cell = page.split("title=\"paid (boolean): the target").nth(1).unwrap();
    assert!(cell.split("</div>").next().unwrap().ends_with("<span>hidden</span>"));
}

#[test]
fn p7_text_and_json_list_the_cells_that_a_model_sees() {
    let workshop = shop();
    let (_, json) = drawn(&workshop, "<paid>", "1");
    let cell = |row: &str, column: &str| {
        let rows = json["rows"].as_array().unwrap();
        let row = rows.iter().find(|shown| shown["row"] == row).unwrap();
        let cells = row["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["column"] == column).unwrap();
        (cell["value"].clone(), cell["why_null"].clone())
    };
    for (row, column, value, why) in [
        ("11", "id", "present".into(), Null),
        ("11", "at", "2023-02-03 00:00:00".into(), Null),
        ("11", "sent", Null, "known later".into()),
        ("11", "paid", Null, "the target".into()),
        ("11", "note", Null, "hidden by the task".into()),
        ("10", "sent", "2023-02-02 00:00:00".into(), Null),
        ("10", "paid", "true".into(), Null),
        ("10", "note", "on time".into(), Null),
        ("<b>1</b>", "a<b", "1.5".into(), Null),
    ] {
        assert_eq!(cell(row, column), (value, why), "{row} {column}");
    }
    let (_, last) = drawn(&workshop, "<paid>", "4");
    let cells = last["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[3]["why_null"], "NULL in the data");
    let store = workshop.text("db");
    let text = succeed(&["inspect", &store, "--task", "<paid>", "--seed-index", "1"]);
    let line = "at = 2023-02-03 00:00:00, sent = NULL (known later)";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("note = NULL (hidden by the task)"), "{text}");
    assert!(text.contains("note = \"on time\""), "{text}");
    // As many cells as the model has.
    let shown = json["rows"].as_array().unwrap().iter();
    let shown: usize = shown.map(|row| row["cells"].as_array().unwrap().len()).sum();
    assert_eq!(json["cell_count"], shown);
}

#[test]
fn misspelt_names_are_told_the_nearest() {
    let workshop = shop();
    let (store, typo) = (workshop.text("db"), workshop.text("DB"));
    for (arguments, message) in [
        (&["inspect", &typo][..], format!("did you mean {store}?")),
        (&["inspect", &store, "--table", "order"], "did you mean \"orders\"?".to_owned()),
        (
            &["inspect", &store, "--task", "<pait>", "--seed-index", "0"],
            "no task is called \"<pait>\"; did you mean \"<paid>\"?".to_owned(),
        ),
    ] {
        let output = run(arguments);
        let found = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(found.contains(&message), "{found}");
    }
    // With its database, a task has the name that a sampler gives.
    let full = ["inspect", &store, "--task", "shop & <co>/<paid>", "--seed-index", "0"];
    assert!(succeed(&full).contains("task shop & <co>/<paid>"));
}

#[test]
fn every_row_and_every_cell_is_on_the_page_once() {
    let workshop = demo();
    for seed_index in ["0", "40", "1700"] {
        let (page, json) = drawn(&workshop, "churn", seed_index);
        check_asks_for_nothing(&page);
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(page.matches("<article ").count(), rows.len());
        for row in rows {
            let (place, table) = (&row["place"], row["table"].as_str().unwrap());
            let key = row["row"].as_str().unwrap();
            let own = page.split(&format!(" id=\"r{place}\"")).nth(1).unwrap();
            assert!(own.contains(&format!("<b>{table}</b> <code>{key}</code><em>{place}</em>")));
        }
        let cells = json["cell_count"].as_u64().unwrap().min(1024);
        for cell in 0..cells {
            assert_eq!(page.matches(&format!(" id=\"c{cell}\"")).count(), 1, "cell {cell}");
        }
        assert!(!page.contains(&format!(" id=\"c{cells}\"")));
        let neighbours = rows.iter().flat_map(|row| row["neighbours"].as_array().unwrap());
        let hidden: u64 = neighbours.map(|near| near["hidden"].as_u64().unwrap()).sum();
        assert!(hidden >= json["hidden_count"].as_u64().unwrap());
        let tile = format!("<b>{}</b> links to rows that came to exist later", thousands(hidden));
        assert!(page.contains(&tile), "{tile}");
    }
}

fn thousands(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1000), number % 1000),
    }
}

fn demo() -> Workshop {
    let workshop = Workshop::new(&[]);
    let (data, db) = (workshop.text("demo"), workshop.text("db"));
    succeed(&["demo-data", &data]);
    let schema = format!("{data}/schema.toml");
    succeed(&["prepare", &data, "--schema", &schema, "--out", &db, "--dimension", "8"]);
    workshop
}

/// The colour numbers of a picture's pixels, and its width.
fn pixels(png: &[u8]) -> (usize, Vec<u8>) {
    let mut rest = png.strip_prefix(b"\x89PNG\r\n\x1a\n").expect("a PNG");
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum: u32, &byte| sum << 8 | u32::from(byte));
    let (mut header, mut packed, mut kinds) = (vec![], vec![], vec![]);
    while !rest.is_empty() {
        let length = number(&rest[..4]) as usize;
        let (kind, content) = (&rest[4..8], &rest[8..8 + length]);
        let mut checksum = flate2::Crc::new();
        checksum.update(&rest[4..8 + length]);
        assert_eq!(number(&rest[8 + length..12 + length]), checksum.sum());
        match kind {
            b"IHDR" => header = content.to_vec(),
            b"IDAT" => {
                flate2::read::ZlibDecoder::new(content).read_to_end(&mut packed).unwrap();
            }
            _ => {}
        }
        kinds.push(kind.to_vec());
        rest = &rest[12 + length..];
    }
    assert_eq!(kinds.concat(), b"IHDRPLTEtRNSIDATIEND");
    assert_eq!(header[8..], [2, 3, 0, 0, 0]);
    let width = number(&header[..4]) as usize;
    assert_eq!(header[4..8], header[..4], "a square");
    let mut pixels = vec![];
    for line in packed.chunks(1 + width.div_ceil(4)) {
        assert_eq!(line[0], 0, "no filter");
        let line = line[1..].iter().flat_map(|byte| [6, 4, 2, 0].map(|shift| byte >> shift & 3));
        pixels.extend(line.take(width));
    }
    assert_eq!(pixels.len(), width * width);
    (width, pixels)
}

/// The masks as the model's specification has them, over all of the sequence, padding included, and
/// brought into their orders: COL, OUT, IN.
fn plain_masks(batch: &Batch) -> [Vec<bool>; 3] {
    let column = batch.get::<i32>("column_ids").unwrap();
    let row = batch.get::<u16>("seq_row_ids").unwrap();
    let padding = batch.get::<u8>("is_padding").unwrap();
    let adjacency = batch.get::<u8>("fk_adj").unwrap();
    let rows = adjacency.len().isqrt();
    let refers =
        |i: usize, j: usize| adjacency[usize::from(row[i]) * rows + usize::from(row[j])] == 1;
    let masks: [&dyn Fn(usize, usize) -> bool; 3] =
        [&|i, j| column[i] == column[j], &|i, j| row[i] == row[j] || refers(i, j), &|i, j| {
            refers(j, i)
        }];
    let mut orders = ["col_perm", "out_perm", "in_perm"].into_iter();
    masks.map(|mask| {
        let order = batch.get::<u16>(orders.next().unwrap()).unwrap();
        let pairs = order.iter().flat_map(|&i| order.iter().map(move |&j| (i.into(), j.into())));
        pairs.map(|(i, j)| i == j || padding[i] == 0 && padding[j] == 0 && mask(i, j)).collect()
    })
}

#[test]
fn masks_are_those_of_the_sampled_batch() {
    // Sequences that are full, and ones that are hardly begun.
    check_masks(&demo(), "churn", &["0", "40", "1700"], false);
    check_masks(&shop(), "<paid>", &["1", "3"], true);
}

fn check_masks(workshop: &Workshop, task: &str, seed_indexes: &[&str], has_padding: bool) {
    let store = Arc::new(Store::open(&workshop.path("db")).unwrap());
    let shape = Shape {
        batch_size: 1,
        permutations: true,
        texts: Texts::Global,
        ..Settings::default().shape
    };
    let cells = shape.sequence_length as usize;
    let settings = Settings { shape, ..Settings::default() };
    let assignment = Assignment::new(0, 1).unwrap();
    let sampler = Sampler::new(vec![store], settings, assignment, Speed::default()).unwrap();
    for seed_index in seed_indexes {
        let (page, _) = drawn(workshop, task, seed_index);
        let batch = sampler.batch_of_seed(task, seed_index.parse().unwrap()).unwrap();
        let is_padding = batch.get::<u8>("is_padding").unwrap();
        let padding: usize = is_padding.iter().map(|&is| usize::from(is)).sum();
        assert_eq!(padding > 0, has_padding);
        let pictures: Vec<_> = page.split("href=\"data:image/png;base64,").skip(1).collect();
        assert_eq!(pictures.len(), 3);
        for (picture, plain) in pictures.into_iter().zip(plain_masks(&batch)) {
            let png = BASE64_STANDARD.decode(picture.split('"').next().unwrap()).unwrap();
            let (width, pixels) = pixels(&png);
            assert_eq!(width, cells - padding);
            // Padding comes last in every order, and attends to nothing but itself.
            let drawn = |i: usize, j: usize| match i < width && j < width {
                true => pixels[i * width + j] != 0,
                false => i == j,
            };
            let places = (0..cells).flat_map(|i| (0..cells).map(move |j| (i, j)));
            assert!(places.zip(&plain).all(|((i, j), &attends)| drawn(i, j) == attends));
            let attended = pixels.iter().filter(|&&pixel| pixel != 0).count();
            let share = 100.0 * attended as f64 / pixels.len() as f64;
            assert!(picture.contains(&format!("<b>{share:.2} %</b>")), "{share}");
        }
    }
}

#[test]
fn a_store_without_relations_has_contexts_of_one_row() {
    let workshop = Workshop::new(&[("numbers.csv", "id,n\n1,2\n3,4\n")]);
    let output = workshop.prepare(
        "database = \"numbers\"\n[[table]]\nname = \"numbers\"\nkey = \"id\"\n\
         columns = { id = \"identifier\", n = \"numerical\" }\n\
         [[task]]\nname = \"n\"\nsees_everything = true\n\
         cell = { table = \"numbers\", column = \"n\" }\n",
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (page, json) = drawn(&workshop, "n", "1");
    assert_eq!(json["rows"].as_array().unwrap().len(), 1);
    assert_eq!(page.matches("<article ").count(), 1);
    let tree = succeed(&["inspect", &workshop.text("db"), "--task", "n", "--seed-index", "1"]);
    let cells = "numbers 3  [hop 0]\n     id = present, n = NULL (the target)\n";
    assert!(tree.ends_with(cells), "{tree}");
}

#[test]
fn a_page_replaces_nothing_but_a_page() {
    let workshop = shop();
    let store = workshop.text("db");
    let draw = |place: &Path, more: &[&str]| {
        let arguments = ["inspect", &store, "--html", place.to_str().unwrap()];
        let output = run(&[&arguments[..], more].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let context = ["--task", "<paid>", "--seed-index", "0"];
    let page = workshop.path("page.html");
    let (status, message) = draw(&page, &[]);
    assert!(status == Some(2) && message.contains("--task <TASK>"), "{message}");
    let (status, message) = draw(&page, &["--table", "orders"]);
    assert!(status == Some(2) && message.contains("--task <TASK>"), "{message}");
    assert!(!page.exists());
    // A page of ours is replaced, and nothing else is.
    // The option `--item` is the old name of `--seed-index`.
    for (option, seed_index) in [("--seed-index", "0"), ("--item", "1")] {
        assert_eq!(draw(&page, &["--task", "<paid>", option, seed_index]).0, Some(0));
        let title = format!("seed_index {seed_index}</title>");
        assert!(std::fs::read_to_string(&page).unwrap().contains(&title));
    }
    std::fs::write(&page, "my notes").unwrap();
    let (status, message) = draw(&page, &context);
    assert!(
        status == Some(1)
            && message.contains("page.html exists already and is not a page of headwater"),
        "{message}"
    );
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "my notes");
    let (status, message) = draw(&workshop.path("nowhere").join("page.html"), &context);
    assert!(status == Some(1) && message.contains("nowhere/"), "{message}");
    let (status, message) = draw(&workshop.path("data"), &context);
    assert!(status == Some(1) && message.contains("/data"), "{message}");
}
