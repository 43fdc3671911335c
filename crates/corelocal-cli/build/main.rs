//! Builds what the command carries: the malloc that it preloads into programs, and the increments in C that tables compare
//! with.

mod baseline;
mod malloc;

fn main() {
    println!("cargo::rerun-if-changed=build");
    baseline::compile();
    malloc::build();
}

/// What cargo says about the target, or an empty text.
fn target(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
