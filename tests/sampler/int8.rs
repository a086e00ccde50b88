//! Batches of stores whose text vectors are 8-bit integers.

use std::sync::Arc;

use headwater::ErrorKind;
use headwater::plan::Split;
use headwater::sampler::{Batch, Sampler, Settings, Texts};
use headwater::store::{Store, TextEncoding, TextVectors};
use tempfile::TempDir;

use crate::{PLAIN, random, sampler, several, small, stores};

fn named(name: &str, encoding: Option<TextEncoding>) -> (TempDir, Arc<Store>) {
    of_seed(1, name, encoding)
}

/// The store of a random database.
fn of_seed(seed: u64, name: &str, encoding: Option<TextEncoding>) -> (TempDir, Arc<Store>) {
    let mut database = random::database(seed, 4, 60);
    name.clone_into(&mut database.schema.database);
    let (folder, store) = stores::encoded_store_of(&database, &[usize::MAX], encoding);
    (folder, Arc::new(store))
}

fn settings(texts: Texts) -> Settings {
    let mut settings = small(3);
    settings.shape.sequence_length = 100;
    settings.shape.texts = texts;
    settings
}

/// Returns the name, type, shape and bytes of each tensor of a batch.
fn tensors(batch: &Batch) -> Vec<(&str, &str, &[usize], &[u8])> {
    let all = batch.tensors();
    all.map(|(of, bytes)| (of.name, of.dtype.name(), &of.shape[..], bytes)).collect()
}

/// Returns the samplers of `forms` of the same random database, for those that have train seeds.
fn samplers<const N: usize>(
    forms: [(TextEncoding, Texts); N],
) -> impl Iterator<Item = ([Sampler; N], [(TempDir, Arc<Store>); N])> {
    (0..40).filter_map(move |seed| {
        let stores = forms.each_ref().map(|(encoding, _)| of_seed(seed, "a", Some(*encoding)));
        let mut texts = forms.iter().map(|(_, texts)| texts.clone());
        let made = stores.each_ref().map(|(_, store)| {
            let made = sampler(store, &settings(texts.next()?), (0, 1), PLAIN).ok()?;
            (made.seed_count(0, Split::Train) > 0).then_some(made)
        });
        made.iter().all(Option::is_some).then(|| (made.map(Option::unwrap), stores))
    })
}

#[test]
fn a_batch_of_int8_is_that_of_f16_with_other_vectors() {
    let texts = || Texts::Batch(vec![7, 2000]);
    let both = samplers([(TextEncoding::F16, texts()), (TextEncoding::Int8, texts())]);
    let compared: usize = both.map(|([halves, integers], _)| compare(&halves, &integers)).sum();
    assert!(compared > 100, "{compared}");
}

/// Compares batches of the samplers; returns the number of texts that these had.
fn compare(halves: &Sampler, integers: &Sampler) -> usize {
    let mut texts = 0;
    for _ in 0..10 {
        let [half, integer] = [halves, integers].map(|of| of.next(Split::Train).unwrap().0);
        let (of_half, of_integer) = (tensors(&half), tensors(&integer));
        let (count, fixed) = (of_half[of_half.len() - 1].2[0], of_half.len() - 1);
        assert!(of_half[..fixed] == of_integer[..fixed]);
        let last = of_integer[fixed..].iter().map(|(name, kind, shape, _)| (*name, *kind, *shape));
        let wanted: [(&str, &str, &[usize]); 2] = [
            ("text_batch_embeddings", "int8", &[count, stores::DIMENSION]),
            ("text_batch_scales", "float32", &[count]),
        ];
        assert!(last.eq(wanted));
        assert!(of_integer.iter().all(|(.., bytes)| bytes.as_ptr().addr().is_multiple_of(64)));
        let (near, scales) =
            (integer.text_vectors().unwrap(), integer.text_vectors().unwrap().scales());
        let numbers = half.text_vectors().unwrap().to_f32_vec();
        for (at, (number, near)) in numbers.iter().zip(near.to_f32_vec()).enumerate() {
            let scale = scales[at / stores::DIMENSION];
            assert!((number - near).abs() <= scale * 0.501, "{number} {near} {scale}");
        }
        let used = scales.iter().rposition(|scale| *scale > 0.0).map_or(0, |last| last + 1);
        let integers = integer.get::<i8>("text_batch_embeddings").unwrap();
        assert!(integers[used * stores::DIMENSION..].iter().all(|integer| *integer == 0));
        texts += used;
    }
    texts
}

/// A buffer is used again, for another bucket and another number of texts.
#[test]
fn int8_vectors_and_scales_are_those_of_the_store() {
    let forms = [Texts::Batch(vec![]), Texts::Global].map(|texts| (TextEncoding::Int8, texts));
    let compared: usize = samplers(forms)
        .map(|([own, global], [(_, store), _])| looked_up(&own, &global, &store))
        .sum();
    assert!(compared > 100, "{compared}");
}

/// Compares the vectors of batches with those of the store; returns their number.
fn looked_up(own: &Sampler, global: &Sampler, store: &Store) -> usize {
    let mut compared = 0;
    for _ in 0..10 {
        let [own, global] = [own, global].map(|of| of.next(Split::Train).unwrap().0);
        assert!(global.text_vectors().is_none());
        let [places, texts] = [&own, &global].map(|of| of.get::<u32>("text_embed_ids").unwrap());
        let cells = own.get::<i8>("semantic_types").unwrap().iter();
        let cells = cells.zip(own.get::<u8>("is_null").unwrap()).enumerate();
        let vectors = own.get::<i8>("text_batch_embeddings").unwrap();
        let scales = own.get::<f32>("text_batch_scales").unwrap();
        for (at, _) in cells.filter(|(_, (kind, is_null))| **kind == 5 && **is_null == 0) {
            let place = places[at] as usize;
            let values = &vectors[place * stores::DIMENSION..][..stores::DIMENSION];
            let found = TextVectors::Int8 { values, scales: &scales[place..=place] };
            assert_eq!(store.text_embedding(texts[at]).unwrap(), Some(found));
            compared += 1;
        }
    }
    compared
}

#[test]
fn stores_of_several_encodings_or_without_vectors_are_refused_in_a_batch() {
    let (halves, integers) =
        (named("one", Some(TextEncoding::F16)), named("two", Some(TextEncoding::Int8)));
    let (more, none) = (named("three", Some(TextEncoding::Int8)), named("four", None));
    let of = |stores: &[&(TempDir, Arc<Store>)], texts| {
        let stores: Vec<_> = stores.iter().map(|(_, store)| Arc::clone(store)).collect();
        several(&stores, &settings(texts), (0, 1), PLAIN)
    };
    let refused = |stores: &[&(TempDir, Arc<Store>)]| {
        let error = of(stores, Texts::Batch(vec![])).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    };
    assert_eq!(
        refused(&[&halves, &integers]),
        "expected text vectors of one encoding in a batch, found f16 in \"one\" and int8 in \"two\"; \
         prepare \"two\" again with --text-vectors f16, or take the indexes alone with texts=\"global\""
    );
    assert!(of(&[&none, &halves, &integers], Texts::Global).is_ok());
    assert!(
        refused(&[&more, &none]).starts_with("expected stores with text vectors, found \"four\"")
    );
    assert!(of(&[&more, &integers], Texts::Batch(vec![])).is_ok());
}

#[test]
fn p6_a_cursor_of_16_bit_floats_is_refused_by_int8() {
    let [halves, integers] = [TextEncoding::F16, TextEncoding::Int8].map(|of| named("a", Some(of)));
    let settings = settings(Texts::Global);
    let [halves, integers] =
        [&halves.1, &integers.1].map(|store| sampler(store, &settings, (0, 1), PLAIN).unwrap());
    let error = integers.resume(&halves.cursor()).unwrap_err();
    assert!(error.to_string().contains("database/0/root"), "{error}");
}
