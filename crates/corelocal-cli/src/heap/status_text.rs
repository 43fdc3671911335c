//! The state of a running process's malloc, on the terminal.

use std::fmt::Write as _;

use anstyle::Style;
use comfy_table::{Cell, CellAlignment};
use corelocal_support::console;
use corelocal_support::figures::wrap;
use corelocal_support::units::size;

use super::status::{Class, Malloc, Options, Status};

const BOLD: Style = Style::new().bold();

/// Returns the text.
pub fn all(status: &Status, top: usize, width: usize) -> String {
    let Status { process, program, resident, mallocs } = status;
    let mut out = format!(
        "{BOLD}Malloc{BOLD:#} of {program}, process {process}, of which {} are resident\n",
        size(*resident)
    );
    for (nth, malloc) in mallocs.iter().enumerate() {
        if mallocs.len() > 1 {
            let _ = writeln!(out, "\n{BOLD}Malloc {}{BOLD:#}", nth + 1);
        }
        out += &one(malloc, top, width);
    }
    out
}

fn one(malloc: &Malloc, top: usize, width: usize) -> String {
    let mut grid = console::grid(width);
    let mut line = |what: &str, bytes: Option<u64>, remark: String| {
        let bytes = bytes.map_or_else(|| "not known".to_owned(), size);
        let bytes = Cell::new(bytes).set_alignment(CellAlignment::Right);
        grid.add_row(vec![Cell::new(what), bytes, Cell::new(remark)]);
    };
    let bytes = |bytes: usize| Some(bytes as u64);
    let objects: usize = malloc.classes.iter().map(|class| class.in_use).sum();
    line(
        "in use",
        bytes(malloc.in_use),
        format!("{objects} objects, and {} large ones", malloc.large_objects),
    );
    line("in caches", bytes(malloc.cached), "free objects of cores and depots".to_owned());
    line("between objects", bytes(malloc.in_spans), share(malloc));
    line("idle", bytes(malloc.idle), gives_back(&malloc.options));
    line("resident", malloc.resident, "of all these; pages that went back are not".to_owned());
    line(
        "in huge pages",
        malloc.huge_resident,
        format!("{} made by the malloc", size(malloc.huge as u64)),
    );
    line("gone back so far", bytes(malloc.released), String::new());
    console::keep_whole(&mut grid, |index| index < 2);
    let options = wrap(&format!("options: {}", options(&malloc.options)), width, 2);
    format!("{}\n{options}\n\n{}", console::lines(&grid), classes(malloc, top, width))
}

/// Returns the fragmentation: the part of spans that is neither in use nor in caches.
fn share(malloc: &Malloc) -> String {
    let spans: usize = malloc.classes.iter().map(|class| class.span_bytes).sum();
    match spans {
        0 => "no spans".to_owned(),
        _ => format!("{:.0} % of the spans", 100.0 * malloc.in_spans as f64 / spans as f64),
    }
}

fn gives_back(options: &Options) -> String {
    match (options.gives_back, options.target) {
        (_, Some(target)) => format!("kept while all is below {}", size(target as u64)),
        ("thread", _) => "goes back by the thread corelocal-idle".to_owned(),
        _ => "goes back when the program calls malloc or free".to_owned(),
    }
}

fn options(options: &Options) -> String {
    let mut all = vec![format!("background thread: {}", options.background)];
    all.extend((!options.huge_pages).then(|| "hugepages:no".to_owned()));
    all.extend((!options.pressure).then(|| "pressure:no".to_owned()));
    all.extend(options.target.map(|bytes| format!("resident:{bytes}")));
    all.extend(options.counts.then(|| "count".to_owned()));
    all.extend(options.checks.then(|| "check".to_owned()));
    all.extend(options.guard_rate.map(|rate| format!("guard:{rate}")));
    all.extend(options.profile_rate.map(|rate| format!("profile-rate:{rate}")));
    all.join(", ")
}

/// Returns the classes with the most bytes in spans.
fn classes(malloc: &Malloc, top: usize, width: usize) -> String {
    let mut classes: Vec<&Class> = malloc.classes.iter().collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.span_bytes));
    let mut grid = console::grid(width);
    let names = ["size", "in use", "in caches", "spans", "bytes of spans", "unused"];
    let right = |text: &str| console::heading(text).set_alignment(CellAlignment::Right);
    grid.set_header(names.map(right));
    for class in classes.iter().take(top) {
        let used = class.in_use.saturating_mul(class.size);
        let unused = class.span_bytes.saturating_sub(used) as f64 / class.span_bytes.max(1) as f64;
        let cells = [
            class.size.to_string(),
            class.in_use.to_string(),
            class.cached.to_string(),
            class.spans.to_string(),
            size(class.span_bytes as u64),
            format!("{:.0} %", 100.0 * unused),
        ];
        grid.add_row(cells.map(|cell| Cell::new(cell).set_alignment(CellAlignment::Right)));
    }
    console::keep_whole(&mut grid, |_| true);
    let more = classes.len().saturating_sub(top);
    let rest = match more {
        0 => String::new(),
        more => format!("{more} more classes: --top {}\n", classes.len()),
    };
    console::lines(&grid) + &rest
}
