//! Compiles the C and C++ that tables compare with, where there is a compiler and the library that it
//! is for. Without them the build goes on and those rows say what is missing: see
//! `src/tables/baseline.rs`, `src/tables/pool/librseq.rs`, `src/tables/locks/foreign.rs` and `src/tables/rcu/urcu.rs`.

use std::env;
use std::process::Command;

const BASELINE: &str = "src/tables/baseline.c";
const LIBRSEQ: &str = "src/tables/pool/librseq.c";
const NSYNC: &str = "src/tables/locks/nsync.c";
const ABSL: &str = "src/tables/locks/absl.cc";
const URCU: &str = "src/tables/rcu/urcu.c";
/// Its flavours: the library's name, as pkg-config knows it, and the function names' part.
const FLAVOURS: [(&str, &str); 3] =
    [("liburcu-memb", "memb"), ("liburcu-bp", "bp"), ("liburcu-qsbr", "qsbr")];

fn main() {
    for source in [BASELINE, LIBRSEQ, NSYNC, ABSL, URCU] {
        println!("cargo::rerun-if-changed={source}");
    }
    // Where pkg-config and the compiler look.
    for name in ["PKG_CONFIG_PATH", "PKG_CONFIG_SYSROOT_DIR", "CPATH", "LIBRARY_PATH"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for cfg in ["c_baseline", "librseq", "nsync", "absl", "urcu"] {
        println!("cargo::rustc-check-cfg=cfg({cfg})");
    }
    if target("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    let is_x86 = target("CARGO_CFG_TARGET_ARCH") == "x86_64";
    if is_x86 && compile(BASELINE, "corelocal_baseline", &[]) {
        println!("cargo::rustc-cfg=c_baseline");
    }
    // What is installed is this machine's, and most likely no static library.
    let foreign = target("HOST") != target("TARGET");
    let is_static = target("CARGO_CFG_TARGET_FEATURE").split(',').any(|f| f == "crt-static");
    if foreign || is_static {
        return;
    }
    if let Some(found) = Found::by_pkg_config("librseq").filter(|_| is_x86) {
        found.offer("librseq", LIBRSEQ);
    }
    if let Some(found) = Found::by_pkg_config("nsync").or_else(Found::nsync) {
        found.offer("nsync", NSYNC);
    }
    if let Some(found) = Found::by_pkg_config("absl_synchronization") {
        found.offer("absl", ABSL);
    }
    offer_urcu();
}

fn target(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// An installed library: what the compiler and the linker are to be told, as pkg-config says it.
struct Found(String);

impl Found {
    fn by_pkg_config(name: &str) -> Option<Self> {
        let found = Command::new("pkg-config").args(["--cflags", "--libs", name]).output().ok()?;
        let flags = String::from_utf8_lossy(&found.stdout).into_owned();
        found.status.success().then_some(Self(flags))
    }

    /// Debian packs it without a file for pkg-config: it is there if its header is.
    fn nsync() -> Option<Self> {
        let mut compiler = cc::Build::new().try_get_compiler().ok()?.to_command();
        let found = compiler.args(["-E", "-include", "nsync.h", "-x", "c", "/dev/null"]).output();
        found.ok()?.status.success().then(|| Self("-lnsync".to_owned()))
    }

    fn flags(&self, prefix: &'static str) -> impl Iterator<Item = &str> {
        self.0.split_whitespace().filter(move |flag| flag.starts_with(prefix))
    }

    /// Compiles the rows of this library, if that is possible, and sets `cfg`.
    fn offer(&self, cfg: &str, source: &str) {
        let cflags: Vec<&str> = self.flags("-I").chain(self.flags("-D")).collect();
        if !compile(source, &format!("corelocal_{cfg}"), &cflags) {
            return;
        }
        println!("cargo::rustc-cfg={cfg}");
        self.link();
    }

    fn link(&self) {
        for folder in self.flags("-L") {
            println!("cargo::rustc-link-search=native={}", &folder[2..]);
        }
        for library in self.flags("-l") {
            println!("cargo::rustc-link-lib={}", &library[2..]);
        }
    }
}

/// All flavours or none.
fn offer_urcu() {
    let found = FLAVOURS.map(|(name, part)| Some((Found::by_pkg_config(name)?, part)));
    let is_compiled = |of: &Option<(Found, &str)>| {
        let Some((found, part)) = of else { return false };
        let define = format!("-DFLAVOUR_{}", part.to_uppercase());
        let cflags: Vec<&str> = found.flags("-I").chain([&*define]).collect();
        compile(URCU, &format!("corelocal_urcu_{part}"), &cflags)
    };
    if found.iter().all(is_compiled) {
        println!("cargo::rustc-cfg=urcu");
        found.iter().flatten().for_each(|(found, _)| found.link());
    }
}

fn compile(source: &str, library: &str, cflags: &[&str]) -> bool {
    let mut build = cc::Build::new();
    if source.ends_with(".cc") {
        build.cpp(true).std("c++17");
    }
    let compiled = build
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
