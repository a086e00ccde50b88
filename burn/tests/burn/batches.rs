//! Acceptance test 1: the tensors and the masks of a batch.

use std::sync::Arc;

use burn::tensor::{Bool, Device, Tensor};
use half::f16;
use headwater::plan::{Assignment, Split};
use headwater::sampler::{
    Batch, Children, Masks, Pool, Sampler, Settings, Shape, Speed, Texts, Walk,
};
use headwater::store::{Store, TextVectors};
use headwater_burn::{GraphBatch, MaskedTargets, Tables, TimeScales};
use proptest::prelude::*;

use crate::shop::{bits, floats, int8_path, ints, settings, shop};

fn flags<const D: usize>(tensor: &Tensor<D, Bool>) -> Vec<u8> {
    tensor.clone().int().try_to_vec_as().unwrap()
}

fn sampler(settings: Settings) -> Sampler {
    let rank = Assignment::new(0, 1).unwrap();
    Sampler::new(vec![shop()], settings, rank, Speed::default()).unwrap()
}

prop_compose! {
    /// Settings of every form: walks, masks, pools, texts in the batch or outside.
    fn any_settings()(
        seed: u64,
        batch_size in 1_u32..6,
        sequence_length in 16_u32..100,
        max_rows in 1_u32..40,
        (breadth, masked, pool, global) in any::<(bool, bool, bool, bool)>(),
    ) -> Settings {
        let walk = match breadth {
            true => Walk::Breadth { max_hops: 2, budget: 4 },
            false => Walk::Priority { child_width: 3, children: Children::Uniform },
        };
        Settings {
            seed,
            walk,
            tasks: None,
            pools: if pool {
                vec![Pool { table: "reviews".to_owned(), obs_time: None }]
            } else {
                Vec::new()
            },
            masks: masked.then(|| Masks::new(0.3, None, sequence_length).unwrap()),
            shape: Shape {
                batch_size,
                sequence_length,
                sequence_buckets: Vec::new(),
                max_rows,
                compact: false,
                permutations: false,
                texts: if global { Texts::Global } else { Texts::Batch(Vec::new()) },
            },
            ..settings()
        }
    }
}

/// Demands that every tensor has the batch's own values.
fn check(found: &GraphBatch, batch: &Batch) {
    let of_i8 =
        |name| batch.get::<i8>(name).unwrap().iter().map(|&v| i32::from(v)).collect::<Vec<_>>();
    let of_u16 =
        |name| batch.get::<u16>(name).unwrap().iter().map(|&v| i32::from(v)).collect::<Vec<_>>();
    let of_u32 =
        |name| batch.get::<u32>(name).unwrap().iter().map(|&v| v as i32).collect::<Vec<_>>();
    let one = |name| batch.get::<u32>(name).unwrap()[0];
    assert_eq!(ints(&found.semantic_types), of_i8("semantic_types"));
    assert_eq!(ints(&found.column_ids), batch.get::<i32>("column_ids").unwrap());
    assert_eq!(ints(&found.seq_row_ids), of_u16("seq_row_ids"));
    assert_eq!(floats(&found.numeric_values), batch.get::<f32>("numeric_values").unwrap());
    let times = batch.get::<f32>("timestamp_values").unwrap();
    assert_eq!(bits(&floats(&found.timestamp_values)), bits(times));
    let truths = batch.get::<u8>("bool_values").unwrap().iter().map(|&v| f32::from(v));
    assert_eq!(floats(&found.bool_values), truths.collect::<Vec<_>>());
    assert_eq!(ints(&found.categorical_embed_ids), of_u32("categorical_embed_ids"));
    assert_eq!(ints(&found.text_embed_ids), of_u32("text_embed_ids"));
    assert_eq!(flags(&found.is_null), batch.get::<u8>("is_null").unwrap());
    assert_eq!(flags(&found.is_target), batch.get::<u8>("is_target").unwrap());
    assert_eq!(flags(&found.is_padding), batch.get::<u8>("is_padding").unwrap());
    assert_eq!(flags(&found.fk_adj), batch.get::<u8>("fk_adj").unwrap());
    assert_eq!(ints(&found.target_pos), batch.get::<i32>("target_pos").unwrap());
    assert_eq!(floats(&found.seq_weight), batch.get::<f32>("seq_weight").unwrap());
    let texts = batch.get::<f16>("text_batch_embeddings");
    let texts = texts.map(|texts| texts.iter().map(|v| v.to_f32()).collect::<Vec<_>>());
    assert_eq!(found.text_batch_embeddings.as_ref().map(floats), texts);
    let masked = found.masked.as_ref();
    assert_eq!(masked.is_some(), batch.get::<u8>("is_masked").is_some());
    if let Some(masked) = masked {
        assert_eq!(flags(&masked.is_masked), batch.get::<u8>("is_masked").unwrap());
        assert_eq!(ints(&masked.masked_pos), of_u16("masked_pos"));
    }
    assert_eq!(found.task, one("task_idx") as usize);
    let target = found.target_stype.map_or(255, |semantic| semantic as u8);
    assert_eq!(target, batch.get::<u8>("target_stype").unwrap()[0]);
    let start = one("cat_emb_start");
    assert_eq!(found.categories, start..start + one("cat_emb_count"));
    assert_eq!(found.seed_rows, batch.get::<u32>("seed_row").unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..Default::default() })]

    /// Test 1: compact batches become the same bits as dense ones.
    #[test]
    fn every_tensor_has_the_values_of_the_batch(settings in any_settings()) {
        let device = Device::flex();
        let scales = TimeScales::new(&shop());
        let shape = Shape { compact: true, ..settings.shape.clone() };
        let compact = sampler(Settings { shape, ..settings.clone() });
        let dense = sampler(settings);
        for _ in 0..3 {
            let (batch, _) = dense.next(Split::Train).unwrap();
            check(&GraphBatch::new(&batch, &device).unwrap(), &batch);
            let (smaller, _) = compact.next(Split::Train).unwrap();
            check(&GraphBatch::from_compact(&smaller, &scales, &device).unwrap(), &batch);
        }
    }
}

/// Test 1: the masks of 50 batches, by a triple loop; every row keeps its diagonal.
#[test]
fn masks_equal_a_triple_loop() {
    let shape = Shape { batch_size: 3, sequence_length: 40, max_rows: 16, ..settings().shape };
    let sampler = sampler(Settings { tasks: None, shape, ..settings() });
    let mut allowed = [0_usize; 3];
    for _ in 0..50 {
        let (batch, _) = sampler.next(Split::Train).unwrap();
        let found = GraphBatch::new(&batch, &Device::flex()).unwrap().masks();
        let found = [found.column, found.feature, found.neighbor].map(|mask| flags(&mask));
        let columns = batch.get::<i32>("column_ids").unwrap();
        let rows = batch.get::<u16>("seq_row_ids").unwrap();
        let padding = batch.get::<u8>("is_padding").unwrap();
        let links = batch.get::<u8>("fk_adj").unwrap();
        for sequence in 0..3 {
            for (i, j) in (0..40).flat_map(|i| (0..40).map(move |j| (i, j))) {
                let (one, other) = (sequence * 40 + i, sequence * 40 + j);
                let link = |from: u16, to: u16| {
                    links[(sequence * 16 + usize::from(from)) * 16 + usize::from(to)] == 1
                };
                let is_linked = link(rows[one], rows[other]) || link(rows[other], rows[one]);
                let may_see = [columns[one] == columns[other], rows[one] == rows[other], is_linked];
                let is_padded = padding[one] == 1 || padding[other] == 1;
                for (way, may_see) in may_see.into_iter().enumerate() {
                    let expected = i != j && (is_padded || !may_see);
                    let place = (sequence * 40 + i) * 40 + j;
                    assert_eq!(found[way][place] == 1, expected, "{way} {sequence} {i} {j}");
                    allowed[way] += usize::from(!expected && i != j);
                }
            }
        }
    }
    // Not all is masked.
    assert!(allowed.into_iter().all(|count| count > 1000), "{allowed:?}");
}

/// The vectors that targets are taken from.
struct Vectors {
    categories: Vec<f32>,
    texts: Vec<f32>,
}

/// Demands that the targets at `places`, of which each sequence has `width`, have the values of the batch's
/// cells, and weigh where a cell has a value; counts the values of each type.
fn check_targets(
    found: &MaskedTargets,
    (places, width): (&[i32], usize),
    batch: &Batch,
    vectors: &Vectors,
    seen: &mut [usize; 6],
) {
    let weights = [
        &found.numerical_weights,
        &found.timestamp_weights,
        &found.boolean_weights,
        &found.categorical_weights,
        &found.text_weights,
    ]
    .map(floats);
    let of = |name| batch.get::<f32>(name).unwrap();
    for (at, place) in places.iter().enumerate() {
        let is_none = *place == 65535;
        let cell = at / width * 64 + if is_none { 0 } else { *place as usize };
        let kind = usize::from(batch.get::<i8>("semantic_types").unwrap()[cell] as u8);
        let has_value = !is_none && batch.get::<u8>("is_null").unwrap()[cell] == 0;
        for (of, weights) in (1..).zip(&weights) {
            let expected = if of == kind && has_value { 1.0 } else { 0.0 };
            assert_eq!(weights[at], expected, "type {of} at {place}");
        }
        // No model predicts an identifier.
        if !has_value || kind == 0 {
            seen[0] += 1;
            continue;
        }
        seen[kind] += 1;
        let vector = |ids: &str, table: &[f32]| {
            let id = batch.get::<u32>(ids).unwrap()[cell] as usize;
            table[id * 24..][..24].to_vec()
        };
        let own = |values: Vec<f32>, width: usize| values[at * width..][..width].to_vec();
        let (found, expected) = match kind {
            1 => (own(floats(&found.numerical_values), 1), vec![of("numeric_values")[cell]]),
            2 => {
                let times = of("timestamp_values")[cell * 15..][..15].to_vec();
                (own(floats(&found.timestamp_values), 15), times)
            }
            3 => {
                let truth = f32::from(batch.get::<u8>("bool_values").unwrap()[cell]);
                (own(floats(&found.boolean_values), 1), vec![truth])
            }
            4 => {
                let category = vector("categorical_embed_ids", &vectors.categories);
                (own(floats(&found.categorical_embeddings), 24), category)
            }
            5 => {
                let text = vector("text_embed_ids", &vectors.texts);
                (own(floats(found.text_embeddings.as_ref().unwrap()), 24), text)
            }
            _ => panic!("a target of type {kind}"),
        };
        assert_eq!(found, expected, "type {kind} at {place}");
    }
}

/// Integers are multiplied by their scales, in batches and in the table of all texts.
#[test]
fn int8_vectors_become_floats() {
    let store = Arc::new(Store::open(&int8_path()).unwrap());
    let (rank, device) = (Assignment::new(0, 1).unwrap(), Device::flex());
    let stores = vec![Arc::clone(&store)];
    let sampler = Sampler::new(stores, settings(), rank, Speed::default()).unwrap();
    let multiplied = |values: &[i8], scales: &[f32]| -> Vec<f32> {
        let vectors = values.chunks_exact(24).zip(scales);
        vectors
            .flat_map(|(vector, scale)| vector.iter().map(move |&x| f32::from(x) * scale))
            .collect()
    };
    for _ in 0..5 {
        let (batch, _) = sampler.next(Split::Train).unwrap();
        let found = GraphBatch::new(&batch, &device).unwrap().text_batch_embeddings.unwrap();
        let scales = batch.get::<f32>("text_batch_scales").unwrap();
        let expected = multiplied(batch.get("text_batch_embeddings").unwrap(), scales);
        assert!(expected.iter().any(|number| *number != 0.0));
        assert_eq!(floats(&found), expected);
        assert_eq!(found.dims(), [scales.len(), 24]);
    }
    let tables = Tables::new(&store, &device).unwrap().with_texts(&store).unwrap();
    let vectors = store.text_embeddings().unwrap().unwrap();
    let TextVectors::Int8 { values, scales } = vectors else { panic!("{vectors:?}") };
    assert_eq!(floats(&tables.texts.unwrap()), multiplied(values, scales));
}

/// Test 1: targets are the values at their places, and weigh where there are some.
#[test]
fn targets_have_the_values_of_their_cells() {
    let masks = Masks::new(0.3, Some(20), 64).unwrap();
    let sampler = sampler(Settings { tasks: None, masks: Some(masks), ..settings() });
    let tables = Tables::new(&shop(), &Device::flex()).unwrap();
    let mut seen = [0; 6];
    for _ in 0..20 {
        let (batch, _) = sampler.next(Split::Train).unwrap();
        let tensors = GraphBatch::new(&batch, &Device::flex()).unwrap();
        let vectors = Vectors {
            categories: floats(&tables.categories),
            texts: floats(tensors.text_batch_embeddings.as_ref().unwrap()),
        };
        let masked: Vec<i32> =
            batch.get::<u16>("masked_pos").unwrap().iter().map(|&at| i32::from(at)).collect();
        let found = tensors.masked_targets(&tables).unwrap();
        check_targets(&found, (&masked, 20), &batch, &vectors, &mut seen);
        // Neither a time nor a NULL is ever masked: some are made targets.
        let kinds = batch.get::<i8>("semantic_types").unwrap().chunks_exact(64);
        let nulls = batch.get::<u8>("is_null").unwrap().chunks_exact(64);
        let times = kinds.map(|kinds| kinds.iter().position(|&kind| kind == 2));
        let nulls = nulls.map(|nulls| nulls.iter().position(|&is_null| is_null == 1));
        let firsts = |places: Vec<Option<usize>>| -> Vec<i32> {
            places.into_iter().map(|place| place.unwrap_or(0) as i32).collect()
        };
        let own = batch.get::<i32>("target_pos").unwrap().to_vec();
        for places in [own, firsts(times.collect()), firsts(nulls.collect())] {
            let target_pos = Tensor::from_ints(places.as_slice(), &Device::flex());
            let found = GraphBatch { target_pos, ..tensors.clone() }.targets(&tables);
            check_targets(&found, (&places, 1), &batch, &vectors, &mut seen);
        }
    }
    assert!(seen.iter().all(|&count| count > 20), "{seen:?}");
}
