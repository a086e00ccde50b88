//! `metadata.json` of an event store.

use serde::{Deserialize, Serialize};

use super::fields::FieldMetadata;
use crate::bytes::Digest;
use crate::container::{FileMetadata, Kind, Root};
use crate::error::Result;
use crate::plan::Split;

/// The version of the format that this build reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// The content of an event store.
///
/// The file is the canonical JSON of this value. Its root is the digest of the text with zeros in place
/// of the root, and covers the digests of all other files: it is the identity of the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsMetadata {
    /// Always `events`.
    pub kind: Kind,
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// The identity of the data.
    pub root: Digest,
    /// The database's name.
    pub database: String,
    /// The name of the codec, which gives the records their meaning.
    pub codec: String,
    /// The fields of an event, with their tokens, of the codec `fields-v1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldMetadata>,
    /// The columns of the source that named an entity.
    pub entity: Vec<String>,
    /// The number of entities.
    pub entity_count: u32,
    /// The rule of the split.
    pub split: SplitMetadata,
    /// The contents of train, val and test.
    pub splits: [SplitCounts; 3],
    /// The earliest time, in microseconds since 1970.
    pub first_us: i64,
    /// The latest time.
    pub last_us: i64,
    /// Every other file of the store.
    pub files: Vec<FileMetadata>,
}

/// The rule that divided the entities among the splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitMetadata {
    /// The seed of the split.
    pub seed: u64,
    /// The buckets of a thousand that belong to train, val and test.
    pub per_mille: [u64; 3],
}

/// The contents of one split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitCounts {
    /// The number of rows; the rows of train come first, then those of val and test.
    pub rows: u32,
    /// The number of events.
    pub events: u64,
    /// The number of items: contexts of an epoch.
    pub items: u64,
}

impl EventsMetadata {
    /// Computes the root and returns the text of `metadata.json`.
    ///
    /// # Errors
    /// None in practice: every value here can be written as JSON.
    pub fn encode(&mut self) -> Result<String> {
        Root::encode(self)
    }

    /// Returns the number of rows of all splits.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.splits.iter().map(|split| u64::from(split.rows)).sum()
    }

    /// Returns the number of events of all splits.
    #[must_use]
    pub fn event_count(&self) -> u64 {
        self.splits.iter().map(|split| split.events).fold(0, u64::saturating_add)
    }

    /// Returns the contents of a split.
    #[must_use]
    pub fn counts(&self, split: Split) -> &SplitCounts {
        &self.splits[split as usize]
    }
}

impl Root for EventsMetadata {
    const KIND: Kind = Kind::Events;
    const FORMAT_VERSION: u32 = FORMAT_VERSION;

    #[cfg(feature = "prepare")]
    fn root(&self) -> Digest {
        self.root
    }

    fn root_mut(&mut self) -> &mut Digest {
        &mut self.root
    }

    fn files(&self) -> &[FileMetadata] {
        &self.files
    }
}
