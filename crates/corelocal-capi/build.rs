//! Links the shared library as C libraries are linked: with a soname, and so that it depends on libc only.
//!
//! Rust's standard library unwinds through libgcc, which it takes from `libgcc_s.so.1`: a shared object that a C program
//! would load only for this. The archive `libgcc_eh.a` has the same code. So this provides a `libgcc_s.so` to the linker
//! that refers to the archive.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of_target =
        |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if of_target("OS") != "linux" {
        return;
    }
    let version = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo says which");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcorelocal.so.{version}");
    if of_target("ENV") != "gnu" {
        return;
    }
    let out = std::env::var("OUT_DIR").expect("cargo says where");
    std::fs::write(Path::new(&out).join("libgcc_s.so"), "INPUT(-lgcc_eh)\n")
        .expect("a writable OUT_DIR");
    println!("cargo:rustc-link-search=native={out}");
}
