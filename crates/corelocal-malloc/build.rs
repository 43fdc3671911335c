//! Links the library so that it depends on libc only.
//!
//! Rust's standard library unwinds through libgcc, which it takes from `libgcc_s.so.1`: a shared object that a
//! program would load only for its malloc. The archive `libgcc_eh.a` has the same code. So this provides a
//! `libgcc_s.so` to the linker that refers to the archive.
//!
//! For musl it refers to the `libunwind.a` that comes with Rust, if it is there: a `libgcc_eh.a` on a system with another libc
//! calls that libc.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of_target =
        |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let environment = of_target("ENV");
    let is_static = of_target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if of_target("OS") != "linux" || (environment != "gnu" && (environment != "musl" || is_static))
    {
        return;
    }
    // Threads may be executing the library's code at any time: see `sys/process/nodelete.rs` of the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let out = std::env::var("OUT_DIR").expect("cargo says where");
    let archive = match environment.as_str() {
        "musl" => unwinder_of_rust(),
        _ => None,
    };
    let archive = archive.map_or("-lgcc_eh".to_owned(), |path| path.display().to_string());
    std::fs::write(Path::new(&out).join("libgcc_s.so"), format!("INPUT({archive})\n"))
        .expect("a writable OUT_DIR");
    println!("cargo:rustc-link-search=native={out}");
}

/// Returns the archive that rustc links into static programs of this target.
fn unwinder_of_rust() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC")?;
    let target = std::env::var("TARGET").ok()?;
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(sysroot.stdout).ok()?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib");
    let archive = library.join("self-contained/libunwind.a");
    archive.is_file().then_some(archive)
}
