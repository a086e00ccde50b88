//! The spill: events of the first pass, by partition.

use std::path::Path;
use std::sync::Arc;

use super::super::chain::{Chain, SpillWriter};
use super::super::scratch::Scratch;
use super::layout::{Layout, PARTITIONS};
use super::log::Parsed;
use super::partition::Partition;
use crate::error::Result;

/// The slots of the table of entities whose names were spilled: as many as lie in a processor's cache.
const NAMED_BITS: u32 = 17;

/// The events of the first pass.
pub(super) struct Spill {
    layout: Layout,
    writer: SpillWriter,
    /// For each partition, a chain of events for each form, and one of names.
    partitions: Vec<(Vec<Chain>, Chain)>,
    /// The identities of entities whose name was spilled, each in the slot of its last bits.
    named: Vec<u64>,
}

impl Spill {
    pub(super) fn new(staging: &Path, layout: Layout) -> Self {
        let chains = || (vec![Chain::default(); layout.forms.len()], Chain::default());
        Self {
            writer: SpillWriter::new(&Scratch::new(staging.to_owned(), 0)),
            partitions: (0..PARTITIONS).map(|_| chains()).collect(),
            named: vec![0; 1 << NAMED_BITS],
            layout,
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Appends the events of a batch, and the names of their entities where they may be new.
    pub(super) fn append(&mut self, parsed: &Parsed) -> Result<()> {
        let mut places = vec![0; parsed.records.len()];
        for event in &parsed.events {
            let partition = &mut self.partitions[event.partition as usize];
            let form = usize::from(event.form);
            let stride = self.layout.stride(form);
            let record = &parsed.records[form][places[form]..][..stride];
            places[form] += stride;
            self.writer.append(&mut partition.0[form], [record])?;
            let identity = record.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let slot = &mut self.named[identity as usize & ((1 << NAMED_BITS) - 1)];
            if *slot != identity {
                *slot = identity;
                let name = parsed.name(event.row).as_bytes();
                let length = (name.len() as u32).to_le_bytes();
                self.writer.append(&mut partition.1, [&length[..], name])?;
            }
        }
        Ok(())
    }

    /// Returns the partitions that have events, in the order of the store.
    pub(super) fn into_partitions(self) -> Vec<Partition> {
        let layout = Arc::new(self.layout);
        (self.partitions.into_iter())
            .map(|(events, names)| Partition::new(Arc::clone(&layout), events, Arc::new(names)))
            .filter(|partition| partition.bytes() > 0)
            .collect()
    }
}
