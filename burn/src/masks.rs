//! The masks of relational attention, made on the device.

use burn::tensor::{Bool, Device, Int, Tensor};

use crate::batch::GraphBatch;

/// The masks of the three attentions of a relational transformer, B S S; true where a cell may NOT attend,
/// as in `burn::tensor::module::attention`.
///
/// Padding cells attend to themselves alone, and no other cell attends to them. Every cell may attend to
/// itself: a row that is masked whole gives 0 / 0.
#[derive(Clone, Debug)]
pub struct Masks {
    /// Allows the cells of the same column.
    pub column: Tensor<3, Bool>,
    /// Allows the cells of the same row.
    pub feature: Tensor<3, Bool>,
    /// Allows the cells of rows that refer to the cell's row, or that its row refers to.
    pub neighbor: Tensor<3, Bool>,
}

impl GraphBatch {
    /// Returns the masks of the batch.
    ///
    /// # Cost
    /// 3 B S S flags on the device, and an index of B S S numbers for a moment.
    #[must_use]
    pub fn masks(&self) -> Masks {
        let [b, s] = self.seq_row_ids.dims();
        let padding: Tensor<3, Bool> = (self.is_padding.clone().unsqueeze_dim::<3>(1))
            .expand([b, s, s])
            .bool_or(self.is_padding.clone().unsqueeze_dim::<3>(2).expand([b, s, s]));
        // False on the diagonal.
        let others = others(s, &self.is_padding.device()).expand([b, s, s]);
        let masked = |mask: Tensor<3, Bool>| mask.bool_or(padding.clone()).bool_and(others.clone());
        Masks {
            column: masked(differ(&self.column_ids)),
            feature: masked(differ(&self.seq_row_ids)),
            neighbor: masked(self.linked().bool_not()),
        }
    }

    /// Returns whether the rows of two cells are linked, B S S.
    fn linked(&self) -> Tensor<3, Bool> {
        let [b, s] = self.seq_row_ids.dims();
        let [_, r, _] = self.fk_adj.dims();
        let rows = self.seq_row_ids.clone();
        let links = self.fk_adj.clone().bool_or(self.fk_adj.clone().swap_dims(1, 2));
        let of_cells = links.gather(1, rows.clone().unsqueeze_dim::<3>(2).expand([b, s, r]));
        of_cells.gather(2, rows.unsqueeze_dim::<3>(1).expand([b, s, s]))
    }
}

/// Returns whether the numbers of two cells differ, B S S.
fn differ(ids: &Tensor<2, Int>) -> Tensor<3, Bool> {
    let [b, s] = ids.dims();
    let of_first = ids.clone().unsqueeze_dim::<3>(2).expand([b, s, s]);
    of_first.not_equal(ids.clone().unsqueeze_dim::<3>(1).expand([b, s, s]))
}

/// Returns a matrix that is false on the diagonal, 1 S S.
fn others(s: usize, device: &Device) -> Tensor<3, Bool> {
    // Burn's masks are false where they keep.
    Tensor::<2, Bool>::diag_mask([s, s], 0, device).unsqueeze_dim(0)
}
