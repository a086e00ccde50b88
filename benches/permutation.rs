//! What one element of a shuffle of a thousand million costs on one core, asked for at random
//! positions. Prints one JSON line; `cargo bench --bench permutation`.

use std::hint::black_box;
use std::time::Instant;

use headwater::plan::Permutation;
use headwater::random::Purpose;

const COUNT: u64 = 1_000_000_000;
const ELEMENTS: u64 = 20_000_000;
const REPEATS: usize = 5;

fn main() {
    let shuffle = Permutation::new(COUNT, 42, Purpose::Permutation, [0; 3]).expect("1 to 2^48");
    // Positions far apart, from a cheap generator whose own cost is counted with the rest.
    let mut best = f64::INFINITY;
    for repeat in 0..REPEATS as u64 {
        let mut state = repeat;
        let start = Instant::now();
        for _ in 0..ELEMENTS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            black_box(shuffle.at((state >> 33) % COUNT));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / ELEMENTS as f64);
    }
    println!(
        "{{\"bench\": \"permutation\", \"count\": {COUNT}, \"elements\": {ELEMENTS}, \
         \"repeats\": {REPEATS}, \"ns_per_element\": {best:.2}}}"
    );
}
