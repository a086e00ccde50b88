//! Sums of the caller's arrays: each in its own type, and damaged bytes told.

use headwater::ErrorKind;
use headwater::fold::sums::Width;
use headwater::fold::{ArraySums, Node, Partial, Statistic, Tree};
use proptest::prelude::*;

fn statistic() -> ArraySums {
    ArraySums::new(vec![(2, Width::F32), (0, Width::F64), (1, Width::F64)]).unwrap()
}

/// The bytes of the arrays of one leaf.
fn leaf(narrow: [f32; 2], wide: f64) -> Vec<Vec<u8>> {
    vec![narrow.map(f32::to_le_bytes).concat(), Vec::new(), wide.to_le_bytes().to_vec()]
}

fn of(statistic: &ArraySums, leaf: &[Vec<u8>]) -> <ArraySums as Statistic>::Partial {
    statistic.leaf(&leaf.iter().map(Vec::as_slice).collect()).unwrap()
}

/// Adds as the page says: splits at the greatest power of two below the number of leaves.
fn twin<T: Copy>(leaves: &[T], add: &impl Fn(T, T) -> T) -> T {
    match leaves {
        [one] => *one,
        _ => {
            let half = leaves.len().next_power_of_two() / 2;
            add(twin(&leaves[..half], add), twin(&leaves[half..], add))
        }
    }
}

proptest! {
    #[test]
    fn p1_sums_are_those_of_the_tree(
        leaves in prop::collection::vec((any::<[f32; 2]>(), any::<f64>()), 1..20),
    ) {
        let statistic = statistic();
        let mut tree = Tree::new(leaves.len() as u64);
        for (place, (narrow, wide)) in leaves.iter().enumerate().rev() {
            let partial = of(&statistic, &leaf(*narrow, *wide));
            tree.insert(Node::leaf(place as u64).unwrap(), partial).unwrap();
        }
        let whole = tree.finish().unwrap().unwrap();
        let narrow: Vec<_> = leaves.iter().map(|(narrow, _)| *narrow).collect();
        let wide: Vec<_> = leaves.iter().map(|(_, wide)| *wide).collect();
        let narrow = twin(&narrow, &|a: [f32; 2], b: [f32; 2]| [a[0] + b[0], a[1] + b[1]]);
        let expected = of(&statistic, &leaf(narrow, twin(&wide, &|a, b| a + b)));
        prop_assert!(whole.same_bits(&expected));
        let bytes = statistic.encode(&whole);
        prop_assert_eq!(bytes.len(), statistic.partial_bytes());
        prop_assert!(statistic.decode(&bytes).unwrap().same_bits(&whole));
    }
}

#[test]
fn other_arrays_and_other_bytes_are_refused() {
    let statistic = statistic();
    let good = leaf([1.0, 2.0], 3.0);
    let mut bytes = statistic.encode(&of(&statistic, &good));
    for wrong in [&good[..2], &[good[0].clone(), good[2].clone(), good[2].clone()][..]] {
        let error = statistic.leaf(&wrong.iter().map(Vec::as_slice).collect()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    let short = statistic.decode(&bytes[1..]).unwrap_err();
    assert!(short.to_string().contains("expected 16 bytes of sums, found 15"), "{short}");
    // A NaN that no sum has.
    bytes[..4].copy_from_slice(&0x7fc0_0001_u32.to_le_bytes());
    assert_eq!(statistic.decode(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(ArraySums::new(Vec::new()).err().unwrap().kind(), ErrorKind::InvalidArgument);
    let large = ArraySums::new(vec![(usize::MAX, Width::F64)]);
    assert_eq!(large.err().unwrap().kind(), ErrorKind::LimitExceeded);
    // Arrays of 16 GiB in all, and a number more.
    let most = ArraySums::new(vec![(1 << 30, Width::F64), (1 << 31, Width::F32)]).unwrap();
    assert_eq!(most.arrays(), [(1 << 30, Width::F64), (1 << 31, Width::F32)]);
    let more = ArraySums::new([most.arrays(), &[(1, Width::F32)]].concat());
    assert_eq!(more.err().unwrap().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn p6_sums_with_other_bits_differ() {
    let statistic = statistic();
    let sums = |narrow, wide| of(&statistic, &leaf(narrow, wide));
    let one = sums([1.0, 0.0], 3.0);
    assert!(one.same_bits(&sums([1.0, 0.0], 3.0)));
    for other in [sums([1.5, 0.0], 3.0), sums([1.0, -0.0], 3.0), sums([1.0, 0.0], -3.0)] {
        assert!(!one.same_bits(&other) && !other.same_bits(&one));
    }
}
