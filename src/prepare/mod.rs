//! Sources -> store: schema, readers, keys and links, tasks, text embedding.

mod csv;
pub mod demo;
pub mod draft;
mod names;
mod parquet;
mod profile;
pub mod schema;
pub mod source;
mod sqlite;
mod words;
