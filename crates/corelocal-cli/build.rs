//! Compiles the C that tables compare with, where there is a C compiler. Without one the build goes
//! on and those rows say what is missing: see `src/tables/baseline.rs` and
//! `src/tables/pool/librseq.rs`.

use std::env;
use std::process::Command;

const BASELINE: &str = "src/tables/baseline.c";
const LIBRSEQ: &str = "src/tables/pool/librseq.c";

fn main() {
    println!("cargo::rerun-if-changed={BASELINE}");
    println!("cargo::rerun-if-changed={LIBRSEQ}");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rustc-check-cfg=cfg(c_baseline)");
    println!("cargo::rustc-check-cfg=cfg(librseq)");
    if target("CARGO_CFG_TARGET_ARCH") != "x86_64" || target("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    if compile(BASELINE, "corelocal_baseline", &[]) {
        println!("cargo::rustc-cfg=c_baseline");
    }
    librseq();
}

fn target(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// The row with librseq, which few machines have.
fn librseq() {
    // What pkg-config finds is this machine's, and most likely no static library.
    let foreign = target("HOST") != target("TARGET");
    let is_static = target("CARGO_CFG_TARGET_FEATURE").split(',').any(|f| f == "crt-static");
    if foreign || is_static {
        return;
    }
    let found = Command::new("pkg-config").args(["--cflags", "--libs", "librseq"]).output();
    let Some(found) = found.ok().filter(|found| found.status.success()) else { return };
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    let flags =
        |prefix: &'static str| found.split_whitespace().filter(move |f| f.starts_with(prefix));
    let cflags: Vec<&str> = flags("-I").chain(flags("-D")).collect();
    if !compile(LIBRSEQ, "corelocal_librseq", &cflags) {
        return;
    }
    println!("cargo::rustc-cfg=librseq");
    for folder in flags("-L") {
        println!("cargo::rustc-link-search=native={}", &folder[2..]);
    }
    for library in flags("-l") {
        println!("cargo::rustc-link-lib={}", &library[2..]);
    }
}

fn compile(source: &str, library: &str, cflags: &[&str]) -> bool {
    let compiled = cc::Build::new()
        .file(source)
        .opt_level(2)
        .warnings(true)
        // What matters of them is in the error below.
        .cargo_warnings(false)
        // Laid out like the Rust it stands beside: see `.cargo/config.toml`.
        .flag_if_supported("-Wa,-mbranches-within-32B-boundaries")
        .flags(cflags)
        .try_compile(library);
    if let Err(why) = &compiled {
        println!(
            "cargo::warning=the report will lack its rows of {source}: {}",
            why.to_string().lines().next().unwrap_or_default()
        );
    }
    compiled.is_ok()
}
