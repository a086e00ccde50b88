#![doc = include_str!("FORMAT.md")]
#![doc = ""]
#![doc = include_str!("SCALE.md")]

mod checkpoints;
mod coordinator;
mod drive;
mod job;
mod matrices;
mod message;
mod orders;
mod portion;
mod reduction;
mod source;
mod stream;
mod worker;

pub use checkpoints::{Checkpoints, Resumed, is_damage};
pub use coordinator::{Coordinator, Letters, Policy};
pub use drive::{Alone, Event, Surroundings, Wire, coordinate, farewell, work};
pub use job::{Blocks, Job};
pub use matrices::{CrossOfMatrices, OfMatrix, OfRows};
pub use message::{Failure, Order, Report};
pub use portion::{Arrived, Held, Portion};
pub use reduction::Reduction;
pub use source::{Source, fold_portion};
pub use stream::GramStream;
pub use worker::Worker;
