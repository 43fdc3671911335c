//! The operators of C++, by a program and a plugin in C++ that are compiled here.

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

/// A plugin in C++ of a program in C, like extensions of Python: its C++ library is not visible to other files.
#[test]
fn a_plugin_with_a_library_of_its_own() {
    const TEST: &str = "a_plugin_with_a_library_of_its_own";
    let host = compile::compiled(
        TEST,
        &["gcc", "cc"],
        "host.c",
        include_str!("host.c"),
        &["-Wl,--no-as-needed", "-ldl"],
    );
    let Some((_folder, host)) = host else { return };
    let plugin = compile::compiled(
        TEST,
        &["g++", "c++"],
        "plugin.cpp",
        include_str!("plugin.cpp"),
        &["-std=c++17", "-shared", "-fPIC"],
    );
    let Some((_other_folder, plugin)) = plugin else { return };
    for malloc in all(TEST) {
        let mut command = malloc.command(&host);
        command.arg(&plugin);
        runs_well(&malloc, command);
    }
}
