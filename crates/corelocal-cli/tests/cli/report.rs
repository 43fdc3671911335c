//! `corelocal report`, the whole way.

use std::collections::BTreeSet;

use crate::{corelocal, json};

#[test]
fn quick() {
    let done = corelocal(&["report", "--quick"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert!(done.err.is_empty(), "{}", done.err);
    for file in ["report.json", "report.html"] {
        assert!(done.out.contains(&format!("wrote {file}")), "{}", done.out);
    }

    let listed = corelocal(&["bench", "--list"]).out;
    let listed: BTreeSet<&str> =
        listed.lines().filter_map(|l| l.split_whitespace().next()).collect();
    // Those of mallocs take minutes, and run only on request, except for a few loads.
    let (apart, listed): (BTreeSet<&str>, BTreeSet<&str>) =
        listed.into_iter().partition(|id| id.starts_with("malloc_"));
    assert!(listed.len() >= 5 && apart.len() == 4, "{listed:?} {apart:?}");
    let report = json(&done.read("report.json"));
    let tables = report["tables"].as_array().expect("tables");
    let measured: BTreeSet<&str> = tables.iter().filter_map(|table| table["id"].as_str()).collect();
    assert_eq!(measured, listed);

    let page = done.read("report.html");
    for id in listed {
        assert!(page.contains(&format!("id=\"table-{id}\"")), "{id} is not on the page");
    }
    assert!(page.ends_with("</html>"));
    // A link may lead out of the page; nothing else may.
    let without_links = page.replace("<a href=\"http", "").replace("xmlns=\"http", "");
    let loads = ["src=", "href=\"http", "url(", "@import", "<script", "<iframe", "<object"];
    for load in loads {
        assert!(!without_links.contains(load), "the page has {load}");
    }
}
