//! Ctrl-C and the request to end, for the binaries; Python hears them itself.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static PRESSED: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
    let pressed = Arc::new(AtomicBool::new(false));
    // Where there are no signals to hear, they end the process as ever.
    let _ = listen(&pressed);
    pressed
});

fn listen(pressed: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // A second one ends the process at once; it comes first, to see the flag of the first.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(pressed))?;
        flag::register(signal, Arc::clone(pressed))?;
    }
    Ok(())
}

/// Whether Ctrl-C was pressed, or the process asked to end, since this was first asked.
#[must_use]
pub fn interrupted() -> bool {
    PRESSED.load(Ordering::Relaxed)
}
