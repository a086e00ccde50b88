//! The plan and its cursor through the public API: laws, golden files and broken disks.

mod cursor;
mod durable;
mod golden;
mod laws;
#[path = "../shared/manifest.rs"]
mod manifest;
mod shuffle;
#[path = "../shared/simulated_disk.rs"]
mod simulated_disk;
