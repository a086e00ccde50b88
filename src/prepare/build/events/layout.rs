//! The layout of spilled events, and the partitions that they go to.

use crate::events::Codec;
use crate::plan::{Split, SplitRule};
use crate::prepare::build::keys::{KeyDigest, identity};
use crate::random::name_identity;

/// The partitions of each split, by the first bits of the entity's digest.
const PARTITION_BITS: u32 = 9;

/// The number of partitions.
pub(super) const PARTITIONS: usize = Split::ALL.len() << PARTITION_BITS;

/// The bytes of the key that all spilled events begin with: digest and time.
pub(super) const KEY_BYTES: usize = 24;

/// The layout of spilled events: digest, time, value and head, by form.
#[derive(Clone)]
pub(super) struct Layout {
    rule: SplitRule,
    task: u64,
    /// The forms, with the bytes of their values and of their heads.
    pub forms: Vec<(u16, usize, usize)>,
}

impl Layout {
    pub(super) fn new(codec: &dyn Codec, rule: SplitRule) -> Self {
        let sizes = |&form: &u16| {
            Some((form, codec.form(form)?)).map(|(n, f)| (n, f.value_bytes, f.head_bytes))
        };
        let forms = codec.forms().iter().filter_map(sizes).collect();
        Self { rule, task: name_identity("events"), forms }
    }

    /// Returns the place of a form.
    pub(super) fn place_of(&self, form: u16) -> usize {
        self.forms.iter().position(|(known, ..)| *known == form).unwrap_or_default()
    }

    /// Returns the length of a spilled event of the form at `place`.
    pub(super) fn stride(&self, place: usize) -> usize {
        let (_, value, head) = self.forms[place];
        KEY_BYTES + value + head
    }

    /// Returns the split of an entity.
    pub(super) fn split_of(&self, digest: KeyDigest) -> Split {
        self.rule.split_of(self.task, identity(digest))
    }

    /// Returns the number of an entity's partition; partitions are in the order of the store.
    pub(super) fn partition_of(&self, digest: KeyDigest) -> u32 {
        let place = (digest >> (128 - PARTITION_BITS)) as u32;
        (self.split_of(digest) as u32) << PARTITION_BITS | place
    }
}
