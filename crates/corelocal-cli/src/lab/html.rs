//! Pages of `corelocal lab`; that of `explore`: a table of findings, and a sequence diagram of each failure.

use corelocal_lab::sim::diagram;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::finding::Finding;

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1f2328; background: #fff; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid #d8dee4; vertical-align: top; }
td:last-child { white-space: nowrap; }
td:first-child { overflow-wrap: anywhere; min-width: 6rem; }
tr.chosen td { font-weight: 600; }
.wide { overflow-x: auto; }
.about { color: #57606a; }
";

/// Returns a whole page of this command.
pub fn frame(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// Returns the page.
pub fn page(findings: &[Finding]) -> String {
    let body = html! {
        h1 { "Models of the kernel's halves" }
        p.about { "corelocal " (env!("CARGO_PKG_VERSION")) ": all interleavings of each model; the shortest schedule where one fails." }
        div.wide {
            table {
                tr { th { "model" } th { "result" } th { "search" } th { "time" } }
                @for finding in findings {
                    tr {
                        td {
                            @if finding.schedule.is_some() {
                                a href={ "#" (finding.model) } { (finding.model) }
                            } @else {
                                (finding.model)
                            }
                        }
                        td { (finding.result()) }
                        td { (finding.covers) }
                        td { (format!("{:.2} s", finding.seconds)) }
                    }
                }
            }
        }
        @for finding in findings {
            @if let Some(schedule) = &finding.schedule {
                h2 id=(finding.model) { (finding.model) }
                p.about { (finding.about) }
                div.wide { (PreEscaped(diagram::svg(schedule))) }
            }
        }
    };
    frame("corelocal lab", &body)
}
