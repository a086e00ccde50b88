//! A partition of the spilled events: sorted in memory, or divided where it is too large for that.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::super::chain::{Chain, SpillWriter};
use super::super::scratch::Scratch;
use super::layout::{KEY_BYTES, Layout};
use crate::error::{Error, Result};
use crate::prepare::build::keys::{KeyDigest, digest};

/// The events that a division looks at, to find where it divides.
const SAMPLE: usize = 1 << 14;

/// Spilled events that follow each other in the store.
pub(super) struct Partition {
    layout: Arc<Layout>,
    /// A chain of events for each form.
    events: Vec<Chain>,
    /// The names of the entities, shared by the parts of a divided partition.
    names: Arc<Chain>,
    /// Whether a division might make it smaller.
    is_divisible: bool,
}

impl Partition {
    pub(super) fn new(layout: Arc<Layout>, events: Vec<Chain>, names: Arc<Chain>) -> Self {
        Self { layout, events, names, is_divisible: true }
    }

    /// Returns the bytes of its events.
    pub(super) fn bytes(&self) -> usize {
        self.events.iter().map(Chain::len).sum()
    }

    pub(super) fn is_divisible(&self) -> bool {
        self.is_divisible
    }
}

/// The place of an event in the order of the store, up to the first bytes of its value and head.
type Key = (KeyDigest, u16, i64, [u8; 6]);

fn key_of(record: &[u8], form: u16) -> Key {
    let digest = record.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes));
    let time = record[16..].first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
    (digest, form, time, record[KEY_BYTES..].first_chunk().copied().unwrap_or_default())
}

/// Divides a partition that is too large to be sorted in memory into parts in the order of the store.
pub(super) fn divide(
    partition: &Partition,
    limit: usize,
    staging: &Path,
) -> Result<Vec<Partition>> {
    let layout = &partition.layout;
    let mut keys = Vec::new();
    for (place, chain) in partition.events.iter().enumerate() {
        let (form, stride) = (layout.forms[place].0, layout.stride(place));
        let step = (chain.len() / stride / SAMPLE).max(1);
        let mut seen = 0;
        chain.for_each(|bytes| {
            for record in bytes.chunks_exact(stride) {
                if seen % step == 0 {
                    keys.push(key_of(record, form));
                }
                seen += 1;
            }
            Ok(())
        })?;
    }
    keys.sort_unstable();
    // Twice as many parts as would fit exactly, for a sample is not exact.
    let parts = (2 * partition.bytes() / limit.max(1) + 1).clamp(2, keys.len().max(2));
    let bounds: Vec<Key> = {
        let mut bounds: Vec<_> = (1..parts).map(|part| keys[part * keys.len() / parts]).collect();
        bounds.dedup();
        bounds
    };
    let writer = SpillWriter::new(&Scratch::new(staging.to_owned(), 0));
    let mut divided: Vec<Vec<Chain>> =
        (0..=bounds.len()).map(|_| vec![Chain::default(); layout.forms.len()]).collect();
    for (place, chain) in partition.events.iter().enumerate() {
        let (form, stride) = (layout.forms[place].0, layout.stride(place));
        chain.for_each(|bytes| {
            for record in bytes.chunks_exact(stride) {
                let key = key_of(record, form);
                let part = bounds.partition_point(|bound| *bound <= key);
                writer.append(&mut divided[part][place], [record])?;
            }
            Ok(())
        })?;
    }
    let whole = partition.bytes();
    let parts = divided.into_iter().map(|events| {
        let mut part = Partition::new(Arc::clone(layout), events, Arc::clone(&partition.names));
        // Events that are equal up to here cannot be divided.
        part.is_divisible = part.bytes() < whole;
        part
    });
    Ok(parts.filter(|part| part.bytes() > 0).collect())
}

/// The events of a partition in memory, in the order of the store.
pub(super) struct Sorted {
    layout: Arc<Layout>,
    /// The bytes of the events of each form.
    records: Vec<Vec<u8>>,
    /// The events: digest, form, time, and the place in the bytes of the form.
    order: Vec<(KeyDigest, u16, i64, u32)>,
    /// The names of the entities.
    names: BTreeMap<KeyDigest, String>,
}

/// One event of a sorted partition.
pub(super) struct SortedEvent<'a> {
    pub digest: KeyDigest,
    pub form: u16,
    pub time: i64,
    pub value: &'a [u8],
    pub head: &'a [u8],
}

impl Sorted {
    /// Returns the number of events.
    pub(super) fn event_count(&self) -> u64 {
        self.order.len() as u64
    }

    /// Returns the layout of the events.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the events in the order of the store.
    pub(super) fn events(&self) -> impl Iterator<Item = SortedEvent<'_>> {
        self.order.iter().map(|&(digest, place, time, index)| {
            let (form, value_bytes, _) = self.layout.forms[usize::from(place)];
            let stride = self.layout.stride(usize::from(place));
            let record = &self.records[usize::from(place)][index as usize * stride..][..stride];
            let (value, head) = record[KEY_BYTES..].split_at(value_bytes);
            SortedEvent { digest, form, time, value, head }
        })
    }

    /// Returns the name of an entity of the partition.
    pub(super) fn name(&self, digest: KeyDigest) -> Result<&str> {
        let lost = || Error::invalid("internal error: the name of an entity was not spilled");
        self.names.get(&digest).map(String::as_str).ok_or_else(lost)
    }
}

/// Loads a partition and sorts it.
pub(super) fn sorted(partition: &Partition) -> Result<Sorted> {
    let layout = Arc::clone(&partition.layout);
    let records = partition.events.iter().map(Chain::load).collect::<Result<Vec<_>>>()?;
    let count = records.iter().enumerate().map(|(place, all)| all.len() / layout.stride(place));
    let mut order = crate::bytes::reserve(count.sum())?;
    for (place, all) in (0_u16..).zip(&records) {
        let stride = layout.stride(usize::from(place));
        for (index, record) in (0_u32..).zip(all.chunks_exact(stride)) {
            let (digest, _, time, _) = key_of(record, place);
            order.push((digest, place, time, index));
        }
    }
    let value = |&(_, place, _, index): &(KeyDigest, u16, i64, u32)| {
        let stride = layout.stride(usize::from(place));
        &records[usize::from(place)][index as usize * stride..][KEY_BYTES..stride]
    };
    order.sort_unstable_by(|a, b| {
        (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)).then_with(|| value(a).cmp(value(b)))
    });
    // Each name once, however often it was spilled.
    let mut names = BTreeMap::new();
    partition.names.for_each(|mut bytes| {
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let (name, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            names.entry(digest(name)).or_insert_with(|| String::from_utf8_lossy(name).into_owned());
            bytes = rest;
        }
        Ok(())
    })?;
    Ok(Sorted { layout, records, order, names })
}
