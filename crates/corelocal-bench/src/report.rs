//! Reports: their data, how they are drawn, compared and written.
//!
//! Invariants:
//! - A file is whole or as it was (`file.rs`).
//! - One output that cannot be written never costs another one.

pub mod bars;
pub mod columns;
pub mod compare;
mod crosswise;
pub mod curves;
pub mod html;
pub mod matrix;
mod outcome;
pub mod scale;
pub mod stamp;
pub mod term;
pub mod tiles;

use std::path::{Path, PathBuf};

use corelocal_support::output::path_line;
use corelocal_support::schema::Report;
use corelocal_support::user_file;

use self::compare::Comparison;

/// The result of writing the outputs.
#[derive(Debug, Default)]
pub struct Written {
    /// Files that were written.
    pub files: Vec<PathBuf>,
    /// A sentence for each that was not: which, why, and what to do.
    pub problems: Vec<String>,
}

/// Writes the report as JSON, as HTML, or both; the comparison becomes a section of the HTML.
pub fn write_outputs(
    report: &Report,
    json: Option<&Path>,
    html: Option<&Path>,
    comparison: Option<&Comparison>,
) -> Written {
    let mut written = Written::default();
    let mut output = |path: &Path, content: anyhow::Result<String>| {
        let unmade = |error| {
            format!(
                "cannot write {}: {error:#}; the other outputs are not affected",
                path_line(path)
            )
        };
        let result = content.map_err(unmade).and_then(|text| user_file::write(path, text));
        match result {
            Ok(()) => written.files.push(path.to_owned()),
            Err(problem) => written.problems.push(problem),
        }
    };
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(report).map(|text| text + "\n");
        output(path, text.map_err(anyhow::Error::from));
    }
    if let Some(path) = html {
        output(path, html::page(report, comparison));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn report() -> Report {
        serde_json::from_str(include_str!("../tests/fixtures/report-a.json")).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn writes_both_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (json, html) = (dir.path().join("r.json"), dir.path().join("r.html"));
        fs::write(&json, "an older one").unwrap();
        let written = write_outputs(&report(), Some(&json), Some(&html), None);
        assert_eq!(written.files, [json.clone(), html.clone()]);
        assert!(written.problems.is_empty());
        assert_eq!(names(dir.path()), ["r.html", "r.json"]);
        assert_eq!(compare::load(&json).unwrap().created, report().created);
        assert!(fs::read_to_string(&html).unwrap().ends_with("</html>"));
    }

    #[test]
    fn a_bad_path_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let (absent, html) = (dir.path().join("no/r.json"), dir.path().join("r.html"));
        let written = write_outputs(&report(), Some(&absent), Some(&html), None);
        assert_eq!(written.files, [html]);
        let sentence = &written.problems[0];
        assert!(sentence.contains("no does not exist; create it with `mkdir -p "), "{sentence}");
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for (path, expected) in [
            (dir.path().to_owned(), "it is a folder; give the name of a file in it"),
            (file.join("r.json"), "file is not a folder; give another path"),
            (PathBuf::from("/proc/r.json"), "; give another path"),
            (PathBuf::from("/dev/full"), "no space is left in /dev"),
        ] {
            let written = write_outputs(&report(), Some(&path), None, None);
            assert!(written.files.is_empty());
            let sentence = &written.problems[0];
            assert!(sentence.contains(expected), "{sentence:?} lacks {expected:?}");
        }
        assert_eq!(names(dir.path()), ["file"]);
    }

    #[test]
    fn a_device_and_a_link_stay_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target.json"), dir.path().join("link.json"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let paths = (Some(Path::new("/dev/null")), Some(link.as_path()));
        let written = write_outputs(&report(), paths.0, paths.1, None);
        assert!(written.problems.is_empty(), "{:?}", written.problems);
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&target).unwrap().contains("<html"));
    }
}
