//! Builds corelocal's malloc library if it is missing: `cargo run` builds this command but not the library, which the
//! command does not link.
//!
//! Invariants:
//! - Only a command that `cargo run` has started from these sources builds anything, and it says so before.
//! - If the build fails the library stays missing, and the caller says what to do (`library.rs`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::library;
use crate::output::complain;

/// The package that has the library.
const PACKAGE: &str = "corelocal-malloc";

/// Builds the library if `cargo run` has started us, and it is not there.
pub fn ours_if_missing() {
    if std::env::var_os(library::VARIABLE).is_some() || library::ours().is_ok() {
        return;
    }
    let folder = std::env::current_exe().ok();
    let folder = folder.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    // Cargo tells these to what it runs.
    let (cargo, manifest) = (std::env::var_os("CARGO"), std::env::var_os("CARGO_MANIFEST_DIR"));
    let (Some(folder), Some(cargo), Some(manifest)) = (folder, cargo, manifest) else { return };
    let Some(build) = Build::of(&folder, &PathBuf::from(manifest)) else { return };
    eprintln!("building {PACKAGE}, whose library does not exist yet");
    let mut command = Command::new(cargo);
    command.args(build.args()).stdin(Stdio::null()).stdout(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => complain(format_args!("{PACKAGE} was not built: {status}")),
        Err(error) => complain(format_args!("{PACKAGE} was not built: cargo: {error}")),
    }
}

/// How it is built.
#[derive(Debug, PartialEq, Eq)]
struct Build {
    manifest: PathBuf,
    target: PathBuf,
    release: bool,
}

impl Build {
    /// Into the folder that we are in ourselves, if cargo made that.
    fn of(folder: &Path, package: &Path) -> Option<Build> {
        let release = match folder.file_name()?.to_str()? {
            "release" => true,
            "debug" => false,
            _ => return None,
        };
        let manifest = package.parent()?.join(PACKAGE).join("Cargo.toml");
        manifest.is_file().then(|| Build {
            manifest,
            target: folder.parent().unwrap_or(folder).to_path_buf(),
            release,
        })
    }

    fn args(&self) -> Vec<std::ffi::OsString> {
        let mut args: Vec<std::ffi::OsString> = vec!["build".into(), "--locked".into()];
        args.extend(["--manifest-path".into(), self.manifest.clone().into()]);
        args.extend(["--target-dir".into(), self.target.clone().into()]);
        args.extend(self.release.then(|| "--release".into()));
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_this_program_and_as_it_was_built() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let build = Build::of(Path::new("/somewhere/target/release"), package).expect("sources");
        assert!(build.release && build.manifest.ends_with("corelocal-malloc/Cargo.toml"));
        assert_eq!(build.target, Path::new("/somewhere/target"));
        assert!(build.args().iter().any(|word| word == "--release"));
        let build = Build::of(Path::new("target/debug"), package).expect("sources");
        assert!(!build.args().iter().any(|word| word == "--release"));
        // Installed, or without the sources.
        assert_eq!(Build::of(Path::new("/usr/bin"), package), None);
        assert_eq!(Build::of(Path::new("target/debug"), Path::new("/nowhere/at/all")), None);
    }
}
