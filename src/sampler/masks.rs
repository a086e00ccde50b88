//! Cells that are masked beside the target, for a model that learns to predict them.

use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::random::Stream;
use crate::store::SemanticType;

/// Follows the places of the masked cells.
const NO_PLACE: u16 = u16::MAX;

/// A block of four words decides on this many cells, 16 bits for each.
const BLOCK: usize = 16;

/// So many cells are decided on together: a number has a bit for each.
const GROUP: usize = 64;

/// A share is a whole number of these.
const PARTS: f64 = 65_536.0;

/// The version of the rule which cells are masked; it is part of every plan with masks.
const VERSION: u64 = 3;

/// Which cells of a sequence are masked beside its target.
///
/// Every cell has the same chance, but for those that tell nothing (padding, NULL), that no model
/// predicts (identifiers), that other tensors tell (the column of the row's own time, and values that link rows),
/// that are made of rows of the context (aggregates and summaries), or that are labels, also where these are rows
/// of a table: a model that learnt from the cells of a task's target has learnt from those of its test rows.
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
    /// `most` is by default four standard deviations above the mean of `sequence_length` cells, which a
    /// sequence rarely exceeds.
    ///
    /// # Errors
    /// `InvalidArgument` for a share that is not above 0 and below 1, or that rounds to one of them.
    pub fn new(share: f64, most: Option<u16>, sequence_length: u32) -> Result<Self> {
        if !(share > 0.0 && share < 1.0) {
            return Err(Error::invalid(format!(
                "mask_share: expected a share of the cells above 0 and below 1, found {share}; 0.15 masks \
                 about every seventh cell; leave it out to mask none"
            )));
        }
        let parts = (share * PARTS).round();
        if !(1.0..PARTS).contains(&parts) {
            return Err(Error::invalid(format!(
                "mask_share: expected a share of the cells of at least 1/131072 (0.0000077) and below \
                 131071/131072 (0.9999924), found {share}, which is rounded to none or to all of them; 0.15 \
                 masks about every seventh cell; leave it out to mask none"
            )));
        }
        let cells = f64::from(sequence_length);
        let share = parts / PARTS;
        let usual = share * cells + 4.0 * (share * (1.0 - share) * cells).sqrt();
        let most = most.unwrap_or(usual.ceil().min(cells) as u16);
        Ok(Self { share: parts as u16, most, texts: true })
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

    /// Chooses among a group of cells, of which the first is the sequence's cell `first`: those that may be masked
    /// are 1, and stay 1 if they are masked. Writes the places of these; without a place left, a cell is not masked.
    #[inline]
    fn choose_among<'a>(
        self,
        cells: &mut [u8; GROUP],
        types: &[i8; GROUP],
        words: &Stream,
        first: u16,
        places: &mut impl Iterator<Item = &'a mut u16>,
    ) {
        // All words first: a wide read of numbers that were just written one by one waits for them.
        let mut lanes = [[0; BLOCK]; GROUP / BLOCK];
        for (lanes, index) in lanes.iter_mut().zip(u64::from(first) / BLOCK as u64..) {
            // The four words as 16 numbers, the lowest of each word first.
            *lanes = bytemuck::cast(words.block(index).map(u64::to_le));
        }
        for ((cell, &semantic), &lane) in cells.iter_mut().zip(types).zip(lanes.as_flattened()) {
            let may_be = self.texts || semantic != SemanticType::Text as i8;
            *cell &= u8::from(may_be) & u8::from(u16::from_le(lane) < self.share);
        }
        // A loop over the few bits that are set guesses wrong once, at its end; one over all cells at each of them.
        let mut set = bits(cells);
        while set != 0 {
            let at = set.trailing_zeros();
            match places.next() {
                Some(place) => *place = first + at as u16,
                None => cells[at as usize] = 0,
            }
            set &= set - 1;
        }
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
    pub(super) fn choose(&mut self, semantic_types: &[i8], masks: Masks, words: &Stream) {
        let mut places = self.masked_pos.iter_mut();
        let (types, last_types) = semantic_types.as_chunks::<GROUP>();
        let (groups, last) = self.is_masked[..semantic_types.len()].as_chunks_mut::<GROUP>();
        // The counter comes second, so that it does not overflow past the greatest place.
        for ((cells, types), first) in groups.iter_mut().zip(types).zip((0..).step_by(GROUP)) {
            masks.choose_among(cells, types, words, first, &mut places);
        }
        if !last.is_empty() {
            let (mut cells, mut types) = ([0; GROUP], [0; GROUP]);
            cells[..last.len()].copy_from_slice(last);
            types[..last.len()].copy_from_slice(last_types);
            let first = semantic_types.len() - last.len();
            masks.choose_among(&mut cells, &types, words, first as u16, &mut places);
            last.copy_from_slice(&cells[..last.len()]);
        }
        if let Some(unused) = places.next() {
            *unused = NO_PLACE;
        }
    }
}

/// Returns a number with a bit for each byte, all of which are 0 or 1.
fn bits(bytes: &[u8; GROUP]) -> u64 {
    let (eights, _) = bytes.as_chunks::<8>();
    eights.iter().rev().fold(0, |bits, eight| {
        // The product brings byte i to bit 56 + i.
        bits << 8 | u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56
    })
}
