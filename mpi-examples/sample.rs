//! Samples a store on the ranks of an MPI job, and writes one digest for each global batch.
//!
//! ```text
//! mpirun -n 3 mpi-sample STORE FOLDER STEPS
//! ```
//!
//! Rank and size come from MPI (rsmpi). After each step rank 0 gathers the digests of all sequences, and
//! writes the digest of the global batch to `FOLDER/digests.txt` and the cursor to `FOLDER/run.cursor`.
//! Started again, also with another number of ranks, the program goes on from that cursor. `sample.py`
//! kills it and compares the digests.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater::durable::{Disk, write_file};
use headwater::plan::{Assignment, Cursor, Split};
use headwater::sampler::{Batch, Sampler, Settings, Speed, Texts};
use headwater::store::Store;
use headwater::{Digest, Error, Result};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Root};

/// The sequences of a global batch, which 1, 2, 3 and 4 ranks can share.
const GLOBAL_BATCH: u32 = 12;
const DIGEST_BYTES: usize = 32;
/// The tensors that are of a batch and not of each of its sequences.
const OF_THE_BATCH: [&str; 4] = ["target_stype", "task_idx", "cat_emb_start", "cat_emb_count"];

fn main() {
    let Some(universe) = mpi::initialize() else {
        eprintln!("mpi-sample: MPI cannot be initialised");
        std::process::exit(1);
    };
    let world = universe.world();
    if let Err(error) = run(&world) {
        eprintln!("mpi-sample: rank {}: {error}", world.rank());
        // The other ranks wait for the digests of this one.
        world.abort(1);
    }
}

fn run(world: &SimpleCommunicator) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, folder, steps] = &arguments[..] else {
        return Err(Error::invalid("expected STORE FOLDER STEPS"));
    };
    let steps: u64 = steps.parse().map_err(|e| Error::invalid(format!("STEPS: {e}")))?;
    let folder = Path::new(folder);
    let (rank, size) = (world.rank() as u32, world.size() as u32);
    let sampler = sampler(Path::new(store), rank, size)?;
    let mut step = 0;
    let cursor_path = folder.join("run.cursor");
    if cursor_path.exists() {
        let cursor = Cursor::read(&cursor_path)?;
        sampler.resume(&cursor)?;
        step = cursor.position().get("train/step").unwrap_or(0);
    }
    let mut log = if rank == 0 { Some(Log::at(folder, step)?) } else { None };
    while step < steps {
        let (batch, snapshot) = sampler.next(Split::Train)?;
        let own: Vec<u8> = sequences(&batch, GLOBAL_BATCH / size).flat_map(|d| d.0).collect();
        let root = world.process_at_rank(0);
        if let Some(log) = &mut log {
            let mut all = vec![0_u8; GLOBAL_BATCH as usize * DIGEST_BYTES];
            root.gather_into_root(&own[..], &mut all[..]);
            log.append(step, global_batch(&all, size as usize))?;
            sampler.cursor_at(&snapshot).write(&Disk, &cursor_path)?;
        } else {
            root.gather_into(&own[..]);
        }
        step += 1;
    }
    Ok(())
}

fn sampler(store: &Path, rank: u32, size: u32) -> Result<Sampler> {
    if !GLOBAL_BATCH.is_multiple_of(size) {
        return Err(Error::invalid(format!(
            "expected a number of ranks that divides {GLOBAL_BATCH}, found {size}"
        )));
    }
    let mut settings = Settings::default();
    settings.shape.batch_size = GLOBAL_BATCH / size;
    settings.shape.sequence_length = 128;
    settings.shape.max_rows = 32;
    // Indexes into the texts of the store, which do not depend on the other sequences of a batch.
    settings.shape.texts = Texts::Global;
    let speed = Speed { threads: Some(1), ..Speed::default() };
    let assignment = Assignment::new(u64::from(rank), u64::from(size))?;
    Sampler::new(vec![Arc::new(Store::open(store)?)], settings, assignment, speed)
}

/// The digest of each sequence of a batch.
fn sequences(batch: &Batch, count: u32) -> impl Iterator<Item = Digest> {
    (0..count as usize).map(move |row| {
        let own = batch.tensors().filter(|(tensor, _)| !OF_THE_BATCH.contains(&tensor.name));
        let bytes: Vec<u8> = own
            .flat_map(|(_, bytes)| {
                let each = bytes.len() / count as usize;
                &bytes[row * each..(row + 1) * each]
            })
            .copied()
            .collect();
        Digest::of(&bytes)
    })
}

/// The digest of a global batch, whose sequence b of rank r is element b * size + r.
fn global_batch(gathered: &[u8], size: usize) -> Digest {
    let digests: Vec<&[u8]> = gathered.chunks(DIGEST_BYTES).collect();
    let each = digests.len() / size;
    let in_order =
        (0..digests.len()).map(|element| digests[element % size * each + element / size]);
    Digest::of(&in_order.collect::<Vec<_>>().concat())
}

/// The file with the digests.
struct Log {
    file: fs::File,
    path: PathBuf,
}

impl Log {
    /// Opens the log of the first `step` steps; what a killed run wrote after its cursor is dropped.
    fn at(folder: &Path, step: u64) -> Result<Self> {
        let path = folder.join("digests.txt");
        let before = fs::read_to_string(&path).unwrap_or_default();
        let kept: String = before.split_inclusive('\n').take(step as usize).collect();
        write_file(&Disk, &path, kept.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path);
        Ok(Self { file: file.map_err(|e| Error::io(&path, "opening", e))?, path })
    }

    fn append(&mut self, step: u64, digest: Digest) -> Result<()> {
        writeln!(self.file, "{step} {digest}").map_err(|e| Error::io(&self.path, "writing", e))
    }
}
