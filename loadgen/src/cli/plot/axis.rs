//! The axes of a latency plot: percentiles by how many nines they have, and latency by decades.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Percentiles, each decade of what remains above as wide as the last: 0 is the shortest, 1 is 90 %, 2 is 99 %.
pub struct Nines {
    end: f64,
}

impl Nines {
    /// From the shortest to the highest of `nines`.
    pub fn up_to(nines: impl Iterator<Item = f64>) -> Self {
        Self { end: nines.fold(1.0, f64::max) }
    }
}

impl Ranged for Nines {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, nines: &f64, limit: (i32, i32)) -> i32 {
        linear(nines / self.end, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        let median = 2_f64.log10();
        let whole = (0..).map(f64::from).take_while(|nines| *nines <= self.end);
        std::iter::once(median).chain(whole).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.end
    }
}

impl ValueFormatter<f64> for Nines {
    fn format_ext(&self, nines: &f64) -> String {
        let decimals = (nines - 2.0).max(0.0) as usize;
        format!("{:.decimals$}%", 100.0 * (1.0 - 10_f64.powf(-nines)))
    }
}

/// Seconds since the measured part began, the first one being 1.
pub struct Seconds {
    last: f64,
}

impl Seconds {
    /// From the first to the last of `seconds`.
    pub fn up_to(seconds: impl Iterator<Item = f64>) -> Self {
        Self { last: seconds.fold(2.0, f64::max) }
    }
}

impl Ranged for Seconds {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, second: &f64, limit: (i32, i32)) -> i32 {
        linear((second - 1.0) / (self.last - 1.0), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        const LABELS_MAX: f64 = 20.0;
        let step = lines().find(|step| *step >= 1.0 && self.last / step <= LABELS_MAX).unwrap_or(self.last);
        // On whole multiples of the step: 10, 20, 30 and not 1, 11, 21.
        let marks = (1..).map(|n| f64::from(n) * step);
        marks.take_while(|second| *second <= self.last).collect()
    }

    fn range(&self) -> Range<f64> {
        1.0..self.last
    }
}

impl ValueFormatter<f64> for Seconds {
    fn format_ext(&self, second: &f64) -> String {
        format!("{second:.0}")
    }
}

/// Latency in microseconds, each decade as high as the last.
pub struct Decades {
    /// Logarithms to base 10 of the ends.
    log: Range<f64>,
}

impl Decades {
    /// Around all of `us`, out to the next line of 1, 2 and 5, and a decade high at least.
    pub fn around(us: impl Iterator<Item = f64> + Clone) -> Self {
        let shortest = us.clone().fold(f64::INFINITY, f64::min).max(0.1);
        let longest = us.fold(shortest, f64::max);
        let below = lines().take_while(|line| *line <= shortest).last().unwrap_or(shortest);
        let above = lines().find(|line| *line > longest && *line >= below * 9.9).unwrap_or(longest);
        Self { log: below.log10()..above.log10() }
    }
}

/// The lines that may be drawn, in microseconds: 1, 2 and 5 of each decade from 100 ns to 1000 s.
fn lines() -> impl Iterator<Item = f64> {
    (-1..9).flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade)))
}

impl Ranged for Decades {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, us: &f64, limit: (i32, i32)) -> i32 {
        linear((us.log10() - self.log.start) / (self.log.end - self.log.start), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        // Against the rounding of the logarithms at the ends.
        const SLACK: f64 = 1e-9;
        let within = |us: &f64| (self.log.start - SLACK..=self.log.end + SLACK).contains(&us.log10());
        lines().filter(within).collect()
    }

    fn range(&self) -> Range<f64> {
        10_f64.powf(self.log.start)..10_f64.powf(self.log.end)
    }
}

impl ValueFormatter<f64> for Decades {
    fn format_ext(&self, us: &f64) -> String {
        match *us {
            ..999.0 => format!("{} µs", short(*us)),
            ..999e3 => format!("{} ms", short(us / 1e3)),
            _ => format!("{} s", short(us / 1e6)),
        }
    }
}

/// A line's number without the rounding of floating point.
fn short(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn linear(share: f64, (start, end): (i32, i32)) -> i32 {
    start + (share * f64::from(end - start)).round() as i32
}

#[cfg(test)]
mod tests {
    use plotters::coord::ranged1d::BoldPoints;

    use super::*;

    fn labels<A: Ranged<ValueType = f64> + ValueFormatter<f64>>(axis: &A) -> Vec<String> {
        axis.key_points(BoldPoints(20)).iter().map(|at| axis.format_ext(at)).collect()
    }

    #[test]
    fn percentiles_are_marked_by_their_nines() {
        let axis = Nines::up_to([0.0, 4.5].into_iter());
        assert_eq!(labels(&axis), ["50%", "0%", "90%", "99%", "99.9%", "99.99%"]);
        assert_eq!(axis.map(&4.5, (100, 550)), 550);
        assert_eq!(axis.map(&1.0, (100, 550)), 200);
    }

    #[test]
    fn latencies_are_marked_in_their_units_around_what_is_drawn() {
        let axis = Decades::around([150.0, 3_000.0].into_iter());
        assert_eq!(labels(&axis), ["100 µs", "200 µs", "500 µs", "1 ms", "2 ms", "5 ms"]);
        assert_eq!(axis.map(&100.0, (500, 0)), 500);
        assert_eq!(axis.map(&5_000.0, (500, 0)), 0);
    }

    #[test]
    fn seconds_are_marked_on_whole_steps() {
        let up_to = |last| labels(&Seconds::up_to([last].into_iter()));
        assert_eq!(up_to(5.0), ["1", "2", "3", "4", "5"]);
        assert_eq!(up_to(100.0)[..3], ["5", "10", "15"]);
        assert_eq!(up_to(3600.0).last().unwrap(), "3600");
    }

    #[test]
    fn latencies_close_to_each_other_have_a_decade() {
        assert_eq!(labels(&Decades::around([250.0, 300.0].into_iter())), ["200 µs", "500 µs", "1 ms", "2 ms"]);
    }

    #[test]
    fn nothing_to_draw_is_an_axis_all_the_same() {
        assert!(!labels(&Decades::around(std::iter::empty())).is_empty());
    }
}
