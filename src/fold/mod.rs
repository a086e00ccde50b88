//! Statistics over rows, the same bits whatever the threads.

mod moments;

pub use moments::{Moments, ZScore};
