//! Compiles `baseline.c`, where there is a C compiler for the target. Without one the build goes on, and the rows of C say
//! what is missing: see `src/tables/baseline.rs`.

const SOURCE: &str = "src/tables/baseline.c";

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rustc-check-cfg=cfg(c_baseline)");
    let is_for_us =
        target("CARGO_CFG_TARGET_OS") == "linux" && target("CARGO_CFG_TARGET_ARCH") == "x86_64";
    if !is_for_us {
        return;
    }
    let compiled = cc::Build::new()
        .file(SOURCE)
        .opt_level(2)
        .warnings(true)
        // The part that matters is in the warning below.
        .cargo_warnings(false)
        // Laid out as the Rust code beside it: see `.cargo/config.toml`.
        .flag_if_supported("-Wa,-mbranches-within-32B-boundaries")
        .try_compile("corelocal_baseline");
    match compiled {
        Ok(()) => println!("cargo::rustc-cfg=c_baseline"),
        Err(why) => {
            let why = why.to_string();
            let line = why.lines().next().unwrap_or_default();
            println!("cargo::warning=the report will lack its rows of {SOURCE}: {line}");
        }
    }
}

/// Returns what cargo says about the target, or an empty text.
fn target(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
