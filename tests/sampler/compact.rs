//! The compact form, expanded by a plain twin of the device's code, equals the full form.

use std::f64::consts::TAU;

use headwater::plan::Split;
use headwater::sampler::{Batch, Settings};
use headwater::store::{ColumnStats, Store};
use proptest::prelude::*;

use crate::PLAIN;
use crate::cases::{case, cases};

/// The links of one sequence as a matrix.
fn expand_edges(edges: &[u16], rows: usize) -> Vec<u8> {
    let mut matrix = vec![0; rows * rows];
    let edges = edges.chunks_exact(2).take_while(|edge| edge[0] != u16::MAX);
    edges.for_each(|edge| matrix[usize::from(edge[0]) * rows + usize::from(edge[1])] = 1);
    matrix
}

/// The month, the day of the month and the day of the year of a day since 1970, each from 0,
/// by counting days.
fn calendar(mut day: i64) -> (usize, i64, i64) {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = |year| 365 + i64::from(is_leap(year));
    let mut year = 1970;
    while day < 0 {
        year -= 1;
        day += length(year);
    }
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let of_year = day;
    let february = 28 + i64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    (month, day, of_year)
}

/// The fifteen numbers of a timestamp, as `sampler/FORMAT.md` has them.
fn expand_time(time_us: i64, mean_us: f64, std_us: f64) -> [f32; 15] {
    let seconds = time_us.div_euclid(1_000_000);
    let day = seconds.div_euclid(86_400);
    let (month, of_month, of_year) = calendar(day);
    // The first day of 1970 was a Thursday.
    let weekday = (day + 3).rem_euclid(7);
    let places = [
        (seconds.rem_euclid(60), 60.0),
        (seconds.div_euclid(60).rem_euclid(60), 60.0),
        (seconds.div_euclid(3600).rem_euclid(24), 24.0),
        (weekday, 7.0),
        (of_month, 31.0),
        (month as i64, 12.0),
        (of_year, 366.0),
    ];
    let mut features = [0.0; 15];
    for (pair, (place, period)) in features.chunks_exact_mut(2).zip(places) {
        let angle = TAU * place as f64 / period;
        pair.copy_from_slice(&[libm::sin(angle) as f32, libm::cos(angle) as f32]);
    }
    features[14] = if std_us > 0.0 { ((time_us as f64 - mean_us) / std_us) as f32 } else { 0.0 };
    features
}

/// The features of every cell.
fn expand_times(batch: &Batch, store: &Store) -> Vec<f32> {
    let of = |name| batch.get::<u8>(name).unwrap();
    let kinds = batch.get::<i8>("semantic_types").unwrap();
    let times = batch.get::<i64>("timestamp_us").unwrap();
    let columns = batch.get::<i32>("column_ids").unwrap();
    let metadata = store.metadata();
    let targets = metadata.tasks.iter().map(|task| metadata.target_column(task));
    let all = metadata.tables.iter().flat_map(|table| &table.columns).chain(targets);
    let cell = |at: usize| {
        let is_time = kinds[at] == 2 && of("is_null")[at] == 0 && of("is_padding")[at] == 0;
        if !is_time {
            return [0.0; 15];
        }
        match all.clone().find(|column| column.index as i32 == columns[at]).unwrap().stats {
            ColumnStats::Timestamp { mean_us, std_us, .. } => {
                expand_time(times[at], mean_us, std_us)
            }
            _ => panic!("a time in a column of something else"),
        }
    };
    (0..kinds.len()).flat_map(cell).collect()
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn p1_the_compact_form_expands_to_the_full_form(case in case(1_u32..=5), steps in 1_usize..10) {
        let form = |compact| {
            let mut settings: Settings = case.settings.clone();
            settings.shape.compact = compact;
            case.alone(&settings, PLAIN)
        };
        let (full, compact) = (form(false), form(true));
        prop_assert_eq!(full.plan(), compact.plan());
        let rows = case.settings.shape.max_rows as usize;
        for _ in 0..steps {
            let (full, _) = full.next(Split::Train).unwrap();
            let (compact, _) = compact.next(Split::Train).unwrap();
            let (store, _) = case.tasks()[full.get::<u32>("task_idx").unwrap()[0] as usize];
            for (tensor, bytes) in full.tensors() {
                match tensor.name {
                    "timestamp_values" => {
                        let found = bytemuck::cast_slice::<u8, f32>(bytes);
                        prop_assert!(found == expand_times(&compact, store));
                    }
                    "fk_adj" => {
                        let edges = compact.get::<u16>("fk_edges").unwrap();
                        let count = tensor.shape[0];
                        let each = edges.len() / count;
                        let sequence = |at: usize| expand_edges(&edges[at * each..][..each], rows);
                        let expanded: Vec<u8> = (0..count).flat_map(sequence).collect();
                        prop_assert_eq!(bytes, &expanded);
                    }
                    name => {
                        let other = compact.tensors().find(|(tensor, _)| tensor.name == name);
                        prop_assert!(other.is_some_and(|(_, other)| other == bytes), "{}", name);
                    }
                }
            }
        }
    }
}
