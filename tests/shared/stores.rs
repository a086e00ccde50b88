//! Stores of small databases, with a simple embedder.

use std::path::Path;

use half::f16;
use headwater::Result;
use headwater::prepare::embed::Embedder;
use headwater::prepare::{Options, prepare};
use headwater::progress::Silent;
use headwater::store::{Store, TextEncoding};

use crate::database::Database;

/// An embedder for tests: sums the bytes of the text by their place.
pub(crate) struct Plain;

pub(crate) const DIMENSION: usize = 8;

impl Embedder for Plain {
    fn name(&self) -> String {
        "plain".into()
    }

    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn embed(&self, texts: &[&str], vectors: &mut [f16]) -> Result<()> {
        for (text, vector) in texts.iter().zip(vectors.chunks_exact_mut(DIMENSION)) {
            vector.copy_from_slice(&plain_vector(text));
        }
        Ok(())
    }
}

pub(crate) fn plain_vector(text: &str) -> [f16; DIMENSION] {
    let mut sums = [0_u32; DIMENSION];
    text.bytes().enumerate().for_each(|(place, byte)| sums[place % DIMENSION] += u32::from(byte));
    sums.map(|sum| f16::from_f32((sum % 2048) as f32))
}

/// Makes a folder in memory if possible, because these tests write thousands of small files.
pub(crate) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

pub(crate) fn options(threads: usize, memory: Option<u64>) -> Options<'static> {
    Options {
        embedder: &Plain,
        text_vectors: Some(TextEncoding::F16),
        threads: Some(threads),
        memory,
        sql: None,
        progress: &Silent,
    }
}

/// Prepares the store of `database` in a temporary folder.
pub(crate) fn store_of(database: &Database, cuts: &[usize]) -> (tempfile::TempDir, Store) {
    encoded_store_of(database, cuts, Some(TextEncoding::F16))
}

/// Prepares the store of `database` with text vectors in this encoding.
pub(crate) fn encoded_store_of(
    database: &Database,
    cuts: &[usize],
    text_vectors: Option<TextEncoding>,
) -> (tempfile::TempDir, Store) {
    let folder = folder();
    let out = folder.path().join("store");
    let options = Options { text_vectors, ..options(2, None) };
    prepare(&database.memory(cuts), &database.schema, &out, &options)
        .unwrap_or_else(|e| panic!("{e}"));
    let store = Store::open(&out).unwrap_or_else(|e| panic!("{e}"));
    (folder, store)
}
