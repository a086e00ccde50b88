//! Invalid settings and calls, and the end of a sampler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater::ErrorKind;
use headwater::plan::{Assignment, Split, SplitRatios};
use headwater::sampler::{Sampler, Settings, Speed, Texts, Walk};

use crate::{PLAIN, random_stores, sampler, small};

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
    assert!(refused(&|s| s.tasks = Some(vec!["nonsense".into()])).contains("name one of random/"));
    assert!(refused(&|s| s.tasks = Some(vec![])).contains("there is no task to serve"));
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
    assert!(error.to_string().contains("no task has a seed in the val split"), "{error}");
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
