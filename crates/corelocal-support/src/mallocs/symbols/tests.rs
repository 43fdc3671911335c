//! Tests of `symbols.rs`.

use std::fs;

use super::*;

const NAMES: &[u8] = b"\0mallocs\0malloc\0";
/// Where [`NAMES`] has it.
const MALLOC: u8 = 9;

/// A file with names, with one symbol, and with three section headers: none, of the symbol, and of the names.
fn file(is_64: bool, name: u8, binding: u8, section: u8) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', if is_64 { 2 } else { 1 }, 1, 1]);
    let (head, header, symbol) = if is_64 {
        ([40, 58, 60], [24, 32, 40], [4, 6])
    } else {
        ([32, 46, 48], [16, 20, 24], [12, 14])
    };
    let (size, length) = if is_64 { (64, 24) } else { (40, 16) };
    let mut one = vec![0; length];
    (one[0], one[symbol[0]], one[symbol[1]]) = (name, binding << 4 | 2, section);
    let (of_symbol, of_names) = (64, 64 + length);
    let at = of_names + NAMES.len();
    bytes.extend(one);
    bytes.extend(NAMES);
    (bytes[head[0]], bytes[head[1]], bytes[head[2]]) = (at as u8, size, 3);
    bytes.extend(vec![0; usize::from(size)]);
    for (kind, from, long, link) in [(11, of_symbol, length, 2), (3, of_names, NAMES.len(), 0)] {
        let mut section = vec![0; usize::from(size)];
        section[4] = kind;
        (section[header[0]], section[header[1]]) = (from as u8, long as u8);
        section[header[2]] = link;
        bytes.extend(section);
    }
    bytes
}

fn brings(bytes: &[u8]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, bytes).unwrap();
    defines(&path, "malloc").unwrap()
}

#[test]
fn symbols_of_files() {
    for is_64 in [true, false] {
        // Global and weak ones.
        assert!(brings(&file(is_64, MALLOC, 1, 7)) && brings(&file(is_64, MALLOC, 2, 7)));
        assert!(!brings(&file(is_64, MALLOC, 1, 0)), "it is undefined");
        assert!(!brings(&file(is_64, MALLOC, 0, 7)), "it is local");
        assert!(!brings(&file(is_64, 1, 1, 7)) && !brings(&file(is_64, 200, 1, 7)));
    }
}

#[test]
fn damaged_files_have_an_end() {
    for is_64 in [true, false] {
        let whole = file(is_64, MALLOC, 1, 7);
        (0..whole.len()).for_each(|cut| assert!(!brings(&whole[..cut]), "{cut}"));
        for at in 4..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            let _ = brings(&damaged);
        }
    }
    assert!(!brings(b"#!/bin/sh\n"));
}

#[test]
fn this_program_has_libcs() {
    if cfg!(target_feature = "crt-static") {
        return eprintln!("skipped: this_program_has_libcs: linked without a loader");
    }
    let this = Path::new("/proc/self/exe");
    assert!(!defines(this, "malloc").unwrap());
    let malloc = super::super::of_this_process();
    assert!(defines(&malloc, "malloc").unwrap(), "{malloc:?}");
}
