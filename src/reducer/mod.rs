#![doc = include_str!("FORMAT.md")]

mod checkpoints;
mod coordinator;
mod here;
mod input;
mod job;
mod portion;

pub use checkpoints::{Checkpoints, Resumed};
pub use coordinator::Coordinator;
pub use here::fold_here;
pub use input::npy::write as npy_bytes;
pub use input::{Element, Manifest, Matrix, MatrixFormat, Numbers, sort_by_name};
pub use job::{Blocks, Job};
pub use portion::{Held, Portion};
