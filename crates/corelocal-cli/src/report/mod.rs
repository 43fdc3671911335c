//! Reports: their data, how they are drawn, compared and written.
//!
//! Invariants:
//! - A file is whole or as it was: it is written beside its place and renamed into it. Only what
//!   cannot be renamed over (a pipe, a device) is written in place.
//! - One output that cannot be written never costs another one.

pub mod bars;
pub mod columns;
pub mod compare;
mod crosswise;
pub mod curves;
pub mod figures;
pub mod headline;
pub mod html;
pub mod matrix;
pub mod scale;
pub mod schema;
pub mod stamp;
pub mod term;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use self::compare::Comparison;
use self::schema::Report;

/// What became of the outputs.
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
        let result = content.and_then(|text| Ok(write(path, text.as_bytes())?));
        match result {
            Ok(()) => written.files.push(path.to_owned()),
            Err(error) => written.problems.push(problem(path, &error)),
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

/// Writes one file, whole or not at all.
///
/// # Errors
/// A sentence: which, why, and what to do.
pub fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    write(path, content.as_ref()).map_err(|error| problem(path, &error.into()))
}

/// Whether [`write_file`] could write it now. Leaves nothing behind.
///
/// # Errors
/// As there.
pub fn may_write(path: &Path) -> Result<(), String> {
    let tried = place(path).and_then(|(_, beside)| {
        let Some(beside) = beside else { return Ok(()) };
        write_new(&beside, b"").and_then(|()| fs::remove_file(&beside))
    });
    tried.map_err(|error| problem(path, &error.into()))
}

/// Which file is written, and the one beside it that becomes it; none for what is no plain file.
fn place(path: &Path) -> io::Result<(PathBuf, Option<PathBuf>)> {
    // A link is followed, so that its target changes and the link stays.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(meta) if !meta.is_file() => return Ok((path, None)),
        _ => {}
    }
    let Some(name) = path.file_name() else {
        return Err(ErrorKind::IsADirectory.into());
    };
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(beside);
    Ok((path, Some(beside)))
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let (path, beside) = place(path)?;
    let Some(beside) = beside else { return fs::write(&path, content) };
    let done = write_new(&beside, content).and_then(|()| fs::rename(&beside, &path));
    if done.is_err() {
        // Nothing to add if this fails too: the first error is the one to tell.
        let _ = fs::remove_file(&beside);
    }
    done
}

/// Writes a file that must not exist: what stands under the name may be a link of another user's to somewhere else.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let make = || fs::File::options().write(true).create_new(true).open(path);
    let mut file = match make() {
        // A process of this number left it that was killed. Only the name is taken away, whatever it leads to.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            make()?
        }
        made => made?,
    };
    io::Write::write_all(&mut file, content)
}

fn problem(path: &Path, error: &anyhow::Error) -> String {
    let name = path.display();
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder_exists = folder.is_dir();
    let folder = folder.display();
    let Some(error) = error.downcast_ref::<io::Error>() else {
        return format!("cannot write {name}: {error:#}; the other outputs are not affected");
    };
    match error.kind() {
        ErrorKind::NotFound if !folder_exists => format!(
            "cannot write {name}: the folder {folder} does not exist; create it with \
             `mkdir -p {folder}` or give another path"
        ),
        ErrorKind::IsADirectory => {
            format!("cannot write {name}: it is a folder; give the name of a file in it")
        }
        ErrorKind::NotADirectory => {
            format!("cannot write {name}: {folder} is not a folder; give another path")
        }
        ErrorKind::PermissionDenied => format!(
            "cannot write {name}: you may not create files in {folder}; give a path in a folder \
             of your own"
        ),
        ErrorKind::ReadOnlyFilesystem => format!(
            "cannot write {name}: {folder} is on a read-only file system; give a path elsewhere"
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
            "cannot write {name}: no space is left in {folder}; free some or give a path elsewhere"
        ),
        _ => format!("cannot write {name}: {error}; give another path"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        serde_json::from_str(include_str!("../../tests/fixtures/report-a.json")).unwrap()
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
    fn a_link_in_the_place_of_a_draft_is_not_followed() {
        let folder = tempfile::TempDir::new().unwrap();
        let (target, path) = (folder.path().join("target"), folder.path().join("report.html"));
        fs::write(&target, "kept").unwrap();
        let draft = place(&path).unwrap().1.unwrap();
        let plant = || std::os::unix::fs::symlink(&target, &draft).unwrap();
        plant();
        write_file(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        plant();
        may_write(&path).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        assert!(fs::symlink_metadata(&draft).is_err());
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
