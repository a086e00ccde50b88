//! Invalid settings and calls, and the end of a sampler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater::ErrorKind;
use headwater::plan::{Assignment, Cursor, Split, SplitRatios};
use headwater::sampler::{Children, Masks, Sampler, Settings, Shape, Speed, Texts, Walk};
use headwater::store::{RelationMetadata, Store, TargetMetadata, Task};

use crate::database::{Database, Value};
use crate::{PLAIN, random_stores, sampler, sequences, small};

#[test]
fn invalid_settings_are_rejected() {
    let (_folder, store) = &random_stores(1)[0];
    let refused = |change: &dyn Fn(&mut Settings)| {
        let mut settings = small(1);
        settings.tasks = None;
        change(&mut settings);
        let error = sampler(store, &settings, (0, 1), PLAIN).err().expect("this must be refused");
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::LimitExceeded));
        error.to_string()
    };
    assert!(refused(&|s| s.shape.batch_size = 0).contains("batch size of at least 1, found 0"));
    assert!(refused(&|s| s.shape.batch_size = u32::MAX).contains("at most 2^32 - 1 cells"));
    assert!(refused(&|s| s.shape.sequence_length = 65_536).contains("of 1 to 65535, found 65536"));
    assert!(refused(&|s| s.shape.max_rows = 0).contains("max_rows of 1 to 65535, found 0"));
    assert!(
        refused(&|s| s.walk = Walk::Breadth { max_hops: 1, budget: 0 }).contains("a budget of 1")
    );
    assert!(refused(&|s| s.shape.sequence_length = 1).contains("use longer sequences"));
    for time in [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX] {
        assert!(refused(&|s| s.visible_until = Some(time)).contains(&time.to_string()));
    }
    let wide = Walk::Priority { child_width: 1, children: Children::Uniform };
    let relation = store.relation_name(0);
    let widths = |width| vec![(relation.clone(), width)];
    let change = |s: &mut Settings| (s.walk, s.child_widths) = (wide, widths(65_536));
    assert!(refused(&change).contains("a child width of 0 to 65535"));
    assert!(refused(&|s| s.shape.texts = Texts::Batch(vec![9, 0])).contains("at least 1, found 0"));
    // The ends of the ranges are in them.
    for change in [
        (&|s: &mut Settings| s.visible_until = Some(i64::MIN + 2)) as &dyn Fn(&mut Settings),
        &|s| s.visible_until = Some(i64::MAX - 2),
        &|s| (s.walk, s.child_widths) = (wide, widths(65_535)),
        &|s| (s.shape.sequence_length, s.shape.max_rows) = (65_535, 65_535),
    ] {
        let mut settings = small(1);
        change(&mut settings);
        assert!(sampler(store, &settings, (0, 1), PLAIN).is_ok(), "{settings:?}");
    }
    assert!(refused(&|s| s.tasks = Some(vec!["nonsense".into()])).contains("name one of random/"));
    assert!(
        refused(&|s| s.tasks = Some(vec![]))
            .contains("expected at least one task or pool, found none")
    );
    assert!(refused(&|s| s.task_weights = Some(vec![1.0])).contains("name the tasks too"));
    assert!(refused(&|s| s.shape.texts = Texts::Batch(vec![0])).contains("at least 1, found 0"));
    let name = store.tasks()[0].metadata().name.clone();
    assert!(refused(&|s| s.tasks = Some(vec![name.clone(); 2])).contains("is named twice"));
    let error = Sampler::new(vec![], small(1), Assignment::new(0, 1).unwrap(), PLAIN);
    assert!(error.err().unwrap().to_string().contains("at least one store"));
    let twice = vec![Arc::clone(store), Arc::clone(store)];
    let error = Sampler::new(twice, small(1), Assignment::new(0, 1).unwrap(), PLAIN);
    assert!(error.err().unwrap().to_string().contains("two stores have the name"));
}

#[test]
fn masks_beyond_a_sequence_or_of_no_cell_are_rejected() {
    let (_folder, store) = &random_stores(1)[0];
    let length = small(1).shape.sequence_length;
    let with =
        |masks| sampler(store, &Settings { masks: Some(masks), ..small(1) }, (0, 1), PLAIN).err();
    let half = Masks::new(0.5, None, length).unwrap();
    for most in [0, length as u16 + 1, u16::MAX] {
        assert_eq!(
            with(Masks { most, ..half }).expect("this must be refused").to_string(),
            format!(
                "mask_most: expected 1 to {length}, because a sequence has {length} cells, found {most}; \
                 leave it out for what sequences rarely exceed, or leave out mask_share to mask no cell"
            )
        );
    }
    for most in [1, length as u16] {
        assert!(with(Masks { most, ..half }).is_none(), "{most}");
    }
    let error = with(Masks { share: 0, ..half }).expect("this must be refused").to_string();
    assert!(
        error.contains("mask_share: expected more than 0, found 0; to mask no cell"),
        "{error}"
    );
    for share in [-0.1, 0.0, 1.0, 15.0, f64::NAN] {
        assert_eq!(
            Masks::new(share, None, length).unwrap_err().to_string(),
            format!(
                "mask_share: expected a share of the cells above 0 and below 1, found {share}; 0.15 masks \
                 about every seventh cell; leave it out to mask none"
            )
        );
    }
}

#[test]
fn a_sequence_must_reach_the_target_and_may_end_with_it() {
    let mut rejected = 0;
    for (_folder, store) in &random_stores(6) {
        for task in store.tasks().iter().map(Task::metadata) {
            let target = match task.target {
                TargetMetadata::Cell { column, .. } => column,
                TargetMetadata::Derived { .. } => {
                    store.tables()[task.anchor as usize].metadata().columns.len() as u32
                }
            };
            let with = |sequence_length| {
                let shape = Shape { sequence_length, ..small(1).shape };
                let tasks = Some(vec![task.name.clone()]);
                sampler(store, &Settings { tasks, shape, ..small(1) }, (0, 1), PLAIN)
            };
            assert!(with(target + 1).is_ok());
            if let Some(error) = with(target).err().filter(|_| target > 0) {
                let error = error.to_string();
                let least = format!("expected a sequence length of at least {}, ", target + 1);
                assert!(error.contains(&least), "{error}");
                assert!(error.contains(&format!("found {target}; use longer")), "{error}");
                rejected += 1;
            }
        }
    }
    assert!(rejected > 5, "{rejected}");
}

#[test]
fn the_default_settings_are_those_of_the_documents() {
    let Settings { seed, split, shape, walk, .. } = Settings::default();
    assert_eq!((seed, split.seed), (42, 123));
    assert_eq!((shape.batch_size, shape.sequence_length, shape.max_rows), (32, 1024, 208));
    assert!(!shape.compact && !shape.permutations);
    assert_eq!(walk, Walk::Priority { child_width: 16, children: Children::Uniform });
}

#[test]
fn a_split_without_seeds_is_rejected_on_its_first_batch() {
    let stores = random_stores(20);
    let without_records = stores.iter().map(|(_, store)| store).find(|store| {
        let task = &store.tasks()[0];
        let anchor = &store.tables()[task.metadata().anchor as usize];
        task.seed(anchor, 0).unwrap().split.is_none()
    });
    let store = without_records.unwrap();
    let mut settings = small(1);
    settings.tasks = Some(vec![store.tasks()[0].metadata().name.clone()]);
    settings.split.ratios = SplitRatios::new(1.0, 0.0, 0.0).unwrap();
    let sampler = sampler(store, &settings, (0, 1), PLAIN).unwrap();
    sampler.next(Split::Train).unwrap();
    let error = sampler.next(Split::Val).err().unwrap();
    assert!(
        error.to_string().contains("no task with a weight above 0 has a seed in the val split"),
        "{error}"
    );
    assert_eq!(sampler.evaluate(Split::Val, None).unwrap().count(), 0);
}

#[test]
fn a_pass_by_far_more_ranks_than_seeds_ends() {
    let (_folder, store) = &random_stores(1)[0];
    let mut settings = small(1);
    settings.shape.batch_size = 4;
    let sampler = sampler(store, &settings, (0, 1 << 62), PLAIN).unwrap();
    let batches = sampler.evaluate(Split::Train, None).unwrap();
    for batch in batches.take(100).map(|batch| batch.unwrap()) {
        // The first rank has one seed of each task, the other ranks have the rest.
        assert_eq!(batch.get::<f32>("seq_weight").unwrap(), [1.0, 0.0, 0.0, 0.0]);
    }
    let batches = sampler.evaluate(Split::Train, None).unwrap();
    let served = (0..sampler.tasks().count()).filter(|&t| sampler.seed_count(t, Split::Train) > 0);
    assert_eq!(batches.take(100).count(), served.count());
}

#[test]
fn a_batch_with_more_texts_than_the_largest_bucket_is_rejected() {
    for (_folder, store) in &random_stores(12) {
        let mut settings = small(1);
        settings.shape.texts = Texts::Batch(vec![1]);
        let sampler = sampler(store, &settings, (0, 1), PLAIN).unwrap();
        let error = (0..20).find_map(|_| sampler.next(Split::Train).err());
        if let Some(error) = error {
            assert_eq!(error.kind(), ErrorKind::LimitExceeded);
            assert!(
                error
                    .to_string()
                    .contains("at most 1 distinct texts in a batch (the largest of text_buckets)"),
                "{error}"
            );
            return;
        }
    }
    panic!("no batch had two texts");
}

/// Waiting consumers are woken, and nothing hangs.
#[test]
fn shutdown_wakes_waiting_consumers_in_bounded_time() {
    let (_folder, store) = &random_stores(1)[0];
    for prefetch in [0, 1, 8] {
        let speed = Speed { threads: Some(2), prefetch };
        let sampler = sampler(store, &small(1), (0, 1), speed).unwrap();
        let started = Instant::now();
        std::thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                let batches = std::iter::repeat_with(|| sampler.next(Split::Train));
                batches.map_while(Result::err).next()
            });
            let other = scope.spawn(|| {
                std::iter::repeat_with(|| sampler.next(Split::Val)).find_map(Result::err)
            });
            std::thread::sleep(Duration::from_millis(30));
            sampler.shutdown();
            drop(consumer.join().unwrap());
            assert_eq!(other.join().unwrap().unwrap().kind(), ErrorKind::Shutdown);
        });
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        let error = sampler.next(Split::Train).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Shutdown);
        // The cursor can still be saved.
        sampler.cursor().encode().unwrap();
    }
}

#[test]
fn two_threads_cannot_consume_one_stream() {
    let (_folder, store) = &random_stores(1)[0];
    let sampler = sampler(store, &small(1), (0, 1), Speed::default()).unwrap();
    let refused = std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..3000).find_map(|_| sampler.next(Split::Train).err())))
            .collect();
        consumers.into_iter().find_map(|consumer| consumer.join().unwrap())
    });
    let refused = refused.expect("four threads met at one stream");
    assert!(refused.to_string().contains("another thread is waiting for a train batch"));
}

/// A producer that waits for train still ends when a resume drops it.
#[test]
fn resuming_ends_producers_that_wait_for_train() {
    let (_folder, store) = &random_stores(1)[0];
    let sampler =
        sampler(store, &small(1), (0, 1), Speed { threads: Some(2), prefetch: 8 }).unwrap();
    let start = sampler.cursor();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..500 {
            sampler.next(Split::Train).unwrap();
            sampler.next(Split::Val).unwrap();
            sampler.resume(&start).unwrap();
        }
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(50)).expect("resuming hangs");
}

#[test]
fn after_the_end_every_call_is_an_error_but_those_for_the_cursor() {
    let (_folder, store) = &random_stores(1)[0];
    let sampler = sampler(store, &small(1), (0, 1), PLAIN).unwrap();
    let task = sampler.tasks().next().unwrap().to_owned();
    let before = sampler.cursor();
    let foreign = crate::sampler(store, &small(2), (0, 1), PLAIN).unwrap().cursor();
    sampler.shutdown();
    let ended = |error: headwater::Error| assert_eq!(error.kind(), ErrorKind::Shutdown, "{error}");
    ended(sampler.next(Split::Train).err().unwrap());
    ended(sampler.wait(Split::Train).unwrap_err());
    ended(sampler.evaluate(Split::Train, None).err().unwrap());
    // Also what would be an error anyway.
    ended(sampler.seek(Split::Train, 3).unwrap_err());
    ended(sampler.seek(Split::Train, u64::MAX).unwrap_err());
    ended(sampler.sample(&task, &[(0, 5)]).err().unwrap());
    ended(sampler.batch_of_seed(&task, 0).err().unwrap());
    ended(sampler.resume(&before).unwrap_err());
    ended(sampler.resume(&foreign).unwrap_err());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.cursor");
    sampler.save_cursor(&path).unwrap();
    assert_eq!(Cursor::read(&path).unwrap().encode().unwrap(), before.encode().unwrap());
}

#[test]
fn waiting_takes_no_batch() {
    let (_folder, store) = &random_stores(1)[0];
    let speed = Speed { threads: Some(1), prefetch: 2 };
    let [waits, other] = [0, 1].map(|_| sampler(store, &small(1), (0, 1), speed).unwrap());
    for _ in 0..5 {
        waits.wait(Split::Train).unwrap();
        let before = waits.cursor().encode().unwrap();
        waits.wait(Split::Train).unwrap();
        assert_eq!(waits.cursor().encode().unwrap(), before);
        let [one, two] = [&waits, &other].map(|of| of.next(Split::Train).unwrap().0);
        assert!(sequences(&one) == sequences(&two));
    }
    // The wait itself tells of a split without seeds.
    let mut settings = small(1);
    settings.split.ratios = SplitRatios::new(1.0, 0.0, 0.0).unwrap();
    let hashed =
        store.tasks().iter().map(Task::metadata).find(|task| {
            !matches!(task.target, TargetMetadata::Derived { recorded_split: true, .. })
        });
    settings.tasks = Some(vec![hashed.unwrap().name.clone()]);
    let sampler = sampler(store, &settings, (0, 1), PLAIN).unwrap();
    assert!(sampler.wait(Split::Val).unwrap_err().to_string().contains("above 0 has a seed"));
}

#[test]
fn anchors_are_found_by_their_keys_and_ranks_share_the_seeds() {
    let (_folder, store) = &random_stores(1)[0];
    let sampler = sampler(store, &small(1), (0, 1), PLAIN).unwrap();
    let keyed = store
        .tasks()
        .iter()
        .find(|task| !store.tables()[task.metadata().anchor as usize].metadata().key.is_empty());
    let task = keyed.unwrap().metadata();
    let anchor = &store.tables()[task.anchor as usize];
    let rows: Vec<u32> = (0..anchor.row_count()).rev().take(5).collect();
    let keys: Vec<String> = rows.iter().map(|&row| anchor.key(row).unwrap().to_owned()).collect();
    assert_eq!(sampler.find_anchors(&task.name, &keys).unwrap(), rows);
    let missing = sampler.find_anchors(&task.name, &["no such key".to_owned()]);
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::InvalidArgument);
    for number in 0..sampler.tasks().count() {
        let own: Vec<u64> = (0..3)
            .map(|rank| {
                let sampler = crate::sampler(store, &small(1), (rank, 3), PLAIN).unwrap();
                sampler.own_seed_count(number, Split::Train)
            })
            .collect();
        assert_eq!(own.iter().sum::<u64>(), sampler.seed_count(number, Split::Train));
        assert!(own[0] >= own[1] && own[1] >= own[2] && own[0] - own[2] <= 1);
    }
}

/// The greatest batch for each shape is accepted, and one more sequence is not.
#[test]
fn batches_beyond_their_limit_of_bytes_are_rejected() {
    let (_folder, store) = &random_stores(1)[0];
    let references = references_of(store);
    let tasks = Some(vec![store.tasks()[0].metadata().name.clone()]);
    let made = |batch_size: u64, sequence_length: u32, max_rows: u32| {
        let mut settings = Settings { tasks: tasks.clone(), masks: None, ..small(1) };
        settings.shape.batch_size = u32::try_from(batch_size).unwrap();
        (settings.shape.sequence_length, settings.shape.max_rows) = (sequence_length, max_rows);
        sampler(store, &settings, (0, 1), PLAIN)
    };
    for (cells, rows) in [(16, 1500), (20, 3000), (40, 1200), (17, 65_535)] {
        let (s, r) = (u64::from(cells), u64::from(rows));
        let most = (1 << 47) / (s * 128 + r * (15 + r + 8 * references as u64));
        assert!(made(most, cells, rows).is_ok(), "{most} of {cells} cells and {rows} rows");
        let error = made(most + 1, cells, rows).err().expect("too many bytes");
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert!(error.to_string().contains("at most 2^47 bytes"), "{error}");
    }
}

/// A first table whose rows have the most references, and no seeds.
const LINKS: &str = r#"
database = "net"

[[table]]
name = "links"
key = "id"
columns = { id = "identifier", a = "identifier", b = "identifier" }
references = [{ columns = "a", to = "nodes" }, { columns = "b", to = "nodes" }]

[[table]]
name = "nodes"
key = "id"
columns = { id = "identifier", big = "boolean" }

[[task]]
name = "big"
cell = { table = "nodes", column = "big" }
sees_everything = true
"#;

#[test]
fn rows_without_seeds_count_and_a_batch_of_the_very_limit_is_accepted() {
    let integers = |values: [i64; 4]| values.map(Value::Integer).to_vec();
    let links = vec![
        ("id", integers([1, 2, 3, 4])),
        ("a", integers([1, 2, 3, 4])),
        ("b", integers([2, 3, 4, 1])),
    ];
    let big = (0..4).map(|id| Value::Truth(id % 2 == 0)).collect();
    let nodes = vec![("id", integers([1, 2, 3, 4])), ("big", big)];
    let tables = [("links", links), ("nodes", nodes)];
    let (_folder, store) = crate::stores::store_of(&Database::new(LINKS, tables), &[usize::MAX]);
    let store = Arc::new(store);
    assert_eq!(references_of(&store), 2);
    let with = |batch_size, sequence_length, max_rows| {
        let shape = Shape { batch_size, sequence_length, max_rows, ..small(1).shape };
        sampler(&store, &Settings { shape, masks: None, ..small(1) }, (0, 1), PLAIN)
    };
    let batch = with(1, 16, 8).unwrap().batch_of_seed("big", 0).unwrap();
    assert_eq!(batch.get::<i32>("fk_relations").unwrap().len(), 8 * 2);
    // 2^18 (6507 * 128 + 23137 (15 + 23137 + 8 * 2)) bytes are 2^47.
    assert!(with(1 << 18, 6507, 23_137).is_ok());
    assert!(with(1 << 18, 6507, 23_138).is_err());
}

/// The most references of a row, counted from the metadata.
fn references_of(store: &Store) -> usize {
    let metadata = store.metadata();
    let count = |table: u32| {
        let of_table = |relation: &&RelationMetadata| relation.child == table;
        metadata.relations.iter().filter(of_table).count()
    };
    let relations = store.relations().len();
    let global = metadata.summaries.iter().filter(|of| of.relation as usize >= relations).count();
    let of_rows = (0..metadata.tables.len() as u32).map(count);
    let of_seeds = metadata.tasks.iter().map(|task| count(task.anchor) + global);
    of_rows.chain(of_seeds).max().unwrap_or(0)
}

#[test]
fn a_batch_has_room_for_the_references_of_every_row() {
    let stores = random_stores(12);
    let mut found = std::collections::BTreeSet::new();
    for pair in stores.chunks(2) {
        let room = |stores: &[&Arc<Store>], aliases: Vec<String>| {
            let settings = Settings { aliases: Some(aliases), ..small(3) };
            let stores: Vec<_> = stores.iter().map(|store| Arc::clone(store)).collect();
            let batch = crate::several(&stores, &settings, (0, 1), PLAIN).ok()?;
            let (batch, _) = batch.next(Split::Train).ok()?;
            let edges = batch.get::<i32>("fk_relations").unwrap().len();
            Some(edges / (settings.shape.batch_size * settings.shape.max_rows) as usize)
        };
        let (one, two) = (&pair[0].1, &pair[1].1);
        let most = [one, two].map(|store| references_of(store).max(1));
        for (alone, most) in [one, two].into_iter().zip(most) {
            if let Some(room) = room(&[alone], vec!["one".into()]) {
                assert_eq!(room, most);
                found.insert(room);
            }
        }
        if let Some(room) = room(&[one, two], vec!["one".into(), "two".into()]) {
            assert_eq!(room, most[0].max(most[1]));
        }
    }
    assert!(found.len() > 1, "{found:?}");
}

#[test]
fn child_widths_name_a_relation_short_or_in_full_and_are_part_of_the_plan() {
    let (_folder, store) = &random_stores(1)[0];
    let walk = Walk::Priority { child_width: 3, children: Children::Uniform };
    let with = |name: String| {
        let settings = Settings { walk, child_widths: vec![(name, 2)], ..small(1) };
        sampler(store, &settings, (0, 1), PLAIN)
    };
    let plain = sampler(store, &Settings { walk, ..small(1) }, (0, 1), PLAIN).unwrap();
    let short = store.relation_name(0);
    let full = format!("{}/{short}", store.metadata().database);
    for name in [short.clone(), full.clone()] {
        let cursor = with(name).unwrap().cursor();
        let error = plain.resume(&cursor).unwrap_err().to_string();
        assert!(error.contains(&format!("\"child_width/{full} -> ")), "{error}");
    }
    for unknown in ["no.such".to_owned(), format!("other/{short}")] {
        let error = with(unknown).err().unwrap().to_string();
        let all: Vec<_> = (0..store.relations().len()).map(|of| store.relation_name(of)).collect();
        assert!(error.ends_with(&format!("name one of {}", all.join(", "))), "{error}");
    }
}
