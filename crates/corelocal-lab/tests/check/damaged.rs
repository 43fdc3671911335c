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

/// The head of a member of an archive.
fn member(name: &str, size: usize) -> Vec<u8> {
    format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).into_bytes()
}

/// An archive of so many empty members, which all have one name of so many bytes.
fn archive_of_one_name(members: usize, length: usize) -> Vec<u8> {
    let names = "a".repeat(length) + "/\n";
    let mut archive = b"!<arch>\n".to_vec();
    archive.extend(member("//", names.len()));
    archive.extend(names.bytes());
    if names.len() % 2 == 1 {
        archive.push(b'\n');
    }
    archive.extend(member("/0", 0).repeat(members));
    archive
}

#[test]
fn names_of_members_are_cut() {
    let checked = check::bytes("lib.a", &archive_of_one_name(3, 100_000)).expect("an archive");
    let cut = format!("lib.a({})", "a".repeat(256));
    assert_eq!(checked.skipped, [cut.as_str(); 3]);
    // The name is whole where it is not long.
    let checked = check::bytes("lib.a", &archive_of_one_name(1, 200)).expect("an archive");
    assert_eq!(checked.skipped, [format!("lib.a({})", "a".repeat(200))]);
}

#[test]
fn archives_of_too_many_members_or_names_are_refused() {
    let sentence = refusal("lib.a", &archive_of_one_name((1 << 18) + 1, 1));
    assert!(sentence.starts_with("lib.a has more than 262144 critical"), "{sentence}");
    let sentence = refusal("lib.a", &archive_of_one_name(65, 1 << 20));
    assert!(sentence.starts_with("lib.a is a damaged archive (the names"), "{sentence}");
    assert!(sentence.contains("more than 64 MiB"), "{sentence}");
    check::bytes("lib.a", &archive_of_one_name(64, 1 << 20)).expect("an archive");
}

/// A shared object for x86-64 with so many sections for descriptors, of 32 bytes of nothing or of none.
fn shared_object(filled: usize, empty: usize) -> Vec<u8> {
    const NAMES: &[u8] = b"\0__rseq_cs\0.shstrtab\0";
    const HEAD: usize = 64;
    let contents = HEAD + NAMES.len();
    let table = (contents + 32 * filled).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let put = |file: &mut Vec<u8>, value: usize, size: usize| {
        file.extend(&value.to_le_bytes()[..size]);
    };
    // e_type, e_machine, e_version, e_entry, e_phoff, e_shoff, e_flags, e_ehsize, e_phentsize, e_phnum, e_shentsize,
    // e_shnum, e_shstrndx.
    let count = 2 + filled + empty;
    for (value, size) in [(3, 2), (62, 2), (1, 4), (0, 8), (0, 8), (table, 8), (0, 4), (HEAD, 2)] {
        put(&mut file, value, size);
    }
    for value in [0, 0, 64, count, 1] {
        put(&mut file, value, 2);
    }
    file.extend(NAMES);
    file.resize(table, 0);
    // sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize.
    let mut section = |name, kind, flags, address, offset, size| {
        put(&mut file, name, 4);
        put(&mut file, kind, 4);
        for value in [flags, address, offset, size, 0, 1, 0] {
            put(&mut file, value, 8);
        }
    };
    section(0, 0, 0, 0, 0, 0);
    section(11, 3, 0, 0, HEAD, NAMES.len());
    for nth in 0..filled {
        section(1, 1, 2, 0x1000 + 32 * nth, contents + 32 * nth, 32);
    }
    for _ in 0..empty {
        section(1, 1, 2, 0x1000, contents, 0);
    }
    file
}

/// Each would cost a pass over all relocations of the file.
#[test]
fn linked_files_with_many_sections_of_one_name_are_refused() {
    let checked = check::bytes("t", &shared_object(16, 5000)).expect("a shared object");
    assert_eq!(checked.reports[0].sections.len(), 16);
    let sentence = refusal("t", &shared_object(17, 0));
    assert!(
        sentence.starts_with("t: 17 sections are called __rseq_cs, and up to 16"),
        "{sentence}"
    );
}

/// A section's name, type, flags, `sh_link`, size of an entry, and content.
type ElfSection = (&'static str, u32, u64, u32, u64, Vec<u8>);

/// A shared object for x86-64 of these sections. The address of each is its offset in the file.
fn shared_object_of(sections: &[ElfSection]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(64, 0);
    let (mut names, mut headers) = (vec![0], vec![0; 64]);
    let mut add = |name: &str, kind: u32, flags: u64, link: u32, entry: u64, content: &[u8]| {
        file.resize(file.len().next_multiple_of(32), 0);
        headers.extend((names.len() as u32).to_le_bytes());
        headers.extend(kind.to_le_bytes());
        let (offset, size) = (file.len() as u64, content.len() as u64);
        headers.extend([flags, offset, offset, size].map(u64::to_le_bytes).concat());
        headers.extend([link, 1].map(u32::to_le_bytes).concat());
        headers.extend([1, entry].map(u64::to_le_bytes).concat());
        names.extend(name.bytes().chain([0]));
        file.extend(content);
        names.clone()
    };
    for (name, kind, flags, link, entry, content) in sections {
        add(name, *kind, *flags, *link, *entry, content);
    }
    let mut all = add(".shstrtab", 3, 0, 0, 0, b"");
    // The names come last, so that their section has them all.
    let (at, size) = (headers.len() - 64 + 24, (all.len() as u64).to_le_bytes());
    headers[at + 8..at + 16].copy_from_slice(&size);
    headers[at..at + 8].copy_from_slice(&(file.len() as u64).to_le_bytes());
    file.append(&mut all);
    file.resize(file.len().next_multiple_of(8), 0);
    let (table, count) = (file.len() as u64, (sections.len() + 2) as u16);
    for (at, value) in [(16, 3), (18, 62), (52, 64), (58, 64), (60, count), (62, count - 1)] {
        file[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    file[20] = 1;
    file[40..48].copy_from_slice(&table.to_le_bytes());
    file.extend(headers);
    file
}

/// Descriptors with all their addresses within themselves; the first section of a file of [`shared_object_of`].
fn descriptors(count: u64) -> ElfSection {
    let descriptor = |nth| {
        let at = 64 + 32 * nth;
        [0, at + 8, 0, at + 16].map(u64::to_le_bytes).concat()
    };
    ("__rseq_cs", 1, 2, 0, 0, (0..count).flat_map(descriptor).collect())
}

#[test]
fn names_of_all_places_have_a_limit() {
    const COUNT: u64 = 1 << 15;
    let name = "\u{1}".repeat(4096);
    let symbol = [
        &[0; 24][..],
        &1_u32.to_le_bytes(),
        &[0x12, 0, 1, 0],
        &64_u64.to_le_bytes(),
        &(32 * COUNT).to_le_bytes(),
    ];
    let file = shared_object_of(&[
        descriptors(COUNT),
        (".symtab", 2, 0, 3, 24, symbol.concat()),
        (".strtab", 3, 0, 0, 0, format!("\0{name}\0").into_bytes()),
    ]);
    let checked = check::bytes("t", &file).expect("a shared object");
    let report = &checked.reports[0];
    assert_eq!(report.sections.len(), COUNT as usize);
    let of_sections = report.sections.iter().flat_map(|it| [&it.descriptor, &it.start, &it.abort]);
    let places: Vec<_> = of_sections.chain(report.findings.iter().map(|it| &it.place)).collect();
    let length = |place: &&check::Place| {
        place.elf_section.len() + place.function.as_ref().map_or(0, String::len)
    };
    assert!(places.iter().any(|place| length(place) > 4096));
    let sum: usize = places.iter().map(length).sum();
    assert!(sum < 65 << 20, "{sum}");
    assert!(
        report.notes.iter().any(|note| note.starts_with("names of some")),
        "{:?}",
        report.notes
    );
}

/// Of 8,500 units and 16,000 abbreviations, a table for each unit would take 14 GB.
#[test]
fn debug_information_that_units_share_is_read_once() {
    let mut table = vec![];
    for number in 1_u16..1000 {
        table.extend([number as u8 | 0x80, (number >> 7) as u8 | 0x80, (number >> 14) as u8]);
        table.extend([0x11, 0, 0, 0]);
    }
    table.push(0);
    let unit = |table: u32| [&[9, 0, 0, 0, 4, 0][..], &table.to_le_bytes(), &[8, 129, 0]].concat();
    let file = |tables: &mut dyn Iterator<Item = u32>| {
        shared_object_of(&[
            descriptors(1),
            (".debug_abbrev", 1, 0, 0, 0, table.clone()),
            (".debug_info", 1, 0, 0, 0, tables.flat_map(unit).collect()),
        ])
    };
    let note = |file: &[u8]| {
        let checked = check::bytes("t", file).expect("a shared object");
        let notes = &checked.reports[0].notes;
        notes.iter().any(|note| note.starts_with("source lines are left out"))
    };
    assert!(!note(&file(&mut std::iter::repeat_n(0, 500))));
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
