//! `Schedule`: the task of each global step, a pure function of the step.

use crate::plan::{Permutation, Split};
use crate::random::Purpose;
use crate::{Error, Result};

/// The longest block when the weights are unequal.
const SLOTS_MAX: u64 = 1024;
/// The greatest distance from whole numbers at which shares count as exact.
const EXACT_TOLERANCE: f64 = 1e-9;

/// The order in which tasks take the global steps of one split, the same on every rank.
///
/// Steps form blocks. Each block holds every task exactly in its share, in an order of its own.
///
/// # Determinism
/// A step's task depends on (seed, split, step, weights), on nothing else.
#[derive(Clone, Debug)]
pub struct Schedule {
    seed: u64,
    split: Split,
    /// The slots of task i in a block are `slot_ends[i - 1]..slot_ends[i]`, before the shuffle.
    slot_ends: Vec<u64>,
}

impl Schedule {
    /// Lays out the steps of `split` for tasks of these weights.
    ///
    /// # Errors
    /// `InvalidArgument` when a weight is negative or not finite, when none is above 0, or when
    /// more than 1024 tasks have unequal weights above 0.
    pub fn new(seed: u64, split: Split, weights: &[f64]) -> Result<Self> {
        let slot_ends = shares_of(weights)?
            .iter()
            .scan(0, |end, share| {
                *end += share;
                Some(*end)
            })
            .collect();
        Ok(Self { seed, split, slot_ends })
    }

    /// Returns the number of steps of each block that `task` takes; 0 for a task that is never served.
    #[must_use]
    pub fn share(&self, task: usize) -> u64 {
        let end = |t: usize| self.slot_ends.get(t).copied();
        match (end(task), task.checked_sub(1)) {
            (Some(own), Some(previous)) => own - end(previous).unwrap_or(0),
            (Some(own), None) => own,
            (None, _) => 0,
        }
    }

    /// Returns the length of a block in steps.
    #[must_use]
    pub fn block_length(&self) -> u64 {
        self.slot_ends.last().copied().unwrap_or(0)
    }

    /// Returns the task of a global step.
    ///
    /// # Cost
    /// Constant for every step.
    #[must_use]
    pub fn task_at(&self, step: u64) -> usize {
        let length = self.block_length();
        self.task_of_slot(self.shuffle_of(step / length).at(step % length))
    }

    /// Returns how many of the steps before `step` served `task`.
    ///
    /// # Cost
    /// At most one block's steps, for every step.
    #[must_use]
    pub fn count_before(&self, task: usize, step: u64) -> u64 {
        let length = self.block_length();
        let (block, rest) = (step / length, step % length);
        let shuffle = self.shuffle_of(block);
        let in_part = (0..rest).filter(|&s| self.task_of_slot(shuffle.at(s)) == task).count();
        block * self.share(task) + in_part as u64
    }

    fn task_of_slot(&self, slot: u64) -> usize {
        self.slot_ends.partition_point(|&end| end <= slot)
    }

    fn shuffle_of(&self, block: u64) -> Permutation {
        let identity = [self.split as u64, block, 0];
        Permutation::new(self.block_length(), self.seed, Purpose::Schedule, identity)
            .expect("a block has at least 1 slot, and at most one for each task in memory")
    }
}

/// Returns every task's slots in a block.
fn shares_of(weights: &[f64]) -> Result<Vec<u64>> {
    if let Some(task) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
        return Err(Error::invalid(format!(
            "expected task weights of 0 or more, found {} for task number {task} of {}; a weight \
             of 0 leaves a task out",
            weights[task],
            weights.len()
        )));
    }
    let greatest = weights.iter().copied().fold(0.0, f64::max);
    if greatest == 0.0 {
        return Err(Error::invalid(format!(
            "expected at least one task with a weight above 0, found none among {}; there is \
             nothing to schedule",
            weights.len()
        )));
    }
    if weights.iter().all(|&w| w == 0.0 || w == greatest) {
        return Ok(weights.iter().map(|&w| u64::from(w > 0.0)).collect());
    }
    let served_count = weights.iter().filter(|&&w| w > 0.0).count() as u64;
    if served_count > SLOTS_MAX {
        return Err(Error::invalid(format!(
            "expected at most {SLOTS_MAX} tasks where their weights differ, found {served_count}; \
             a block has {SLOTS_MAX} slots: give all the same weight, or leave some out with 0"
        )));
    }
    // Weights near the largest float would overflow their sum.
    let scaled: Vec<f64> = weights.iter().map(|w| w / greatest).collect();
    let sum: f64 = scaled.iter().sum();
    let parts: Vec<f64> = scaled.iter().map(|w| w / sum).collect();
    let exact = (served_count..=SLOTS_MAX).find_map(|slots| exact_shares(weights, &parts, slots));
    Ok(exact.unwrap_or_else(|| nearest_shares(weights, &parts)))
}

/// Returns the shares of a block of `slots`, if all of them are whole numbers.
fn exact_shares(weights: &[f64], parts: &[f64], slots: u64) -> Option<Vec<u64>> {
    weights
        .iter()
        .zip(parts)
        .map(|(&weight, part)| {
            let quota = part * slots as f64;
            let whole = quota.round();
            let fits = (quota - whole).abs() <= EXACT_TOLERANCE && (weight == 0.0 || whole >= 1.0);
            fits.then_some(whole as u64)
        })
        .collect::<Option<Vec<u64>>>()
        .filter(|shares| shares.iter().sum::<u64>() == slots)
}

/// Returns the shares of a full block nearest to the parts, none of them less than one slot.
fn nearest_shares(weights: &[f64], parts: &[f64]) -> Vec<u64> {
    let quotas: Vec<f64> = parts.iter().map(|part| part * SLOTS_MAX as f64).collect();
    let mut shares: Vec<u64> = weights
        .iter()
        .zip(&quotas)
        .map(|(&w, quota)| if w > 0.0 { (quota.floor() as u64).max(1) } else { 0 })
        .collect();
    // One slot at a time to (or from) the task that is furthest below (or above) its quota; of
    // equals the first.
    loop {
        let taken: u64 = shares.iter().sum();
        let lack = |task: usize| quotas[task] - shares[task] as f64;
        let furthest = |candidates: &mut dyn Iterator<Item = usize>, sign: f64| {
            candidates.reduce(|best, t| if sign * lack(t) > sign * lack(best) { t } else { best })
        };
        let tasks = 0..shares.len();
        let (task, more) = if taken < SLOTS_MAX {
            (furthest(&mut tasks.filter(|&t| weights[t] > 0.0), 1.0), true)
        } else if taken > SLOTS_MAX {
            (furthest(&mut tasks.filter(|&t| shares[t] > 1), -1.0), false)
        } else {
            break;
        };
        match (task, more) {
            (Some(task), true) => shares[task] += 1,
            (Some(task), false) => shares[task] -= 1,
            (None, _) => break,
        }
    }
    let divisor = shares.iter().copied().fold(0, greatest_common_divisor);
    shares.iter().map(|share| share / divisor.max(1)).collect()
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_take_one_slot_each_and_zero_takes_none() {
        assert_eq!(shares_of(&[0.3, 0.3, 0.0, 0.3]).unwrap(), [1, 1, 0, 1]);
        assert_eq!(shares_of(&[5.0]).unwrap(), [1]);
        assert_eq!(shares_of(&vec![1.0; 5000]).unwrap(), vec![1; 5000]);
    }

    #[test]
    fn small_ratios_are_exact_in_the_smallest_block() {
        assert_eq!(shares_of(&[2.0, 1.0]).unwrap(), [2, 1]);
        assert_eq!(shares_of(&[0.0, 30.0, 10.0]).unwrap(), [0, 3, 1]);
        assert_eq!(shares_of(&[0.5, 0.3, 0.2]).unwrap(), [5, 3, 2]);
        assert_eq!(shares_of(&[1.0, 1000.0]).unwrap(), [1, 1000]);
        assert_eq!(shares_of(&[1e308, 5e307]).unwrap(), [2, 1]);
    }

    #[test]
    fn other_ratios_are_rounded_and_every_task_keeps_a_slot() {
        let shares = shares_of(&[std::f64::consts::PI, 1.0, 1e-9]).unwrap();
        assert_eq!(shares, [776, 247, 1]);
        assert_eq!(shares_of(&[1.0, 5e-324]).unwrap(), [1023, 1]);
        let mut many = vec![1e-6; 1000];
        many[7] = 1.0;
        let shares = shares_of(&many).unwrap();
        assert_eq!((shares[7], shares[8], shares.iter().sum::<u64>()), (25, 1, 1024));
    }

    #[test]
    fn a_rounded_block_with_a_common_divisor_is_divided() {
        assert_eq!(nearest_shares(&[1.0, 3.0], &[0.25, 0.75]), [1, 3]);
    }

    #[test]
    fn invalid_weights_are_rejected() {
        let mut too_many = vec![1.0; 1025];
        too_many[0] = 2.0;
        let rejected: [(&[f64], &str); 6] = [
            (&[], "none among 0"),
            (&[0.0, 0.0], "none among 2"),
            (&[1.0, -1.0], "found -1 for task number 1 of 2"),
            (&[f64::NAN, 1.0], "found NaN for task number 0"),
            (&[f64::INFINITY], "found inf for task number 0"),
            (&too_many, "found 1025"),
        ];
        for (weights, expected) in rejected {
            let error = Schedule::new(1, Split::Train, weights).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_task_that_does_not_exist_is_never_served() {
        let schedule = Schedule::new(1, Split::Train, &[1.0, 2.0]).unwrap();
        assert_eq!((schedule.share(2), schedule.count_before(2, 1000)), (0, 0));
    }
}
