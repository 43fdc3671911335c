//! The library once more, for its tests: cargo builds examples before it runs tests, but not a library that
//! no Rust program can link.

#[path = "../src/lib.rs"]
mod library;
