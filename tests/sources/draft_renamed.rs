//! The law of references: they are found where names say nothing.

use std::collections::{BTreeMap, BTreeSet};

use headwater::prepare::demo::demo_data;
use headwater::prepare::draft::draft;
use headwater::prepare::schema::Schema;
use headwater::random::{Purpose, Stream};

use super::draft::formula_one;
use super::tpch;
use super::*;

/// A database whose references are known.
struct Known {
    name: &'static str,
    tables: Vec<(String, Vec<String>, Vec<Vec<String>>)>,
    /// As `table(columns) > table(columns)`.
    truth: BTreeSet<String>,
}

/// Which names are replaced by names that say nothing.
#[derive(Clone, Copy, Debug)]
enum Renamed {
    Tables,
    Columns,
    Both,
}

/// Returns a reference in words, its columns in the order of their names.
fn described(table: &str, columns: &[String], to: &str, to_columns: &[String]) -> String {
    let mut pairs: Vec<_> = columns.iter().zip(to_columns).collect();
    pairs.sort();
    let (columns, to_columns): (Vec<_>, Vec<_>) =
        pairs.into_iter().map(|(one, other)| (one.as_str(), other.as_str())).unzip();
    format!("{table}({}) > {to}({})", columns.join(", "), to_columns.join(", "))
}

fn read(folder: &Path) -> Vec<(String, Vec<String>, Vec<Vec<String>>)> {
    let mut tables = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "csv") {
            continue;
        }
        let mut reader = ::csv::Reader::from_path(&path).unwrap();
        let header = reader.headers().unwrap().iter().map(str::to_owned).collect();
        let fields = |row: ::csv::StringRecord| row.iter().map(str::to_owned).collect();
        let rows = reader.records().map(|row| fields(row.unwrap())).collect();
        tables.push((path.file_stem().unwrap().to_str().unwrap().to_owned(), header, rows));
    }
    tables.sort();
    tables
}

/// The Formula One data: a column that ends with the name of a table and `Id` refers to that table.
fn f1db() -> Option<Known> {
    let tables = read(&formula_one()?);
    let parents = [
        ("raceId", "races"),
        ("driverId", "drivers"),
        ("constructorId", "constructors"),
        ("engineManufacturerId", "engine_manufacturers"),
        ("tyreManufacturerId", "tyre_manufacturers"),
        ("countryId", "countries"),
        ("countryOfBirthCountryId", "countries"),
        ("nationalityCountryId", "countries"),
        ("secondNationalityCountryId", "countries"),
        ("continentId", "continents"),
        ("circuitId", "circuits"),
        ("grandPrixId", "grands_prix"),
    ];
    let of_table = |(table, header, _): &(String, Vec<String>, _)| {
        let known = parents.iter().filter(|(column, _)| header.iter().any(|name| name == column));
        let names: Vec<_> =
            known.map(|(column, to)| format!("{table}({column}) > {to}(id)")).collect();
        names
    };
    let truth = tables.iter().flat_map(of_table).collect();
    Some(Known { name: "f1db", tables, truth })
}

fn shop() -> Known {
    let folder = tempfile::tempdir().unwrap();
    demo_data(folder.path()).unwrap();
    let schema = Schema::read(&folder.path().join("schema.toml")).unwrap();
    let mut truth = BTreeSet::new();
    for table in &schema.tables {
        for reference in &table.references {
            let key = &schema.tables[schema.table(&reference.to).unwrap()].key;
            truth.insert(described(&table.name, &reference.columns, &reference.to, key));
        }
    }
    // A part of a composite reference, and the anchors of the tasks.
    for one in ["reviews(order_id) > orders(id)", "task_churn(customer_id) > customers(id)"] {
        truth.insert(one.to_owned());
    }
    truth.insert("task_spend(customer_id) > customers(id)".to_owned());
    Known { name: "demo shop", tables: read(folder.path()), truth }
}

fn warehouse() -> Known {
    let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let tables = tpch::tables().into_iter();
    Known {
        name: "TPC-H",
        tables: tables.map(|(name, header, rows)| (name.to_owned(), texts(header), rows)).collect(),
        truth: texts(&tpch::REFERENCES).into_iter().collect(),
    }
}

/// Returns the numbers from 1 to `count` in a random order.
fn shuffled(count: usize, random: &mut Stream) -> Vec<usize> {
    let mut numbers: Vec<_> = (1..=count).collect();
    for place in (1..count).rev() {
        numbers.swap(place, random.below(place as u64 + 1) as usize);
    }
    numbers
}

/// Returns the references that a draft has, by the original names, when names are replaced.
fn found(known: &Known, renamed: Renamed, seed: u64) -> BTreeSet<String> {
    let mut random = Stream::new(seed, Purpose::Split, [0x4e0, 0, 0]);
    let folder = tempfile::tempdir().unwrap();
    let column_count = known.tables.iter().map(|(_, header, _)| header.len()).sum();
    let table_numbers = shuffled(known.tables.len(), &mut random);
    let mut column_numbers = shuffled(column_count, &mut random).into_iter();
    let (mut tables, mut columns) = (BTreeMap::new(), BTreeMap::new());
    for ((name, header, rows), number) in known.tables.iter().zip(table_numbers) {
        let table = match renamed {
            Renamed::Columns => name.clone(),
            Renamed::Tables | Renamed::Both => format!("t{number}"),
        };
        let names: Vec<_> = (header.iter().zip(&mut column_numbers))
            .map(|(column, number)| match renamed {
                Renamed::Tables => column.clone(),
                Renamed::Columns | Renamed::Both => format!("c{number}"),
            })
            .collect();
        let path = folder.path().join(format!("{table}.csv"));
        let mut writer = ::csv::Writer::from_path(path).unwrap();
        writer.write_record(&names).unwrap();
        rows.iter().for_each(|row| writer.write_record(row).unwrap());
        writer.flush().unwrap();
        for (new, old) in names.iter().zip(header) {
            columns.insert((table.clone(), new.clone()), old.clone());
        }
        tables.insert(table, name.clone());
    }
    let source = opened(folder.path());
    let draft = draft(&*source, "renamed", &|_| Ok(())).unwrap();
    Schema::parse(&draft.render()).unwrap();
    let schema = draft.schema;
    let original = |table: &str, names: &[String]| -> Vec<String> {
        names.iter().map(|name| columns[&(table.to_owned(), name.clone())].clone()).collect()
    };
    let in_words = |table: &str, names: &[String], to: &str, to_names: &[String]| {
        let (from, into) = (original(table, names), original(to, to_names));
        described(&tables[table], &from, &tables[to], &into)
    };
    let key = |to: &str| schema.tables[schema.table(to).unwrap()].key.clone();
    let mut found = BTreeSet::new();
    for table in &schema.tables {
        for reference in &table.references {
            let to = &reference.to;
            let to_columns = match &reference.to_columns[..] {
                [] => key(to),
                named => named.to_vec(),
            };
            found.insert(in_words(&table.name, &reference.columns, to, &to_columns));
        }
    }
    for task in schema.tasks.iter().filter_map(|task| task.derived.as_ref()) {
        let source = task.source.as_ref().unwrap();
        found.insert(in_words(source, &task.key, &task.anchor, &key(&task.anchor)));
    }
    found
}

#[test]
fn references_are_found_whatever_the_names() {
    let known: Vec<_> = f1db().into_iter().chain([shop(), warehouse()]).collect();
    let (mut true_count, mut hit_count, mut draft_count) = (0, 0, 0);
    for database in &known {
        for (renamed, seeds) in
            [(Renamed::Both, 0..3), (Renamed::Tables, 3..4), (Renamed::Columns, 4..5)]
        {
            for seed in seeds {
                let found = found(database, renamed, seed);
                let truth = &database.truth;
                let hits = found.intersection(truth).count();
                println!(
                    "{}, {renamed:?} renamed, seed {seed}: {hits} of {} references found, {} false",
                    database.name,
                    truth.len(),
                    found.len() - hits
                );
                truth.difference(&found).for_each(|missed| println!("  missed {missed}"));
                found.difference(truth).for_each(|wrong| println!("  false  {wrong}"));
                true_count += truth.len();
                hit_count += hits;
                draft_count += found.len();
            }
        }
    }
    let recall = hit_count as f64 / true_count as f64;
    let wrong = (draft_count - hit_count) as f64 / draft_count as f64;
    println!("found {hit_count} of {true_count}: {recall:.4}");
    println!("false {} of {draft_count}: {wrong:.4}", draft_count - hit_count);
    assert!(recall >= 0.95, "found {recall}");
    assert!(wrong <= 0.05, "false {wrong}");
}
