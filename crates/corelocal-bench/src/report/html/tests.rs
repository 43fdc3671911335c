//! Tests of the page: nothing is loaded from elsewhere, nothing in a report becomes markup.

use super::*;
use crate::report::compare::compare;

fn a() -> Report {
    serde_json::from_str(include_str!("../../../tests/fixtures/report-a.json")).unwrap()
}

fn b() -> Report {
    serde_json::from_str(include_str!("../../../tests/fixtures/report-b.json")).unwrap()
}

fn with_comparison() -> String {
    let (a, b) = (a(), b());
    page(&b, Some(&compare(&a, &b))).unwrap()
}

#[test]
fn loads_nothing_from_elsewhere() {
    let page = with_comparison();
    for loader in ["src=", "@import", "url(", "<script", "<iframe", "<object", "srcset", "xlink"] {
        assert!(!page.contains(loader), "the page contains {loader}");
    }
    let links = page.matches("<link").count();
    assert_eq!((links, page.matches("<link rel=\"icon\" href=\"data:,\">").count()), (1, 1));
    for (at, _) in page.match_indices("http") {
        assert!(
            page[..at].ends_with("<a href=\""),
            "an address outside a link: {}",
            &page[at..at + 40]
        );
    }
}

#[test]
fn text_never_becomes_markup() {
    let evil = "<script>alert(1)</script>\"'&";
    let mut report = a();
    report.machine.cpu_model = evil.into();
    report.machine.paths.insert(evil.into(), evil.into());
    report.command = evil.into();
    for table in &mut report.tables {
        table.title = evil.into();
        table.about = evil.into();
        table.unit = evil.into();
        table.notes.push(evil.into());
        table.x_label = table.x_label.as_ref().map(|_| evil.into());
        for row in &mut table.rows {
            row.label = evil.into();
            row.unavailable = row.unavailable.as_ref().map(|_| evil.into());
            for published in &mut row.published {
                published.on = evil.into();
            }
        }
    }
    let page = page(&report, Some(&compare(&b(), &report))).unwrap();
    assert!(page.contains("&lt;script&gt;"));
    assert!(!page.contains("<script"));
    assert!(!page.contains(">\"'&<"), "a quote or ampersand came through");
}

#[test]
fn says_what_the_report_says() {
    let page = with_comparison();
    for expected in [
        "<p class=\"big\">36.6x</p>",
        "gs segment</b> was not measured",
        "logarithmic scale",
        "Xeon E5-2630 v3 at 2.40 GHz, one thread",
        "slice extension",
        "1 faster, 1 slower, 43 noise.",
        "kernel: 6.18.9, was 6.18.5",
        "<b>Noise. </b>",
    ] {
        assert!(page.contains(expected), "the page lacks {expected}");
    }
}

#[test]
fn an_empty_or_odd_report_still_makes_a_page() {
    let mut report = a();
    for table in &mut report.tables {
        for row in &mut table.rows {
            row.points.clear();
            row.unavailable = Some("nothing works here".into());
        }
    }
    assert!(page(&report, None).unwrap().contains("nothing works here"));
    let mut odd = a();
    for point in odd.tables.iter_mut().flat_map(|t| &mut t.rows).flat_map(|r| &mut r.points) {
        point.x = point.x.map(|x| if x == 1.0 { 0.0 } else { x });
        point.stat.median = 0.0;
    }
    page(&odd, None).unwrap();
    report.tables.clear();
    page(&report, None).unwrap();
}

#[test]
fn a_tile_says_whether_ours_is_better() {
    let mut report = a();
    let has = |report: &Report, class: &str| page(report, None).unwrap().contains(class);
    assert!(has(&report, "class=\"tile better\""));
    let table = report.tables.iter_mut().find(|table| table.tile.is_some()).unwrap();
    let tile = table.tile.as_mut().unwrap();
    (tile.ours, tile.versus) = ("shared".to_owned(), vec!["cpu".to_owned()]);
    assert!(has(&report, "class=\"tile worse\"") && !has(&report, "class=\"tile better\""));
    let table = report.tables.iter_mut().find(|table| table.tile.is_some()).unwrap();
    table.tile.as_mut().unwrap().versus = vec!["shared".to_owned()];
    assert!(has(&report, "class=\"tile even\"") && has(&report, "<p class=\"big\">as fast</p>"));
}

#[test]
fn what_was_disturbed_is_marked() {
    let mut report = a();
    assert!(!page(&report, None).unwrap().contains("<b>Disturbed. </b>"));
    let rows = report.tables.iter_mut().flat_map(|table| &mut table.rows);
    let points = rows.filter(|row| row.id == "cpu").flat_map(|row| &mut row.points);
    points.for_each(|point| point.disturbed = true);
    let page = page(&report, None).unwrap();
    assert!(page.contains("<b>Disturbed. </b>") && page.contains("1 of 3 tables"));
    assert!(page.contains("<span class=\"mark\"> ~</span>") && page.contains("~</td>"));
    assert!(page.contains("class=\"tile even\"") && !page.contains("class=\"tile better\""));
}

#[test]
fn missing_tables_are_named() {
    let mut report = a();
    assert!(!page(&report, None).unwrap().contains("<b>Incomplete. </b>"));
    report.missing.push(super::Missing {
        id: "locks".to_owned(),
        title: "Locks & more".to_owned(),
        why: "interrupted".to_owned(),
    });
    let page = page(&report, None).unwrap();
    assert!(page.contains(
        "<b>Incomplete. </b>1 of 4 tables were not measured: Locks &amp; more (interrupted)."
    ));
}

#[test]
fn things_with_names_have_bars_each() {
    let mut report = a();
    let table = report.tables.iter_mut().find(|table| table.id == "counter").unwrap();
    for row in &mut table.rows {
        row.points.iter_mut().enumerate().for_each(|(nth, point)| point.x = Some(nth as f64));
    }
    table.x_names = vec!["first <load>".to_owned(), "second load".to_owned()];
    let measured = table.rows.iter().filter(|row| row.points.len() > 1).count();
    let page = page(&report, None).unwrap();
    let (_, after) = page.split_once("<h3>second load</h3>").expect("a heading");
    let (plot, _) = after.split_once("</figure>").expect("a plot");
    // Contestants without a measurement there have no bar.
    assert_eq!(plot.matches("class=\"name\"").count(), measured);
    assert!(page.contains("<h3>first &lt;load&gt;</h3>"));
}
