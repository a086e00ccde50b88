//! The golden stores in `checkpoints/`: this build prepares and reads the newest, and refuses the others
//! by their version.
//!
//! `HEADWATER_REGENERATE=1 cargo test --release --test store golden` writes it again for the current
//! format version; those of older versions stay as they are.

use headwater::ErrorKind;
use headwater::store::{FORMAT_VERSION, Store, TextEncoding};

use crate::manifest::{Golden, folder, is_asked_to_regenerate, manifest, regenerate};
use crate::same_bits::files;
use crate::{encoded_store_of, tiny, twin};

/// One test, so that files are regenerated before they are checked.
#[test]
fn p6_golden_store_is_read_and_prepared_with_the_same_bytes() {
    is_read_and_prepared(&format!("store-v{FORMAT_VERSION}-small"), TextEncoding::F16);
    is_read_and_prepared(&format!("store-v{FORMAT_VERSION}-int8"), TextEncoding::Int8);
}

fn is_read_and_prepared(name: &str, encoding: TextEncoding) {
    let database = tiny::database();
    let (prepared, store) = encoded_store_of(&database, &[3], Some(encoding));
    let files_of_today = files(&prepared.path().join("store"));
    if is_asked_to_regenerate() {
        let goldens: Vec<_> = files_of_today
            .iter()
            .map(|(file, bytes)| Golden {
                name: format!("{name}/{file}"),
                what: match encoding {
                    TextEncoding::F16 => "the database of tests/store/tiny.rs".into(),
                    TextEncoding::Int8 => "the same with --text-vectors int8".into(),
                },
                bytes,
                message: None,
            })
            .collect();
        regenerate("tests/store/golden.rs", &goldens);
    }
    let golden = Store::open(&folder().join(name)).unwrap();
    golden.verify(&|_| Ok(())).unwrap();
    if encoding == TextEncoding::F16 {
        twin::compare(&database, &golden);
    }
    assert_eq!(golden.text_embeddings().unwrap(), store.text_embeddings().unwrap());
    let golden = files(&folder().join(name));
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
