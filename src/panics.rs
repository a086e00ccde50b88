//! Panics that are caught, and become errors.

use std::any::Any;
#[cfg(feature = "parquet")]
use std::{cell::Cell, panic, sync::Once};

#[cfg(feature = "parquet")]
thread_local! {
    /// Whether a panic of this thread is somebody's error, and not to be told here.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What `work` yields, or what it panicked with, of which nothing is printed.
///
/// For libraries that panic where bytes are not what they promise. Whatever `work` changes is to be
/// dropped after a panic.
#[cfg(feature = "parquet")]
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static SILENCED: Once = Once::new();
    SILENCED.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                tell(panic);
            }
        }));
    });
    let outer = IS_CAUGHT.replace(true);
    let outcome = panic::catch_unwind(panic::AssertUnwindSafe(work));
    IS_CAUGHT.set(outer);
    outcome.map_err(|panic| words_of(&*panic).to_owned())
}

/// What somebody panicked with.
pub(crate) fn words_of(panic: &(dyn Any + Send)) -> &str {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words")
}
