//! Sources -> store: schema, readers, keys and links, tasks, text embedding.

mod csv;
mod names;
mod parquet;
pub mod schema;
pub mod source;
mod sqlite;
