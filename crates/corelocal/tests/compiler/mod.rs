//! Hands programs to the compiler that built this test, and reads which errors it finds in which line.
//!
//! The compiler's messages change with its version, and so do their places within a line; error codes do not.
//!
//! Invariant: `Compiler::find` returns a compiler that accepts a program against the library found, with the
//! features that this test has. So an error in a program is the program's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// What rustc calls a lifetime that is too short where it gives no code.
pub const LIFETIME: &str = "lifetime";

/// The compiler and the library.
pub struct Compiler {
    rustc: PathBuf,
    library: PathBuf,
    target: Option<String>,
    scratch: PathBuf,
}

/// An error: its line, counted from 1, its code, and what rustc says.
#[derive(Debug)]
pub struct Error {
    pub line: usize,
    pub code: String,
    pub message: String,
}

impl Compiler {
    /// `Err` says why there is none.
    pub fn find() -> Result<Compiler, String> {
        let test =
            std::env::current_exe().map_err(|error| format!("no path of the test: {error}"))?;
        // target/[TRIPLE/]PROFILE/deps/TEST
        let deps = test.parent().ok_or("the test has no folder")?;
        let triple = deps.ancestors().nth(2).and_then(Path::file_name);
        let triple = triple.and_then(|name| name.to_str()).unwrap_or_default();
        let rustc = rustc();
        let known = Command::new(&rustc).args(["--print", "target-list"]).output();
        let known = known.map_err(|error| format!("{} does not run: {error}", rustc.display()))?;
        let is_target =
            String::from_utf8_lossy(&known.stdout).lines().any(|target| target == triple);
        let target = is_target.then(|| triple.to_owned());
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let scratch = deps.join(format!("programs-{}-{number}", std::process::id()));
        let mut why = format!("no libcorelocal-*.rlib in {}", deps.display());
        for library in libraries(deps) {
            // Each candidate that does not fit takes the folder along.
            fs::create_dir_all(&scratch)
                .map_err(|error| format!("{}: {error}", scratch.display()))?;
            let compiler = Compiler {
                rustc: rustc.clone(),
                library,
                target: target.clone(),
                scratch: scratch.clone(),
            };
            // Built by another compiler, for another target, or with fewer features.
            match compiler.errors("probe", PROBE).into_iter().next() {
                None => return Ok(compiler),
                Some(error) => why = format!("{}: {}", compiler.library.display(), error.message),
            }
        }
        Err(format!("no library that a program compiles against: {why}"))
    }

    /// The errors of a program, in the order in which they are reported.
    pub fn errors(&self, name: &str, source: &str) -> Vec<Error> {
        let file = self.scratch.join(format!("{name}.rs"));
        fs::write(&file, source).expect("a file beside the test");
        let mut command = Command::new(&self.rustc);
        command.args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata"]);
        command.args(["--error-format", "json", "--cap-lints", "allow", "--out-dir"]);
        command.arg(&self.scratch).arg("-L").arg(self.library.parent().expect("a folder"));
        command.arg("--extern").arg(format!("corelocal={}", self.library.display()));
        for (feature, is_on) in FEATURES {
            if *is_on {
                command.arg("--cfg").arg(format!("feature=\"{feature}\""));
            }
        }
        if let Some(target) = &self.target {
            command.args(["--target", target]);
        }
        let output = command.arg(&file).output().expect("the compiler ran before");
        let report = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<Error> = report.lines().flat_map(|line| errors_of(line, &file)).collect();
        let ended = output.status.success() == errors.is_empty();
        assert!(ended, "{}: {}: {report}", file.display(), output.status);
        errors
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        // What stays is in the target directory.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

const FEATURES: &[(&str, bool)] =
    &[("std", cfg!(feature = "std")), ("lock_api", cfg!(feature = "lock_api"))];

const PROBE: &str = "
    pub use corelocal::sync::Mutex;
    #[cfg(feature = \"std\")] pub use corelocal::sync::Poison;
    #[cfg(feature = \"lock_api\")] pub use corelocal::sync::RawMutex;
";

/// Cargo's own compiler lies beside it.
fn rustc() -> PathBuf {
    if let Some(named) = std::env::var_os("RUSTC") {
        return named.into();
    }
    let cargo = std::env::var_os("CARGO").map(PathBuf::from);
    let beside = cargo.map(|cargo| cargo.with_file_name("rustc")).filter(|rustc| rustc.exists());
    beside.unwrap_or_else(|| "rustc".into())
}

/// The builds of the library, the last one first: this test's was built or found to be up to date before the
/// test ran.
fn libraries(deps: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(deps).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libcorelocal-") && name.ends_with(".rlib")
    };
    let age = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
    let mut found: Vec<PathBuf> = names.filter(is_library).collect();
    found.sort_by_key(|path| std::cmp::Reverse(age(path)));
    found
}

/// The error that a line of the compiler's report tells, at each of its places.
fn errors_of(report: &str, file: &Path) -> Vec<Error> {
    let Ok(report) = serde_json::from_str::<serde_json::Value>(report) else { return Vec::new() };
    if report["level"] != "error" {
        return Vec::new();
    }
    let message = report["message"].as_str().unwrap_or_default().to_owned();
    // The last line of a report, which has no place.
    if message.starts_with("aborting due to") {
        return Vec::new();
    }
    let code = report["code"]["code"].as_str().map(str::to_owned);
    let code = code.unwrap_or_else(|| match message.starts_with("lifetime may not live") {
        true => LIFETIME.to_owned(),
        false => message.clone(),
    });
    let here = |span: &&serde_json::Value| {
        span["is_primary"] == true && span["file_name"].as_str().map(Path::new) == Some(file)
    };
    let spans = report["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |span: &serde_json::Value| span["line_start"].as_u64().unwrap_or_default() as usize;
    let lines: Vec<usize> = spans.iter().filter(here).map(line).collect();
    let lines = if lines.is_empty() { vec![0] } else { lines };
    let error = |line| Error { line, code: code.clone(), message: message.clone() };
    lines.into_iter().map(error).collect()
}
