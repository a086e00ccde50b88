//! Counts and spans of time as numbers of about 1: logarithms, the same on every machine.

/// The divisors of the logarithms.
const COUNT_SCALE: f64 = 8.0;
const SECONDS_SCALE: f64 = 16.0;

/// Returns the number of a count: log2(1 + n) / 8.
pub(crate) fn of_count(n: u64) -> f32 {
    logarithm(n, COUNT_SCALE)
}

/// Returns the number of seconds: log2(1 + n) / 16.
pub(crate) fn of_seconds(seconds: u64) -> f32 {
    logarithm(seconds, SECONDS_SCALE)
}

fn logarithm(n: u64, scale: f64) -> f32 {
    (libm::log2(1.0 + n as f64) / scale) as f32
}

/// Returns the count whose cell has this number, as far as 32 bits tell.
pub(crate) fn count_of(number: f32) -> u64 {
    inverse(number, COUNT_SCALE)
}

/// Returns the seconds whose cell has this number, as far as 32 bits tell.
#[cfg(feature = "cli")]
pub(crate) fn seconds_of(number: f32) -> u64 {
    inverse(number, SECONDS_SCALE)
}

fn inverse(number: f32, scale: f64) -> u64 {
    (libm::exp2(f64::from(number) * scale) - 1.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_seconds_are_read_back() {
        assert_eq!((of_count(255), of_seconds(65_535)), (1.0, 1.0));
        for n in [0, 1, 2, 7, 100, 12_345, 86_400] {
            assert_eq!(count_of(of_count(n)), n);
            #[cfg(feature = "cli")]
            assert_eq!(seconds_of(of_seconds(n)), n);
        }
    }
}
