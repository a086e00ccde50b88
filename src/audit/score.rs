//! How well one column predicts a target alone.

use std::collections::{BTreeMap, BTreeSet};

/// The fewest seeds from which anything is concluded.
pub(super) const SEEDS_MIN: usize = 100;
/// The fewest seeds of either truth.
const OF_EACH_MIN: usize = 10;
/// The most bins of a number's values.
const BINS_MAX: usize = 64;
/// The fewest rows with a value that always comes with the rarer truth, and the fewest of the anchor.
const ALWAYS_MIN: usize = 30;

/// The targets of some seeds.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Truth(Vec<bool>),
    Number(Vec<f64>),
    Class(Vec<u32>),
}

/// The values of one column for some seeds; NaN for NULL.
#[derive(Clone, Debug)]
pub(super) enum Values {
    /// Their order means something.
    Number(Vec<f64>),
    /// The numbers of categories or texts.
    Code(Vec<f64>),
}

/// The measure of a [`Score`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Auroc,
    RankCorrelation,
    /// The share of the labels that the most frequent class misses, and the column predicts.
    ClassesPredicted,
    /// A value that always comes with the rarer truth.
    Always,
}

/// How well a column predicts a target: 1 is exactly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Score {
    pub value: f64,
    pub measure: Measure,
    /// The number of seeds that were looked at.
    pub seeds: usize,
    /// Whether NULL or not is what predicts it.
    pub by_null: bool,
}

impl Target {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Truth(values) => values.len(),
            Self::Number(values) => values.len(),
            Self::Class(values) => values.len(),
        }
    }

    /// Returns the targets of some of the seeds.
    pub(super) fn at(&self, seeds: &[usize]) -> Self {
        match self {
            Self::Truth(values) => Self::Truth(seeds.iter().map(|&seed| values[seed]).collect()),
            Self::Number(values) => Self::Number(seeds.iter().map(|&seed| values[seed]).collect()),
            Self::Class(values) => Self::Class(seeds.iter().map(|&seed| values[seed]).collect()),
        }
    }

    /// Whether there are enough different targets to conclude anything.
    pub(super) fn is_enough(&self) -> bool {
        let mut counts = BTreeMap::new();
        match self {
            Self::Truth(values) => {
                values.iter().for_each(|&truth| *counts.entry(u64::from(truth)).or_insert(0) += 1);
            }
            Self::Class(values) => {
                values.iter().for_each(|&class| *counts.entry(class.into()).or_insert(0) += 1);
            }
            Self::Number(values) => {
                values.iter().for_each(|value| *counts.entry(value.to_bits()).or_insert(0) += 1);
            }
        }
        let most = counts.values().copied().max().unwrap_or(0);
        self.len() >= SEEDS_MIN && self.len() - most >= OF_EACH_MIN
    }
}

/// Returns how well a column predicts the target, by the measure that is best for it. `rows` has the
/// rows of each seed, that of the anchor and that of the value; none for a value of many rows.
pub(super) fn score(target: &Target, values: &Values, rows: Option<&[[u32; 2]]>) -> Option<Score> {
    // Of some of the seeds there are never enough if there are not of all.
    if !target.is_enough() {
        return None;
    }
    let (Values::Number(all) | Values::Code(all)) = values;
    let is_null: Vec<f64> = all.iter().map(|value| f64::from(u8::from(value.is_nan()))).collect();
    let present: Vec<usize> = (0..all.len()).filter(|&seed| !all[seed].is_nan()).collect();
    let mut scores = vec![by_groups(target, values)];
    if present.len() < all.len() {
        let by_null = by_groups(target, &Values::Code(is_null.clone()));
        scores.push(by_null.map(|score| Score { by_null: true, ..score }));
        // A column that is seldom there may predict the target exactly where it is.
        let of_present = target.at(&present);
        let some: Vec<f64> = present.iter().map(|&seed| all[seed]).collect();
        scores.push(match values {
            _ if !of_present.is_enough() => None,
            Values::Number(_) => by_order(&of_present, &some),
            Values::Code(_) => by_groups(&of_present, &Values::Code(some)),
        });
    } else if let Values::Number(all) = values {
        scores.push(by_order(target, all));
    }
    if let Some(rows) = rows {
        let by_null = always(target, &is_null, rows);
        scores.push(by_null.map(|score| Score { by_null: true, ..score }));
        scores.push(always(target, all, rows));
    }
    let better = |a: &Score, b: &Score| a.value.total_cmp(&b.value).then(a.seeds.cmp(&b.seeds));
    scores.into_iter().flatten().max_by(better)
}

/// Scores numbers by their order.
fn by_order(target: &Target, values: &[f64]) -> Option<Score> {
    let (value, measure) = match target {
        Target::Truth(truths) => {
            let auroc = auroc(truths, values)?;
            (auroc.max(1.0 - auroc), Measure::Auroc)
        }
        Target::Number(numbers) => {
            (rank_correlation(numbers, values)?.abs(), Measure::RankCorrelation)
        }
        // Classes have no order.
        Target::Class(_) => return None,
    };
    Some(Score { value, measure, seeds: target.len(), by_null: false })
}

/// Scores groups of equal values, or of near ones: what each group's other half has of the target is
/// the prediction.
fn by_groups(target: &Target, values: &Values) -> Option<Score> {
    let groups = groups(values);
    let (value, measure) = match target {
        Target::Truth(truths) => {
            let numbers: Vec<f64> =
                truths.iter().map(|&truth| f64::from(u8::from(truth))).collect();
            (auroc(truths, &means_of_the_other_half(&groups, &numbers))?, Measure::Auroc)
        }
        Target::Number(numbers) => {
            let predicted = means_of_the_other_half(&groups, &ranks(numbers));
            (rank_correlation(numbers, &predicted)?, Measure::RankCorrelation)
        }
        Target::Class(classes) => (classes_predicted(&groups, classes)?, Measure::ClassesPredicted),
    };
    Some(Score { value, measure, seeds: target.len(), by_null: false })
}

/// Looks for a value that always comes with the rarer truth, however rare the value is.
fn always(target: &Target, values: &[f64], rows: &[[u32; 2]]) -> Option<Score> {
    let Target::Truth(truths) = target else { return None };
    let trues = truths.iter().filter(|&&truth| truth).count();
    let rarer = trues * 2 <= truths.len();
    let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (seed, value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        groups.entry(value.to_bits()).or_default().push(seed);
    }
    // One row that many seeds see, or many rows of one anchor, are a single case.
    let cases = |group: &[usize], place: usize| {
        group.iter().map(|&seed| rows[seed][place]).collect::<BTreeSet<_>>().len()
    };
    let is_always = |group: &Vec<usize>| {
        let rare = group.iter().filter(|&&seed| truths[seed] == rarer).count();
        rare * 100 >= group.len() * 99 && (0..2).all(|place| cases(group, place) >= ALWAYS_MIN)
    };
    let seeds = groups.into_values().filter(is_always).map(|group| group.len()).max()?;
    Some(Score { value: 1.0, measure: Measure::Always, seeds, by_null: false })
}

/// Returns the number of the group of each value: equal codes, or numbers between two quantiles.
fn groups(values: &Values) -> Vec<usize> {
    let (Values::Number(all) | Values::Code(all)) = values;
    let mut edges: Vec<f64> = all.iter().copied().filter(|value| !value.is_nan()).collect();
    edges.sort_unstable_by(f64::total_cmp);
    if let Values::Number(_) = values {
        let count = edges.len();
        edges =
            (1..BINS_MAX).filter_map(|bin| edges.get(bin * count / BINS_MAX).copied()).collect();
    }
    edges.dedup();
    let group = |value: &f64| match value.is_nan() {
        true => edges.len() + 1,
        false => edges.partition_point(|edge| edge <= value),
    };
    all.iter().map(group).collect()
}

/// Returns for each seed the mean of the numbers of its group in the other half of the seeds; that of
/// the whole other half where the group has none there.
fn means_of_the_other_half(groups: &[usize], numbers: &[f64]) -> Vec<f64> {
    let group_count = groups.iter().max().map_or(0, |&last| last + 1);
    let mut sums = [vec![(0.0, 0); group_count], vec![(0.0, 0); group_count]];
    let mut totals = [(0.0, 0); 2];
    for (seed, (&group, &number)) in groups.iter().zip(numbers).enumerate() {
        for (sum, count) in [&mut sums[seed % 2][group], &mut totals[seed % 2]] {
            *sum += number;
            *count += 1;
        }
    }
    let mean = |(sum, count): (f64, i32)| (count > 0).then(|| sum / f64::from(count));
    let of_seed = |(seed, &group): (usize, &usize)| {
        let other = 1 - seed % 2;
        mean(sums[other][group]).or(mean(totals[other])).unwrap_or(0.0)
    };
    groups.iter().enumerate().map(of_seed).collect()
}

/// Returns the share of the labels that the most frequent class misses, and the groups predict.
fn classes_predicted(groups: &[usize], classes: &[u32]) -> Option<f64> {
    let mut counts: [BTreeMap<(usize, u32), usize>; 2] = Default::default();
    let mut frequent: BTreeMap<u32, usize> = BTreeMap::new();
    for (seed, (&group, &class)) in groups.iter().zip(classes).enumerate() {
        *counts[seed % 2].entry((group, class)).or_default() += 1;
        *frequent.entry(class).or_default() += 1;
    }
    let (&most_frequent, &base) = frequent.iter().max_by_key(|&(_, count)| count)?;
    let best = counts.map(|counts| {
        let mut best: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
        for ((group, class), count) in counts {
            let found = best.entry(group).or_insert((count, class));
            *found = (*found).max((count, class));
        }
        best
    });
    let is_right = |(seed, (group, &class)): (usize, (&usize, &u32))| {
        let predicted = best[1 - seed % 2].get(group).map_or(most_frequent, |&(_, class)| class);
        predicted == class
    };
    let right = groups.iter().zip(classes).enumerate().filter(|&seed| is_right(seed)).count();
    let missed = classes.len().checked_sub(base).filter(|&missed| missed > 0)?;
    Some((right as f64 - base as f64) / missed as f64)
}

/// Returns the probability that a true seed has a greater value than a false one; ties count half.
fn auroc(truths: &[bool], values: &[f64]) -> Option<f64> {
    let ranks = ranks(values);
    let trues = truths.iter().filter(|&&truth| truth).count();
    let falses = truths.len() - trues;
    if trues == 0 || falses == 0 {
        return None;
    }
    let sum: f64 =
        ranks.iter().zip(truths).filter(|&(_, &truth)| truth).map(|(rank, _)| rank).sum();
    let trues = trues as f64;
    Some((sum - trues * (trues - 1.0) / 2.0) / (trues * falses as f64))
}

/// Returns the correlation of the ranks; none if all values are equal.
pub(super) fn rank_correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let middle = (a.len() as f64 - 1.0) / 2.0;
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(&b) {
        let (a, b) = (a - middle, b - middle);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    (aa > 0.0 && bb > 0.0).then(|| ab / (aa * bb).sqrt())
}

/// Returns the rank of each value, counted from 0; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let value = values[order[from]];
        let equal = order[from..].iter().take_while(|&&seed| values[seed] == value).count().max(1);
        let mean = from as f64 + (equal as f64 - 1.0) / 2.0;
        order[from..from + equal].iter().for_each(|&seed| ranks[seed] = mean);
        from += equal;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    fn numbers(count: usize, of: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..count).map(of).collect()
    }

    /// A number that has nothing to do with its place.
    fn noise(place: usize) -> f64 {
        let words = Stream::new(1, Purpose::Audit, [0; 3]);
        (words.word(place as u64) >> 40) as f64
    }

    #[test]
    fn ranks_of_equal_values_are_their_mean() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 7.0]), [1.5, 0.0, 1.5, 3.0]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    #[test]
    fn auroc_is_the_share_of_pairs_in_order() {
        let truths = [false, true, false, true];
        assert_eq!(auroc(&truths, &[1.0, 2.0, 3.0, 4.0]), Some(0.75));
        assert_eq!(auroc(&truths, &[1.0, 1.0, 1.0, 1.0]), Some(0.5));
        assert_eq!(auroc(&[true, true], &[1.0, 2.0]), None);
    }

    #[test]
    fn noise_predicts_nothing_and_a_copy_of_the_target_everything() {
        let count = 2000;
        let truth = Target::Truth((0..count).map(|seed| noise(seed) % 3.0 == 0.0).collect());
        let number = Target::Number(numbers(count, |seed| noise(seed) % 1000.0));
        let class = Target::Class((0..count).map(|seed| (noise(seed) % 7.0) as u32).collect());
        for (target, own) in [(truth, 3.0), (number, 1000.0), (class, 7.0)] {
            let twin = numbers(count, |seed| noise(seed) % own);
            for (values, expected) in [
                (Values::Code(twin.clone()), 0.999),
                (Values::Number(twin), 0.999),
                (Values::Number(numbers(count, |seed| noise(seed + count))), 0.0),
                (Values::Code(numbers(count, |seed| noise(seed + count) % 20.0)), 0.0),
            ] {
                let found = score(&target, &values, None).unwrap();
                let is_right = match expected > 0.5 {
                    true => found.value > expected,
                    false => found.value < 0.6,
                };
                // Ten and more bins share a number's thousand values, so that few groups are whole.
                let is_coarse = matches!((&target, &values), (Target::Number(_), Values::Code(_)));
                assert!(is_right || is_coarse, "{found:?}");
            }
        }
    }

    #[test]
    fn null_and_a_rare_value_can_predict_the_target() {
        let count = 1000;
        let truths: Vec<bool> = (0..count).map(|seed| seed % 4 == 0).collect();
        let target = Target::Truth(truths.clone());
        let null_if = |is_null: &dyn Fn(usize) -> bool| {
            numbers(count, |seed| if is_null(seed) { f64::NAN } else { noise(seed) })
        };
        let rows: Vec<[u32; 2]> = (0..count as u32).map(|seed| [seed, seed]).collect();
        let score = |values: Vec<f64>| score(&target, &Values::Number(values), Some(&rows));
        let found = score(null_if(&|seed| truths[seed])).unwrap();
        assert!(found.by_null && found.value > 0.999, "{found:?}");
        // NULL for a tenth of the true seeds alone.
        let found = score(null_if(&|seed| seed % 40 == 0));
        assert!(found.is_none_or(|found| found.measure != Measure::Always), "too few");
        let found = score(null_if(&|seed| seed % 20 == 0)).unwrap();
        assert_eq!((found.measure, found.seeds, found.by_null), (Measure::Always, 50, true));
        // A number that stands for something else.
        let found = score(numbers(count, |seed| if seed % 20 == 0 { -1.0 } else { noise(seed) }));
        assert_eq!(found.map(|found| (found.measure, found.seeds)), Some((Measure::Always, 50)));
    }

    #[test]
    fn what_one_row_has_in_many_seeds_is_one_case() {
        let truths: Vec<bool> = (0..1000).map(|seed| seed % 4 == 0).collect();
        let values = numbers(1000, |seed| if seed % 8 == 0 { -1.0 } else { noise(seed) });
        let measure = |rows: &dyn Fn(u32) -> [u32; 2]| {
            let rows: Vec<_> = (0..1000).map(rows).collect();
            let target = Target::Truth(truths.clone());
            score(&target, &Values::Number(values.clone()), Some(&rows)).unwrap().measure
        };
        assert_eq!(measure(&|seed| [seed, seed]), Measure::Always);
        assert_ne!(measure(&|seed| [seed, seed / 100]), Measure::Always);
        assert_ne!(measure(&|seed| [seed / 100, seed]), Measure::Always);
    }

    #[test]
    fn a_column_is_scored_where_it_is_not_null() {
        let count = 2000;
        let target = Target::Number(numbers(count, noise));
        let some = numbers(count, |seed| if seed % 5 == 0 { noise(seed) } else { f64::NAN });
        let found = score(&target, &Values::Number(some), None).unwrap();
        assert!(found.value > 0.999 && found.seeds == 400, "{found:?}");
    }

    #[test]
    fn few_or_equal_targets_have_no_score() {
        let values = |count| Values::Number(numbers(count, noise));
        assert!(score(&Target::Number(numbers(99, noise)), &values(99), None).is_none());
        assert!(score(&Target::Truth(vec![true; 500]), &values(500), None).is_none());
    }
}
