//! A store returns every cell of any database.

use proptest::prelude::*;

use crate::{random, store_of, twin};

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn every_cell_link_and_seed_of_a_random_database_reads_back(
        seed: u64,
        tables in 1_usize..=4,
        rows in 1_usize..=40,
        cuts in proptest::collection::vec(0_usize..30, 0..4),
    ) {
        let database = random::database(seed, tables, rows);
        // Batches may be empty, but their number must be finite.
        let cuts: Vec<_> = cuts.into_iter().chain([7]).collect();
        let (_folder, store) = store_of(&database, &cuts);
        store.verify(&|_| Ok(())).unwrap();
        twin::compare(&database, &store);
    }
}

/// No target of `true` or `false` of this database is known by the end of training.
#[test]
fn p7_truths_after_training_are_not_counted_where_none_is_known() {
    let database = random::database(16_797_684_413_191_590_664, 3, 29);
    let (_folder, store) = store_of(&database, &[7]);
    twin::compare(&database, &store);
}
