//! What a batch must cost at least: its parts, each done alone and in the plainest way, over the rows
//! that real contexts have. Prints one JSON line.
//!
//! ```text
//! cargo bench --bench floor -- STORE [--compact] [--tasks TASK ...]
//! ```
//!
//! Counted are: writing the fixed tensors once into warm memory, copying the vector of each text,
//! reading every cell of every row, finding the children of every row that brought in some, and one
//! counting sort of the cells. Not counted: random numbers, the set of visited rows, the queue, the
//! numbering of the texts, calendar arithmetic.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use half::f16;
use headwater::Result;
use headwater::plan::{Assignment, Split};
use headwater::sampler::{Sampler, Settings, Shape, Speed, Texts, Visit};
use headwater::store::{Cell, Store};

const BATCHES: usize = 64;
const BATCH_SIZE: u32 = 32;
const REPEATS: usize = 7;

/// The rows of a batch's contexts, and their texts, each once.
struct Trace {
    rows: Vec<Visit>,
    /// For each row that a reference brought in the other way round: relation and parent.
    broods: Vec<(u32, u32)>,
    texts: Vec<u32>,
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
    let traces = (0..BATCHES).map(|n| trace(&sampler, &store, n)).collect::<Result<Vec<_>>>()?;
    let fixed_bytes = sampler.next(Split::Train)?.0.bytes();

    let mut slab = vec![0_u8; fixed_bytes];
    let write = median_ms(&traces, |_, round| slab.fill(black_box(round as u8)));
    let dimension = store.metadata().embedding.dimension as usize;
    let mut vectors =
        vec![f16::ZERO; traces.iter().map(|t| t.texts.len()).max().unwrap_or(0) * dimension];
    let texts = median_ms(&traces, |trace, _| {
        for (slot, &text) in vectors.chunks_exact_mut(dimension).zip(&trace.texts) {
            let vector = store.text_embedding(text).expect("read before");
            vector.into_iter().for_each(|vector| slot.copy_from_slice(vector));
        }
    });
    let cells = median_ms(&traces, |trace, _| read_cells(&store, trace));
    let children = median_ms(&traces, |trace, _| find_children(&store, trace));
    let mut sorted = vec![0_u16; 1024];
    let sort = median_ms(&traces, |_, _| (0..BATCH_SIZE).for_each(|n| sort_cells(n, &mut sorted)));
    let texts_per_batch = traces.iter().map(|t| t.texts.len()).sum::<usize>() / BATCHES;
    let rows_per_batch = traces.iter().map(|t| t.rows.len()).sum::<usize>() / BATCHES;
    println!(
        "{{\"bench\": \"floor\", \"compact\": {compact}, \"fixed_bytes\": {fixed_bytes}, \
         \"rows_per_batch\": {rows_per_batch}, \"texts_per_batch\": {texts_per_batch}, \
         \"write_ms\": {write:.3}, \"texts_ms\": {texts:.3}, \"cells_ms\": {cells:.3}, \
         \"children_ms\": {children:.3}, \"sort_ms\": {sort:.3}, \"floor_ms\": {:.3}, \
         \"floor_without_texts_ms\": {:.3}}}",
        write + texts + cells + children + sort,
        write + cells + children + sort,
    );
    Ok(())
}

/// The contexts of 32 seeds of one task, far apart from each other.
fn trace(sampler: &Sampler, store: &Store, number: usize) -> Result<Trace> {
    let task = number % sampler.tasks().count();
    let name = sampler.tasks().nth(task).unwrap_or_default().to_owned();
    let count: u64 = Split::ALL.into_iter().map(|split| sampler.seed_count(task, split)).sum();
    let mut trace = Trace { rows: Vec::new(), broods: Vec::new(), texts: Vec::new() };
    let mut texts = BTreeSet::new();
    for sequence in 0..u64::from(BATCH_SIZE) {
        let draw =
            (number as u64 * u64::from(BATCH_SIZE) + sequence).wrapping_mul(0x9e37_79b9_7f4a);
        let context = sampler.context(&name, (draw % count) as u32)?;
        for visit in &context.rows {
            let from = &context.rows[visit.from as usize];
            if !visit.is_parent && visit.hop > 0 {
                trace.broods.push((visit.relation, from.row));
            }
            let record = store.tables()[visit.table as usize].row(visit.row)?;
            for column in 0..store.tables()[visit.table as usize].metadata().columns.len() {
                if let Cell::Text(text) = record.cell(column)
                    && texts.insert(text)
                {
                    trace.texts.push(text);
                }
            }
        }
        trace.rows.extend(context.rows);
    }
    Ok(trace)
}

fn read_cells(store: &Store, trace: &Trace) {
    for visit in &trace.rows {
        let table = &store.tables()[visit.table as usize];
        let record = table.row(visit.row).expect("read before");
        (0..table.metadata().columns.len()).for_each(|column| _ = black_box(record.cell(column)));
    }
}

fn find_children(store: &Store, trace: &Trace) {
    for &(relation, parent) in &trace.broods {
        let children = store.relations()[relation as usize].children(parent).expect("read before");
        black_box(children.row(children.count() / 2).expect("read before"));
    }
}

/// A counting sort of 1,024 cells by 64 columns.
fn sort_cells(sequence: u32, sorted: &mut [u16]) {
    let column = |cell: usize| (cell * 7 + sequence as usize) % 64;
    let mut starts = [0_u16; 65];
    (0..sorted.len()).for_each(|cell| starts[column(cell) + 1] += 1);
    (0..64).for_each(|column| starts[column + 1] += starts[column]);
    for cell in 0..sorted.len() {
        let start = &mut starts[column(cell)];
        sorted[usize::from(*start)] = cell as u16;
        *start += 1;
    }
    black_box(sorted);
}

/// What `part` takes for a batch: the median over several rounds through all traces.
fn median_ms(traces: &[Trace], mut part: impl FnMut(&Trace, usize)) -> f64 {
    let mut rounds: Vec<f64> = (0..REPEATS)
        .map(|round| {
            let started = Instant::now();
            traces.iter().for_each(|trace| part(trace, round));
            started.elapsed().as_secs_f64() * 1000.0 / traces.len() as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[REPEATS / 2]
}
