//! Values on the command line.

use std::time::Duration;

/// Parses a time as people write it: `90s`, `500ms`, `5m`, `1h`; a bare number is seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let millis = match &text[digits.len()..] {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let time = digits.parse::<u64>().ok().zip(millis).and_then(|(n, unit)| n.checked_mul(unit));
    match time {
        // A day is more than anybody waits, and far from where clocks overflow.
        Some(millis @ 1..=86_400_000) => Ok(Duration::from_millis(millis)),
        _ => Err("give a time of at most a day, such as 60s, 500ms or 5m".to_owned()),
    }
}

/// Parses a size: `512K`, `1M`, `4096`.
pub fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.to_ascii_uppercase().as_bytes() {
        [.., b'K'] => (&text[..text.len() - 1], 10),
        [.., b'M'] => (&text[..text.len() - 1], 20),
        [.., b'G'] => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    size.filter(|size| (1..1 << 40).contains(size))
        .ok_or_else(|| "give a number of bytes, optionally with K, M or G, such as 512K".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, millis) in [("60s", 60_000), ("5", 5000), ("250ms", 250), ("2m", 120_000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "s", "0", "-1s", "5 s", "1d", "99999999999999999999s", "5é", "25h"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("1", 1), ("512K", 512 << 10), ("3m", 3 << 20), ("1G", 1 << 30)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "0", "-1", "1.5M", "9999G", "2T", "é"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
