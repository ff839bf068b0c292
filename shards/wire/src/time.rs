//! Times as the durable routes write and read them: UTC, ISO 8601, microseconds since 1970 inside.
//!
//! Written with a fixed width, so that two times compare as texts as they do as numbers. The
//! calendar is the proleptic Gregorian one, by the arithmetic of days that counts years from March.

use crate::response::append_u64;

const US_PER_S: i64 = 1_000_000;
const S_PER_DAY: i64 = 86_400;
/// Days from the first of March of year 0 to the first of January 1970.
const DAYS_TO_1970: i64 = 719_468;
/// Days of 400 years.
const DAYS_PER_ERA: i64 = 146_097;

/// The first and the last microsecond that four digits of year can name.
const US_MIN: i64 = -62_167_219_200 * US_PER_S;
const US_MAX: i64 = 253_402_300_800 * US_PER_S - 1;

/// Appends a time as `2026-11-30T02:47:04.278123Z`. Times outside the years 0 to 9999 become the
/// nearest inside.
pub fn append_us(out: &mut Vec<u8>, us: i64) {
    append(out, us, 6);
}

/// Appends a time as `2026-11-30T02:47:04.278Z`, rounded down; otherwise as [`append_us`].
pub fn append_ms(out: &mut Vec<u8>, us: i64) {
    append(out, us, 3);
}

fn append(out: &mut Vec<u8>, us: i64, fraction_digits: usize) {
    let us = us.clamp(US_MIN, US_MAX);
    let (seconds, fraction_us) = (us.div_euclid(US_PER_S), us.rem_euclid(US_PER_S));
    let (days, second) = (seconds.div_euclid(S_PER_DAY), seconds.rem_euclid(S_PER_DAY));
    let (year, month, day) = civil_of(days);
    let numbers = [
        (year, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (second / 3600, 2, b':'),
        (second / 60 % 60, 2, b':'),
        (second % 60, 2, b'.'),
    ];
    for (number, digits, behind) in numbers {
        padded(out, number, digits);
        out.push(behind);
    }
    padded(out, fraction_us / 10_i64.pow(6 - fraction_digits as u32), fraction_digits);
    out.push(b'Z');
}

/// Appends a non-negative number with at least so many digits.
fn padded(out: &mut Vec<u8>, number: i64, digits: usize) {
    for place in (1..digits).rev() {
        if number < 10_i64.pow(place as u32) {
            out.push(b'0');
        }
    }
    append_u64(out, number.unsigned_abs());
}

/// Year, month and day of a number of days since 1970.
fn civil_of(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_1970;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months count from March, 153 days for each five of them.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Days since 1970 of a date.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_TO_1970
}

/// Reads a time: a date, then, if it goes on, `T` or a space, hours and minutes, and perhaps
/// seconds, a fraction of which microseconds count, and a zone (`Z`, `+02:00`, `+0200`, `+02`). No
/// zone is UTC, a date alone its first moment. `None` for anything else.
#[must_use]
pub fn parse_us(text: &str) -> Option<i64> {
    let mut reader = Reader(text.trim_ascii().as_bytes());
    let year = reader.number(4)?;
    reader.expect(b'-')?;
    let month = reader.number(2).filter(|month| (1..=12).contains(month))?;
    reader.expect(b'-')?;
    let day = reader.number(2)?;
    let days = days_of(year, month, day);
    if civil_of(days) != (year, month, day) {
        return None;
    }
    let midnight_us = days * S_PER_DAY * US_PER_S;
    if reader.0.is_empty() {
        return Some(midnight_us);
    }
    reader.one_of(b"Tt ")?;
    let hour = reader.number(2).filter(|&hour| hour < 24)?;
    reader.expect(b':')?;
    let minute = reader.number(2).filter(|&minute| minute < 60)?;
    let (mut second, mut fraction_us) = (0, 0);
    if reader.one_of(b":").is_some() {
        // A leap second counts as the one behind it.
        second = reader.number(2).filter(|&second| second <= 60)?;
        if reader.one_of(b".,").is_some() {
            fraction_us = reader.fraction_us()?;
        }
    }
    let zone_s = reader.zone_s()?;
    let of_day_s = hour * 3600 + minute * 60 + second - zone_s;
    reader.0.is_empty().then_some(midnight_us + of_day_s * US_PER_S + fraction_us)
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// One of these bytes, if it comes next.
    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        bytes.contains(&first).then(|| {
            self.0 = rest;
            first
        })
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.one_of(&[byte]).map(drop)
    }

    /// A number of exactly so many digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        (0..digits).try_fold(0, |number, _| {
            let digit = self.one_of(b"0123456789")?;
            Some(number * 10 + i64::from(digit - b'0'))
        })
    }

    /// At least one digit; those beyond the sixth do not count.
    fn fraction_us(&mut self) -> Option<i64> {
        let (mut fraction_us, mut unit_us) = (0, US_PER_S);
        while let Some(digit) = self.one_of(b"0123456789") {
            unit_us /= 10;
            fraction_us += unit_us * i64::from(digit - b'0');
        }
        (unit_us < US_PER_S).then_some(fraction_us)
    }

    /// Seconds that the zone is ahead of UTC.
    fn zone_s(&mut self) -> Option<i64> {
        let ahead = match self.one_of(b"Zz+-") {
            None | Some(b'Z' | b'z') => return Some(0),
            Some(b'+') => 1,
            Some(_) => -1,
        };
        let hours = self.number(2).filter(|&hours| hours < 24)?;
        let colon = self.one_of(b":").is_some();
        let minutes = if colon || !self.0.is_empty() { self.number(2).filter(|&minutes| minutes < 60)? } else { 0 };
        Some(ahead * (hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::{US_MAX, US_MIN, append_ms, append_us, civil_of, days_of, parse_us};

    fn written(us: i64) -> String {
        let mut out = Vec::new();
        append_us(&mut out, us);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn times_are_written_with_a_fixed_width() {
        for (us, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1, "1970-01-01T00:00:00.000001Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (1_796_006_824_278_123, "2026-11-30T02:47:04.278123Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (US_MIN, "0000-01-01T00:00:00.000000Z"),
            (US_MAX, "9999-12-31T23:59:59.999999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000000Z"),
            (i64::MAX, "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(written(us), text);
        }
        let mut out = Vec::new();
        append_ms(&mut out, 1_796_006_824_278_999);
        assert_eq!(out, b"2026-11-30T02:47:04.278Z");
    }

    #[test]
    fn what_was_written_is_read_as_the_same_time() {
        for step in 0..20_000_i64 {
            let us = US_MIN + (US_MAX - US_MIN) / 20_000 * step + step * 7919;
            assert_eq!(parse_us(&written(us)), Some(us), "{}", written(us));
        }
    }

    #[test]
    fn every_day_of_eight_centuries_has_its_date() {
        let mut expected = (1600, 1, 1);
        for days in days_of(1600, 1, 1)..days_of(2400, 1, 1) {
            assert_eq!(civil_of(days), expected);
            assert_eq!(days_of(expected.0, expected.1, expected.2), days);
            let (year, month, day) = expected;
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
            expected = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, day) if day == length => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
    }

    #[test]
    fn zones_fractions_and_dates_alone_are_read() {
        let expected = parse_us("2026-11-30T02:47:04.278123Z").expect("the usual form");
        for text in [
            "2026-11-30T02:47:04.278123",
            "2026-11-30 02:47:04.278123+00:00",
            "2026-11-30t04:47:04.2781239999+02:00",
            "2026-11-29T22:17:04.278123-0430",
            " 2026-11-30T04:47:04,278123+02 ",
        ] {
            assert_eq!(parse_us(text), Some(expected), "{text}");
        }
        assert_eq!(parse_us("2026-11-30"), parse_us("2026-11-30T00:00"));
        assert_eq!(parse_us("1970-01-02T00:00:00.5Z"), Some(86_400_500_000));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "now",
            "2026",
            "2026-11",
            "2026-13-01",
            "2026-00-01",
            "2026-02-29",
            "2026-11-31",
            "2026-11-30T",
            "2026-11-30T24:00",
            "2026-11-30T02:60",
            "2026-11-30T02:47:61",
            "2026-11-30T02:47:04.",
            "2026-11-30T02:47:04.1x",
            "2026-11-30T02:47:04+2",
            "2026-11-30T02:47:04+24:00",
            "2026-11-30T02:47:04+02:",
            "2026-11-30x02:47",
            "+026-11-30",
        ] {
            assert_eq!(parse_us(text), None, "{text}");
        }
    }
}
