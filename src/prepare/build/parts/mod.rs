//! A preparation in parts: several processes read the tables, and one makes the store of what they read.
//!
//! The source cuts each table into blocks of rows ([`InBlocks`](crate::prepare::source::InBlocks)). Part `I` of
//! `N` has every `N`th block of all tables in the schema's order, from the `I`th on. It holds the batches of these
//! blocks as the first pass takes them: values of the types of the schema, the digests of keys, references and
//! texts, and the identities of rows without a key. So the first pass over parts goes on where that over a source
//! has decoded, converted and digested a batch; all that follows is the same.
//!
//! A part is a `.bin` file (`container`) with two sections. `rows` has the batches, one after another, each an
//! IPC stream of Arrow with one record batch, whose columns `batch` lists. `head` is the JSON of a `PartHead`:
//! which tables and files the part is of, and how many rows and bytes each batch has. Only the version of
//! headwater that wrote a part reads it.

mod batch;
mod head;
mod part;
mod read;
mod write;

pub(in crate::prepare) use head::Origin;
pub use part::Part;
pub(in crate::prepare) use read::Parts;
pub(super) use read::{PartBatch, PartBatches};
pub(in crate::prepare) use write::write_part;
