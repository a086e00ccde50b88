//! Parts of any database, cut anywhere, make the store of one process.

use headwater::prepare::{Merge, Part, PartOptions, merge, prepare_part};
use headwater::progress::Silent;
use proptest::prelude::*;

use crate::same_bits::files;
use crate::stores::options;
use crate::{folder, prepared, random};

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn p1_parts_of_a_random_database_make_the_store_of_one_process(
        seed: u64,
        tables in 1_usize..=4,
        rows in 1_usize..=60,
        cuts in proptest::collection::vec(0_usize..30, 0..4),
        count in 1_u32..=9,
        threads in 1_usize..=3,
        memory in proptest::option::of(0_u64..3000),
    ) {
        let database = random::database(seed, tables, rows);
        let cuts: Vec<_> = cuts.into_iter().chain([7]).collect();
        let source = database.memory(&cuts);
        let folder = folder();
        let (whole, out) = (folder.path().join("whole"), folder.path().join("merged"));
        let parts = folder.path().join("parts");
        prepared(&source, &database, &whole, 2, None).unwrap_or_else(|e| panic!("{e}"));
        for number in 1..=count {
            let options = PartOptions { threads: Some(threads), progress: &Silent };
            let part = Part::new(number, count).unwrap();
            prepare_part(&source, &database.schema, &parts, part, &options)
                .unwrap_or_else(|e| panic!("{e}"));
        }
        let to = Merge { parts: &parts, out: &out, replace: false };
        merge(&source, &database.schema, &to, &options(threads, memory)).unwrap_or_else(|e| panic!("{e}"));
        prop_assert!(files(&whole) == files(&out), "the files differ");
    }
}
