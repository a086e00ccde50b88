//! The masks of relational attention, made on the device.

use burn::tensor::{Bool, DType, Int, Tensor};

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
    /// 3 B S S flags on the device, and four passes over as many.
    #[must_use]
    pub fn masks(&self) -> Masks {
        let [b, s] = self.seq_row_ids.dims();
        let options = (&self.seq_row_ids.device(), DType::I32);
        // With a number of its own, a padding cell differs from every cell but itself.
        let own = (Tensor::<1, Int>::arange(0..s as i64, options) + 1).neg();
        let own = own.unsqueeze_dim::<2>(0).expand([b, s]);
        let differ = |ids: &Tensor<2, Int>| {
            let ids = ids.clone().mask_where(self.is_padding.clone(), own.clone());
            let of_other = ids.clone().unsqueeze_dim::<3>(1).expand([b, s, s]);
            ids.unsqueeze_dim::<3>(2).expand([b, s, s]).not_equal(of_other)
        };
        // False on the diagonal.
        let others = Tensor::<2, Bool>::diag_mask([s, s], 0, &self.is_padding.device());
        let others = others.unsqueeze_dim::<3>(0).expand([b, s, s]);
        Masks {
            column: differ(&self.column_ids),
            feature: differ(&self.seq_row_ids),
            neighbor: self.linked().bool_not().bool_and(others),
        }
    }

    /// Returns whether the rows of two cells are linked, B S S.
    ///
    /// Links in both directions are a symmetric matrix. So its lines are taken by the cells' rows, and those of
    /// the transpose once more: whole lines, which are cheaper than single flags.
    fn linked(&self) -> Tensor<3, Bool> {
        let [b, s] = self.seq_row_ids.dims();
        let [_, r, _] = self.fk_adj.dims();
        let device = self.fk_adj.device();
        let links = self.fk_adj.clone().bool_or(self.fk_adj.clone().swap_dims(1, 2));
        // One row more, without links, is that of the padding cells.
        let none = |shape: [usize; 3]| Tensor::<3, Int>::zeros(shape, &device).bool();
        let links = Tensor::cat(vec![links, none([b, 1, r])], 1);
        let links = Tensor::cat(vec![links, none([b, r + 1, 1])], 2);
        let first = Tensor::<1, Int>::arange(0..b as i64, (&device, DType::I32)) * (r as i32 + 1);
        let rows = self.seq_row_ids.clone().mask_fill(self.is_padding.clone(), r as i32)
            + first.unsqueeze_dim::<2>(1).expand([b, s]);
        let rows = rows.reshape([b * s]);
        let of_cells = links.reshape([b * (r + 1), r + 1]).select(0, rows.clone());
        let by_rows = of_cells.reshape([b, s, r + 1]).swap_dims(1, 2);
        by_rows.reshape([b * (r + 1), s]).select(0, rows).reshape([b, s, s])
    }
}
