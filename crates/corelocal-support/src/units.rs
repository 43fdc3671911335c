//! Sizes, times and counts with a fitting unit.

use std::time::Duration;

const SIZES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Returns a number of bytes, in three digits.
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What rounds up to the next unit belongs there.
    while value >= 1023.5 && unit + 1 < SIZES.len() {
        value /= 1024.0;
        unit += 1;
    }
    in_three_digits(value, SIZES[unit])
}

/// Returns a count, in three digits where it is large.
pub fn count(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..999_500 => in_three_digits(number as f64 / 1e3, "k"),
        999_500..999_500_000 => in_three_digits(number as f64 / 1e6, "M"),
        _ => in_three_digits(number as f64 / 1e9, "G"),
    }
}

/// Returns an estimated count: a small one keeps its fraction.
pub fn estimate(number: f64) -> String {
    let decimals = match number {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => return count(number.round() as u64),
    };
    match number.fract() == 0.0 {
        true => count(number as u64),
        false => format!("{number:.decimals$}"),
    }
}

/// Returns a number of nanoseconds, in three digits.
pub fn time(nanos: u64) -> String {
    match nanos {
        0..1000 => format!("{nanos} ns"),
        // What rounds up to the next unit belongs there.
        1000..999_500 => in_three_digits(nanos as f64 / 1e3, "us"),
        999_500..999_500_000 => in_three_digits(nanos as f64 / 1e6, "ms"),
        _ => in_three_digits(nanos as f64 / 1e9, "s"),
    }
}

/// Returns the same of seconds.
pub fn seconds(seconds: f64) -> String {
    time((seconds * 1e9).round() as u64)
}

/// Returns a difference of two clocks in nanoseconds: with its sign, and with three decimals.
pub fn signed_time(nanos: f64) -> String {
    let size = nanos.abs();
    let sign = match nanos {
        n if n > 0.0 => "+",
        n if n < 0.0 => "-",
        _ => "",
    };
    match size {
        _ if size < 1000.0 => format!("{sign}{size:.0} ns"),
        _ if size < 1e6 => format!("{sign}{:.3} us", size / 1e3),
        _ if size < 1e9 => format!("{sign}{:.3} ms", size / 1e6),
        _ if size < 1e14 => format!("{sign}{:.3} s", size / 1e9),
        _ => format!("{sign}{:.0e} s", size / 1e9),
    }
}

/// Returns how long something was watched.
pub fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.1} minutes", s / 60.0),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

/// Returns a duration in nanoseconds; the largest number for one of more than 584 years.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn in_three_digits(value: f64, unit: &str) -> String {
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts() {
        let sizes = [0, 1023, 1024, 1536, 102_400, 1_048_000, 1_048_570, u64::MAX].map(size);
        let said = [
            "0 B", "1023 B", "1.00 KiB", "1.50 KiB", "100 KiB", "1023 KiB", "1.00 MiB", "16.0 EiB",
        ];
        assert_eq!(sizes, said);
        assert_eq!(
            [9_999, 10_000, 999_499, 999_500].map(count),
            ["9999", "10.0 k", "999 k", "1.00 M"]
        );
        assert_eq!(
            [0.0, 1.0, 2.54, 12.34, 123.4, 1e5].map(estimate),
            ["0", "1", "2.54", "12.3", "123", "100 k"]
        );
    }

    #[test]
    fn times() {
        let texts = [0, 999, 1000, 9_994, 99_949, 999_499, 999_500, 1_500_000_000].map(time);
        let said =
            ["0 ns", "999 ns", "1.00 us", "9.99 us", "99.9 us", "999 us", "1.00 ms", "1.50 s"];
        assert_eq!(texts, said);
        let texts = [0.0, 12.4, -999.0, 1500.0, -66e3, 2.5e6, -3e9].map(signed_time);
        let said =
            ["0 ns", "+12 ns", "-999 ns", "+1.500 us", "-66.000 us", "+2.500 ms", "-3.000 s"];
        assert_eq!(texts, said);
        assert_eq!([5.0, 600.0, 9000.0].map(span), ["5 s", "10.0 minutes", "2.5 hours"]);
        assert_eq!((seconds(0.0213), nanos(Duration::MAX)), ("21.3 ms".to_owned(), u64::MAX));
    }
}
