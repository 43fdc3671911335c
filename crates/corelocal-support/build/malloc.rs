//! Builds the malloc that the command carries, a shared library, by another run of cargo that uses no network.
//!
//! A crate cannot depend on the shared library of another one. So this package has the malloc's sources, in `malloc/`: links
//! in the repository, files in a packed crate.
//!
//! # Invariants
//! 1. A release build carries a malloc. A debug build uses the one beside it.
//! 2. If the malloc cannot be built, the command is built all the same, and says why when the malloc is needed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::target;

const LIBRARY: &str = "libcorelocal_malloc.so";

/// Writes the library to `OUT_DIR`: an empty file if there is none, and the reason in a variable.
pub fn build() {
    println!("cargo::rerun-if-changed=malloc");
    let out = PathBuf::from(target("OUT_DIR"));
    let made = what_forbids_it().map_or_else(|| compile(&out), Err);
    let (library, why_not) = match made {
        Ok(path) => (std::fs::read(path), String::new()),
        Err(why) => (Ok(Vec::new()), why),
    };
    let library = library.expect("the library that cargo made can be read");
    std::fs::write(out.join(LIBRARY), library).expect("a writable OUT_DIR");
    println!("cargo::rustc-env=CORELOCAL_NO_MALLOC={}", why_not.replace('\n', " "));
}

fn what_forbids_it() -> Option<String> {
    (target("PROFILE") != "release").then(|| "it is a debug build".to_owned())
}

/// Compiles it. Returns its path, or what cargo printed.
fn compile(out: &Path) -> Result<PathBuf, String> {
    let package = PathBuf::from(target("CARGO_MANIFEST_DIR"));
    let folder = out.join("malloc");
    let described = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join("Cargo.toml"), manifest(&package)));
    described.map_err(|error| error.to_string())?;
    let triple = target("TARGET");
    let mut cargo = Command::new(target("CARGO"));
    // Where cargo looks for its configuration.
    cargo.current_dir(&package).stdin(Stdio::null());
    cargo.args(["build", "--release", "--offline", "--quiet", "--target", &triple]);
    cargo.arg("--manifest-path").arg(folder.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(folder.join("target"));
    // The malloc's code does not depend on how the command is compiled.
    for name in ["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_ENCODED_RUSTFLAGS"] {
        cargo.env_remove(name);
    }
    let is_own =
        |name: &str| name.starts_with("CARGO_PROFILE_") || name.starts_with("CARGO_BUILD_");
    for (name, _) in env::vars().filter(|(name, _)| is_own(name)) {
        cargo.env_remove(name);
    }
    let is_x86 = target("CARGO_CFG_TARGET_ARCH") == "x86_64";
    cargo.env(
        "RUSTFLAGS",
        if is_x86 { "-Cllvm-args=-x86-branches-within-32B-boundaries" } else { "" },
    );
    let ended = cargo.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !ended.status.success() {
        return Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned());
    }
    Ok(folder.join("target").join(triple).join("release").join(LIBRARY))
}

/// The manifest of a package with the malloc alone.
fn manifest(package: &Path) -> String {
    let version = target("CARGO_PKG_VERSION");
    let sources = package.join("malloc");
    // In the repository the library is beside this package, else it comes from where this package came from.
    let beside = package.join("../corelocal");
    let library = match beside.join("Cargo.toml").is_file() {
        true => {
            println!("cargo::rerun-if-changed={}", beside.join("src").display());
            format!("{{ path = {:?} }}", beside)
        }
        false => format!("\"={version}\""),
    };
    format!(
        r#"[package]
name = "corelocal-malloc"
version = "{version}"
edition = "2024"
build = {build:?}

[lib]
path = {lib:?}
crate-type = ["cdylib"]

[dependencies]
corelocal = {library}
libc = {{ version = "0.2", default-features = false }}

[profile.release]
codegen-units = 1
lto = "thin"

[workspace]
"#,
        build = sources.join("build.rs"),
        lib = sources.join("src/lib.rs"),
    )
}
