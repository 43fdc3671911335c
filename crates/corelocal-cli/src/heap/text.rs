//! The table on the terminal. Below it, for the first few call sites, their callers.
//!
//! Invariant: figures are never broken across lines; names of functions are.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, CellAlignment};
use corelocal_support::console;
use corelocal_support::figures::wrap;
use corelocal_support::output::NO_LINES;
use corelocal_support::units::{estimate, size, time};

use super::fold::Folded;
use super::summary::{Process, Site};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// The number of samples from which on figures are shown without a warning.
const FEW: usize = 30;
/// The number of sites that are shown with their callers.
const TOLD_MORE: usize = 5;
/// The number of callers that are shown of each.
const MOST_CALLERS: usize = 12;

/// Returns all processes: those that are told in full, and those that are only counted.
pub fn all<'a>(
    processes: impl IntoIterator<Item = &'a Process>,
    folded: &[Folded],
    width: usize,
) -> String {
    let mut parts: Vec<String> = processes.into_iter().map(|process| one(process, width)).collect();
    parts.extend((!folded.is_empty()).then(|| others(folded, width)));
    parts.join("\n")
}

fn others(folded: &[Folded], width: usize) -> String {
    let processes: usize = folded.iter().map(|it| it.processes).sum();
    let mut grid = console::grid(width);
    let right = |text: &str| console::heading(text).set_alignment(CellAlignment::Right);
    let mut header: Vec<Cell> = ["bytes", "processes", "largest", "which"].map(right).into();
    header.push(console::heading("program"));
    grid.set_header(header);
    for it in folded {
        let (process, bytes) = it.largest;
        let figures = [size(it.bytes), it.processes.to_string(), size(bytes), process.to_string()];
        let mut cells: Vec<Cell> =
            figures.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)).into();
        cells.push(Cell::new(it.program.rsplit('/').next().unwrap_or_default()));
        grid.add_row(cells);
    }
    console::keep_whole(&mut grid, |index| index < 4);
    format!(
        "{BOLD}{processes} more processes{BOLD:#} have little, or the same as one above; --json has all\n\n{}",
        console::lines(&grid)
    )
}

fn one(process: &Process, width: usize) -> String {
    let mut out = String::new();
    let program = process.program.rsplit('/').next().unwrap_or_default();
    let when = if process.is_peak { ", at the peak" } else { "" };
    let _ = writeln!(out, "{BOLD}Heap{BOLD:#} of {program}, process {}{when}", process.process);
    let _ = writeln!(out, "  {}", wrap(&amount(process), width.saturating_sub(2), 4));
    if !process.sites.is_empty() {
        let _ = write!(out, "\n{}", table(process, width));
    }
    for site in process.sites.iter().filter(|site| !site.callers.is_empty()).take(TOLD_MORE) {
        let _ = write!(out, "\n{}", more(site, width));
    }
    for remark in remarks(process) {
        let _ = writeln!(out, "\n{WARNING}{}{WARNING:#}", wrap(&remark, width, 2));
    }
    out
}

/// Returns how much there is, and how well that is known.
fn amount(process: &Process) -> String {
    let (bytes, objects, rate) =
        (size(process.bytes), estimate(process.objects), size(process.rate));
    let finer = match process.rate / 32 {
        0 => "1".to_owned(),
        whole if whole % 1024 == 0 => format!("{}K", whole / 1024),
        other => other.to_string(),
    };
    match process.samples {
        0 => format!(
            "nothing was sampled, at one object for each {rate}: little of corelocal's malloc is in use; memory of an allocator \
             that the program has itself is not seen; --rate {finer} samples more"
        ),
        few if few < FEW && process.rate > 1 => {
            let samples = if few == 1 { "sample" } else { "samples" };
            format!(
                "about {bytes}, from {few} {samples}, one for each {rate}; --rate {finer} samples more, and is more \
                 exact"
            )
        }
        samples => format!("{bytes} in {objects} objects; {samples} samples, one for each {rate}"),
    }
}

fn table(process: &Process, width: usize) -> String {
    let mut grid = console::grid(width);
    let right = |text: &str| console::heading(text).set_alignment(CellAlignment::Right);
    let mut header: Vec<Cell> = ["bytes", "share", "objects", "each"].map(right).into();
    header.push(console::heading("where"));
    grid.set_header(header);
    for site in &process.sites {
        let [bytes, each] = [site.bytes, site.bytes_each].map(size);
        let figures = [bytes, percent(site.share), estimate(site.objects), each];
        let mut cells: Vec<Cell> =
            figures.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)).into();
        let source = site.source.as_deref().map(|source| format!("\n{source}"));
        cells.push(Cell::new(site.function.clone() + &source.unwrap_or_default()));
        grid.add_row(cells);
    }
    console::keep_whole(&mut grid, |index| index < 4);
    console::lines(&grid)
}

fn more(site: &Site, width: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", site.function, size(site.bytes));
    for (depth, caller) in site.callers.iter().take(MOST_CALLERS).enumerate() {
        let function = wrap(&caller.function, width.saturating_sub(14).max(30), 0);
        let function = function.replace('\n', &format!("\n{}", " ".repeat(14)));
        let _ = writeln!(out, "  {:>2}  {:>5}  {function}", depth + 1, percent(caller.share));
        if let Some(source) = &caller.source {
            let _ = writeln!(out, "             {DIM}{source}{DIM:#}");
        }
    }
    if site.callers.len() > MOST_CALLERS {
        let more = site.callers.len() - MOST_CALLERS;
        let _ = writeln!(out, "             {DIM}and {more} more{DIM:#}");
    }
    out
}

fn remarks(process: &Process) -> Vec<String> {
    let mut remarks = Vec::new();
    let sources = process.sites.iter().flat_map(|site| {
        std::iter::once(&site.source).chain(site.callers.iter().map(|caller| &caller.source))
    });
    if !process.sites.is_empty() && sources.into_iter().all(Option::is_none) {
        remarks.push(NO_LINES.to_owned());
    }
    if process.left_out > 0 {
        remarks.push(format!(
            "{} sites with {} are not shown; --top shows more",
            process.left_out,
            size(process.left_out_bytes)
        ));
    }
    // Else it is what is shown, or as good as that.
    if process.peak_bytes
        > process
            .bytes
            .saturating_add(process.bytes / 8)
            .saturating_add(process.rate.saturating_mul(4))
    {
        remarks.push(format!(
            "{} were in use {} before; --peak shows the call sites",
            size(process.peak_bytes),
            time(process.since_peak_ns)
        ));
    }
    if process.missed > 0 {
        remarks.push(format!(
            "{} objects were not sampled as they should have been: the sample table was full, or memory was \
             short. So the true figures are larger; a larger --rate needs less room",
            process.missed
        ));
    }
    remarks.extend(unloaded(process.unloaded_libraries));
    if !process.is_whole {
        remarks.push("the file is truncated, so data is missing; was the disk full?".to_owned());
    }
    remarks
}

/// Returns what libraries that were unloaded mean for what is shown.
pub fn unloaded(libraries: u64) -> Option<String> {
    let which = match libraries {
        0 => return None,
        1 => "a library was".to_owned(),
        more => format!("{more} libraries were"),
    };
    Some(format!(
        "{which} unloaded before the profile was written: its memory is shown by address, or attributed to the \
         library that was loaded at the same address later. Without dlclose(3) each keeps its own"
    ))
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

#[cfg(test)]
mod tests {
    use super::super::summary::Caller;
    use super::*;

    fn site(function: &str, bytes: u64, callers: usize) -> Site {
        let caller = |nth| Caller {
            function: format!("program::serve::layer_{nth}"),
            source: (nth % 2 == 0).then(|| format!("src/serve.rs:{}", 10 + nth)),
            share: 1.0 / (nth + 1) as f64,
        };
        Site {
            function: function.to_owned(),
            source: Some("src/cache.rs:17".to_owned()),
            bytes,
            objects: bytes as f64 / 100.0,
            bytes_each: 100,
            share: bytes as f64 / 1e8,
            stacks: 1,
            callers: (0..callers).map(caller).collect(),
        }
    }

    fn process() -> Process {
        Process {
            process: 4700,
            program: "/usr/bin/program".to_owned(),
            rate: 512 << 10,
            samples: 190,
            bytes: 100_000_000,
            objects: 1e6,
            peak_bytes: 300_000_000,
            since_peak_ns: 1_500_000_000,
            missed: 17,
            sites: vec![
                site("program::cache::Cache<K,V>::insert", 60_000_000, 3),
                site("program::serve::read", 30_000_000, 14),
                site("program::other", 123_456, 0),
            ],
            left_out: 4,
            left_out_bytes: 9_876_544,
            ..Process::default()
        }
    }

    fn folded() -> Folded {
        let program = "/usr/bin/worker".to_owned();
        Folded { program, processes: 12, bytes: 3 << 20, largest: (4711, 1 << 20) }
    }

    #[test]
    fn other_processes_are_counted() {
        let text = plain(&all([], &[folded()], 80));
        let words = ["12 more processes have", "3.00 MiB", "1.00 MiB", "4711", "worker"];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn few_samples_say_how_to_take_more() {
        let with = |samples, rate| amount(&Process { samples, rate, ..process() });
        assert!(with(1, 512 << 10).contains("from 1 sample,"), "{}", with(1, 512 << 10));
        for (rate, finer) in [(512 << 10, "16K"), (4096, "128"), (100_000, "3125")] {
            let text = with(0, rate);
            assert!(text.contains(&format!("--rate {finer} samples more")), "{text}");
            assert!(corelocal_support::parse::size(finer).is_ok());
        }
        // Each object is sampled: there is nothing more to be had.
        assert!(!with(2, 1).contains("--rate"));
    }

    #[test]
    fn a_table() {
        insta::assert_snapshot!(plain(&all(&[process()], &[], 100)));
    }

    #[test]
    fn any_width_is_survived() {
        for width in [0, 1, 30, 80, 100_000] {
            let text = plain(&all(&[process(), process()], &[folded(), folded()], width));
            let whole = text.replace(char::is_whitespace, "");
            assert!(whole.matches("program::other").count() >= 2, "{text}");
        }
        let widest = plain(&all(&[process()], &[folded()], 80));
        let widest = widest.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}");
        assert!(plain(&all(&[Process::default()], &[], 80)).contains("nothing was sampled"));
    }

    /// `--top 0`.
    #[test]
    fn no_site_is_wanted() {
        let none = Process { sites: Vec::new(), ..process() };
        let text = plain(&all(&[none], &[], 100));
        assert!(text.contains("4 sites with 9.42 MiB are not shown"), "{text}");
        assert!(!text.contains("nothing was sampled") && !text.contains("where"), "{text}");
    }

    #[test]
    fn percentages() {
        assert_eq!([0.0, 0.0994, 0.0996, 1.0].map(percent), ["0.0%", "9.9%", "10%", "100%"]);
    }
}
