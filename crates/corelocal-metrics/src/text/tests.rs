//! Tests of `text.rs`.

use super::*;

#[test]
fn names() {
    for (name, shown) in [
        ("requests_total", "requests_total"),
        ("http.requests-total", "http_requests_total"),
        ("ns:job", "ns:job"),
        ("5xx", "_5xx"),
        ("", "_"),
        ("größe", "gr__e"),
    ] {
        assert_eq!(metric_name(name), shown);
    }
    for (name, shown) in [
        ("a:b", "a_b"),
        ("__name__", "_name__"),
        ("___", "_"),
        ("_x", "_x"),
        ("0", "_0"),
        ("", "_"),
    ] {
        assert_eq!(label_name(name), shown);
    }
}

fn text(pairs: &[(&'static str, &'static str)], needed: Option<&str>) -> String {
    let pairs: Vec<_> = pairs.iter().map(|&(key, value)| Label::new(key, value)).collect();
    labels(pairs.iter(), needed).into()
}

#[test]
fn labels_are_sorted_joined_and_escaped() {
    assert_eq!(text(&[], None), "");
    assert_eq!(text(&[("b", "2"), ("a", "1")], None), r#"a="1",b="2""#);
    assert_eq!(text(&[("b", "2"), ("a", "1")], None), text(&[("a", "1"), ("b", "2")], None));
    assert_eq!(text(&[("p", "C:\\\n\"x\"\r")], None), "p=\"C:\\\\\\n\\\"x\\\"\r\"");
    assert_eq!(text(&[("a.b", "2"), ("a-b", "1"), ("a.b", "0")], None), r#"a_b="1;0;2""#);
    let needed = [("quantile", "x"), ("exported_quantile", "y")];
    assert_eq!(text(&needed, Some("quantile")), r#"exported_quantile="y;x""#);
    assert_eq!(text(&[("quantile", "x")], Some("le")), r#"quantile="x""#);
}

#[test]
fn numbers() {
    for (value, shown) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (0.1, "0.1"),
        (1e16, "10000000000000000"),
        (1e300, "1e300"),
        (-2.5e-9, "-2.5e-9"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
    ] {
        assert_eq!(number(value), shown);
    }
}

#[test]
fn units_are_in_the_help() {
    assert_eq!(help(None, "a\\b\n\"c\""), "a\\\\b\\n\"c\"");
    assert_eq!(help(Some(Unit::Seconds), "Time"), "Time (seconds)");
    assert_eq!(help(Some(Unit::MegabitsPerSecond), ""), "(megabits per second)");
    assert_eq!(help(Some(Unit::Count), "Requests"), "Requests");
}

#[test]
fn samples() {
    let line = |labels, label| {
        let mut out = String::new();
        sample(&mut out, "n", "_s", labels, label, "7");
        out
    };
    assert_eq!(line("", None), "n_s 7\n");
    assert_eq!(line("a=\"1\"", None), "n_s{a=\"1\"} 7\n");
    assert_eq!(line("", Some(("le", f64::INFINITY))), "n_s{le=\"+Inf\"} 7\n");
    assert_eq!(line("a=\"1\"", Some(("quantile", 0.5))), "n_s{a=\"1\",quantile=\"0.5\"} 7\n");
}
