//! The plan and its cursor by the public API: laws, golden files and failing disks.

mod cursor;
mod durable;
mod golden;
mod laws;
#[path = "../shared/manifest.rs"]
mod manifest;
mod shuffle;
#[path = "../shared/simulated_disk.rs"]
mod simulated_disk;
