//! The library again, as an example: cargo builds examples before it runs tests, but does not build a library that no
//! Rust program links.

#[path = "../src/lib.rs"]
mod library;
