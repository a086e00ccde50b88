//! The distribution of a task's labels.

use std::collections::BTreeMap;

use headwater::Result;
use headwater::internal::time_text;
use headwater::store::{Cell, SemanticType, Store, Task};
use serde_json::{Value, json};

/// The most categories whose labels are counted one by one.
const CATEGORIES_SHOWN: usize = 12;

/// Returns the distribution of a task's labels, as names and values in their order.
///
/// Booleans and categories are counted; of numbers and times there are five quantiles. The last entry
/// counts the NULLs.
pub(super) fn label_summary(store: &Store, task: &Task) -> Result<Vec<(String, Value)>> {
    let anchor = &store.tables()[task.metadata().anchor as usize];
    let stats = &store.metadata().target_column(task.metadata()).stats;
    let (mut nulls, mut counts) = (0_u64, BTreeMap::<u32, u64>::new());
    let (mut numbers, mut times) = (Vec::new(), Vec::new());
    for seed_index in 0..task.metadata().seed_count {
        match task.seed(anchor, seed_index)?.target {
            Cell::Boolean(truth) => *counts.entry(truth.into()).or_default() += 1,
            Cell::Categorical(index) => *counts.entry(index).or_default() += 1,
            Cell::Numerical(score) => numbers.push(stats.number(score).unwrap_or(score.into())),
            Cell::Timestamp(time) => times.push(time),
            Cell::Null | Cell::Identifier | Cell::Text(_) => nulls += 1,
        }
    }
    numbers.sort_by(f64::total_cmp);
    times.sort_unstable();
    let mut found = quantiles(&numbers, |&number| json!(number));
    found.extend(quantiles(&times, |&time| json!(time_text(time))));
    found.extend(match task.semantic() {
        SemanticType::Boolean => {
            let count = |truth: u32| json!(counts.get(&truth).copied().unwrap_or(0));
            vec![("false".to_owned(), count(0)), ("true".to_owned(), count(1))]
        }
        _ => categories(store, &counts)?,
    });
    found.push(("NULL".to_owned(), json!(nulls)));
    Ok(found)
}

/// Returns the number of labels of each category, the most frequent first; the rest in one number.
fn categories(store: &Store, counts: &BTreeMap<u32, u64>) -> Result<Vec<(String, Value)>> {
    let mut sorted: Vec<_> = counts.iter().map(|(&index, &count)| (index, count)).collect();
    sorted.sort_by_key(|&(index, count)| (std::cmp::Reverse(count), index));
    let (shown, rest) = sorted.split_at(sorted.len().min(CATEGORIES_SHOWN));
    let name = |&(index, count): &(u32, u64)| Ok((store.category(index)?.to_owned(), json!(count)));
    let mut found = shown.iter().map(name).collect::<Result<Vec<_>>>()?;
    if !rest.is_empty() {
        let sum: u64 = rest.iter().map(|&(_, count)| count).sum();
        found.push((format!("{} other categories", rest.len()), json!(sum)));
    }
    Ok(found)
}

/// Returns five quantiles of sorted values; none of no values.
fn quantiles<T>(sorted: &[T], value: impl Fn(&T) -> Value) -> Vec<(String, Value)> {
    let Some(last) = sorted.len().checked_sub(1) else { return Vec::new() };
    let names = [("min", 0), ("25 %", 1), ("median", 2), ("75 %", 3), ("max", 4)];
    names.map(|(name, quarter)| (name.to_owned(), value(&sorted[last * quarter / 4]))).into()
}
