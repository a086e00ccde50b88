//! The golden stores in `checkpoints/`: this build prepares and reads the newest, and refuses the others
//! by their version.
//!
//! `HEADWATER_REGENERATE=1 cargo test --release --test store golden` writes it again for the current
//! format version; those of older versions stay as they are.

use headwater::ErrorKind;
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

#[test]
fn p6_a_store_of_an_older_version_is_refused_by_its_version() {
    for version in 1..FORMAT_VERSION {
        let path = folder().join(format!("store-v{version}-small"));
        let error = Store::open(&path).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Version);
        assert_eq!(
            error.to_string(),
            format!(
                "{}/metadata.json: expected store format version {FORMAT_VERSION}, found version \
                 {version}; prepare the store with this version of headwater, or read it with the \
                 version that wrote it",
                path.display()
            )
        );
    }
}
