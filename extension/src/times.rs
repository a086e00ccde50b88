//! Times in the form in which a device reads them: JAX has no 64-bit numbers by default.

use headwater::internal::DAY_US;
use numpy::ndarray::{ArrayD, ArrayViewD, Zip};
use numpy::{PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::prelude::*;

/// Returns times in microseconds as days since 1970, and the milliseconds of each day, rounded down.
#[pyfunction]
pub(super) fn split_times<'py>(
    py: Python<'py>,
    times_us: PyReadonlyArrayDyn<'py, i64>,
) -> (Bound<'py, PyArrayDyn<i32>>, Bound<'py, PyArrayDyn<i32>>) {
    let times = times_us.as_array();
    let (days, milliseconds) = py.detach(|| split(times));
    (PyArrayDyn::from_owned_array(py, days), PyArrayDyn::from_owned_array(py, milliseconds))
}

/// The days of all 64-bit times fit into 32 bits. The first one begins before the least time.
fn split(times_us: ArrayViewD<'_, i64>) -> (ArrayD<i32>, ArrayD<i32>) {
    let days = times_us.mapv(|time| time.div_euclid(DAY_US) as i32);
    let milliseconds = Zip::from(times_us).and(&days).map_collect(|time, &day| {
        let of_day = time.wrapping_sub(i64::from(day).wrapping_mul(DAY_US));
        (of_day.cast_unsigned() / 1000) as i32
    });
    (days, milliseconds)
}
