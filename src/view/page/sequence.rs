//! The only sequence of a batch, for the masks and the cells.

use bytemuck::Pod;

use crate::error::{Error, Result};
use crate::sampler::{Batch, Visit};

/// Views of a batch's tensors, all of one sequence.
pub(super) struct Sequence<'a> {
    rows: &'a [Visit],
    seq_row_ids: &'a [u16],
    pub column_ids: &'a [i32],
    pub is_null: &'a [u8],
    is_masked: Option<&'a [u8]>,
    fk_adj: &'a [u8],
    rows_max: usize,
    pub col_perm: &'a [u16],
    pub out_perm: &'a [u16],
    pub in_perm: &'a [u16],
    /// The number of cells before the padding.
    pub length: usize,
    /// The place of the target, if there is one.
    pub target: Option<usize>,
}

impl<'a> Sequence<'a> {
    /// Returns the only sequence of a batch, whose context has these rows.
    pub(super) fn of(batch: &'a Batch, rows: &'a [Visit]) -> Result<Self> {
        let fk_adj = tensor(batch, "fk_adj")?;
        let is_padding: &[u8] = tensor(batch, "is_padding")?;
        let target_pos: &[i32] = tensor(batch, "target_pos")?;
        Ok(Self {
            rows,
            seq_row_ids: tensor(batch, "seq_row_ids")?,
            column_ids: tensor(batch, "column_ids")?,
            is_null: tensor(batch, "is_null")?,
            is_masked: batch.get("is_masked"),
            fk_adj,
            rows_max: fk_adj.len().isqrt(),
            col_perm: tensor(batch, "col_perm")?,
            out_perm: tensor(batch, "out_perm")?,
            in_perm: tensor(batch, "in_perm")?,
            length: is_padding.iter().position(|&is| is == 1).unwrap_or(is_padding.len()),
            target: usize::try_from(target_pos[0]).ok(),
        })
    }

    /// Returns the place of a cell's row in the context.
    pub(super) fn row(&self, cell: usize) -> usize {
        self.seq_row_ids[cell].into()
    }

    /// Returns the table of a cell's row.
    pub(super) fn table(&self, cell: usize) -> u32 {
        self.rows[self.row(cell)].table
    }

    /// Whether the row at `child` refers to the one at `parent`.
    pub(super) fn refers(&self, child: usize, parent: usize) -> bool {
        self.fk_adj[child * self.rows_max + parent] == 1
    }

    /// Whether a cell of the sequence is masked, beside the target.
    pub(super) fn is_masked(&self, cell: usize) -> bool {
        self.is_masked.is_some_and(|masked| masked[cell] == 1)
    }

    /// Returns the number of padding cells.
    pub(super) fn padding(&self) -> u64 {
        (self.column_ids.len() - self.length) as u64
    }
}

fn tensor<'a, T: Pod>(batch: &'a Batch, name: &str) -> Result<&'a [T]> {
    batch
        .get(name)
        .ok_or_else(|| Error::invalid(format!("internal error: the batch has no tensor {name:?}")))
}
