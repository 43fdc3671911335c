//! The frame of every page that the command writes: one file that needs nothing else, readable on a phone, in the dark and
//! on paper.
//!
//! Invariants:
//! - No request leaves the page: style and plots are inside, there is no script.
//! - Every text passes through maud's escaping; only our own style sheet is inserted as it is.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style sheet.
const STYLE: &str = include_str!("page.css");

/// Returns a page of this version of the command, with our style and nothing to load.
pub fn document(version: &str, title: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "corelocal " (version) };
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}
