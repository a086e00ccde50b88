//! Takes ten batches of a store, stops, and resumes from the cursor on two ranks.
//!
//! ```text
//! cargo run --release --example stream -- demo/store
//! ```

use std::path::Path;
use std::sync::Arc;

use headwater::Result;
use headwater::plan::{Assignment, Cursor, Split};
use headwater::sampler::{Sampler, Settings, Speed};
use headwater::store::Store;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "demo/store".into());
    let store = Arc::new(Store::open(Path::new(&path))?);
    let sampler = |rank, ranks| {
        let assignment = Assignment::new(rank, ranks)?;
        Sampler::new(vec![Arc::clone(&store)], Settings::default(), assignment, Speed::default())
    };

    let running = sampler(0, 1)?;
    for _ in 0..10 {
        let (batch, _) = running.next(Split::Train)?;
        let task = batch.get::<u32>("task_idx").map_or(0, |task| task[0]);
        let rows = batch.get::<u32>("seed_row").unwrap_or_default();
        println!(
            "{}: seeds {:?} ...",
            running.tasks().nth(task as usize).unwrap_or(""),
            &rows[..4]
        );
    }
    let bytes = running.cursor().encode()?;
    drop(running);

    // Resumes the run on two ranks; this is rank 0.
    let resumed = sampler(0, 2)?;
    resumed.resume(&Cursor::decode(&bytes)?)?;
    let (batch, _) = resumed.next(Split::Train)?;
    println!("resumed: {} bytes in {} tensors", batch.bytes(), batch.tensors().count());
    Ok(())
}
