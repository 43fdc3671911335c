//! Files that are none, or no longer: an answer always, a panic never.

use std::path::Path;

use corelocal_lab::check;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{As, SOUND, build, skip};

fn refusal(name: &str, data: &[u8]) -> String {
    check::bytes(name, data).expect_err("no ELF file").to_string()
}

#[test]
fn what_is_no_elf_file_is_named_with_what_to_do() {
    for (data, expected) in [
        (&b""[..], "t: not an ELF file; name an executable"),
        (b"#!/bin/sh\n", "t: not an ELF file; name an executable"),
        (b"!<thin>\n", "t is a thin archive, which holds no code; name the object files"),
        (b"!<arch>\ngarbage", "t is a damaged archive ("),
        (
            b"\x7fELF\x01\x01\x01",
            "t: a 32-bit ELF file, and only 64-bit ones are checked; build it",
        ),
        (b"\x7fELF\x02\x01\x01", "t: a damaged ELF file ("),
    ] {
        let sentence = refusal("t", data);
        assert!(sentence.starts_with(expected), "{sentence:?} lacks {expected:?}");
    }
    let sentence = check::file(Path::new("/nowhere")).expect_err("no file").to_string();
    assert!(sentence.starts_with("cannot read /nowhere: "), "{sentence}");
    let sentence = check::file(Path::new("/")).expect_err("a folder").to_string();
    assert_eq!(sentence, "/ is a folder; name a file in it");
}

#[test]
fn an_archive_tells_which_members_it_cannot_look_into() {
    let mut archive = b"!<arch>\n".to_vec();
    archive.extend(
        format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "readme/", 0, 0, 0, 644, 4).bytes(),
    );
    archive.extend(b"text");
    let checked = check::bytes("lib.a", &archive).expect("an archive");
    assert_eq!(checked.skipped, ["lib.a(readme)"]);
    assert!(checked.reports.is_empty());
}

/// Cuts off the end and overwrites bytes, anywhere.
#[test]
fn damaged_files_are_answered_without_a_panic() {
    let test = "damaged_files_are_answered_without_a_panic";
    for kind in [As::Object, As::SharedForEver, As::Archive] {
        let data = match build(&SOUND.assembly(), kind) {
            Ok(built) => std::fs::read(&built.path).expect("a file"),
            Err(reason) => return skip(test, &reason),
        };
        // As many as take about a second: each is parsed whole.
        let mut runner =
            TestRunner::new(Config { cases: 2000, failure_persistence: None, ..Config::default() });
        let changes = prop::collection::vec((0..data.len(), any::<u8>()), 1..8);
        let length = prop_oneof![3 => Just(data.len()), 1 => 0..data.len()];
        let outcome = runner.run(&(changes, length), |(changes, length)| {
            let mut data = data.clone();
            for (at, value) in changes {
                data[at] = value;
            }
            data.truncate(length);
            if let Ok(checked) = check::bytes("damaged", &data) {
                // Also what is derived from it only when printed.
                let places = checked.reports.iter().flat_map(|report| &report.findings);
                prop_assert!(
                    places.map(|finding| finding.place.to_string()).all(|s| !s.is_empty())
                );
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}
