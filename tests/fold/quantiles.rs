//! Exact quantiles: the number of the rank, whatever the chunks, the order and the passes.

use headwater::ErrorKind;
use headwater::fold::columns::{ColumnQuantiles, DigitCounts, KeyWidth, Refined};
use headwater::fold::{Fraction, Partial, Quantiles, Rows, Statistic};
use num_bigint::BigInt;
use proptest::prelude::*;

use crate::cells::any_cells;
use crate::column_twin as twin;
use crate::columns::{anyhow, by_tree, columns, leaves_of};

fn at(texts: &[&str]) -> Vec<Fraction> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn first(columns: usize, width: KeyWidth, texts: &[&str]) -> Quantiles {
    Quantiles::new(columns, width, at(texts)).unwrap()
}

/// All passes over some rows.
fn found(mut pass: Quantiles, rows: &Rows<'_>) -> Vec<ColumnQuantiles> {
    loop {
        match pass.refine(&pass.leaf(rows).unwrap()).unwrap() {
            Refined::Next(next) => pass = next,
            Refined::Found(columns) => return columns,
        }
    }
}

/// The rank of the quantile `digits / 10^places` of `count` numbers, in whole numbers of any size.
fn rank(digits: &str, places: usize, count: u64) -> u64 {
    let digits: BigInt = digits.parse().unwrap();
    let whole = BigInt::from(10).pow(places as u32);
    let product: BigInt = digits * count + &whole - 1;
    u64::try_from(product / whole).unwrap().max(u64::from(count > 0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn p1_quantiles_are_the_numbers_of_their_ranks_in_any_order(
        cells in any_cells(), chunk_rows in 12_usize..30, seed: u64, per_mille in 0_u32..=1000,
    ) {
        let all = columns(&cells);
        let is_wide = cells.are_wide();
        let width = if is_wide { KeyWidth::Wide } else { KeyWidth::Narrow };
        let texts = [format!("{per_mille}e-3"), "0.5".to_owned(), "1".to_owned()];
        let digits = [per_mille, 500, 1000];
        let count = |column: &Vec<Option<f64>>| {
            column.iter().flatten().filter(|value| !value.is_nan()).count() as u64
        };
        let expected: Vec<Vec<Option<f64>>> = all.iter().map(|column| {
            let ranks = digits.map(|digits| rank(&digits.to_string(), 3, count(column)));
            ranks.map(|rank| twin::of_rank(column, rank)).to_vec()
        }).collect();
        let mut pass = first(cells.columns, width, &texts.each_ref().map(String::as_str));
        let found = loop {
            let leaves = leaves_of(&pass, &cells, chunk_rows);
            let prefixes: Vec<Vec<u64>> = expected.iter().map(|values| {
                let known = |value: &f64| twin::prefix(*value, is_wide, pass.pass() - 1);
                let mut prefixes: Vec<u64> = match pass.pass() {
                    1 => vec![0],
                    _ => values.iter().flatten().map(known).collect(),
                };
                prefixes.sort_unstable();
                prefixes.dedup();
                prefixes
            }).collect();
            let bytes = twin::quantiles(&all, is_wide, (pass.pass(), &prefixes));
            prop_assert!(by_tree(&pass, &leaves, seed) == bytes);
            prop_assert!(anyhow(&pass, &leaves, seed) == bytes);
            let counts = pass.decode(&bytes).unwrap();
            prop_assert!(pass.fits_rows(&counts, cells.rows as u64));
            prop_assert!(!pass.fits_rows(&counts, cells.rows as u64 + 1));
            match pass.refine(&counts).unwrap() {
                // As another rank makes it.
                Refined::Next(next) => {
                    let own = first(cells.columns, width, &texts.each_ref().map(String::as_str));
                    pass = own.after(&next.known()).unwrap();
                    prop_assert_eq!(pass.known(), next.known());
                }
                Refined::Found(found) => break found,
            }
        };
        prop_assert_eq!(pass.pass(), if is_wide { 4 } else { 2 });
        for ((column, expected), found) in all.iter().zip(expected).zip(&found) {
            let expected = expected.into_iter().map(|value| value.map(f64::to_bits));
            let values = found.values.iter().map(|v| (!v.is_nan()).then_some(v.to_bits()));
            prop_assert!(values.eq(expected));
            prop_assert_eq!(found.numbers, count(column));
        }
    }
}

proptest! {
    #[test]
    fn ranks_are_those_of_the_written_decimal(
        digits in "[0-9]{1,40}", count in prop_oneof![0_u64..2000, any::<u64>()], exponent in 0_usize..9,
    ) {
        let shifted = format!("0.{digits}e-{exponent}");
        let fraction: Fraction = shifted.parse().unwrap();
        let expected = rank(&digits, digits.len() + exponent, count);
        prop_assert_eq!(fraction.rank_of(count), expected);
        let plain = format!("0.{}{digits}", "0".repeat(exponent));
        prop_assert_eq!(&plain.parse::<Fraction>().unwrap(), &fraction);
        prop_assert_eq!(&fraction.to_string().parse::<Fraction>().unwrap(), &fraction);
    }
}

#[test]
fn ranks_are_not_those_of_a_rounded_product() {
    // As 64-bit floats the products are above 7 and 29.
    for (text, count, expected) in [("0.07", 100, 7), ("0.29", 100, 29), ("0.1", 10, 1)] {
        assert_eq!(text.parse::<Fraction>().unwrap().rank_of(count), expected);
    }
    let above: Fraction = "0.5000000000000000000000000001".parse().unwrap();
    assert_eq!((above.rank_of(10), above.rank_of(u64::MAX)), (6, 1 << 63));
}

#[test]
fn fractions_are_written_in_one_way_and_others_are_refused() {
    for (text, expected) in [
        ("0", "0"),
        ("0.", "0"),
        ("-0", ""),
        (".5", "0.5"),
        ("00.50", "0.5"),
        ("1", "1"),
        ("1.000", "1"),
        ("10e-1", "1"),
        ("0.1e1", "1"),
        ("1e-3", "0.001"),
        ("25E-2", "0.25"),
        ("0e999", "0"),
        ("1.01", ""),
        ("2", ""),
        ("11e-1", ""),
        ("", ""),
        (".", ""),
        ("e5", ""),
        ("nan", ""),
        ("+0.5", ""),
        ("0.5%", ""),
        ("1e-401", ""),
        ("1e-99999999999", ""),
        ("1e2147483647", ""),
        ("0,5", ""),
        ("0x1", ""),
    ] {
        match text.parse::<Fraction>() {
            Ok(fraction) => assert_eq!(fraction.to_string(), expected, "{text}"),
            Err(error) => {
                assert_eq!((error.kind(), expected), (ErrorKind::InvalidArgument, ""), "{text}");
                assert!(error.to_string().contains("from 0 to 1"), "{error}");
            }
        }
    }
}

#[test]
fn fractions_of_400_places_are_the_longest_and_are_texts_in_plans() {
    let longest: Fraction = "1e-400".parse().unwrap();
    assert_eq!(String::from(longest.clone()), format!("0.{}1", "0".repeat(399)));
    assert_eq!(Fraction::try_from(String::from(longest.clone())).unwrap(), longest);
    assert!("11e-401".parse::<Fraction>().is_err());
}

#[test]
fn quantiles_take_infinities_and_signed_zeros_in_the_total_order() {
    let values = [0.0, f64::NAN, f64::NEG_INFINITY, -0.0, f64::from_bits(1), f64::INFINITY, -1.0];
    let rows = Rows::new(&values[..], 7, 1, 1).unwrap();
    let sevenths = ["0", "0.2", "0.4", "0.5", "0.7", "1"];
    let columns = found(first(1, KeyWidth::Wide, &sevenths), &rows);
    let bits: Vec<u64> = columns[0].values.iter().map(|value| value.to_bits()).collect();
    let expected = [f64::NEG_INFINITY, -1.0, -0.0, -0.0, f64::from_bits(1), f64::INFINITY];
    assert_eq!(bits, expected.map(f64::to_bits));
    assert_eq!((columns[0].nans, columns[0].numbers), (1, 6));
}

#[test]
fn quantiles_of_32_bits_are_in_the_total_order_and_have_bytes() {
    let values = [3.0_f32, -2.0, -1.0, f32::NAN, -4.0];
    let rows = Rows::new(&values[..], 5, 1, 1).unwrap();
    let columns = found(first(1, KeyWidth::Narrow, &["0", "0.5", "0.75", "1"]), &rows);
    assert_eq!(columns[0].values, [-4.0, -2.0, -1.0, 3.0]);
    let words = [0, 1, 4].into_iter().chain(columns[0].values.iter().map(|v| v.to_bits()));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    assert_eq!(ColumnQuantiles::encode(&columns), bytes);
}

/// As other ranks do it; one column has no numbers, and the quantiles are in no order.
#[test]
fn each_pass_begins_with_what_the_pass_before_has_found() {
    let texts = ["1", "0", "0.34", "0.35", "0.34"];
    let begin = || first(3, KeyWidth::Wide, &texts);
    let mut cells = [f64::NAN; 30];
    for row in 0..10 {
        let number = row as f64;
        cells[3 * row] = -1.5 * number;
        cells[3 * row + 2] = f64::powf(7.0, number * number);
    }
    let nulls: Vec<bool> = (0..30).map(|cell| cell % 3 == 1).collect();
    let rows = Rows::new(&cells[..], 10, 3, 3).unwrap().with_nulls(&nulls).unwrap();
    let (mut pass, mut number) = (begin(), 1);
    let columns = loop {
        assert_eq!((pass.pass(), pass.passes(), pass.column_count()), (number, 4, 3));
        assert_eq!(pass.at(), at(&texts));
        let counts = pass.leaf(&rows).unwrap();
        assert_eq!(pass.encode(&counts).len(), pass.partial_bytes());
        assert!(pass.fits_rows(&counts, 10) && !pass.fits_rows(&counts, 11));
        let mut bytes = pass.encode(&counts);
        bytes[2 * 8] += 1;
        assert!(!pass.fits_rows(&pass.decode(&bytes).unwrap(), 10), "of one column alone");
        let Some(known) = pass.known_after(&counts).unwrap() else {
            break pass.found(&counts).unwrap();
        };
        pass = begin().after(&known).unwrap();
        assert!(pass.known() == known);
        let counts = pass.leaf(&Rows::new(&[1.0, 2.0, 3.0][..], 1, 3, 3).unwrap()).unwrap();
        let error = pass.refine(&counts).unwrap_err().to_string();
        assert!(error.contains("column 0: expected 10 numbers"), "{error}");
        number += 1;
    };
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let seventh = |number: i32| f64::powf(7.0, f64::from(number * number));
    for (column, numbers, values) in [
        (0, 10, [-0.0, -13.5, -9.0, -9.0, -9.0]),
        (1, 0, [f64::NAN; 5]),
        (2, 10, [seventh(9), 1.0, seventh(3), seventh(3), seventh(3)]),
    ] {
        assert_eq!(bits(&columns[column].values), bits(&values), "column {column}");
        assert_eq!((columns[column].nulls, columns[column].numbers), (10 - numbers, numbers));
    }
    assert_eq!(columns.len(), 3);
    let counts = pass.leaf(&rows).unwrap();
    // The first prefix and the last; the column without numbers has none.
    let open = |values: &[f64]| {
        let mut prefixes: Vec<u64> = values.iter().map(|v| v.to_bits() >> 16).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes.len()
    };
    let prefixes = open(&columns[0].values) + open(&columns[2].values);
    assert_eq!(pass.encode(&counts).len(), 8 * (3 * 3 + (prefixes << 16)));
}

#[test]
fn columns_without_numbers_have_no_quantiles() {
    let nulls = [true, false, true, false];
    let values = [1.0_f32, 5.0, 2.0, f32::NAN];
    let rows = Rows::new(&values[..], 2, 2, 2).unwrap().with_nulls(&nulls).unwrap();
    let columns = found(first(2, KeyWidth::Narrow, &["0", "1"]), &rows);
    assert!(columns[0].values.iter().all(|value| value.is_nan()));
    assert_eq!((columns[0].nulls, columns[0].nans, columns[0].numbers), (2, 0, 0));
    assert_eq!((columns[1].nans, columns[1].numbers), (1, 1));
    assert_eq!(columns[1].values, [5.0, 5.0]);
}

/// More numbers in one column than are counted at a time, and more than the few that are kept apart.
#[test]
fn counts_of_few_and_of_all_bins_have_the_same_bits() {
    let values: Vec<f32> =
        (0..150_000_u32).map(|n| f32::from_bits(n.wrapping_mul(28_629))).collect();
    let rows = |range: std::ops::Range<usize>| {
        Rows::new(&values[range.clone()], range.len(), 1, 1).unwrap()
    };
    let pass = first(1, KeyWidth::Narrow, &["0.5"]);
    let whole = pass.leaf(&rows(0..values.len())).unwrap();
    let starts = (0..values.len()).step_by(10_000);
    let parts: Vec<DigitCounts> =
        starts.map(|start| pass.leaf(&rows(start..start + 10_000)).unwrap()).collect();
    for reversed in [false, true] {
        let mut merged = parts[0].clone();
        for part in &parts[1..] {
            if reversed {
                let mut part = part.clone();
                part.merge(&merged);
                merged = part;
            } else {
                merged.merge(part);
            }
        }
        assert!(merged.same_bits(&whole) && whole.same_bits(&merged));
        assert_eq!(pass.encode(&merged), pass.encode(&whole));
    }
    assert_eq!(whole.used().map(|(_, count)| count).sum::<u64>(), 150_000);
    assert!(!whole.same_bits(&parts[0]));
    // Without the bins of NULL, NaN and numbers outside.
    let full = [&[0; 24][..], &vec![255; 8 << 16]].concat();
    let mut full = pass.decode(&full).unwrap();
    full.merge(&whole);
    assert!(full.used().filter(|(bin, _)| *bin >= 3).all(|(_, count)| count == u64::MAX));
}

/// Counts of which most bins are used, and of which few are, on either side of where the form changes.
#[test]
fn counts_in_either_form_have_the_bytes_of_their_sums() {
    const BINS: usize = 3 + (1 << 16);
    let pass = first(1, KeyWidth::Narrow, &["0.5"]);
    let words = |used: &[(usize, u64)]| {
        let mut words = vec![0_u64; BINS];
        used.iter().for_each(|&(bin, count)| words[bin] = count);
        words
    };
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let each_second = |count: usize| (0..count).map(|n| (2 * n, n as u64 + 1)).collect::<Vec<_>>();
    let all = [
        words(&[]),
        words(&[(0, 3), (2, 1), (5, 4), (BINS - 1, 1)]),
        words(&[(0, 1), (4, 2), (5, u64::MAX), (7, 1)]),
        words(&each_second(BINS / 2)),
        words(&each_second(BINS / 2 + 1)),
    ];
    for left in &all {
        for right in &all {
            let sums: Vec<u64> =
                left.iter().zip(right).map(|(a, b)| a.saturating_add(*b)).collect();
            let mut merged = pass.decode(&bytes(left)).unwrap();
            merged.merge(&pass.decode(&bytes(right)).unwrap());
            let expected = bytes(&sums);
            assert!(pass.encode(&merged) == expected);
            assert!(merged == pass.decode(&expected).unwrap());
            let used = sums.iter().copied().enumerate().filter(|(_, count)| *count > 0);
            assert!(merged.used().eq(used));
        }
    }
    assert!(pass.decode(&bytes(&all[1])).unwrap() != pass.decode(&bytes(&all[2])).unwrap());
}

/// More equal numbers than are counted at a time.
#[test]
fn many_equal_numbers_are_each_counted_once() {
    let values = vec![2.5_f32; 150_000];
    let rows = Rows::new(&values[..], values.len(), 1, 1).unwrap();
    let counts = first(1, KeyWidth::Narrow, &["0.5"]).leaf(&rows).unwrap();
    assert_eq!(counts.used().map(|(_, count)| count).collect::<Vec<_>>(), [150_000]);
}

#[test]
fn nulls_nans_and_numbers_elsewhere_are_counted_apart() {
    let values = [1e30, 0.0, f64::NAN, f64::NAN, 1.0, 2e30, 3e30];
    let nulls = [false, true, false, false, false, false, false];
    let rows = Rows::new(&values[..], 7, 1, 1).unwrap().with_nulls(&nulls).unwrap();
    let columns = found(first(1, KeyWidth::Wide, &["0"]), &rows);
    assert_eq!((columns[0].nulls, columns[0].nans, columns[0].numbers), (1, 2, 4));
    assert_eq!(columns[0].values, [1.0]);
}

#[test]
fn invalid_passes_of_quantiles_are_refused() {
    let refused = |found: headwater::Result<Quantiles>, kind, words: &str| {
        let error = found.expect_err("the pass was taken");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let (invalid, limit) = (ErrorKind::InvalidArgument, ErrorKind::LimitExceeded);
    let of = |columns, count| Quantiles::new(columns, KeyWidth::Wide, at(&vec!["0.5"; count]));
    refused(of(0, 1), invalid, "expected at least 1 column, found 0");
    refused(of(1, 0), invalid, "expected at least one quantile, found none");
    refused(of(1, 4097), limit, "expected at most 4096 quantiles, found 4097");
    refused(
        of(1024, 1),
        limit,
        "expected at most 536870912 bytes of counts in pass 1, found 536895488: 512 KiB for each of 1024 \
         key prefixes in 1024 columns",
    );
    assert!(of(usize::MAX, 1).is_err() && of(1023, 1).is_ok());

    let values: Vec<f64> = (0..2000).map(|n| f64::powi(2.0, n - 1000)).collect();
    let rows = Rows::new(&values[..], 2000, 1, 1).unwrap();
    let texts: Vec<String> = (0..2000).map(|n| (f64::from(n) / 2000.0).to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let many = first(1, KeyWidth::Wide, &texts);
    let error = many.refine(&many.leaf(&rows).unwrap()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), limit);
    assert!(error.to_string().contains("of counts in pass 2"), "{error}");

    let pass = first(1, KeyWidth::Wide, &["0.5"]);
    let Refined::Next(next) = pass.refine(&pass.leaf(&rows).unwrap()).unwrap() else {
        panic!("one pass was enough")
    };
    let known = next.known();
    let corrupt = ErrorKind::Corrupt;
    refused(pass.clone().after(&known[1..]), corrupt, "expected 40 bytes, found 39");
    // The number of the pass, that of the numbers, the prefix, the rank and the count.
    for (word, value) in
        [(0, 1), (0, 5), (1, 0), (1, 0), (2, 1 << 16), (3, 0), (3, 9999), (4, 9999)]
    {
        let mut other = known.clone();
        other[word * 8..][..8].copy_from_slice(&u64::to_le_bytes(value));
        refused(pass.clone().after(&other), corrupt, "cannot continue after an earlier pass");
    }
    // Of two quantiles one alone is impossible.
    let two = first(1, KeyWidth::Wide, &["0.5", "0.75"]);
    let mut known = two.known_after(&two.leaf(&rows).unwrap()).unwrap().unwrap();
    known[6 * 8..][..8].copy_from_slice(&9999_u64.to_le_bytes());
    refused(two.after(&known), corrupt, "the place of each quantile of column 0");
    let error = pass.found(&pass.leaf(&rows).unwrap()).unwrap_err();
    assert_eq!(error.kind(), invalid);
    assert!(error.to_string().contains("the last of 4 passes over the rows"), "{error}");
    let narrow = first(1, KeyWidth::Narrow, &["0.5"]);
    assert_eq!(narrow.leaf(&rows).unwrap_err().kind(), invalid);
    let two = first(2, KeyWidth::Wide, &["0.5"]);
    assert!(two.leaf(&rows).unwrap_err().to_string().contains("expected 2 columns, found 1"));
}

#[test]
fn p6_rows_that_change_between_passes_are_refused() {
    let rows = |values: &'static [f64]| Rows::new(values, values.len(), 1, 1).unwrap();
    let pass = first(1, KeyWidth::Wide, &["0.5"]);
    let before = rows(&[1.0, 2.0, 3.0]);
    let Refined::Next(next) = pass.refine(&pass.leaf(&before).unwrap()).unwrap() else {
        panic!("one pass was enough")
    };
    for other in [&[1.0, 2.0][..], &[1.0, 2.0, 3.0, 4.0], &[1.0, 5.0, 6.0], &[2.0, 2.0, 3.0]] {
        let other = rows(other.to_vec().leak());
        let error = next.refine(&next.leaf(&other).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains("the rows have changed between the passes"), "{error}");
    }
    assert!(next.refine(&next.leaf(&before).unwrap()).is_ok());
}
