//! Sources -> store: schema, readers, keys and links, tasks, text embedding.

pub mod schema;
