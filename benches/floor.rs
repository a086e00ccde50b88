//! What a batch must cost at least: what real batches read and write, replayed without any other work.
//! Prints one JSON line.
//!
//! ```text
//! cargo bench --bench floor -- STORE [--compact] [TASK ...]
//! ```
//!
//! A first pass notes, for a thousand batches, each place of the store that a context needs: the record of
//! each row, the entry of each child in its parent's list, once for a list its offsets and the time that
//! bounds what is visible, and each text's vector, once in a batch. The replay copies these bytes in their
//! order, which it knows beforehand: it touches a place eight reads before it copies it, so that many reads
//! of memory are under way. Then it writes as many bytes as the tensors of the batch have. Nothing is
//! decoded, drawn, compared or counted. Lists whose children are not in the context are not read, though a
//! walk looks at them.
//!
//! Files are read into memory of 4 KiB pages, as they are mapped for a sampler.

#[path = "shared/mod.rs"]
mod shared;

use std::collections::{BTreeSet, HashSet};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use headwater::Result;
use headwater::plan::{Assignment, Split};
use headwater::sampler::{Context, Sampler, Settings, Shape, Speed, Texts, Visit};
use headwater::store::{Cell, Store};
use shared::cpu_seconds;

const BATCHES: usize = 1000;
const BATCH_SIZE: u32 = 32;
const REPEATS: usize = 5;
/// How many reads a place is touched before it is copied.
const IN_FLIGHT: usize = 8;
const LINE: usize = 64;

/// A file of the store in memory.
struct File {
    bytes: Vec<u8>,
    /// The name and the offset of each section.
    sections: Vec<(String, usize)>,
}

impl File {
    /// Reads a file and its section table; `container/FORMAT.md` describes both.
    fn read(store: &Store, name: &str) -> Self {
        let bytes = std::fs::read(store.path().join(name)).expect("a file of the store");
        let number =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
        let (count, table) = (number(12) & 0xffff_ffff, number(16));
        let section = |entry: usize| {
            let at = table + entry * 64;
            let name = String::from_utf8_lossy(&bytes[at..at + 24]);
            (name.trim_end_matches('\0').to_owned(), number(at + 24))
        };
        let sections = (0..count).map(section).collect();
        Self { bytes, sections }
    }

    fn start_of(&self, section: &str) -> usize {
        let found = self.sections.iter().find(|(name, _)| name == section);
        found.unwrap_or_else(|| panic!("a section {section}")).1
    }
}

/// Some bytes of one of the files.
#[derive(Clone, Copy)]
struct Read {
    file: u32,
    bytes: u32,
    at: u64,
}

/// The files of a store that walks read, and where their sections are.
struct Files {
    all: Vec<File>,
    /// The start of the records of each table, whose number is that of its file.
    rows: Vec<usize>,
    /// The starts of the offsets, the children and the times of each relation.
    relations: Vec<[Option<usize>; 3]>,
    /// The start of the vectors of texts.
    vectors: usize,
}

impl Files {
    fn of(store: &Store) -> Self {
        let tables = store.metadata().tables.iter();
        let mut all: Vec<File> =
            tables.map(|table| File::read(store, &format!("tables/{}.bin", table.name))).collect();
        let rows = all.iter().map(|file| file.start_of("rows")).collect();
        let graph = File::read(store, "graph.bin");
        let relations = (0..store.relations().len()).map(|relation| {
            ["offsets", "children", "times"].map(|part| {
                let name = format!("{relation}.{part}");
                graph.sections.iter().find(|(section, _)| *section == name).map(|found| found.1)
            })
        });
        let relations = relations.collect();
        let texts = File::read(store, "text_embeddings.bin");
        let vectors = texts.sections.iter().find(|(name, _)| name == "vectors");
        let vectors = vectors.map_or(0, |(_, start)| *start);
        all.extend([graph, texts]);
        Self { all, rows, relations, vectors }
    }

    fn graph(&self) -> u32 {
        self.all.len() as u32 - 2
    }

    fn texts(&self) -> u32 {
        self.all.len() as u32 - 1
    }
}

/// What one batch reads.
#[derive(Default)]
struct Trace {
    links: Vec<Read>,
    texts: Vec<Read>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let Some((path, options)) = arguments.split_first() else {
        println!("skipped: the floor of a batch, which needs a store as its argument");
        return Ok(());
    };
    let compact = options.iter().any(|option| option == "--compact");
    let tasks: Vec<String> = options.iter().filter(|o| !o.starts_with("--")).cloned().collect();
    let store = Arc::new(Store::open(Path::new(path))?);
    let settings = Settings {
        tasks: Some(tasks).filter(|tasks| !tasks.is_empty()),
        shape: Shape { compact, texts: Texts::Global, ..Settings::default().shape },
        ..Settings::default()
    };
    let speed = Speed { threads: Some(1), prefetch: 0 };
    let sampler = Sampler::new(vec![Arc::clone(&store)], settings, Assignment::new(0, 1)?, speed)?;
    let files = Files::of(&store);
    let traces = (0..BATCHES)
        .map(|number| trace(&sampler, &store, &files, number))
        .collect::<Result<Vec<_>>>()?;
    let fixed_bytes = sampler.next(Split::Train)?.0.bytes();

    let longest = |of: fn(&Trace) -> &Vec<Read>| {
        let bytes =
            traces.iter().map(|trace| of(trace).iter().map(|read| read.bytes as usize).sum());
        bytes.max().unwrap_or(0)
    };
    let mut copied = vec![1_u8; longest(|trace| &trace.links).max(longest(|trace| &trace.texts))];
    let mut slab = vec![1_u8; fixed_bytes];
    let links = median_ms(&traces, |trace, _| replay(&files, &trace.links, &mut copied));
    let texts = median_ms(&traces, |trace, _| replay(&files, &trace.texts, &mut copied));
    let write = median_ms(&traces, |_, round| black_box(&mut slab).fill(black_box(round as u8)));
    let mean = |count: fn(&Trace) -> usize| traces.iter().map(count).sum::<usize>() / BATCHES;
    println!(
        "{{\"bench\": \"floor\", \"compact\": {compact}, \"fixed_bytes\": {fixed_bytes}, \
         \"reads_per_batch\": {}, \"lines_per_batch\": {}, \"texts_per_batch\": {}, \
         \"write_ms\": {write:.3}, \"texts_ms\": {texts:.3}, \"links_ms\": {links:.3}, \
         \"floor_ms\": {:.3}, \"floor_without_texts_ms\": {:.3}}}",
        mean(|trace| trace.links.len()),
        mean(|trace| trace.links.iter().map(|read| lines(*read)).sum()),
        mean(|trace| trace.texts.len()),
        write + texts + links,
        write + links,
    );
    Ok(())
}

/// What the contexts of 32 seeds of one task read, far apart from each other.
fn trace(sampler: &Sampler, store: &Store, files: &Files, number: usize) -> Result<Trace> {
    let task = number % sampler.tasks().count();
    let name = sampler.tasks().nth(task).unwrap_or_default().to_owned();
    let count: u64 = Split::ALL.into_iter().map(|split| sampler.seed_count(task, split)).sum();
    let (mut trace, mut texts) = (Trace::default(), BTreeSet::new());
    for sequence in 0..u64::from(BATCH_SIZE) {
        let draw =
            (number as u64 * u64::from(BATCH_SIZE) + sequence).wrapping_mul(0x9e37_79b9_7f4a);
        let context = sampler.context(&name, (draw % count) as u32)?;
        let mut lists = HashSet::new();
        for visit in &context.rows {
            let table = &store.tables()[visit.table as usize];
            let (stride, rows) = (table.metadata().stride, files.rows[visit.table as usize]);
            let at = rows as u64 + u64::from(visit.row) * u64::from(stride);
            trace.links.push(Read { file: visit.table, bytes: stride, at });
            if visit.hop > 0 && !visit.is_parent {
                list_reads(store, files, &context, *visit, &mut lists, &mut trace.links)?;
            }
            let record = table.row(visit.row)?;
            for column in 0..table.metadata().columns.len() {
                if let Cell::Text(text) = record.cell(column)
                    && store.metadata().embedding.text_vectors
                    && texts.insert(text)
                {
                    let embedding = &store.metadata().embedding;
                    let bytes = embedding.dimension * embedding.text_encoding.bytes() as u32;
                    let at = files.vectors as u64 + u64::from(text) * u64::from(bytes);
                    trace.texts.push(Read { file: files.texts(), bytes, at });
                }
            }
        }
    }
    Ok(trace)
}

/// Adds what a walk reads of a list of children to find one: the list's bounds and a time once, and the
/// child's entry.
fn list_reads(
    store: &Store,
    files: &Files,
    context: &Context,
    visit: Visit,
    lists: &mut HashSet<(u32, u32)>,
    reads: &mut Vec<Read>,
) -> Result<()> {
    let parent = context.rows[visit.from as usize].row;
    let relation = &store.relations()[visit.relation as usize];
    let children = relation.children(parent)?;
    let table = &store.tables()[relation.metadata().child as usize];
    let time_of = |row: u32| table.row(row).map(|record| (record.time(), row));
    // By halves, because a list may have millions of children.
    let (wanted, mut from, mut to) = (time_of(visit.row)?, 0, children.count());
    while from < to {
        let middle = usize::midpoint(from, to);
        match time_of(children.row(middle)?)? < wanted {
            true => from = middle + 1,
            false => to = middle,
        }
    }
    let [offsets, entries, times] = files.relations[visit.relation as usize];
    let (offsets, entries) = (offsets.expect("a section"), entries.expect("a section"));
    let file = files.graph();
    let bounds = offsets + parent as usize * 4;
    let graph = &files.all[file as usize].bytes;
    let first = u32::from_le_bytes(graph[bounds..bounds + 4].try_into().expect("4 bytes")) as usize;
    if lists.insert((visit.relation, parent)) {
        reads.push(Read { file, bytes: 8, at: bounds as u64 });
        if let Some(times) = times {
            reads.push(Read { file, bytes: 8, at: (times + (first + from) * 8) as u64 });
        }
    }
    reads.push(Read { file, bytes: 4, at: (entries + (first + from) * 4) as u64 });
    Ok(())
}

/// Returns the number of cache lines of a read.
fn lines(read: Read) -> usize {
    let at = read.at as usize;
    (at + read.bytes as usize).div_ceil(LINE) - at / LINE
}

/// Copies what is read, one after the other.
fn replay(files: &Files, reads: &[Read], copied: &mut [u8]) {
    let mut to = 0;
    let mut touched = 0_u8;
    for (number, read) in reads.iter().enumerate() {
        if let Some(ahead) = reads.get(number + IN_FLIGHT) {
            let bytes = &files.all[ahead.file as usize].bytes;
            // Nothing waits for these values, so the processor goes on while memory answers.
            for line in 0..lines(*ahead) {
                touched ^= bytes[(ahead.at as usize + line * LINE).min(bytes.len() - 1)];
            }
        }
        let bytes = &files.all[read.file as usize].bytes[read.at as usize..][..read.bytes as usize];
        copied[to..to + bytes.len()].copy_from_slice(bytes);
        to += bytes.len();
    }
    black_box((touched, &mut copied[..to]));
}

/// What `part` takes of the CPU for a batch: the median over several rounds through all traces.
fn median_ms(traces: &[Trace], mut part: impl FnMut(&Trace, usize)) -> f64 {
    let mut rounds: Vec<f64> = (0..REPEATS)
        .map(|round| {
            let before = cpu_seconds();
            traces.iter().for_each(|trace| part(trace, round));
            (cpu_seconds() - before) * 1000.0 / traces.len() as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[REPEATS / 2]
}
