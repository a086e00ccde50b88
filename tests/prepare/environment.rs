//! P1 in a process that was told to round otherwise, or to make small numbers zero.
#![cfg(target_arch = "x86_64")]
#![expect(
    unsafe_code,
    reason = "sets the processor's register for floating point, as a host might"
)]

use std::arch::asm;
use std::path::Path;

use headwater::prepare::embed::HashingEmbedder;
use headwater::prepare::schema::Schema;
use headwater::prepare::{Options, prepare, source};
use headwater::progress::Silent;
use headwater::store::{Store, TextEncoding};

/// All exceptions masked, rounding to nearest.
const USUAL: u32 = 0x1f80;
/// Results that are subnormal become zero, and operands.
const NO_SUBNORMALS: u32 = USUAL | 0x8040;
const ROUNDING_UP: u32 = USUAL | 0x4000;

fn set(word: u32) {
    // SAFETY: The bits are such as the processor knows, and nothing here depends on them.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack)) };
}

const SCHEMA: &str = "database = \"t\"\n[[table]]\nname = \"t\"\nkey = \"a\"\n\
    columns = { a = \"identifier\", x = \"numerical\", y = \"numerical\", note = \"text\" }\n";

/// Prepares the table under these settings, opens the store and verifies it; returns its root.
fn root(folder: &Path, word: u32) -> String {
    let out = folder.join(format!("{word:x}.db"));
    let work = || {
        let (schema, source) = (Schema::parse(SCHEMA)?, source::open(&folder.join("t.csv"))?);
        let options = Options {
            embedder: &HashingEmbedder::new(8),
            text_vectors: Some(TextEncoding::F16),
            threads: Some(2),
            memory: None,
            sql: None,
            progress: &Silent,
        };
        let report = prepare(&*source, &schema, &out, &options)?;
        Store::open(&out)?.verify(&|_| Ok(()))?;
        Ok::<_, headwater::Error>(report.root.to_string())
    };
    set(word);
    let root = work();
    set(USUAL);
    root.unwrap()
}

#[test]
fn p1_the_callers_rounding_changes_no_bit_of_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (1..500).map(|n| format!("{n},{},{}e-310,n {n}\n", f64::from(n) / 7.0, n * n));
    let text = format!("a,x,y,note\n{}500,1,1,n\n", rows.collect::<String>());
    std::fs::write(folder.path().join("t.csv"), text).unwrap();
    let usual = root(folder.path(), USUAL);
    for word in [ROUNDING_UP, NO_SUBNORMALS, ROUNDING_UP | NO_SUBNORMALS] {
        assert_eq!(root(folder.path(), word), usual, "{word:x}");
    }
}
