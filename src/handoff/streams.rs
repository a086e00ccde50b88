//! The streams of a sampler: for each split, items in order, made ahead of one consumer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use rayon::ThreadPool;

use super::in_flight::{Begun, InFlight, begin};
use super::producer::{Gate, Producer, shut_down_error};
use crate::error::{Error, Result};
use crate::process::check_process;

/// The names of the streams.
const NAMES: [&str; 3] = ["train", "val", "test"];

/// The speed settings of a sampler. They change no bit of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// The number of threads that make batches (default: all cores).
    pub threads: Option<usize>,
    /// The number of batches of a stream that are made ahead of the caller. With 0, each batch is
    /// made on request.
    pub prefetch: usize,
}

impl Default for Speed {
    fn default() -> Self {
        Self { threads: None, prefetch: 3 }
    }
}

/// Makes the items of the streams, one after another.
pub(crate) trait Maker: Send + Sync + 'static {
    /// A place between two items of a stream.
    type Place: Clone + Send + 'static;
    /// What an item is made from.
    type Work: Send + 'static;
    /// An item.
    type Item: Send + 'static;

    /// Rejects a stream that has no items, before its producer is started.
    fn check(&self, stream: usize) -> Result<()>;

    /// Returns the work for the item at `place` of a stream; moves `place` behind it.
    fn advance(&self, stream: usize, place: &mut Self::Place) -> Result<Self::Work>;

    /// Makes an item.
    fn make(&self, work: &Self::Work) -> Result<Self::Item>;

    /// Returns the threads that make items.
    fn threads(&self) -> &ThreadPool;

    /// Begins to make an item on the threads.
    fn begin(self: &Arc<Self>, work: Self::Work) -> Begun<Self::Item> {
        let maker = Arc::clone(self);
        begin(self.threads(), move || maker.make(&work))
    }
}

/// The streams of a sampler, on the side of their consumers.
pub(crate) struct Streams<M: Maker> {
    maker: Arc<M>,
    /// The number of items that each stream makes ahead; with 0, an item is made on request.
    prefetch: usize,
    each: [Mutex<Stream<M>>; 3],
    gate: Arc<Gate>,
    /// The place of the consumer in each stream.
    consumed: Mutex<[M::Place; 3]>,
    process: u32,
}

/// One stream.
struct Stream<M: Maker> {
    /// The thread that makes items ahead; started with the first request.
    producer: Option<Producer<At<M>>>,
    /// The next item, after a call of `wait` that did not take it.
    waiting: Option<At<M>>,
}

/// An item, and the place of its stream after it.
type At<M> = (<M as Maker>::Item, <M as Maker>::Place);

impl<M: Maker> Stream<M> {
    /// Drops the items that were made ahead.
    fn forget(&mut self) {
        (self.producer, self.waiting) = (None, None);
    }
}

impl<M: Maker> Streams<M> {
    /// Returns streams that begin at `places`.
    pub(crate) fn new(maker: Arc<M>, prefetch: usize, places: [M::Place; 3]) -> Self {
        let stream = || Mutex::new(Stream { producer: None, waiting: None });
        Self {
            maker,
            prefetch,
            each: [stream(), stream(), stream()],
            gate: Arc::default(),
            consumed: Mutex::new(places),
            process: std::process::id(),
        }
    }

    /// Returns the next item of a stream, and the places of all streams after it.
    ///
    /// # Errors
    /// `InvalidArgument` when another thread waits for an item of the stream; else the error of making
    /// the item.
    pub(crate) fn next(&self, stream: usize) -> Result<(M::Item, [M::Place; 3])> {
        let mut taken = self.lock_stream(stream)?;
        self.maker.check(stream)?;
        let (item, after) = self.take(stream, &mut taken)?;
        let mut consumed = lock(&self.consumed);
        consumed[stream] = after;
        Ok((item, consumed.clone()))
    }

    /// Waits until the next item of a stream is made, without taking it.
    ///
    /// # Errors
    /// Those of [`Streams::next`].
    pub(crate) fn wait(&self, stream: usize) -> Result<()> {
        let mut taken = self.lock_stream(stream)?;
        self.maker.check(stream)?;
        taken.waiting = Some(self.take(stream, &mut taken)?);
        Ok(())
    }

    /// Takes the next item: the waiting one, one made now, or the producer's.
    fn take(&self, number: usize, stream: &mut Stream<M>) -> Result<At<M>> {
        if let Some(made) = stream.waiting.take() {
            return Ok(made);
        }
        let mut place = lock(&self.consumed)[number].clone();
        if self.prefetch == 0 {
            let work = self.maker.advance(number, &mut place)?;
            return Ok((self.maker.make(&work)?, place));
        }
        let producer = match stream.producer.take() {
            Some(producer) => producer,
            None => self.produce(number, place)?,
        };
        stream.producer.insert(producer).next()
    }

    /// Starts the producer of a stream, from `place` on.
    fn produce(&self, number: usize, mut place: M::Place) -> Result<Producer<At<M>>> {
        let (maker, gate) = (Arc::clone(&self.maker), Arc::clone(&self.gate));
        let mut in_flight = InFlight::default();
        Producer::start(number, NAMES[number], self.prefetch, gate, move || {
            let made = in_flight.next(|| {
                let work = maker.advance(number, &mut place)?;
                Ok(Some((maker.begin(work), place.clone())))
            })?;
            Ok(made.expect("a stream has no end"))
        })
    }

    fn lock_stream(&self, number: usize) -> Result<MutexGuard<'_, Stream<M>>> {
        self.check_alive()?;
        match self.each[number].try_lock() {
            Ok(stream) => Ok(stream),
            Err(TryLockError::Poisoned(stream)) => Ok(stream.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Error::invalid(format!(
                "another thread is waiting for a {} batch of this sampler; take the batches of a \
                 split in one thread, so that they come in order",
                NAMES[number]
            ))),
        }
    }

    /// Returns the places of the consumers, without what was made ahead.
    pub(crate) fn places(&self) -> [M::Place; 3] {
        lock(&self.consumed).clone()
    }

    /// Continues all streams at `places`; items made ahead are dropped.
    pub(crate) fn move_to(&self, places: [M::Place; 3]) -> Result<()> {
        let mut streams = (0..3).map(|n| self.lock_stream(n)).collect::<Result<Vec<_>>>()?;
        streams.iter_mut().for_each(|stream| stream.forget());
        *lock(&self.consumed) = places;
        Ok(())
    }

    /// Continues one stream at `place`; its items made ahead are dropped.
    pub(crate) fn move_one(&self, number: usize, place: M::Place) -> Result<()> {
        let mut stream = self.lock_stream(number)?;
        stream.forget();
        lock(&self.consumed)[number] = place;
        Ok(())
    }

    /// Ends the producer threads and wakes waiting consumers, once the items in flight are made.
    ///
    /// Afterwards every call is an error, except those for the places. In a forked child, which has
    /// none of the threads, this does nothing.
    pub(crate) fn shutdown(&self) {
        if check_owner(self.process).is_err() {
            return;
        }
        self.gate.close();
        self.each.iter().for_each(|stream| lock(stream).forget());
    }

    /// Rejects calls after the shutdown, and in another process than the own one.
    pub(crate) fn check_alive(&self) -> Result<()> {
        check_owner(self.process)?;
        if self.gate.is_closed() { Err(shut_down_error()) } else { Ok(()) }
    }

    /// Returns a finite pass over the items that `next` has the work for.
    pub(crate) fn pass<F: FnMut() -> Result<Option<M::Work>>>(&self, next: F) -> Pass<M, F> {
        Pass {
            maker: Arc::clone(&self.maker),
            next,
            in_flight: InFlight::default(),
            waiting: None,
            has_failed: false,
            is_ahead: self.prefetch > 0,
            gate: Arc::clone(&self.gate),
            process: self.process,
        }
    }
}

impl<M: Maker> Drop for Streams<M> {
    fn drop(&mut self) {
        if check_owner(self.process).is_ok() {
            return self.shutdown();
        }
        // The threads are in another process: joining them here would wait for ever.
        for stream in &mut self.each {
            let stream = stream.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(stream.producer.take());
        }
        std::mem::forget(Arc::clone(&self.maker));
    }
}

/// A finite pass over items, as an iterator. It ends at an item that cannot be made.
pub(crate) struct Pass<M: Maker, F> {
    maker: Arc<M>,
    next: F,
    in_flight: InFlight<M::Item, ()>,
    /// The next item, after a call of `wait` that did not take it.
    waiting: Option<M::Item>,
    has_failed: bool,
    /// Whether items are begun ahead of the caller.
    is_ahead: bool,
    gate: Arc<Gate>,
    process: u32,
}

impl<M: Maker, F> Pass<M, F> {
    /// Returns the process whose threads make the items; another process cannot continue the pass.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }
}

impl<M: Maker, F> Drop for Pass<M, F> {
    fn drop(&mut self) {
        if check_owner(self.process).is_err() {
            // As for the streams: the threads are in another process.
            std::mem::forget(std::mem::take(&mut self.in_flight));
            std::mem::forget(self.waiting.take());
            std::mem::forget(Arc::clone(&self.maker));
        }
    }
}

impl<M: Maker, F: FnMut() -> Result<Option<M::Work>>> Pass<M, F> {
    /// Waits until the next item is made, without taking it: an interrupt while waiting consumes
    /// nothing.
    pub(crate) fn wait(&mut self) -> Result<()> {
        if self.waiting.is_none() {
            self.waiting = self.make()?;
        }
        Ok(())
    }

    /// Makes the next item; none at the end.
    fn make(&mut self) -> Result<Option<M::Item>> {
        check_owner(self.process)?;
        if self.gate.is_closed() {
            return Err(shut_down_error());
        }
        if self.has_failed {
            return Err(Error::invalid(
                "this pass ended at a batch that could not be made; begin another pass",
            ));
        }
        let Self { maker, next, in_flight, is_ahead, .. } = self;
        let made = match is_ahead {
            false => next().and_then(|work| work.map(|work| maker.make(&work)).transpose()),
            true => {
                let begun = || Ok(next()?.map(|work| (maker.begin(work), ())));
                in_flight.next(begun).map(|made| made.map(|(item, ())| item))
            }
        };
        self.has_failed = made.is_err();
        made
    }
}

impl<M: Maker, F: FnMut() -> Result<Option<M::Work>>> Iterator for Pass<M, F> {
    type Item = Result<M::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let waiting = self.waiting.take().map(Ok);
        waiting.or_else(|| self.make().transpose())
    }
}

/// Rejects calls on a sampler, or on its pass, in another process than its own.
///
/// # Errors
/// `InvalidArgument` in another process.
pub fn check_owner(process: u32) -> Result<()> {
    let remedy = "make a sampler in the child, and resume it from a cursor";
    check_process(process, "sampler", remedy)
}

/// Locks a value that a panic never leaves half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
