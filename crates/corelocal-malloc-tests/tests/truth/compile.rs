//! Programs in C and C++ that are compiled here.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::run::{Malloc, done, installed};
use crate::skip;

/// The program, by the first of the compilers that there is, in a folder that goes away with it; or it is said why there
/// is none.
pub fn compiled(
    test: &str,
    compilers: &[&str],
    file: &str,
    source: &str,
    options: &[&str],
) -> Option<(TempDir, PathBuf)> {
    let Some(compiler) = compilers.iter().find_map(|name| installed(name)) else {
        skip(test, &format!("{} is not installed", compilers[0]));
        return None;
    };
    let folder = TempDir::new().expect("a temporary folder");
    let (path, program) = (folder.path().join(file), folder.path().join("program"));
    fs::write(&path, source).expect("a new file");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-w", "-pthread"]).args(options).arg("-o").arg(&program).arg(&path);
    let compiled = done(command);
    if !compiled.well() {
        // One without threads or aligned operators says nothing of the malloc.
        skip(test, compiled.err.lines().next().unwrap_or("the compiler fails"));
        return None;
    }
    Some((folder, program))
}

pub fn runs_well(malloc: &Malloc, command: Command) {
    let done = done(command);
    assert!(done.well(), "with {}: {}", malloc.name, done.whole());
    assert!(done.err.is_empty(), "with {}: {}", malloc.name, done.whole());
}
