//! Progress bars on a terminal; nothing elsewhere.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::view::words;

/// A bar for each stage, on standard error when that is a terminal.
pub(super) struct Bars<'a> {
    current: Mutex<ProgressBar>,
    interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
    unit: &'static str,
    /// The floating-point operations of each unit, for the speed display; 0 without one.
    operations: f64,
}

impl<'a> Bars<'a> {
    /// Returns bars that count rows; `interrupted` tells when to stop.
    pub(super) fn new(interrupted: Option<&'a (dyn Fn() -> bool + Sync)>) -> Self {
        let unit = "{human_pos}/{human_len} {rate}/s";
        Self { current: Mutex::new(ProgressBar::hidden()), interrupted, unit, operations: 0.0 }
    }

    /// Returns bars that count bytes.
    #[cfg(feature = "cli")]
    pub(super) fn of_bytes(interrupted: Option<&'a (dyn Fn() -> bool + Sync)>) -> Self {
        let mut bars = Self::new(interrupted);
        bars.unit = "{bytes}/{total_bytes} {bytes_per_sec}";
        bars
    }

    /// Returns bars that count rows and show GFLOP/s, at `operations` for each row.
    pub(super) fn of_operations(operations: f64) -> Self {
        let mut bars = Self::new(None);
        bars.unit = "{human_pos}/{human_len} {rate} rows/s {speed}";
        bars.operations = operations;
        bars
    }

    /// Starts at `count` units that were done earlier, without counting them in the speed.
    pub(super) fn skip(&self, count: u64) {
        let bar = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        bar.set_position(count);
        bar.reset_eta();
    }

    fn replace(&self, bar: ProgressBar) {
        // A poisoned lock means only that another thread failed while drawing.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, bar).finish_and_clear();
    }
}

impl Progress for Bars<'_> {
    fn begin(&self, stage: &str, total: Option<u64>) {
        let (bar, template) = match total {
            Some(total) => {
                let template = format!("{{msg:32!}} {{bar:24}} {} {{eta}}", self.unit);
                (ProgressBar::new(total), template)
            }
            None => (ProgressBar::no_length(), "{msg:32!} {human_pos} {rate}/s".to_owned()),
        };
        // The template is valid; if it were not, the default style would be used.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            let operations = self.operations;
            let speed = move |state: &ProgressState, out: &mut dyn fmt::Write| {
                // A failed write leaves the speed out.
                let _ = write!(out, "{:.1} GFLOP/s", state.per_sec() * operations / 1e9);
            };
            let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
                let _ = out.write_str(&words::rate(state.per_sec()));
            };
            bar.set_style(style.with_key("speed", speed).with_key("rate", rate));
        }
        bar.set_message(stage.to_owned());
        self.replace(bar);
    }

    fn advance(&self, count: u64) -> Result<()> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).inc(count);
        if self.interrupted.is_some_and(|interrupted| interrupted()) {
            return Err(Error::interrupted("interrupted; nothing was written"));
        }
        Ok(())
    }
}

impl Drop for Bars<'_> {
    fn drop(&mut self) {
        self.replace(ProgressBar::hidden());
    }
}
