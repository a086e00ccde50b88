//! `EventSettings`: what determines the sequence of token rows.

use crate::error::{Error, Result};
use crate::plan::Plan;

use super::store::EventStore;

/// The version of the rules by which a token row is made.
const SEQUENCE_VERSION: u64 = 1;

/// The longest sequence.
pub(super) const LENGTH_MAX: u32 = 1 << 15;

/// The element type of a batch's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// 32 bits, signed, as JAX and MaxText take them.
    Int32,
    /// 16 bits, unsigned: half the bytes, for a caller who widens them.
    UInt16,
}

/// The settings of an event sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSettings {
    /// The random seed of order, windows and fillers.
    pub seed: u64,
    /// The number of tokens in a row of a batch.
    pub sequence_length: u32,
    /// Whether a row is filled with further contexts behind its own.
    pub packing: bool,
    /// The number of rows in one rank's batch. A resumed run may have another.
    pub batch_size: u32,
    /// The element type. A resumed run may have another.
    pub token_type: TokenType,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self {
            seed: 42,
            sequence_length: 1024,
            packing: true,
            batch_size: 128,
            token_type: TokenType::Int32,
        }
    }
}

impl EventSettings {
    /// Returns the default settings for a store: the sequence is longer where its longest event needs it.
    #[must_use]
    pub fn for_store(store: &EventStore) -> Self {
        let default = Self::default();
        let room = u32::try_from(store.room()).unwrap_or(u32::MAX);
        Self { sequence_length: default.sequence_length.max(room), ..default }
    }

    /// Checks the settings for a store whose events need `room` tokens.
    pub(super) fn check(&self, room: usize) -> Result<()> {
        let length = self.sequence_length;
        if (length as usize) < room || length > LENGTH_MAX {
            return Err(Error::invalid(format!(
                "sequence_length: expected {room} to {LENGTH_MAX} tokens, found {length}; any event \
                 of this store must fit, with its time"
            )));
        }
        let rows = self.batch_size;
        if rows == 0 || u64::from(rows) * u64::from(length) > 1 << 32 {
            return Err(Error::invalid(format!(
                "batch_size: expected at least 1 row and at most 2^32 tokens in a batch, found {rows} \
                 rows of {length} tokens"
            )));
        }
        Ok(())
    }

    /// Returns the plan: the data, and the settings that change the rows.
    pub(super) fn plan(&self, store: &EventStore) -> Result<Plan> {
        let mut plan = Plan::new();
        plan.add("events", SEQUENCE_VERSION)?;
        plan.add("codec", store.metadata().codec.as_str())?;
        plan.add("root", store.root().0)?;
        plan.add("seed", self.seed)?;
        plan.add("sequence_length", u64::from(self.sequence_length))?;
        plan.add("packing", self.packing)?;
        Ok(plan)
    }
}
