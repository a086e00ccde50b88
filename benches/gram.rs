//! The speed of the Gram kernels on one core, beside the peak of the core.
//!
//! ```text
//! cargo bench --bench gram [-- --kernel avx512 --dtype f64 --sums f64 --columns 64 --seconds 1]
//! ```
//!
//! Prints one JSON line for each case. An operation is a multiplication or an addition of the upper
//! triangle: `columns * (columns + 1) * rows` for a chunk. The peak is that of 64 bits, also beside sums of
//! f32x128. `gram.py` measures other libraries.
#![expect(unsafe_code, reason = "the peak is measured by a loop of bare instructions")]

mod shared;

use std::hint::black_box;

use half::{bf16, f16};
use headwater::fold::gram::{Chunk, Kernel, Order, Speed};
use headwater::fold::{Gram, Rows, Statistic, Values};
use headwater::random::{Purpose, Stream};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use shared::{cpu_seconds, each_option};

const CHUNK_ROWS: usize = 4096;

/// The cases to measure (default: all, with sums of f64).
#[derive(Default)]
struct Options {
    kernel: Option<String>,
    dtype: Option<String>,
    sums: Order,
    columns: Option<usize>,
    seconds: Option<f64>,
    block_rows: Option<usize>,
    block_columns: Option<usize>,
}

impl Options {
    fn read() -> Self {
        let mut options = Self::default();
        let number = |text: String| text.parse().expect("a whole number");
        each_option(|name, value| {
            match name {
                "--kernel" => options.kernel = Some(value()),
                "--dtype" => options.dtype = Some(value()),
                "--sums" => options.sums = value().parse().expect("an order"),
                "--columns" => options.columns = Some(number(value())),
                "--seconds" => options.seconds = Some(value().parse().expect("a number")),
                "--block-rows" => options.block_rows = Some(number(value())),
                "--block-columns" => options.block_columns = Some(number(value())),
                _ => return false,
            }
            true
        });
        options
    }

    fn speed(&self, kernel: Kernel) -> Speed {
        let default = Speed::default();
        Speed {
            kernel: Some(kernel),
            block_rows: self.block_rows.unwrap_or(default.block_rows),
            block_columns: self.block_columns.unwrap_or(default.block_columns),
        }
    }
}

fn main() {
    let options = Options::read();
    stay_on_one_core();
    let seconds = options.seconds.unwrap_or(1.0);
    let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|w| w == name);
    let kernels = Kernel::available().filter(|&kernel| kernel != Kernel::Scalar);
    for kernel in kernels.filter(|kernel| is(&options.kernel, &kernel.to_string())) {
        for columns in [64, 256, 1024, 2048] {
            let columns = options.columns.unwrap_or(columns);
            let numbers = Numbers::new(columns);
            for (dtype, values) in numbers.of_all_types() {
                let wide = matches!(values, Values::F64(_));
                if is(&options.dtype, dtype) && options.sums.check(wide, false).is_ok() {
                    let speed = options.speed(kernel);
                    let gram = Gram::with_order(columns, options.sums, &speed).expect("a kernel");
                    measure(&gram, dtype, values, seconds);
                }
            }
            if options.columns.is_some() {
                break;
            }
        }
    }
}

/// Measures one case, with the peak before and after it.
fn measure(gram: &Gram, dtype: &str, values: Values<'_>, seconds: f64) {
    let columns = gram.columns();
    let rows = Rows::new(values, CHUNK_ROWS, columns, columns).expect("a whole chunk");
    let chunk = Chunk::of(rows);
    let operations = (columns * (columns + 1) * CHUNK_ROWS) as f64;
    let peak_before = peak(gram.kernel());
    black_box(gram.leaf(&chunk).expect("a leaf"));
    let (start, mut chunks, mut took) = (cpu_seconds(), 0.0, 0.0);
    while took < seconds {
        black_box(gram.leaf(black_box(&chunk)).expect("a leaf"));
        chunks += 1.0;
        took = cpu_seconds() - start;
    }
    let gflops = operations * chunks / took / 1e9;
    let peak = peak_before.max(peak(gram.kernel()));
    println!(
        "{{\"bench\": \"gram\", \"kernel\": \"{}\", \"dtype\": \"{dtype}\", \"sums\": \"{}\", \
         \"columns\": {columns}, \"chunk_rows\": {CHUNK_ROWS}, \"chunks\": {chunks}, \"ms_per_chunk\": {:.4}, \
         \"gflops\": {gflops:.2}, \"peak_gflops\": {peak:.2}, \"share_of_peak\": {:.4}}}",
        gram.kernel(),
        gram.order(),
        took / chunks * 1e3,
        gflops / peak,
    );
}

/// The same random numbers of every type.
struct Numbers {
    f64: Vec<f64>,
    f32: Vec<f32>,
    f16: Vec<f16>,
    bf16: Vec<bf16>,
}

impl Numbers {
    fn new(columns: usize) -> Self {
        let mut random = Stream::new(1, Purpose::Demo, [0; 3]);
        let mut number = || (random.next_u64() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
        let f64: Vec<f64> = (0..CHUNK_ROWS * columns).map(|_| number()).collect();
        Self {
            f32: f64.iter().map(|&v| v as f32).collect(),
            f16: f64.iter().map(|&v| f16::from_f64(v)).collect(),
            bf16: f64.iter().map(|&v| bf16::from_f64(v)).collect(),
            f64,
        }
    }

    fn of_all_types(&self) -> [(&'static str, Values<'_>); 4] {
        [
            ("f64", self.f64.as_slice().into()),
            ("f32", self.f32.as_slice().into()),
            ("f16", self.f16.as_slice().into()),
            ("bf16", self.bf16.as_slice().into()),
        ]
    }
}

/// Pins this thread to the first core that it may use.
fn stay_on_one_core() {
    let allowed = sched_getaffinity(None).expect("the cores of this thread");
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|&core| allowed.is_set(core)).expect("a core"));
    sched_setaffinity(None, &one).expect("a core of its own");
}

/// Measures the peak of a kernel's instructions: enough chains to keep every unit busy, and no
/// memory reads.
fn peak(kernel: Kernel) -> f64 {
    const TURNS: u64 = 2_000_000;
    let measured = (0..7).map(|_| {
        let start = cpu_seconds();
        let operations = fma_loop(kernel, TURNS);
        operations / (cpu_seconds() - start) / 1e9
    });
    measured.fold(0.0, f64::max)
}

/// Runs the loop on numbers without zeros, because a processor may slow down as it draws more
/// power. Returns the number of operations.
#[cfg(target_arch = "x86_64")]
fn fma_loop(kernel: Kernel, turns: u64) -> f64 {
    use std::arch::asm;
    let numbers: [f64; 14 * 8] = std::array::from_fn(|i| 0.9 / (i + 1) as f64 - 0.3);
    macro_rules! chains {
        ($kind:literal, $bytes:literal, $($register:literal),*) => {
            // SAFETY: Only kernels of this machine are measured, so it has the instructions, which
            // read 14 registers from as many numbers, and write nothing but the registers named.
            unsafe {
                asm!(
                    concat!("vmovupd ", $kind, "0, [{numbers}]"),
                    concat!("vmovupd ", $kind, "13, [{numbers} + 13 * ", $bytes, "]"),
                    $(concat!("vmovupd ", $kind, $register, ", [{numbers} + ", $register, " * ", $bytes, "]"),)*
                    "2:",
                    $(concat!("vfmadd231pd ", $kind, $register, ", ", $kind, "0, ", $kind, "13"),)*
                    "dec {turns}",
                    "jnz 2b",
                    numbers = in(reg) numbers.as_ptr(),
                    turns = inout(reg) turns => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
                    out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
                    out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _,
                    options(readonly, nostack),
                );
            }
        };
    }
    let lanes = if kernel == Kernel::Avx512 {
        chains!("zmm", 64, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
        8
    } else {
        chains!("ymm", 32, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
        4
    };
    (turns * 12 * lanes * 2) as f64
}

#[cfg(not(target_arch = "x86_64"))]
fn fma_loop(_: Kernel, _: u64) -> f64 {
    f64::NAN
}
