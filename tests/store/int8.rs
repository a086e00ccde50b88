//! Vectors of texts as 8-bit integers: what they are, and that nothing else of the store differs.

use std::fs;

use half::f16;
use headwater::ErrorKind;
use headwater::prepare::embed::Embedder;
use headwater::prepare::{Merge, Options, Part, PartOptions, merge, prepare, prepare_part};
use headwater::progress::Silent;
use headwater::store::{METADATA_FILE, Store, TextEncoding, TextVectors};

use crate::same_bits::files;
use crate::stores::options;
use crate::{DIMENSION, encoded_store_of, folder, plain_vector, random, tiny};

const INT8: Option<TextEncoding> = Some(TextEncoding::Int8);

/// The rule of the format, in f64: no sum or product of these small numbers is rounded there otherwise.
fn plain_int8(text: &str) -> (Vec<i8>, f32) {
    let numbers = plain_vector(text).map(f64::from);
    let scale = (numbers.iter().fold(0.0_f64, |most, x| most.max(x.abs())) / 127.0) as f32;
    let rounded = |x: f64| match scale {
        0.0 => 0,
        _ => f64::from((x / f64::from(scale)) as f32).round_ties_even() as i8,
    };
    (numbers.map(rounded).to_vec(), scale)
}

#[test]
fn int8_vectors_are_those_of_the_rule() {
    let mut compared = 0;
    for seed in 0..12 {
        let (_folder, store) = encoded_store_of(&random::database(seed, 4, 60), &[7], INT8);
        let all = store.text_embeddings().unwrap();
        let Some(TextVectors::Int8 { values, scales }) = all else { panic!("{all:?}") };
        assert_eq!(scales.len(), store.metadata().embedding.text_count as usize);
        assert_eq!(values.len(), scales.len() * DIMENSION);
        for (index, (values, scale)) in (0..).zip(values.chunks(DIMENSION).zip(scales)) {
            let wanted = plain_int8(store.text(index).unwrap());
            assert_eq!((values.to_vec(), *scale), wanted);
            let scales = std::slice::from_ref(scale);
            let one = store.text_embedding(index).unwrap();
            assert_eq!(one, Some(TextVectors::Int8 { values, scales }));
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn int8_changes_the_file_of_texts_and_the_metadata_alone() {
    let database = random::database(5, 4, 60);
    let (halves, _) = encoded_store_of(&database, &[7], Some(TextEncoding::F16));
    let (integers, _) = encoded_store_of(&database, &[7], INT8);
    let [halves, integers] = [halves, integers].map(|folder| files(&folder.path().join("store")));
    assert!(halves.keys().eq(integers.keys()));
    let changed = halves.keys().filter(|name| halves[*name] != integers[*name]);
    assert_eq!(changed.collect::<Vec<_>>(), [METADATA_FILE, "text_embeddings.bin"]);
    let text = |of: &std::collections::BTreeMap<String, Vec<u8>>| {
        String::from_utf8(of[METADATA_FILE].clone()).unwrap()
    };
    assert!(!text(&halves).contains("text_encoding"));
    assert!(text(&integers).contains("\"text_encoding\": \"int8\""));
}

#[test]
fn p1_same_bits_of_int8_for_any_threads_memory_and_parts() {
    for seed in 0..4 {
        let database = random::database(seed, 4, 60);
        let source = database.memory(&[7]);
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        let int8 = |threads, memory| Options { text_vectors: INT8, ..options(threads, memory) };
        prepare(&source, &database.schema, &at("one"), &int8(1, None)).unwrap();
        let one = files(&at("one"));
        for (threads, memory) in [(2, None), (7, None), (1, Some(0)), (3, Some(1000))] {
            let out = at(&format!("{threads}"));
            let _ = fs::remove_dir_all(&out);
            prepare(&source, &database.schema, &out, &int8(threads, memory)).unwrap();
            assert!(files(&out) == one, "{threads} threads, memory {memory:?}");
        }
        for number in 1..=3 {
            let options = PartOptions { threads: Some(2), progress: &Silent };
            let part = Part::new(number, 3).unwrap();
            prepare_part(&source, &database.schema, &at("parts"), part, &options).unwrap();
        }
        let (parts, out) = (at("parts"), at("merged"));
        let to = Merge { parts: &parts, out: &out, replace: false };
        merge(&source, &database.schema, &to, &int8(2, None)).unwrap();
        assert!(files(&out) == one, "merged");
    }
}

/// Returns the error of opening a store whose metadata have `found` in place of `wanted`.
fn refused(encoding: TextEncoding, wanted: &str, found: &str) -> String {
    let (folder, store) = encoded_store_of(&tiny::database(), &[5], Some(encoding));
    drop(store);
    let path = folder.path().join("store").join(METADATA_FILE);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(wanted));
    fs::write(&path, text.replace(wanted, found)).unwrap();
    let error = Store::open(&folder.path().join("store")).err().expect("this must be refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    error.to_string()
}

#[test]
fn p6_an_unknown_encoding_of_vectors_is_refused() {
    let message = refused(TextEncoding::Int8, "\"int8\"", "\"int4\"");
    let expected = "metadata.json: not the metadata of a headwater store: unknown variant `int4`, \
                    expected `f16` or `int8`";
    assert!(message.contains(expected), "{message}");
    // A store of 16-bit floats does not mention its encoding.
    let with_vectors = "\"text_vectors\": true";
    let found = format!("{with_vectors},\n    \"text_encoding\": \"f16\"");
    let message = refused(TextEncoding::F16, with_vectors, &found);
    assert!(message.contains("the metadata do not match their digest"), "{message}");
}

#[test]
fn vectors_that_are_not_finite_are_refused_as_int8() {
    struct Broken(f16);
    impl Embedder for Broken {
        fn name(&self) -> String {
            "broken".into()
        }
        fn dimension(&self) -> usize {
            DIMENSION
        }
        fn embed(&self, _: &[&str], vectors: &mut [f16]) -> headwater::Result<()> {
            vectors.chunks_exact_mut(DIMENSION).for_each(|vector| vector[3] = self.0);
            Ok(())
        }
    }
    let database = tiny::database();
    for bad in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY] {
        let folder = folder();
        let embedder = Broken(bad);
        let prepared = |text_vectors, name| {
            let options = Options { embedder: &embedder, text_vectors, ..options(2, None) };
            prepare(&database.memory(&[5]), &database.schema, &folder.path().join(name), &options)
        };
        let error = prepared(INT8, "int8").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        let expected = format!(
            "expected finite numbers from the embedder broken, found {bad} in the vector of \"gift\"; \
             correct the embedder"
        );
        assert_eq!(error.to_string(), expected);
        assert!(!folder.path().join("int8").exists());
        prepared(None, "none").unwrap();
    }
}
