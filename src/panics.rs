//! Catches panics and turns them into errors.

use std::any::Any;
#[cfg(feature = "parquet")]
use std::{cell::Cell, panic, sync::Once};

#[cfg(feature = "parquet")]
thread_local! {
    /// Whether this thread's panics are caught and must not be printed.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `work`, or the message of its panic, which is not printed.
///
/// For libraries that panic on malformed input. After a panic, drop everything that `work` changes.
#[cfg(feature = "parquet")]
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static SILENCED: Once = Once::new();
    SILENCED.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                print(panic);
            }
        }));
    });
    let outer = IS_CAUGHT.replace(true);
    let outcome = panic::catch_unwind(panic::AssertUnwindSafe(work));
    IS_CAUGHT.set(outer);
    outcome.map_err(|panic| panic_message(&*panic).to_owned())
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
