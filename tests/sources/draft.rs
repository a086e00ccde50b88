use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Date32Array, Decimal128Array, Int64Array, StringViewArray};
use headwater::prepare::draft::{Draft, draft};
use headwater::prepare::schema::{Schema, Table, Task};
use headwater::store::SemanticType;

use super::*;

/// Drafts a schema, and checks that its text reads back as the same schema.
pub(super) fn drafted(source: &dyn Source) -> Draft {
    let draft = draft(source, "data", &|_| Ok(())).unwrap_or_else(|e| panic!("{e}"));
    let text = draft.render();
    let back = Schema::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(back, draft.schema, "{text}");
    draft
}

pub(super) fn table<'a>(schema: &'a Schema, name: &str) -> &'a Table {
    schema.tables.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no table {name}"))
}

/// Returns a table's key, time and references in one line.
pub(super) fn summary(schema: &Schema, name: &str) -> String {
    let table = table(schema, name);
    let time = table.time.as_ref().map_or("-".to_owned(), |time| {
        let through = time.through.as_ref().map(|through| format!("via {through}"));
        time.column.clone().or(through).unwrap()
    });
    let references = table.references.iter().map(|r| format!("{} > {}", r.name(), r.to));
    let references = references.collect::<Vec<_>>().join(", ");
    format!("key {} | time {time} | {references}", table.key.join("+"))
}

/// Returns the columns of a table by semantic type, as `type: names`.
fn types(schema: &Schema, name: &str) -> Vec<String> {
    let columns = &table(schema, name).columns;
    let of = |semantic: &SemanticType| {
        let names = columns.iter().filter(|(_, c)| c.semantic == *semantic);
        let names: Vec<_> = names.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{semantic}: {}", names.join(" ")))
    };
    SemanticType::ALL.iter().filter_map(of).collect()
}

pub(super) fn task<'a>(schema: &'a Schema, name: &str) -> Option<&'a Task> {
    schema.tasks.iter().find(|task| task.name == name)
}

pub(super) fn csv(header: &str, rows: u64, row: impl Fn(u64) -> String) -> Vec<u8> {
    let rows: String = (0..rows).map(|i| row(i) + "\n").collect();
    format!("{header}\n{rows}").into_bytes()
}

/// Returns the folder of the Formula One data, if it exists.
pub(super) fn formula_one() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("HEADWATER_SHARED").map(PathBuf::from);
    let path = shared.unwrap_or_else(|| root.join("../shared")).join("data/f1db");
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: no f1db at {}; set HEADWATER_SHARED", path.display());
    None
}

#[test]
fn drafted_references_of_formula_one_are_correct() {
    let Some(path) = formula_one() else { return };
    let schema = drafted(&*opened(&path)).schema;
    assert_eq!(schema.tables.len(), 31);
    assert_eq!(
        summary(&schema, "races"),
        "key id | time date | grandPrixId > grands_prix, circuitId > circuits"
    );
    assert_eq!(
        summary(&schema, "race_results"),
        "key  | time via raceId | raceId > races, driverId > drivers, constructorId > \
         constructors, engineManufacturerId > engine_manufacturers, tyreManufacturerId > \
         tyre_manufacturers"
    );
    assert_eq!(
        summary(&schema, "drivers"),
        "key id | time - | countryOfBirthCountryId > countries, nationalityCountryId > countries, \
         secondNationalityCountryId > countries"
    );
    assert_eq!(summary(&schema, "countries"), "key id | time - | continentId > continents");
    for table in schema.tables.iter().filter(|t| t.columns.contains_key("raceId")) {
        assert!(table.time.as_ref().unwrap().through.as_deref() == Some("raceId"), "{table:?}");
    }
    let dnf = task(&schema, "driver_dnf").unwrap().derived.as_ref().unwrap();
    assert_eq!((dnf.anchor.as_str(), dnf.target_type), ("drivers", SemanticType::Boolean));
    assert_eq!(
        (dnf.time.as_ref().map(|time| &*time.column), dnf.split.as_deref()),
        (Some("obs_time"), Some("split"))
    );
    let position = task(&schema, "driver_position").unwrap().derived.as_ref().unwrap();
    assert_eq!(position.target_type, SemanticType::Numerical);
    assert!(task(&schema, "race_results.points").is_some());
    assert!(task(&schema, "races.date").is_none());
}

#[test]
fn declared_keys_of_a_music_shop_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chinook.db");
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "PRAGMA foreign_keys = OFF;
             CREATE TABLE Artist (ArtistId INTEGER PRIMARY KEY, Name TEXT);
             CREATE TABLE Album (AlbumId INTEGER PRIMARY KEY, Title TEXT, Maker INT REFERENCES
               Artist, Cover BLOB, Live BOOLEAN);
             CREATE TABLE Employee (EmployeeId INTEGER PRIMARY KEY, Name, ReportsTo INT REFERENCES
               Employee (EmployeeId), BirthDate DATETIME, HireDate DATETIME);
             CREATE TABLE Invoice (InvoiceId INTEGER PRIMARY KEY, InvoiceDate DATETIME, Total
               NUMERIC, Broken INT REFERENCES Artist);
             CREATE TABLE InvoiceLine (InvoiceId INT REFERENCES Invoice, Line INT, AlbumId INT
               REFERENCES Album, PRIMARY KEY (InvoiceId, Line));
             CREATE TABLE Refund (Id INTEGER PRIMARY KEY, InvoiceId, Line, Reason, FOREIGN KEY
               (InvoiceId, Line) REFERENCES InvoiceLine);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
               INSERT INTO Artist SELECT i, 'artist ' || i FROM n;
             INSERT INTO Album SELECT ArtistId, 'album ' || ArtistId, ArtistId, x'00', ArtistId % 2 FROM Artist;
             INSERT INTO Employee VALUES (1, 'Ada', NULL, '1960-01-01', '2000-01-01'),
               (2, 'Bob', 1, '1970-01-01 00:00:00', '2001-01-01 00:00:00');
             INSERT INTO Invoice SELECT ArtistId, '2009-01-01 00:00:00', ArtistId * 0.99,
               ArtistId + 50 FROM Artist;
             INSERT INTO InvoiceLine SELECT InvoiceId, 1, InvoiceId FROM Invoice;
             INSERT INTO Refund SELECT InvoiceId, InvoiceId, Line, 'x' FROM InvoiceLine;",
        )
        .unwrap();
    let draft = drafted(&*opened(&path));
    let schema = &draft.schema;
    assert_eq!(summary(schema, "Album"), "key AlbumId | time - | Maker > Artist");
    assert_eq!(
        summary(schema, "Employee"),
        "key EmployeeId | time HireDate | ReportsTo > Employee"
    );
    assert_eq!(summary(schema, "Invoice"), "key InvoiceId | time InvoiceDate | ");
    assert_eq!(
        summary(schema, "InvoiceLine"),
        "key InvoiceId+Line | time via InvoiceId | InvoiceId > Invoice, AlbumId > Album"
    );
    assert_eq!(
        summary(schema, "Refund"),
        "key Id | time via InvoiceId+Line | InvoiceId+Line > InvoiceLine"
    );
    assert_eq!(
        types(schema, "Album"),
        ["identifier: AlbumId Maker", "boolean: Live", "text: Title", "ignored: Cover"]
    );
    let text = draft.render();
    let broken = "Broken = \"numerical\" # declared to refer to \"Artist\", but 50 of 200 values \
                  are not keys there";
    assert!(text.contains(broken), "{text}");
    assert!(text.contains("Cover = \"ignored\" # BLOB values have no semantic type"), "{text}");
}

#[test]
fn prefixed_keys_of_a_warehouse_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = File::create(folder.path().join(format!("{name}.parquet"))).unwrap();
        let mut writer =
            ::parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    let ints = |n: i64, f: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..n).map(f)))
    };
    let words = |n: i64, f: &dyn Fn(i64) -> String| -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values((0..n).map(f)))
    };
    let dates = |n: i64, f: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(Date32Array::from_iter_values((0..n).map(|i| f(i) as i32)))
    };
    let prices = Decimal128Array::from_iter_values(0..400).with_precision_and_scale(15, 2);
    let mode = |i: i64| ["AIR", "RAIL", "SHIP"][(i % 3) as usize].to_owned();
    write(
        "nation",
        vec![("n_nationkey", ints(25, &|i| i)), ("n_name", words(25, &|i| format!("NATION {i}")))],
    );
    write(
        "customer",
        vec![
            ("c_custkey", ints(50, &|i| i + 1)),
            ("c_nationkey", ints(50, &|i| i % 25)),
            ("c_comment", words(50, &|i| format!("quickly final {i}"))),
        ],
    );
    write("part", vec![("p_partkey", ints(60, &|i| i + 1)), ("p_size", ints(60, &|i| i % 50))]);
    write("supplier", vec![("s_suppkey", ints(10, &|i| i + 1)), ("s_nationkey", ints(10, &|i| i))]);
    write(
        "partsupp",
        vec![
            ("ps_partkey", ints(120, &|i| i / 2 + 1)),
            ("ps_suppkey", ints(120, &|i| i % 10 + 1)),
            ("ps_availqty", ints(120, &|i| i * 7)),
        ],
    );
    write(
        "orders",
        vec![
            ("o_orderkey", ints(100, &|i| i * 4 + 1)),
            ("o_custkey", ints(100, &|i| i % 50 + 1)),
            ("o_orderdate", dates(100, &|i| 8000 + i)),
        ],
    );
    write(
        "lineitem",
        vec![
            ("l_orderkey", ints(400, &|i| (i / 4) * 4 + 1)),
            ("l_partkey", ints(400, &|i| i % 60 + 1)),
            ("l_suppkey", ints(400, &|i| i % 10 + 1)),
            ("l_linenumber", ints(400, &|i| i % 4 + 1)),
            ("l_extendedprice", Arc::new(prices.unwrap())),
            ("l_shipdate", dates(400, &|i| 8010 + i)),
            ("l_shipmode", words(400, &mode)),
        ],
    );
    let schema = drafted(&*opened(folder.path())).schema;
    assert_eq!(summary(&schema, "customer"), "key c_custkey | time - | c_nationkey > nation");
    assert_eq!(
        summary(&schema, "orders"),
        "key o_orderkey | time o_orderdate | o_custkey > customer"
    );
    assert_eq!(
        summary(&schema, "partsupp"),
        "key ps_partkey+ps_suppkey | time - | ps_partkey > part, ps_suppkey > supplier"
    );
    assert_eq!(
        summary(&schema, "lineitem"),
        "key l_orderkey+l_linenumber | time via l_orderkey | l_orderkey > orders, l_partkey > \
         part, l_suppkey > supplier"
    );
    assert_eq!(
        types(&schema, "lineitem"),
        [
            "identifier: l_orderkey l_partkey l_suppkey l_linenumber",
            "numerical: l_extendedprice",
            "timestamp: l_shipdate",
            "categorical: l_shipmode"
        ]
    );
}

/// A trading house similar to Northwind.
fn trading_house() -> tempfile::TempDir {
    let region = |i: u64| ["NE", "SW", ""][(i % 3) as usize];
    folder(&[
        (
            "categories.csv",
            &csv("category_id,name,parent_category_id", 6, |i| {
                let parent = if i < 2 { String::new() } else { (i % 2 + 1).to_string() };
                format!("{},cat {i},{parent}", i + 1)
            }),
        ),
        (
            "customers.csv",
            &csv("CustomerID,CompanyName,Region,Phone,created_at", 90, |i| {
                let made = 1_500_000_000 + i * 1000;
                format!("C{i:03},Company {i},{},0{i:04},{made}", region(i))
            }),
        ),
        (
            "employees.csv",
            &csv("employeeID,lastName,reportsTo,birthDate,isActive", 30, |i| {
                let boss = if i == 0 { String::new() } else { (i / 3 + 1).to_string() };
                format!("{},Name {i},{boss},1960-01-{:02},{}", i + 1, i + 1, i % 2)
            }),
        ),
        (
            "orders.csv",
            &csv("order_id,CustomerID,employee_id,order_date,shipped_date,freight", 300, |i| {
                let shipped = if i % 5 == 0 { String::new() } else { "1997-09-01".into() };
                let day = format!("1997-08-{:02} 10:00:00", i % 28 + 1);
                format!("{},C{:03},{},{day},{shipped},{}.5", i + 1, i % 90, i % 30 + 1, i)
            }),
        ),
        (
            "order_details.csv",
            &csv("order_id,product_id,quantity,discount,gift", 900, |i| {
                let gift = if i % 2 == 0 { "yes" } else { "NO" };
                format!("{},{},{},0.{},{gift}", i / 3 + 1, i % 77 + 1, i % 9, i % 3)
            }),
        ),
        (
            "products.csv",
            &csv("product_id,product_name,category_id,note,code", 77, |i| {
                format!("{},Thing {i},{},,{:05}", i + 1, i % 6 + 1, i)
            }),
        ),
        (
            "stores.csv",
            &csv("id,customer_id,sku", 40, |i| format!("{i},{},{:020}", i + 500, i * 7919)),
        ),
    ])
}

#[test]
fn references_of_a_trading_house_are_guessed_and_verified() {
    let folder = trading_house();
    let draft = drafted(&*opened(folder.path()));
    let schema = &draft.schema;
    for (name, expected) in [
        ("categories", "key category_id | time - | parent_category_id > categories"),
        ("customers", "key CustomerID | time created_at | "),
        ("employees", "key employeeID | time - | reportsTo > employees"),
        (
            "orders",
            "key order_id | time order_date | CustomerID > customers, employee_id > employees",
        ),
        (
            "order_details",
            "key order_id+product_id | time via order_id | order_id > orders, product_id > products",
        ),
        ("products", "key product_id | time - | category_id > categories"),
        ("stores", "key id | time - | "),
    ] {
        assert_eq!(summary(schema, name), expected, "{name}");
    }
    assert_eq!(
        types(schema, "customers"),
        [
            "identifier: CustomerID",
            "timestamp: created_at",
            "categorical: Region",
            "text: CompanyName Phone"
        ]
    );
    assert_eq!(
        types(schema, "employees"),
        [
            "identifier: employeeID reportsTo",
            "timestamp: birthDate",
            "boolean: isActive",
            "text: lastName"
        ]
    );
    assert_eq!(
        types(schema, "order_details"),
        ["identifier: order_id product_id", "numerical: quantity discount", "boolean: gift"]
    );
    assert_eq!(
        types(schema, "products"),
        ["identifier: product_id category_id", "text: product_name code", "ignored: note"]
    );
    assert_eq!(types(schema, "stores"), ["identifier: id customer_id sku"]);
    let text = draft.render();
    for line in [
        "created_at = { type = \"timestamp\", unit = \"s\" } # integers that look like seconds \
         since 1970",
        "note = \"ignored\" # always NULL",
        "customer_id = \"identifier\" # named like a reference to \"customers\", but 40 of 40 \
         values are not keys there",
        "time = { through = \"order_id\" } # the time of \"orders\", to which a row belongs; add a \
         delay if a row is known only later",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    assert!(task(schema, "employees.isActive").unwrap().sees_everything);
    assert!(!task(schema, "order_details.quantity").unwrap().sees_everything);
    assert!(task(schema, "orders.order_date").is_none());
    assert!(task(schema, "customers.CompanyName").is_none());
}

#[test]
fn drafts_do_not_depend_on_threads_and_report_each_table() {
    let folder = trading_house();
    let source = opened(folder.path());
    let text = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let reported = Mutex::new(Vec::new());
        let progress = |table: &str| {
            reported.lock().unwrap().push(table.to_owned());
            Ok(())
        };
        let draft = pool.install(|| draft(&*source, "x", &progress)).unwrap();
        let mut reported = reported.into_inner().unwrap();
        reported.sort();
        assert_eq!(reported.len(), 7);
        assert_eq!(reported[0], "categories");
        draft.render()
    };
    let one = text(1);
    assert_eq!(one, text(2));
    assert_eq!(one, text(7));
}

#[test]
fn dangling_rows_are_accepted_up_to_the_limit() {
    // 1 of 200 distinct values dangles, in `rows` rows of 1000.
    let shop = |rows: u64| {
        let order = |i: u64| if i < rows { 999 } else { i % 199 };
        folder(&[
            ("users.csv", &csv("id,n", 300, |i| format!("{i},{}", i * i))),
            ("orders.csv", &csv("id,user_id", 1000, |i| format!("{i},{}", order(i)))),
        ])
    };
    let linked = |rows| {
        let folder = shop(rows);
        !table(&drafted(&*opened(folder.path())).schema, "orders").references.is_empty()
    };
    assert!(linked(10));
    assert!(!linked(11));
}

#[test]
fn columns_with_repeats_or_nulls_are_not_keys() {
    let noted = |id: &dyn Fn(u64) -> String| {
        let users = csv("id,n", 300, |i| format!("{},{i}", id(i)));
        let orders = csv("id,user_id", 300, |i| format!("{i},{}", i % 100));
        let folder = folder(&[("users.csv", &users), ("orders.csv", &orders)]);
        let draft = drafted(&*opened(folder.path()));
        let text = draft.render();
        let linked = !table(&draft.schema, "orders").references.is_empty();
        assert_eq!(linked, !table(&draft.schema, "users").key.is_empty());
        let users = text.split("name = \"users\"").nth(1).unwrap();
        users.lines().nth(1).unwrap().to_owned()
    };
    assert_eq!(noted(&|i| i.to_string()), "key = \"id\" # by its name; unique and never NULL");
    assert_eq!(noted(&|i| (i % 299).to_string()), "# no key: \"id\" is not unique");
    let gaps = |i: u64| if i < 2 { String::new() } else { i.to_string() };
    assert_eq!(noted(&gaps), "# no key: \"id\" is NULL in 2 rows");
}

#[test]
fn texts_are_categories_if_they_are_few_and_repeat() {
    let text =
        csv("few,rare,once,many", 400, |i| format!("a{},b{},c{i},d{}", i % 20, i % 21, i % 200));
    let names = csv("name", 20, |i| format!("n{}", i.min(18)));
    let folder = folder(&[("t.csv", &text), ("u.csv", &names)]);
    let schema = drafted(&*opened(folder.path())).schema;
    assert_eq!(types(&schema, "t"), ["categorical: few", "text: rare once many"]);
    assert_eq!(types(&schema, "u"), ["text: name"]);
}

#[test]
fn tables_of_seeds_become_tasks() {
    let users = csv("id,n", 50, |i| format!("{i},{}", i * i));
    let split = |i: u64| ["train", "val", "test"][(i % 3) as usize];
    let seeds = |header: &str, split: &dyn Fn(u64) -> String| {
        csv(header, 100, |i| format!("{},2020-01-01,{}.0{}", i % 50, i % 2, split(i)))
    };
    let whole = seeds("user_id,obs_time,target,split", &|i| format!(",{}", split(i)));
    let plain = seeds("user_id,obs_time,target", &|_| String::new());
    let odd = seeds("user_id,obs_time,target,split", &|i| format!(",{}", i % 2));
    let named = seeds("user_id,obs_time,churned,split", &|i| format!(",{}", split(i)));
    let timed = |header: &str| {
        csv(header, 100, |i| {
            format!("{},2020-02-{:02},2020-01-01,{}", i % 50, i % 28 + 1, split(i))
        })
    };
    let next = timed("user_id,target,obs_time,split");
    let either = timed("user_id,next_order,obs_time,split");
    let unnamed = seeds("user_id,obs_time,churned", &|_| String::new());
    let more = seeds("user_id,obs_time,target,note", &|i| format!(",{i}"));
    let folder = folder(&[
        ("users.csv", &users),
        ("task_a.csv", &whole),
        ("b.csv", &plain),
        ("task_b.csv", &plain),
        ("odd.csv", &odd),
        ("more.csv", &more),
        ("named.csv", &named),
        ("next.csv", &next),
        ("either.csv", &either),
        ("unsaid.csv", &unnamed),
        ("task_users.n.csv", &plain),
    ]);
    let schema = drafted(&*opened(folder.path())).schema;
    let names: Vec<_> = schema.tables.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["either", "more", "odd", "unsaid", "users"]);
    let derived = schema.tasks.iter().filter_map(|t| Some((&t.name, t.derived.as_ref()?)));
    let derived: Vec<_> = derived
        .map(|(name, task)| format!("{name} < {}", task.source.as_deref().unwrap()))
        .collect();
    let expected = ["b < b", "named < named", "next < next", "a < task_a", "task_b < task_b"];
    assert_eq!(derived, [&expected[..], &["users.n < task_users.n"]].concat());
    assert_eq!(schema.tasks.iter().filter(|task| task.name == "users.n").count(), 1);
    let next = schema.tasks.iter().find(|task| task.name == "next").unwrap();
    let next = next.derived.as_ref().unwrap();
    assert_eq!(
        (next.time.as_ref().map(|time| &*time.column), &*next.target),
        (Some("obs_time"), "target")
    );
}

#[test]
fn unusual_names_make_a_valid_schema() {
    let folder = folder(&[
        ("Über \"x\" #1.csv", b"id,a.b c,\"say \"\"hi\"\"\nnow\"\n1,2,3\n2,3,4\n"),
        ("sub/..evil.parquet", b""),
        ("empty.csv", b"id,name\n"),
    ]);
    std::fs::remove_dir_all(folder.path().join("sub")).unwrap();
    let draft = drafted(&*opened(folder.path()));
    assert!(draft.render().contains("\n# Table \"empty\" is left out: it has no rows.\n"));
    let schema = draft.schema;
    assert_eq!(schema.tables.len(), 1);
    assert_eq!(table(&schema, "Über \"x\" #1").columns.len(), 3);
    let path = folder.path().join("odd.db");
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TABLE \"../evil\" (a); INSERT INTO \"../evil\" VALUES (1.5), (2.5);
             CREATE TABLE \"/_evil\" (a); INSERT INTO \"/_evil\" VALUES (1.5), (2.5);
             CREATE TABLE \"b/\" (A, B); INSERT INTO \"b/\" VALUES (1, 2);",
        )
        .unwrap();
    let schema = drafted(&*opened(&path)).schema;
    let names: Vec<_> =
        schema.tables.iter().map(|t| (t.name.as_str(), t.source.as_deref())).collect();
    assert_eq!(names, [("_evil", Some("../evil")), ("__evil", Some("/_evil")), ("b_", Some("b/"))]);
}
