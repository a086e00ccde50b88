//! Deterministic training batches from relational databases, and deterministic statistics over rows.
//!
//! A run is a sequence. A [`Plan`](plan::Plan) (what to read, how to walk it, one random seed)
//! determines the whole sequence, and every element of it alone. A rank takes its elements by
//! arithmetic on the index. A [`Cursor`](plan::Cursor) is a position in the sequence, with the plan.
//! Nothing else is state, so a run that was stopped resumes exactly where it was, on any number of
//! ranks.
//!
//! The primary types are [`Store`](store::Store), a database on disk; [`Sampler`](sampler::Sampler),
//! which makes batches of it; and [`Reduction`](reducer::Reduction), which folds statistics.
//!
//! # Example
//!
//! A table becomes a store; a sampler makes batches of it, stops, and goes on.
//!
//! ```
//! use std::{fs, sync::Arc};
//!
//! use headwater::plan::{Assignment, Split};
//! use headwater::prepare::{Options, draft, embed::HashingEmbedder, prepare, source};
//! use headwater::progress::Silent;
//! use headwater::sampler::{Sampler, Settings, Speed};
//! use headwater::store::{Store, TextEncoding};
//!
//! let folder = tempfile::tempdir()?;
//! let rows = "id,since,price\n1,2023-01-05,3.5\n2,2023-02-11,8\n3,2023-03-20,1.25\n";
//! fs::write(folder.path().join("orders.csv"), rows)?;
//!
//! let source = source::open(folder.path())?;
//! let schema = draft::draft(&*source, "shop", &|_| Ok(()))?.schema;
//! let options = Options {
//!     embedder: &HashingEmbedder::new(16),
//!     text_vectors: Some(TextEncoding::F16),
//!     threads: None,
//!     memory: None,
//!     sql: None,
//!     progress: &Silent,
//! };
//! prepare(&*source, &schema, &folder.path().join("shop.db"), &options)?;
//!
//! let store = Arc::new(Store::open(&folder.path().join("shop.db"))?);
//! let sampler = |rank, world| {
//!     let stores = vec![Arc::clone(&store)];
//!     let rank = Assignment::new(rank, world)?;
//!     Sampler::new(stores, Settings::default(), rank, Speed::default())
//! };
//! let one = sampler(0, 1)?;
//! one.next(Split::Train)?;
//! let cursor = one.cursor();
//! let (second, _) = one.next(Split::Train)?;
//!
//! let resumed = sampler(0, 1)?; // in another process, on another day
//! resumed.resume(&cursor)?;
//! let (again, _) = resumed.next(Split::Train)?;
//! assert_eq!(again.get::<u32>("seed_row"), second.get::<u32>("seed_row"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Promises
//!
//! Each has a test that bears its name.
//!
//! | promise | meaning |
//! |---|---|
//! | P1 same bits | ranks, threads, parts of a preparation, prefetch, arrival order and instruction set are speed settings |
//! | P2 resume is a law | stop anywhere, restore, go on: the tail is that of the uninterrupted run |
//! | P3 resume costs nothing | O(1) in the items already consumed: a seek, never a replay |
//! | P4 elastic | a run of W ranks goes on with W' ranks |
//! | P5 exactly once | every item of an epoch goes to exactly one rank |
//! | P6 no silent change | a cursor of another plan is refused by name; corruption is never decoded |
//! | P7 no leak | no context holds a row that did not exist at the seed's observation time |
//! | P8 a reader's cursor | a cursor tells what the caller consumed, not what was prefetched |
//!
//! # Map
//!
//! Dependencies run downward, and no file imports another in a circle; `tests/tidy` checks both. Two packages
//! stand on this one: `extension` is the compiled module of the Python package, and `mpi` the reducer's
//! transport over MPI, with its command.
//!
//! | floor | rooms |
//! |---|---|
//! | the programs | `bin` |
//! | arguments and words | [`cli`] |
//! | a context, a row or an audit as text and as a page | `view` |
//! | what leaks | [`audit`] |
//! | parts that know nothing of each other | [`prepare`], [`sampler`], [`reducer`] |
//! | stores of events, and token rows from them | [`events`] |
//! | what they share | [`plan`], [`store`], [`fold`], [`matrix`] |
//! | files with digests; batches made ahead | `container`, `handoff` |
//! | the ground | [`durable`], [`random`], [`progress`], `error`, `bytes`, `days`, `environment`, `files`, `launcher`, `map`, `memory`, `panics`, `process`, `stamp`, `tensor` |

pub mod audit;
mod bytes;
mod container;
mod days;
mod environment;
mod error;
mod files;
mod handoff;
#[cfg(feature = "reduce")]
mod launcher;
mod map;
mod memory;
mod panics;
mod process;

#[cfg(feature = "reduce")]
pub mod cli;
pub mod durable;
pub mod events;
pub mod fold;
pub mod matrix;
pub mod plan;
#[cfg(feature = "prepare")]
pub mod prepare;
pub mod progress;
pub mod random;
pub mod reducer;
pub mod sampler;
mod stamp;
pub mod store;
mod tensor;
#[cfg(feature = "reduce")]
mod view;

/// What the packages `extension` and `mpi` of this repository use beside the public items. It changes
/// without a note.
#[doc(hidden)]
pub mod internal {
    pub use crate::bytes::{copied, filled, reserve};
    pub use crate::days::DAY_US;
    pub use crate::files::read_file;
    pub use crate::handoff::check_owner;
    #[cfg(feature = "reduce")]
    pub use crate::launcher::Launched;
    pub use crate::matrix::check_columns;
    #[cfg(feature = "cli")]
    pub use crate::prepare::memory_size;
    #[cfg(feature = "prepare")]
    pub use crate::prepare::{
        key_part, key_text_of,
        names::did_you_mean,
        source::{BATCH_ROWS, positions, typed::TypedRows},
    };
    pub use crate::process::{THREADS_MAX, check_process, pool};
    pub use crate::sampler::{BUDGET, CHILD_WIDTH, MAX_HOPS, STALENESS_DAYS_MAX, mask_most_beyond};
    pub use crate::tensor::{Dtype, Tensor, Tensors};
    #[cfg(feature = "cli")]
    pub use crate::view::{
        ContextPicture, Splits, TaskView, TokenPicture, save_page, time_text, time_words,
        words::shortened,
    };
}

pub use bytes::Digest;
pub use error::{Context, Error, ErrorKind, Result};
pub use stamp::Stamp;
