//! Reads batches while those before them are worked on.

use std::cell::Cell;
use std::sync::mpsc::sync_channel;

use arrow_array::{Array, ArrayRef, RecordBatch};

use super::in_order::in_order;
use crate::error::{Error, Result};
use crate::panics::panic_message;

/// The batches that may have been read before one is taken.
const AHEAD: usize = 4;
/// No more batches are converted at once when they have as many bytes, however many threads there are.
const BYTES_TOGETHER: usize = 64 << 20;

/// Converts batches, several at once, while another thread reads the next ones and `consume` takes what
/// the earlier ones became, in their order. `convert` also gets the number of the first row of a batch.
pub(super) fn read_ahead<B: Unconverted, T: Send>(
    batches: impl Iterator<Item = Result<B>> + Send,
    convert: impl Fn(u64, B) -> Result<T> + Sync,
    mut consume: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel(AHEAD);
        let thread = std::thread::Builder::new();
        let read = move || {
            for batch in batches {
                let stop = batch.is_err();
                if send.send(batch).is_err() || stop {
                    return;
                }
            }
        };
        let reader = thread.spawn_scoped(scope, read).map_err(|e| {
            Error::limit(format!("cannot start a thread that reads: {e}; free some memory"))
        })?;
        let (mut row_count, held) = (0, Cell::new(0));
        let next = |waits: bool| {
            let batch = match waits {
                true => receive.recv().ok(),
                false if held.get() < BYTES_TOGETHER => receive.try_recv().ok(),
                false => None,
            };
            batch.map(|batch: Result<B>| {
                let batch = batch?;
                let (first_row, bytes) = (row_count, batch.bytes());
                row_count += batch.row_count();
                held.set(held.get() + bytes);
                Ok((first_row, bytes, batch))
            })
        };
        let consumed = in_order(
            next,
            |batch| {
                let (first_row, bytes, batch) = batch?;
                Ok((bytes, convert(first_row, batch)?))
            },
            |(bytes, converted)| {
                held.set(held.get() - bytes);
                consume(converted)
            },
        );
        // The thread may wait to hand over a batch that nobody takes.
        drop(receive);
        // A panic that nobody takes would be one of this thread, too.
        let read = reader.join();
        consumed?;
        read.map_err(|panic| {
            Error::data(format!(
                "internal error: reading the rows panicked: {}",
                panic_message(&*panic)
            ))
        })
    })
}

/// A batch of rows that is to be converted.
pub(super) trait Unconverted: Send {
    /// The number of rows.
    fn row_count(&self) -> u64;

    /// The bytes of the rows.
    fn bytes(&self) -> usize;
}

impl Unconverted for RecordBatch {
    fn row_count(&self) -> u64 {
        self.num_rows() as u64
    }

    fn bytes(&self) -> usize {
        // Arrays may be parts of one buffer.
        let of_rows =
            |array: &ArrayRef| array.to_data().get_slice_memory_size().unwrap_or_default();
        self.columns().iter().map(of_rows).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
    use arrow_schema::Schema;

    use super::read_ahead;
    use crate::error::{Error, Result};

    fn batch(number: u32) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(UInt32Array::from(vec![number]));
        RecordBatch::try_from_iter([("number", numbers)]).unwrap()
    }

    fn number_of(batch: &RecordBatch) -> u32 {
        batch.column(0).as_any().downcast_ref::<UInt32Array>().unwrap().value(0)
    }

    /// Returns the numbers that were taken, of batches of which one cannot be read or converted.
    fn taken(count: u32, unreadable: Option<u32>, bad: Option<u32>) -> (Vec<u32>, Result<()>) {
        let batches = (0..count).map(move |number| match Some(number) == unreadable {
            true => Err(Error::data("unreadable")),
            false => Ok(batch(number)),
        });
        let mut taken = Vec::new();
        let convert = |first_row, batch: RecordBatch| match number_of(&batch) {
            number if Some(number) == bad => Err(Error::data("bad")),
            number if u64::from(number) == first_row => Ok(number),
            number => {
                Err(Error::data(format!("batch {number}, of one row, begins at {first_row}")))
            }
        };
        let end = read_ahead(Box::new(batches), convert, |number| {
            taken.push(number);
            Ok(())
        });
        (taken, end)
    }

    #[test]
    fn batches_keep_their_order_on_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for count in [0, 1, 2, 50] {
                let (numbers, end) = pool.install(|| taken(count, None, None));
                assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "{threads} threads");
                end.unwrap();
            }
        }
    }

    #[test]
    fn the_first_error_comes_after_all_batches_before_it() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for (unreadable, bad, expected) in
            [(Some(7), None, "unreadable"), (None, Some(7), "bad"), (Some(9), Some(7), "bad")]
        {
            let (numbers, end) = pool.install(|| taken(20, unreadable, bad));
            assert_eq!(numbers, (0..7).collect::<Vec<_>>());
            assert_eq!(end.expect_err("a batch is missing").to_string(), expected);
        }
    }

    #[test]
    fn an_error_of_the_consumer_ends_the_reading_thread() {
        let batches = (0..).map(|number| Ok(batch(number)));
        let end = read_ahead(Box::new(batches), |_, batch| Ok(batch), |_| Err(Error::data("full")));
        assert_eq!(end.expect_err("the disk is full").to_string(), "full");
    }

    #[test]
    fn a_panic_of_the_reading_thread_is_its_error() {
        let batches = (0..3).map(|number| match number {
            2 => panic!("the library gave up"),
            _ => Ok(RecordBatch::new_empty(Arc::new(Schema::empty()))),
        });
        let mut taken = 0;
        let read = read_ahead(
            Box::new(batches),
            |_, batch| Ok(batch),
            |_| {
                taken += 1;
                Ok(())
            },
        );
        let error = read.expect_err("a table without its last rows").to_string();
        assert_eq!(error, "internal error: reading the rows panicked: the library gave up");
        assert_eq!(taken, 2);
    }
}
