//! Uniform draws without replacement, without a list of the candidates.

use crate::random::Stream;

/// Draws from `0..count` without replacement: a Fisher-Yates shuffle that keeps only the places
/// that it touched.
///
/// # Cost
/// Draw t reads t touched places; nothing depends on `count`.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// The number of candidates.
    count: u64,
    /// The number of draws allowed.
    width: u32,
    drawn: u32,
    /// The start of this choice's touched places among those of all choices.
    touched_at: usize,
}

/// A place of the shuffle that holds another number than its own.
#[derive(Clone, Copy, Default)]
pub(super) struct Touched {
    place: u64,
    value: u64,
}

impl Choice {
    /// Returns a choice of `width` (or all) of `count` candidates; adds its places to `touched`.
    pub(super) fn new(count: u64, width: u32, touched: &mut Vec<Touched>) -> Self {
        let width = u64::from(width).min(count) as u32;
        let touched_at = touched.len();
        touched.resize(touched.len() + width as usize, Touched::default());
        Self { count, width, drawn: 0, touched_at }
    }

    /// Returns the number of candidates.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of draws allowed in all.
    pub(super) fn width(&self) -> u32 {
        self.width
    }

    /// Draws the next candidate at random; there must be one.
    pub(super) fn draw(&mut self, random: &mut Stream, touched: &mut [Touched]) -> u64 {
        debug_assert!(self.drawn < self.width);
        let first = u64::from(self.drawn);
        let place = first + random.below(self.count - first);
        let touched = &mut touched[self.touched_at..][..=self.drawn as usize];
        let (new, touched) = touched.split_last_mut().expect("a touched place for every draw");
        let at = |place, touched: &[Touched]| touched.iter().position(|t| t.place == place);
        // The number at the first undrawn place moves to the drawn place.
        let moved = at(first, touched).map_or(first, |found| touched[found].value);
        self.drawn += 1;
        *new = Touched { place: first, value: moved };
        match at(place, touched) {
            Some(found) => std::mem::replace(&mut touched[found].value, moved),
            None => {
                new.place = place;
                place
            }
        }
    }

    /// Takes the next candidate from the end.
    pub(super) fn latest(&mut self) -> u64 {
        debug_assert!(self.drawn < self.width);
        self.drawn += 1;
        self.count - u64::from(self.drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    #[test]
    fn a_choice_equals_the_start_of_a_full_shuffle() {
        for (count, width) in [(1, 1), (5, 5), (16, 16), (100, 16), (1000, 300), (7, 20)] {
            let mut random = Stream::new(3, Purpose::Walk, [count, 0, 0]);
            let mut plain_random = random.clone();
            let mut touched = vec![Touched::default(); 3];
            let mut choice = Choice::new(count, width, &mut touched);
            let mut plain: Vec<u64> = (0..count).collect();
            for drawn in 0..u64::from(choice.width()) {
                let at = drawn + plain_random.below(count - drawn);
                plain.swap(drawn as usize, at as usize);
                assert_eq!(choice.draw(&mut random, &mut touched), plain[drawn as usize]);
            }
        }
    }

    /// Every ordered pair of the first two draws is equally likely.
    #[test]
    fn every_pair_is_equally_likely() {
        const COUNT: usize = 9;
        let mut pairs = [[0_u32; COUNT]; COUNT];
        let mut touched = Vec::new();
        for identity in 0..72_000 {
            let mut random = Stream::new(9, Purpose::Walk, [identity, 0, 0]);
            touched.clear();
            let mut choice = Choice::new(COUNT as u64, 2, &mut touched);
            let first = choice.draw(&mut random, &mut touched);
            pairs[first as usize][choice.draw(&mut random, &mut touched) as usize] += 1;
        }
        let cells = || (0..COUNT * COUNT).map(|cell| (cell / COUNT, cell % COUNT));
        assert!(cells().filter(|(a, b)| a == b).all(|(a, b)| pairs[a][b] == 0));
        let chi_square: f64 = (cells().filter(|(a, b)| a != b))
            .map(|(a, b)| (f64::from(pairs[a][b]) - 1000.0).powi(2) / 1000.0)
            .sum();
        // 71 degrees of freedom; beyond 125 once in ten thousand.
        assert!(chi_square < 125.0, "{chi_square}");
    }
}
