//! The speed of the statistics of columns on one core.
//!
//! ```text
//! cargo bench --bench columns [-- --statistic moments --columns 16 --seconds 0.3]
//! ```
//!
//! Prints one JSON line for each case: the CPU time for a number, in nanoseconds. The rows stay in the
//! second-level cache or near it, so that memory is not what is measured.

mod shared;

use std::hint::black_box;

use half::f16;
use headwater::fold::{
    ColumnMoments, Distinct, ExponentHistogram, Histogram, Rows, Statistic, Values,
};
use headwater::random::{Purpose, Stream};

use shared::{cpu_seconds, each_option};

/// The numbers of a chunk, whatever its width.
const NUMBERS: usize = 1 << 16;
const WIDTHS: [usize; 5] = [1, 4, 7, 16, 64];
/// One cell in so many is NULL, where some are.
const NULL_EVERY: u64 = 20;

/// The cases to measure (default: all).
#[derive(Default)]
struct Options {
    statistic: Option<String>,
    columns: Option<usize>,
    seconds: Option<f64>,
}

impl Options {
    fn read() -> Self {
        let mut options = Self::default();
        each_option(|name, value| {
            match name {
                "--statistic" => options.statistic = Some(value()),
                "--columns" => options.columns = Some(value().parse().expect("a whole number")),
                "--seconds" => options.seconds = Some(value().parse().expect("a number")),
                _ => return false,
            }
            true
        });
        options
    }
}

fn main() {
    let options = Options::read();
    for columns in options.columns.map_or(WIDTHS.to_vec(), |columns| vec![columns]) {
        let numbers = Numbers::new(columns);
        for (kind, rows) in numbers.of_all_kinds() {
            let case = Case { options: &options, kind, columns, rows };
            case.measure("moments", &ColumnMoments::new(vec![0.1; columns]).expect("moments"));
            case.measure("exponents", &ExponentHistogram::new(columns).expect("exponents"));
            let distinct = Distinct::new(columns, Distinct::PRECISION).expect("registers");
            case.measure("distinct", &distinct);
            let edges = [-0.5, 0.0, 0.25, 0.75];
            case.measure("histogram", &Histogram::of_all(columns, &edges).expect("edges"));
        }
    }
}

/// Rows of one kind.
struct Case<'a> {
    options: &'a Options,
    kind: &'a str,
    columns: usize,
    rows: Rows<'a>,
}

impl Case<'_> {
    fn measure<S>(&self, name: &str, statistic: &S)
    where
        S: for<'a> Statistic<Chunk<'a> = Rows<'a>>,
    {
        let Self { options, kind, columns, rows } = self;
        if options.statistic.as_ref().is_some_and(|wanted| wanted != name) {
            return;
        }
        black_box(statistic.leaf(rows).expect("a leaf"));
        let (start, mut chunks, mut took) = (cpu_seconds(), 0.0, 0.0);
        while took < options.seconds.unwrap_or(0.3) {
            black_box(statistic.leaf(black_box(rows)).expect("a leaf"));
            chunks += 1.0;
            took = cpu_seconds() - start;
        }
        let numbers = chunks * (rows.count() * columns) as f64;
        println!(
            "{{\"bench\": \"columns\", \"statistic\": \"{name}\", \"numbers\": \"{kind}\", \
             \"columns\": {columns}, \"ns_per_number\": {:.3}}}",
            took * 1e9 / numbers
        );
    }
}

/// The same random numbers of several types, and which of them are NULL.
struct Numbers {
    columns: usize,
    f64: Vec<f64>,
    f32: Vec<f32>,
    f16: Vec<f16>,
    nulls: Vec<bool>,
}

impl Numbers {
    fn new(columns: usize) -> Self {
        let mut random = Stream::new(1, Purpose::Demo, [0; 3]);
        let count = NUMBERS / columns * columns;
        let mut number = || (random.next_u64() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
        let f64: Vec<f64> = (0..count).map(|_| number()).collect();
        let nulls = (0..count).map(|_| random.next_u64().is_multiple_of(NULL_EVERY)).collect();
        Self {
            columns,
            f32: f64.iter().map(|&v| v as f32).collect(),
            f16: f64.iter().map(|&v| f16::from_f64(v)).collect(),
            f64,
            nulls,
        }
    }

    fn of_all_kinds(&self) -> [(&'static str, Rows<'_>); 4] {
        let wide = self.rows(self.f64.as_slice().into());
        [
            ("f64", wide),
            ("f32", self.rows(self.f32.as_slice().into())),
            ("f16", self.rows(self.f16.as_slice().into())),
            ("f64 with NULL", wide.with_nulls(&self.nulls).expect("a mark for each cell")),
        ]
    }

    fn rows<'a>(&self, values: Values<'a>) -> Rows<'a> {
        Rows::new(values, values.len() / self.columns, self.columns, self.columns)
            .expect("whole rows")
    }
}
