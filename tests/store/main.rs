//! Stores: values read back, damage rejected, bytes a function of the data alone.

mod accessors;
mod crafted;
mod damage;
#[path = "../shared/database.rs"]
mod database;
mod golden;
mod int8;
mod laws;
#[path = "../shared/manifest.rs"]
mod manifest;
mod parts;
#[path = "../shared/random.rs"]
mod random;
mod read_back;
mod same_bits;
#[path = "../shared/stores.rs"]
mod stores;
mod summaries;
#[path = "../shared/tiny.rs"]
mod tiny;
mod twin;

use std::path::Path;

use headwater::Result;
use headwater::prepare::source::Source;
use headwater::prepare::{Report, prepare};

use database::Database;
use stores::{DIMENSION, encoded_store_of, folder, options, plain_vector, store_of};

fn prepared(
    source: &dyn Source,
    database: &Database,
    out: &Path,
    threads: usize,
    memory: Option<u64>,
) -> Result<Report> {
    prepare(source, &database.schema, out, &options(threads, memory))
}
