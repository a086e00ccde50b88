//! Rows of which some numbers are not there.

use std::ops::Range;

use headwater::fold::{Rows, Values};
use headwater::random::{Purpose, Stream};
use proptest::prelude::*;

use crate::kernels::{any_dtype, any_kind};
use crate::numbers::{Dtype, Kind, Numbers};

#[derive(Clone)]
pub(crate) struct Cells {
    numbers: Numbers,
    nulls: Vec<bool>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Cells {
    /// One in `one_null_in` is missing; none at 0.
    pub(crate) fn new(
        (dtype, kind, seed): (Dtype, Kind, u64),
        (rows, columns): (usize, usize),
        one_null_in: u64,
    ) -> Self {
        let mut random = Stream::new(seed, Purpose::Demo, [7, 0, 0]);
        let nulls = (0..rows * columns).map(|_| one_null_in > 0 && random.below(one_null_in) == 0);
        let nulls = nulls.collect();
        Self { numbers: Numbers::new(dtype, kind, seed, rows * columns), nulls, rows, columns }
    }

    /// The cells of one column, as they are.
    pub(crate) fn column(&self, column: usize) -> Vec<Option<f64>> {
        let places = (0..self.rows).map(|row| row * self.columns + column);
        places.map(|at| (!self.nulls[at]).then_some(self.numbers.wide[at])).collect()
    }

    /// Whether the numbers have 64 bits.
    pub(crate) fn are_wide(&self) -> bool {
        matches!(self.numbers.values(), Values::F64(_))
    }

    /// Some of the rows.
    pub(crate) fn part(&self, rows: Range<usize>) -> Rows<'_> {
        let (count, places) = (rows.len(), rows.start * self.columns..rows.end * self.columns);
        let nulls = &self.nulls[places.clone()];
        let values = match self.numbers.values() {
            Values::F64(values) => Values::F64(&values[places]),
            Values::F32(values) => Values::F32(&values[places]),
            Values::F16(values) => Values::F16(&values[places]),
            Values::Bf16(values) => Values::Bf16(&values[places]),
        };
        let rows = Rows::new(values, count, self.columns, self.columns).unwrap();
        // Without missing numbers there need be no marks.
        if nulls.contains(&true) { rows.with_nulls(nulls).unwrap() } else { rows }
    }

    /// The rows of each chunk.
    pub(crate) fn chunks(&self, chunk_rows: usize) -> impl Iterator<Item = Range<usize>> {
        let rows = self.rows;
        (0..rows).step_by(chunk_rows).map(move |first| first..rows.min(first + chunk_rows))
    }
}

impl std::fmt::Debug for Cells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..self.columns).map(|column| self.column(column))).finish()
    }
}

pub(crate) fn any_cells() -> impl Strategy<Value = Cells> {
    let form = (1_usize..70, 1_usize..5);
    let cells = (any_dtype(), any_kind(), any::<u64>());
    (cells, form, 0_u64..6).prop_map(|(kind, form, nulls)| Cells::new(kind, form, nulls))
}
