//! Stores: values read back, damage rejected, bytes a function of the data alone.

mod accessors;
mod crafted;
mod damage;
#[path = "../shared/database.rs"]
mod database;
mod golden;
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

use stores::{DIMENSION, folder, plain_vector, prepared, store_of};
