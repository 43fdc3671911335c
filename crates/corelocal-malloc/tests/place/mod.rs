//! A folder in which a C program is compiled, to run with the library.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

pub struct Place(TempDir);

impl Place {
    /// Creates the folder with the program in it, or prints why that is impossible.
    pub fn new(test: &str, program: &str) -> Option<Place> {
        let place = Place(tempfile::tempdir().expect("a folder"));
        if cfg!(target_feature = "crt-static") || !library().exists() {
            eprintln!("skipped: {test}: the shared object is not built");
            return None;
        }
        std::fs::write(place.folder().join("program.c"), program).expect("a new file");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O1", "-pthread", "-o", "program", "program.c", "-ldl"])
            .current_dir(place.folder());
        match compiler.output() {
            Ok(done) if done.status.success() => Some(place),
            Ok(done) => {
                eprintln!("skipped: {test}: {}", String::from_utf8_lossy(&done.stderr));
                None
            }
            Err(why) => {
                eprintln!("skipped: {test}: cc cannot be run: {why}");
                None
            }
        }
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn command(&self, how: &str, words: &str) -> Command {
        let mut command = Command::new(self.folder().join("program"));
        command.arg(how).current_dir(self.folder());
        command.env("LD_PRELOAD", library()).env("CORELOCAL_MALLOC", words);
        command
    }
}

/// The shared object that is built together with the tests.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a path of this test");
    let folder = test.ancestors().nth(2).expect("a target directory");
    folder.join("examples").join("libpreload.so")
}
