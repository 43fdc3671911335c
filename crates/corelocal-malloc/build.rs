//! Links the library so that it depends on libc only.
//!
//! Rust's standard library unwinds through libgcc, which it takes from `libgcc_s.so.1`: a shared object that a
//! program would load only for its malloc. The archive `libgcc_eh.a` has the same code. So this provides a
//! `libgcc_s.so` to the linker that refers to the archive.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of_target =
        |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if of_target("OS") != "linux" || of_target("ENV") != "gnu" {
        return;
    }
    // Threads may be executing the library's code at any time: see `sys/process/nodelete.rs` of the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let out = std::env::var("OUT_DIR").expect("cargo says where");
    std::fs::write(Path::new(&out).join("libgcc_s.so"), "INPUT(-lgcc_eh)\n")
        .expect("a writable OUT_DIR");
    println!("cargo:rustc-link-search=native={out}");
}
