//! Converts things at once, and takes what they became in their order.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

use rayon::Yield;

use crate::error::{Error, Result};

/// How long the thread that takes the results sleeps before it looks for work again, when other threads have
/// all there is.
const PAUSE: Duration = Duration::from_micros(100);

/// Converts what `next` returns, on all threads, while this one gives the results to `consume` in their order;
/// to the end, where `next` returns nothing to one that waits.
///
/// `next` is told whether to wait: else it may return nothing because nothing is there yet. At most two things
/// for each thread are converted, or wait until those before them are consumed.
pub(super) fn in_order<T: Send, U: Send>(
    mut next: impl FnMut(bool) -> Option<T>,
    convert: impl Fn(T) -> Result<U> + Sync,
    mut consume: impl FnMut(U) -> Result<()>,
) -> Result<()> {
    let (convert, at_once) = (&convert, 2 * rayon::current_num_threads());
    // Threads take the first of those that were begun first, because the next to consume is among them.
    rayon::in_place_scope_fifo(|scope| {
        let mut begun = VecDeque::new();
        loop {
            while begun.len() < at_once
                && let Some(one) = next(begun.is_empty())
            {
                let (send, converted) = sync_channel(1);
                // After an error nobody takes what comes later.
                scope.spawn_fifo(move |_| {
                    let _ = send.send(convert(one));
                });
                begun.push_back(converted);
            }
            let Some(first) = begun.front() else { return Ok(()) };
            let converted = match first.try_recv() {
                // This thread converts, too, whatever is next; then it looks for what there is to begin.
                Err(TryRecvError::Empty) if rayon::yield_now() == Some(Yield::Executed) => continue,
                Err(TryRecvError::Empty) => match first.recv_timeout(PAUSE) {
                    Err(RecvTimeoutError::Timeout) => continue,
                    converted => converted.ok(),
                },
                converted => converted.ok(),
            };
            begun.pop_front();
            // The scope hands on the panic of a thread.
            let panicked = || Error::corrupt("internal error: a conversion panicked");
            consume(converted.ok_or_else(panicked)??)?;
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::in_order;
    use crate::error::{Error, Result};

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
    }

    /// Also when each conversion divides its work, and when nothing is there for some time.
    #[test]
    fn results_come_in_their_order_and_few_are_held() {
        for threads in [1, 2, 3, 8] {
            let (begun, mut consumed) = (AtomicUsize::new(0), Vec::new());
            let (mut numbers, mut asked) = (0..500_usize, 0);
            let next = |waits: bool| {
                asked += 1;
                if !waits && asked % 3 == 0 { None } else { numbers.next() }
            };
            let convert = |number: usize| {
                begun.fetch_add(1, Ordering::SeqCst);
                let (one, two) = rayon::join(|| number / 2, || number - number / 2);
                Ok(one + two)
            };
            let consume = |number| {
                consumed.push(number);
                let held = begun.load(Ordering::SeqCst) - consumed.len();
                assert!(held < 2 * threads, "{held} with {threads} threads");
                Ok(())
            };
            pool(threads).install(|| in_order(next, convert, consume)).unwrap();
            assert_eq!(consumed, (0..500).collect::<Vec<_>>(), "{threads} threads");
        }
    }

    #[test]
    fn a_thread_of_no_pool_takes_the_results_too() {
        let (mut numbers, mut sum) = (0..100, 0);
        let consume = |number: u64| {
            sum += number;
            Ok(())
        };
        in_order(|_| numbers.next(), Ok, consume).unwrap();
        assert_eq!(sum, 4950);
    }

    #[test]
    fn the_first_error_ends_it_and_a_panic_is_handed_on() {
        let convert = |number: u32| match number {
            7 => Err(Error::data("seven")),
            9 => Err(Error::data("nine")),
            99 => panic!("ninety-nine"),
            number => Ok(number),
        };
        for threads in [1, 2, 8] {
            let run = |first: u32| -> (Vec<u32>, Result<()>) {
                let (mut numbers, mut taken) = (first.., Vec::new());
                let end = in_order(
                    |_| numbers.next(),
                    convert,
                    |number| {
                        taken.push(number);
                        Ok(())
                    },
                );
                (taken, end)
            };
            let (taken, end) = pool(threads).install(|| run(4));
            assert_eq!((taken, end.unwrap_err().to_string().as_str()), (vec![4, 5, 6], "seven"));
            let panic = std::panic::catch_unwind(|| pool(threads).install(|| run(98)));
            let panic = panic.expect_err("a conversion panicked");
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"ninety-nine"));
        }
    }
}
