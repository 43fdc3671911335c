//! Formats nanoseconds since 1970, or before it, as a date and time in UTC (RFC 3339).
//!
//! Way of a number: days and the rest; years, from 400 of them down to one, beginning in March, so that a
//! leap day is the last of its year; the month by the days before it.
//!
//! Invariants:
//! 1. A [`Text`] holds ASCII.
//! 2. An `i64` of nanoseconds goes from the year 1677 to 2262: years have four digits, and days since 1600 are
//!    positive.

/// Nanoseconds in a second.
const NANOS: i64 = 1_000_000_000;

const DAY: i64 = 24 * 60 * 60;

/// The days from 1600-03-01, when a 400-year cycle of the calendar began, to 1970-01-01.
const BEFORE_1970: i64 = 135_080;
const DAYS_OF_400: u64 = 146_097;
const DAYS_OF_100: u64 = 36_524;
const DAYS_OF_4: u64 = 1461;

/// Days of the year before each month, from March on.
const BEFORE_MONTH: [u64; 12] = [0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337];

/// A date and time of day, as text.
pub(in crate::clock) struct Text {
    bytes: [u8; 30],
    len: usize,
}

impl Text {
    /// Writes that of nanoseconds since 1970, with so many digits after the second, up to nine. What has no room is cut
    /// off, so that the text is never later than the time.
    #[inline]
    pub(in crate::clock) fn date(nanos: i64, digits: usize) -> Text {
        // Towards the past, before 1970 as well; so the rests are positive.
        let (seconds, fraction) = (nanos.div_euclid(NANOS), nanos.rem_euclid(NANOS) as u64);
        let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY) as u64);
        let (year, month, day) = date_of(days);
        let mut text = Text { bytes: *b"0000-00-00T00:00:00.000000000Z", len: 30 };
        text.put::<4>(0, year);
        text.put::<2>(5, month);
        text.put::<2>(8, day);
        text.put::<2>(11, rest / 3600);
        text.put::<2>(14, rest / 60 % 60);
        text.put::<2>(17, rest % 60);
        text.put::<9>(20, fraction);
        if digits < 9 {
            // The point goes with the last digit.
            let end = if digits == 0 { 19 } else { 20 + digits };
            text.bytes[end] = b'Z';
            text.len = end + 1;
        }
        text
    }

    /// Returns it as a string.
    #[inline]
    pub(in crate::clock) fn as_str(&self) -> &str {
        // (1)
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    /// Writes the `N` last decimal digits of a number.
    #[inline]
    fn put<const N: usize>(&mut self, at: usize, mut number: u64) {
        for byte in self.bytes[at..at + N].iter_mut().rev() {
            *byte = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
}

/// Returns year, month and day, of days since 1970.
#[inline]
fn date_of(days: i64) -> (u64, u64, u64) {
    let days = (days + BEFORE_1970) as u64; // (2)
    let (quads, days) = (days / DAYS_OF_400, days % DAYS_OF_400);
    // The last of four centuries, and the last of four years, may have a day more.
    let centuries = (days / DAYS_OF_100).min(3);
    let days = days - centuries * DAYS_OF_100;
    let (fours, days) = (days / DAYS_OF_4, days % DAYS_OF_4);
    let years = (days / 365).min(3);
    let days = days - years * 365;
    let months = BEFORE_MONTH.iter().rposition(|before| *before <= days).unwrap_or(0);
    let year = 1600 + 400 * quads + 100 * centuries + 4 * fours + years;
    let day = days - BEFORE_MONTH[months] + 1;
    // March is the first month; January and February are of the next year.
    if months < 10 { (year, months as u64 + 3, day) } else { (year + 1, months as u64 - 9, day) }
}
