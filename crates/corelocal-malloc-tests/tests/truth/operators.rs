//! The operators of C++, by a program in C++ that is compiled here.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::compile::{self, runs_well};
use crate::run::{Limit, all, limited};

fn compiled(test: &str, options: &[&str]) -> Option<(TempDir, PathBuf)> {
    let options = [&["-std=c++17"], options].concat();
    compile::compiled(
        test,
        &["g++", "c++"],
        "operators.cpp",
        include_str!("operators.cpp"),
        &options,
    )
}

#[test]
fn every_shape() {
    const TEST: &str = "every_shape";
    let Some((_folder, program)) = compiled(TEST, &[]) else { return };
    for malloc in all(TEST) {
        runs_well(&malloc, malloc.command(&program));
    }
}

/// A handler that gives back a reserve, and one that throws when there is none.
#[test]
fn a_handler_finds_memory() {
    const TEST: &str = "a_handler_finds_memory";
    let Some((_folder, program)) = compiled(TEST, &[]) else { return };
    for malloc in all(TEST) {
        let mut command = malloc.command(&program);
        command.arg("limited");
        limited(&mut command, Limit::AddressSpace, 160 << 20);
        runs_well(&malloc, command);
    }
}

/// A program that replaces the plain operators has replaced them all.
#[test]
fn operators_of_the_programs_own() {
    const TEST: &str = "operators_of_the_programs_own";
    let Some((_folder, program)) = compiled(TEST, &["-DOVERRIDES"]) else { return };
    for malloc in all(TEST) {
        runs_well(&malloc, malloc.command(&program));
    }
}
