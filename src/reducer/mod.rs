//! The distributed fold: jobs, portions, workers and their coordinator, a spool without MPI.
//!
#![doc = include_str!("FORMAT.md")]
#![doc = ""]
#![doc = include_str!("SCALE.md")]

mod arrays;
mod checkpoints;
mod coordinator;
mod cursor;
mod drive;
mod job;
mod leases;
mod leaves;
mod matrices;
mod message;
mod orders;
mod own_rows;
mod passes;
mod policy;
mod portion;
mod reduction;
mod source;
mod sourced;
pub(crate) mod spool;
mod stream;
mod versions;
mod worker;

pub use arrays::{Arrays, ChunkOfArrays, Form, OfArrays, nonfinite_setting};
pub use checkpoints::{CheckpointWriter, Checkpoints, Resumed};
pub use cursor::WorkerCursor;
pub use job::{Blocks, Job, Settings};
pub use leaves::leaf_portion;
pub use matrices::{
    CrossOfMatrices, OfMatrix, OfRows, moments_near, moments_of_files, order_setting,
    quantile_width,
};
pub use own_rows::OwnRows;
pub use policy::Policy;
pub use portion::{Arrived, ArrivedNode, NodePartial, Portion};
pub use reduction::Reduction;
pub use source::{Source, fold_portion};
pub use sourced::{Arriving, Sourced};
pub use spool::{FoldedBlocks, Spool, WorkHooks};
pub use stream::{Begun, Stream};
pub use versions::FileVersion;

/// The coordinator and the workers of a job, their messages, and the loops that run them over a wire.
pub mod wire {
    pub use super::coordinator::{Coordinator, Outbox};
    pub use super::drive::{Environment, Event, NoPeers, Ranks, Wire, coordinate, shut_down, work};
    pub use super::message::{Failure, JobEnd, Order, PassEnd, Report};
    pub use super::orders::LateOrder;
    pub use super::passes::PassWire;
    pub use super::worker::Worker;
}
