//! The golden store in `checkpoints/`: this build prepares it, and every build reads it.
//!
//! `HEADWATER_REGENERATE=1 cargo test --release --test store golden` writes it again for the current
//! format version; those of older versions stay as they are.

use headwater::store::{FORMAT_VERSION, Store};

use crate::manifest::{Golden, folder, is_asked_to_regenerate, manifest, regenerate};
use crate::same_bits::files;
use crate::{store_of, tiny, twin};

/// One test, so that files are regenerated before they are checked.
#[test]
fn p6_golden_store_is_read_and_prepared_with_the_same_bytes() {
    let database = tiny::database();
    let (prepared, _store) = store_of(&database, &[3]);
    let files_of_today = files(&prepared.path().join("store"));
    let name = format!("store-v{FORMAT_VERSION}-small");
    if is_asked_to_regenerate() {
        let goldens: Vec<_> = files_of_today
            .iter()
            .map(|(file, bytes)| Golden {
                name: format!("{name}/{file}"),
                what: "the database of tests/store/tiny.rs".into(),
                bytes,
                message: None,
            })
            .collect();
        regenerate("tests/store/golden.rs", &goldens);
    }
    let store = Store::open(&folder().join(&name)).unwrap();
    store.verify(&|_| Ok(())).unwrap();
    twin::compare(&database, &store);
    let golden = files(&folder().join(&name));
    assert!(golden.keys().eq(files_of_today.keys()));
    for (file, bytes) in &golden {
        assert!(*bytes == files_of_today[file], "{file} is prepared otherwise than before");
        let entry = &manifest()[&format!("{name}/{file}")];
        assert_eq!(entry["digest"].as_str(), Some(crate::manifest::digest(bytes).as_str()));
    }
}
