//! The processor's floating-point settings: sets those that define the bits of a result while it is
//! computed, and restores the caller's. A thread begins with the settings of the thread that starts it.
#![cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(
        unsafe_code,
        reason = "reads and writes a control register; each block states why it is safe"
    )
)]

/// Runs `work` with rounding to nearest, with subnormal numbers and without traps, whatever the
/// calling thread has set. Its settings are restored, also when `work` panics.
///
/// A host that was compiled for speed may have made subnormals zero for its whole process.
pub(crate) fn in_default_environment<R>(work: impl FnOnce() -> R) -> R {
    let _restores = Environment::enter();
    out_of_line(work)
}

/// Calls `work` out of line, so that the compiler moves no arithmetic across the change of
/// settings.
#[inline(never)]
fn out_of_line<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// The caller's settings, which are restored on drop.
struct Environment {
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        expect(dead_code, reason = "there is no register to restore")
    )]
    callers: register::Word,
}

impl Environment {
    fn enter() -> Self {
        let callers = register::read();
        register::write(register::DEFAULT);
        Self { callers }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        register::write(self.callers);
    }
}

#[cfg(target_arch = "x86_64")]
mod register {
    use std::arch::asm;

    pub(super) type Word = u32;

    /// All exceptions masked, rounding to nearest, neither "flush to zero" nor "denormals are
    /// zero".
    pub(super) const DEFAULT: Word = 0x1f80;

    pub(super) fn read() -> Word {
        let mut word: Word = 0;
        // SAFETY: Stores four bytes, where `word` is.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack)) };
        word
    }

    pub(super) fn write(word: Word) {
        // SAFETY: `word` is what the language asks for, or what this thread had before; both have
        // only bits that the processor knows, since one of them was read from it.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    use std::arch::asm;

    pub(super) type Word = u64;

    /// No traps, rounding to nearest, neither "flush to zero" nor a default NaN.
    pub(super) const DEFAULT: Word = 0;

    pub(super) fn read() -> Word {
        let word: Word;
        // SAFETY: Every AArch64 lets a program read this register.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nostack)) };
        word
    }

    pub(super) fn write(word: Word) {
        // SAFETY: `word` is what the language asks for, or what this thread had before.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub(super) type Word = ();

    pub(super) const DEFAULT: Word = ();

    pub(super) fn read() -> Word {}

    pub(super) fn write((): Word) {}
}
