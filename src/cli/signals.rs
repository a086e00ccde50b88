//! SIGINT and SIGTERM, for the binaries; Python handles its own signals.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static PRESSED: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
    let pressed = Arc::new(AtomicBool::new(false));
    // Without handlers, signals end the process as usual.
    let _ = listen(&pressed);
    pressed
});

fn listen(pressed: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the process at once. Its handler is registered first, so that it sees
        // the flag of the first signal.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(pressed))?;
        flag::register(signal, Arc::clone(pressed))?;
    }
    Ok(())
}

/// Whether SIGINT or SIGTERM arrived since the first call.
#[must_use]
pub fn interrupted() -> bool {
    PRESSED.load(Ordering::Relaxed)
}
