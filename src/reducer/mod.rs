#![doc = include_str!("FORMAT.md")]

mod coordinator;
mod input;
mod job;
mod portion;

pub use coordinator::Coordinator;
pub use input::{Element, Matrix, MatrixFormat};
pub use job::{Blocks, Job};
pub use portion::{Held, Portion};
