//! Figures as people read them.

/// A time given in microseconds: `87 µs`, `1.25 ms`, `3.00 s`.
pub fn micros(us: f64) -> String {
    match us {
        ..10.0 => format!("{us:.1} µs"),
        ..1e3 => format!("{us:.0} µs"),
        ..1e6 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

/// A size: `256 B`, `12.3 MiB`.
pub fn bytes(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    match bytes {
        ..KIB => format!("{bytes:.0} B"),
        ..1_048_576.0 => format!("{:.1} KiB", bytes / KIB),
        _ => format!("{:.1} MiB", bytes / KIB / KIB),
    }
}

/// A rate a second: `99.5/s`, `1,234/s`.
pub fn rate(per_s: f64) -> String {
    if per_s < 999.95 { format!("{per_s:.1}/s") } else { format!("{}/s", count(per_s.round() as u64)) }
}

/// A number with its thousands apart: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(micros(7.25), "7.2 µs");
        assert_eq!(micros(87.4), "87 µs");
        assert_eq!(micros(1_250.0), "1.25 ms");
        assert_eq!(micros(3e6), "3.00 s");
        assert_eq!(bytes(256.0), "256 B");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(12.5 * 1048576.0), "12.5 MiB");
        assert_eq!([rate(99.46), rate(999.96), rate(1234.56)], ["99.5/s", "1,000/s", "1,235/s"]);
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
    }
}
