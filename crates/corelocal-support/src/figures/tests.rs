//! Tests of `figures.rs`.

use super::*;

#[test]
fn figures_keep_three_digits() {
    for (value, text) in [
        (0.0, "0"),
        (0.031_234, "0.0312"),
        (0.298, "0.298"),
        (7.6543, "7.65"),
        (27.91, "27.9"),
        (9.994, "9.99"),
        (99.96, "100"),
        (124.6, "125"),
        (433.0, "433"),
        (123_456.7, "123457"),
        (-7.6543, "-7.65"),
        (1e-9, "0.0000"),
        (f64::NAN, NONE),
    ] {
        assert_eq!(figure(value), text);
    }
}

#[test]
fn ticks_have_no_idle_zeros() {
    for (value, text) in [(0.0, "0"), (0.2, "0.2"), (2.5, "2.5"), (100.0, "100"), (0.01, "0.01")] {
        assert_eq!(tick(value), text);
    }
}

#[test]
fn ratios_show_what_matters() {
    for (value, text) in [
        (0.003_33, "0.0033x"),
        (0.0302, "0.030x"),
        (0.97, "0.97x"),
        (7.8, "7.8x"),
        (31.44, "31.4x"),
        (418.0, "418x"),
    ] {
        assert_eq!(ratio(value), text);
    }
}

#[test]
fn decimal_points_meet() {
    let mut cells = ["7.8x", "1.03x", "418x", "", NONE].map(String::from);
    align(&mut cells);
    assert_eq!(cells, ["7.8x ", "1.03x", "418x   ", "", "–    "].map(String::from));
}

#[test]
fn wraps_between_words_only() {
    assert_eq!(wrap("one two three", 7, 2), "one two\n  three");
    assert_eq!(wrap("incomprehensibilities are long", 6, 0), "incomprehensibilities\nare\nlong");
    assert_eq!(wrap("", 5, 0), "");
}
