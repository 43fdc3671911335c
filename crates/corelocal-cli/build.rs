//! Compiles the C that the counter tables compare with, where there is a C compiler. Without one
//! the build goes on and those rows say what is missing: see `src/tables/baseline.rs`.

use std::env;

const SOURCE: &str = "src/tables/baseline.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rustc-check-cfg=cfg(c_baseline)");
    let target = |name| env::var(name).unwrap_or_default();
    if target("CARGO_CFG_TARGET_ARCH") != "x86_64" || target("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    let compiled = cc::Build::new()
        .file(SOURCE)
        .opt_level(2)
        .warnings(true)
        // What matters of them is in the error below.
        .cargo_warnings(false)
        // Laid out like the Rust it stands beside: see `.cargo/config.toml`.
        .flag_if_supported("-Wa,-mbranches-within-32B-boundaries")
        .try_compile("corelocal_baseline");
    match compiled {
        Ok(()) => println!("cargo::rustc-cfg=c_baseline"),
        Err(why) => println!(
            "cargo::warning=the report will lack its rows written in C: {}",
            why.to_string().lines().next().unwrap_or_default()
        ),
    }
}
