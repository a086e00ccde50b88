//! The children of each parent, in the order of their times.
//!
//! Links are parted by ranges of parents into a spill file; threads sort some parts at a time. So memory holds
//! a part for each thread, however many rows there are, and what threads and parts there are changes no byte.

use super::chain::{CHUNK_BYTES, Chain, SpillWriter};
use super::in_order::in_order;
use super::links::Parents;
use super::scratch::Scratch;
use crate::bytes::{filled, reserve};
use crate::container::ContainerWriter;
use crate::error::Result;

/// So many links a part has on average: sorted in a core's own cache.
const LINKS_OF_PART: u32 = 1 << 16;

/// The parent and the row.
const LINK_BYTES: usize = size_of::<[u32; 2]>();

/// Each part has a chunk in memory while links are parted.
const PARTS_MAX: u32 = 1024;

/// The lists of children of a relation, one after the other.
pub(super) struct Children {
    pub count: u32,
    /// Where the list of each parent begins, and where the last ends.
    offsets: Chain,
    rows: Chain,
    /// The time of each of these rows, if they have times.
    times: Option<Chain>,
}

/// The lists of a range of parents.
struct Part {
    offsets: Vec<u8>,
    rows: Vec<u8>,
    times: Vec<u8>,
}

impl Children {
    /// Returns the lists of children of a relation, whose rows have these times.
    pub(super) fn find(
        parents: &Parents,
        parent_rows: u32,
        times: Option<&[i64]>,
        scratch: &Scratch,
    ) -> Result<Self> {
        let parts = (parents.link_count / LINKS_OF_PART).clamp(1, PARTS_MAX);
        let width = parent_rows.div_ceil(parts).max(1);
        let spill = SpillWriter::new(scratch);
        let mut links = vec![Chain::default(); parts as usize];
        for (row, parent) in parents.links() {
            let link = [parent.to_le_bytes(), row.to_le_bytes()];
            spill.append(&mut links[(parent / width) as usize], [link.as_flattened()])?;
        }
        Self::of_parts(&links, width, parent_rows, times, scratch)
    }

    /// Returns empty lists: those of pairs, which only their own seeds see.
    pub(super) fn none(parent_rows: u32, times: Option<&[i64]>, scratch: &Scratch) -> Result<Self> {
        Self::of_parts(&[Chain::default()], parent_rows, parent_rows, times, scratch)
    }

    fn of_parts(
        parts: &[Chain],
        width: u32,
        parent_rows: u32,
        times: Option<&[i64]>,
        scratch: &Scratch,
    ) -> Result<Self> {
        let spill = SpillWriter::new(scratch);
        let (mut first, mut begin) = (0_u32, 0);
        let parts = parts.iter().map(|links| {
            let part = (first, begin, links);
            first = parent_rows.min(first.saturating_add(width));
            begin += (links.len() / LINK_BYTES) as u32;
            part
        });
        let parts: Vec<(u32, u32, &Chain)> = parts.collect();
        let mut children = Self {
            count: begin,
            offsets: Chain::default(),
            rows: Chain::default(),
            times: times.map(|_| Chain::default()),
        };
        let mut waiting = parts.into_iter();
        in_order(
            |_| waiting.next(),
            |(first, begin, links)| {
                let parents = width.min(parent_rows - first);
                Part::sort(&links.load()?, first, parents, begin, times)
            },
            |part: Part| {
                spill.append_all(&mut children.offsets, &part.offsets)?;
                spill.append_all(&mut children.rows, &part.rows)?;
                children.times.iter_mut().try_for_each(|all| spill.append_all(all, &part.times))
            },
        )?;
        spill.append(&mut children.offsets, [&children.count.to_le_bytes()])?;
        Ok(children)
    }

    /// Calls `take` with the children, many at a time.
    pub(super) fn for_each(&self, mut take: impl FnMut(&[u32]) -> Result<()>) -> Result<()> {
        let mut rows = Vec::with_capacity(CHUNK_BYTES / size_of::<u32>());
        self.rows.for_each(|bytes| {
            rows.clear();
            rows.extend(bytes.as_chunks().0.iter().map(|&row| u32::from_le_bytes(row)));
            take(&rows)
        })
    }

    /// Writes the lists of relation `index` to the graph, with the times of the children if they have some.
    pub(super) fn write(&self, graph: &mut ContainerWriter, index: usize) -> Result<()> {
        let sections = [
            ("offsets", Some(&self.offsets)),
            ("children", Some(&self.rows)),
            ("times", self.times.as_ref()),
        ];
        for (name, chain) in sections.into_iter().filter_map(|(name, chain)| Some((name, chain?))) {
            graph.begin(&format!("{index}.{name}"))?;
            chain.for_each(|bytes| graph.write(bytes))?;
        }
        Ok(())
    }
}

impl Part {
    /// Sorts the links of some parents, of which `first` is the first and whose lists begin at `begin`: pairs
    /// of parent and row, by row.
    fn sort(
        links: &[u8],
        first: u32,
        parents: u32,
        begin: u32,
        times: Option<&[i64]>,
    ) -> Result<Self> {
        let (links, _) = links.as_chunks::<LINK_BYTES>();
        let links =
            || links.iter().map(|link| bytemuck::cast::<_, [u32; 2]>(*link).map(u32::from_le));
        // First where each list begins, then where its next child goes, and so where each ends.
        let mut ends = filled(0_u32, parents as usize + 1)?;
        for [parent, _] in links() {
            ends[(parent - first) as usize + 1] += 1;
        }
        for parent in 0..parents as usize {
            ends[parent + 1] += ends[parent];
        }
        ends.truncate(parents as usize);
        let mut offsets = reserve(ends.len() * size_of::<u32>())?;
        offsets.extend(ends.iter().flat_map(|at| (begin + at).to_le_bytes()));
        let mut children = filled((0_i64, 0_u32), links().count())?;
        for [parent, row] in links() {
            let end = &mut ends[(parent - first) as usize];
            children[*end as usize] = (times.map_or(0, |times| times[row as usize]), row);
            *end += 1;
        }
        let mut from = 0;
        for &end in ends.iter().filter(|_| times.is_some()) {
            let list = &mut children[from..end as usize];
            if !list.is_sorted() {
                list.sort_unstable();
            }
            from = end as usize;
        }
        let mut rows = reserve(children.len() * size_of::<u32>())?;
        rows.extend(children.iter().flat_map(|(_, row)| row.to_le_bytes()));
        let mut of_rows = Vec::new();
        if times.is_some() {
            of_rows = reserve(children.len() * size_of::<i64>())?;
            of_rows.extend(children.iter().flat_map(|(time, _)| time.to_le_bytes()));
        }
        Ok(Self { offsets, rows, times: of_rows })
    }
}
