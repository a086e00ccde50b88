//! Sources -> store: schema, readers, keys and links, tasks, text embedding.

mod names;
pub mod schema;
