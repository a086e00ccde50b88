//! Cells that are masked beside the target, for a model that learns to predict them.

use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::random::Stream;
use crate::store::SemanticType;

/// Follows the places of the masked cells.
const NO_PLACE: u16 = u16::MAX;

/// A word decides on this many cells.
const LANES: usize = 4;

/// A share is a whole number of these.
const PARTS: f64 = 65_536.0;

/// The version of the rule which cells are masked; it is part of every plan with masks.
const VERSION: u64 = 2;

/// Which cells of a sequence are masked beside its target.
///
/// Every cell has the same chance, but for those that tell nothing (padding, NULL), that no model
/// predicts (identifiers), that other tensors tell (the column of the row's own time), or that are labels,
/// also where these are rows of a table: a model that learnt from the cells of a task's target has learnt from
/// those of its test rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masks {
    /// Of 65,536 cells so many are masked.
    pub share: u16,
    /// The most masked cells of a sequence; the first ones stay.
    pub most: u16,
    /// Whether texts are masked, too.
    pub texts: bool,
}

impl Masks {
    /// Returns masks of a share of the cells, texts among them.
    ///
    /// `most` is by default what a sequence of `sequence_length` cells exceeds once in some 30,000 times.
    ///
    /// # Errors
    /// `InvalidArgument` for a share that is not above 0 and below 1, or that rounds to one of them.
    pub fn new(share: f64, most: Option<u16>, sequence_length: u32) -> Result<Self> {
        let parts = (share * PARTS).round();
        if !(1.0..PARTS).contains(&parts) {
            return Err(Error::invalid(format!(
                "mask_share: expected a share of the cells of at least 1/131072 (0.0000077) and below \
                 131071/131072, found {share}; shares are rounded to 65536ths, and 0 masks no cell"
            )));
        }
        let cells = f64::from(sequence_length);
        let share = parts / PARTS;
        let usual = share * cells + 4.0 * (share * (1.0 - share) * cells).sqrt();
        let most = most.unwrap_or(usual.ceil().min(cells) as u16);
        Ok(Self { share: parts as u16, most, texts: true })
    }

    /// Rejects masks of no cell.
    pub(super) fn check(self) -> Result<()> {
        for (name, number) in [("mask_share", self.share), ("mask_most", self.most)] {
            if number == 0 {
                return Err(Error::invalid(format!(
                    "{name}: expected more than 0, found 0; to mask no cell but the target, leave the masks \
                     out"
                )));
            }
        }
        Ok(())
    }

    /// Returns the share as the shortest decimal that stands for it.
    fn share_text(self) -> String {
        let share = f64::from(self.share) / PARTS;
        let is_it = |text: &String| {
            text.parse().is_ok_and(|read: f64| (read * PARTS).round() == f64::from(self.share))
        };
        // Five digits tell all shares apart.
        (1..5)
            .map(|digits| format!("{share:.digits$}"))
            .find(is_it)
            .unwrap_or(format!("{share:.5}"))
    }

    /// Adds the settings to a plan.
    pub(super) fn add_to(self, plan: &mut Plan) -> Result<()> {
        plan.add("mask_version", VERSION)?;
        plan.add("mask_share", self.share_text().as_str())?;
        plan.add("mask_most", u64::from(self.most))?;
        plan.add("mask_texts", self.texts)
    }
}

/// The masks of one sequence in the tensors of a batch.
pub(super) struct MaskSlices<'a> {
    /// While a sequence is written, the cells that may be masked; then those that are.
    pub is_masked: &'a mut [u8],
    pub masked_pos: &'a mut [u16],
}

impl MaskSlices<'_> {
    /// Clears the masks.
    pub(super) fn clear(&mut self) {
        self.is_masked.fill(0);
        self.masked_pos.fill(NO_PLACE);
    }

    /// Chooses among the first cells that may be masked, by their types and by the sequence's words.
    pub(super) fn choose(&mut self, semantic_types: &[i8], masks: Masks, mut words: Stream) {
        let (cells, places) = (&mut *self.is_masked, &mut *self.masked_pos);
        let mut count = 0;
        let groups = cells.chunks_mut(LANES).zip(semantic_types.chunks(LANES));
        // The counter comes second, so that it does not overflow past the greatest place.
        for ((cells, types), first) in groups.zip((0..).step_by(LANES)) {
            let word = words.next_u64();
            for ((lane, cell), &semantic) in (0..).zip(cells).zip(types) {
                let may_be = *cell == 1 && (masks.texts || semantic != SemanticType::Text as i8);
                let is_below = ((word >> (16 * lane)) as u16) < masks.share;
                let Some(place) = places.get_mut(count) else {
                    *cell = 0;
                    continue;
                };
                // Written without a branch, which would be guessed wrong as often as a cell is masked.
                let is_masked = may_be && is_below;
                (*cell, *place) = (u8::from(is_masked), first + lane);
                count += usize::from(is_masked);
            }
        }
        if let Some(unused) = places.get_mut(count) {
            *unused = NO_PLACE;
        }
    }
}
